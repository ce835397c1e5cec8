//! The consequences of dead or silent members of this node's group, and the remedies.

use stentor_support::live::and;

use super::majority::Shape;

/// This process's view of its group.
pub(super) struct Loss<'a> {
    pub(super) group: &'a str,
    /// Name of this process.
    pub(super) me: &'a str,
    /// `true` if this process has its group's state.
    pub(super) remembers: bool,
    /// The other members with their state, and with their pids on this host if these are known.
    pub(super) others: Vec<(&'a str, Shape, Option<i32>)>,
    pub(super) needed: usize,
    /// `true` if a process that is not seen must have ended, because all processes are on one host. Otherwise it may be
    /// only cut off.
    pub(super) certain: bool,
}

impl<'a> Loss<'a> {
    fn those(&self, is: impl Fn(Shape) -> bool) -> Vec<&'a str> {
        self.others.iter().filter(|(_, shape, _)| is(*shape)).map(|(name, ..)| *name).collect()
    }

    /// Returns the members that have the group's state or may have it in a moment, including silent ones. All other
    /// members are without the state or are not seen.
    fn with_memory(&self) -> Vec<&'a str> {
        let may = |shape| matches!(shape, Shape::Works | Shape::Starting | Shape::Silent { remembers: true });
        let others = self.those(may);
        self.remembers.then_some(self.me).into_iter().chain(others).collect()
    }

    /// Returns how many members work, including this one if it has its group's state.
    pub(super) fn working(&self) -> usize {
        usize::from(self.remembers) + self.those(|shape| shape == Shape::Works).len()
    }

    /// Returns the remedy after which the group delivers again, in clauses that follow the description of the loss.
    pub(super) fn remedy(&self) -> String {
        let (gone, without) = (self.those(|shape| shape == Shape::Gone), self.those(|shape| shape == Shape::Without));
        let (group, memory) = (self.group, self.with_memory());
        let mut clauses = Vec::new();
        if !self.remembers {
            let too = match without.as_slice() {
                [] => String::new(),
                [one] => format!(", and so does {one}"),
                all => format!(", and so do {}", and(all)),
            };
            clauses.push(format!("this process waits for the group's state{too}"));
        } else if !without.is_empty() {
            let wait = if without.len() == 1 { "waits" } else { "wait" };
            clauses.push(format!("{} {wait} for the group's state", and(&without)));
        }
        let starting = self.those(|shape| shape == Shape::Starting);
        let has = if starting.len() == 1 { "has" } else { "have" };
        clauses.extend((!starting.is_empty()).then(|| format!("{} {has} just started", and(&starting))));
        clauses.extend(self.silent());
        let (start, them) = (and(&gone), if gone.len() == 1 { "it" } else { "them" });
        if memory.len() >= self.needed {
            clauses.extend((!gone.is_empty()).then(|| format!("start {start} again with the same command")));
            return clauses.join("; ");
        }
        let begins = if memory.is_empty() {
            format!("{group} begins from nothing when all its members are there")
        } else {
            format!(
                "stop {} and start {} anew: then {group} begins from nothing, when its clients and members of other groups, \
                 which remember it, are started anew, too; or `stentor group reset --group {group}` goes on with the state \
                 that is left",
                and(&memory),
                if memory.len() == 1 { "it" } else { "them" },
            )
        };
        let lost = "fewer than a majority have the group's state";
        clauses.push(match (gone.is_empty(), self.certain) {
            (true, _) => format!("{lost}: {begins}"),
            (false, true) => {
                let wait = if gone.len() == 1 { "waits" } else { "wait" };
                format!("{lost}: start {start}, which then {wait} for it; {begins}")
            }
            (false, false) => format!(
                "if {start} ended, and {} not only cut off, {lost}: start {them}; {begins}",
                if gone.len() == 1 { "is" } else { "are" }
            ),
        });
        clauses.join("; ")
    }

    /// Returns a clause about members that run but are silent, with the remedy.
    fn silent(&self) -> Option<String> {
        let silent = self.those(|shape| matches!(shape, Shape::Silent { .. }));
        let is_silent = |(_, shape, pid): &(&str, Shape, Option<i32>)| match shape {
            Shape::Silent { .. } => Some(*pid),
            _ => None,
        };
        let pids: Vec<_> = self.others.iter().filter_map(is_silent).collect();
        let verb = if silent.len() == 1 { "is" } else { "are" };
        (!silent.is_empty()).then(|| format!("{} {verb} there and silent: {}", and(&silent), stopped(&pids)))
    }
}

/// Returns why processes may be silent, and the remedy. A pid is `None` if it is not known here.
pub(super) fn stopped(pids: &[Option<i32>]) -> String {
    let known: Option<Vec<_>> = pids.iter().map(|pid| pid.filter(|pid| *pid > 0).map(|pid| pid.to_string())).collect();
    match known {
        Some(pids) => format!("stopped (`kill -CONT {}`) or very busy", pids.join(" ")),
        None => "stopped (`ps` on its host, `kill -CONT`) or very busy".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENT: Shape = Shape::Silent { remembers: true };

    fn remedy(remembers: bool, shapes: [Shape; 2], certain: bool) -> String {
        let others = vec![("g1.2", shapes[0], Some(12)), ("g1.3", shapes[1], Some(13))];
        Loss { group: "g1", me: "g1.1", remembers, others, needed: 2, certain }.remedy()
    }

    #[test]
    fn lost_memory_of_a_majority_is_reported_with_the_remedy() {
        let anew = "stop g1.1 and start it anew: then g1 begins from nothing, when its clients and members of other groups, \
                    which remember it, are started anew, too; or `stentor group reset --group g1` goes on with the state \
                    that is left";
        let gone = remedy(true, [Shape::Gone; 2], true);
        let lost = "fewer than a majority have the group's state";
        assert_eq!(gone, format!("{lost}: start g1.2 and g1.3, which then wait for it; {anew}"));
        let cut = remedy(true, [Shape::Gone; 2], false);
        assert_eq!(cut, format!("if g1.2 and g1.3 ended, and are not only cut off, {lost}: start them; {anew}"));
        let back = remedy(true, [Shape::Without, Shape::Gone], true);
        let expected = format!("g1.2 waits for the group's state; {lost}: start g1.3, which then waits for it; {anew}");
        assert_eq!(back, expected);
        let all = remedy(true, [Shape::Without; 2], true);
        assert_eq!(all, format!("g1.2 and g1.3 wait for the group's state; {lost}: {anew}"));
    }

    #[test]
    fn remedy_for_silent_members_is_to_continue_them() {
        let silent = remedy(true, [SILENT; 2], true);
        assert_eq!(silent, "g1.2 and g1.3 are there and silent: stopped (`kill -CONT 12 13`) or very busy");
        let mixed = remedy(true, [SILENT, Shape::Gone], true);
        let wake = "g1.2 is there and silent: stopped (`kill -CONT 12`) or very busy";
        assert_eq!(mixed, format!("{wake}; start g1.3 again with the same command"));
        // The member fell silent before it had joined, so it has no state that helps.
        let forgot = remedy(true, [Shape::Silent { remembers: false }, Shape::Gone], true);
        assert!(forgot.starts_with(wake) && forgot.contains("begins from nothing"), "{forgot}");
    }

    #[test]
    fn member_that_may_be_joining_is_waited_for() {
        let young = remedy(true, [Shape::Gone, Shape::Starting], true);
        assert_eq!(young, "g1.3 has just started; start g1.2 again with the same command");
    }

    #[test]
    fn process_without_state_does_not_blame_others_without_state() {
        let young = remedy(false, [Shape::Gone, Shape::Without], true);
        assert_eq!(
            young,
            "this process waits for the group's state, and so does g1.3; fewer than a majority have the group's state: start g1.2, \
             which then waits for it; g1 begins from nothing when all its members are there"
        );
    }
}
