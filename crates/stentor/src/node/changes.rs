//! The log lines about a node's group: its leader, its beginning, and the members that it lacks.
//!
//! # Invariants
//! - No line is repeated while its cause is unchanged.
//! - A lack of members is logged only after it has lasted, so that members which start one after the other cause no
//!   warning.
//! - A node with memory considers another member to be without memory only if it has seen that member disappear, and
//!   only while the member shows no memory. The second condition alone is not enough: a member with memory may not show
//!   it just after its start, or while its clock is wrong and it does not stand for election.

use std::time::Duration;

use log::Level;

use crate::runtime::HistoryNotice;

/// Shortest time for which a group must lack the same members before the lack is logged.
const LASTS: Duration = Duration::from_secs(2);

/// The condition of another member of the group, as far as the node can see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// The process is not connected.
    Gone,
    /// The process is connected, and has or shows no memory of the group.
    Without,
    /// The process is connected, and may have memory of the group.
    There,
}

/// The node's view of its group.
#[derive(Clone, Debug)]
pub(super) struct Sight<'a> {
    /// The node's name.
    pub(super) me: &'a str,
    pub(super) group: &'a str,
    /// Number of members that form a majority.
    pub(super) majority: usize,
    /// `true` if the node has no memory of the group.
    pub(super) joining: bool,
    pub(super) epoch: u64,
    pub(super) leader: &'a str,
    pub(super) leads: bool,
    pub(super) others: Vec<(&'a str, Shape)>,
    /// A reason, other than missing members, that prevents the group from beginning, with the remedy.
    pub(super) hindrance: Option<String>,
}

/// The state that was logged last.
#[derive(Debug)]
pub(super) struct Changes {
    /// Time for which a lack must last before it is logged.
    lasts: Duration,
    /// `true` if the log line about how the node obtained its first state was written.
    began: bool,
    /// The logged epoch, and whether the node leads in it.
    role: Option<(u64, bool)>,
    /// For each other member: `true` if this node has seen the member disappear since this node has had memory.
    returned: Vec<bool>,
    /// The group's present lack, the time at which it began, and `true` if it was logged.
    lack: Option<(String, Duration, bool)>,
}

impl Changes {
    /// Creates the state of a node in whose group a leader may be silent for at most `silence`.
    pub(super) fn new(silence: Duration) -> Self {
        // A member with memory shows it within that time.
        let lasts = LASTS.max(2 * silence);
        Changes { lasts, began: false, role: None, returned: Vec::new(), lack: None }
    }

    /// Compares the group with the logged state, and returns the lines to log. `first` describes how the node obtained
    /// its first state.
    pub(super) fn look(
        &mut self,
        now: Duration,
        mut sight: Sight<'_>,
        first: impl FnOnce() -> HistoryNotice,
    ) -> Vec<(Level, String)> {
        let mut lines = Vec::new();
        self.judge(&mut sight);
        if !sight.joining && !std::mem::replace(&mut self.began, true) {
            // The lack that existed while the node had no memory has ended.
            self.lack = None;
            let first = first();
            lines.push((first.level(), first.text));
        }
        lines.extend(self.look_at_role(&sight));
        lines.extend(self.look_at_lack(now, &sight));
        lines
    }

    /// Treats members that show no memory, but have not disappeared, as members with memory.
    fn judge(&mut self, sight: &mut Sight<'_>) {
        self.returned.resize(sight.others.len(), false);
        if sight.joining {
            return;
        }
        for (returned, (_, shape)) in self.returned.iter_mut().zip(&mut sight.others) {
            match shape {
                Shape::Gone => *returned = true,
                Shape::Without if !*returned => *shape = Shape::There,
                Shape::There | Shape::Without => {}
            }
        }
    }

    fn look_at_role(&mut self, sight: &Sight<'_>) -> Option<(Level, String)> {
        let Sight { me, group, epoch, leader, leads, .. } = *sight;
        // In an epoch of its own, a member does not lead until it has recovered the state, which takes a short time.
        let is_settled = leads || leader != me;
        if sight.joining || !is_settled || self.role == Some((epoch, leads)) {
            return None;
        }
        self.role = Some((epoch, leads));
        let text = if leads {
            format!("leads {group}, in epoch {epoch}")
        } else {
            format!("follows {leader}, which leads {group} in epoch {epoch}")
        };
        Some((Level::Info, text))
    }

    fn look_at_lack(&mut self, now: Duration, sight: &Sight<'_>) -> Option<(Level, String)> {
        let Some(text) = lack(sight) else {
            let (_, _, told) = self.lack.take()?;
            let works = told && !sight.joining;
            return works.then(|| (Level::Info, format!("{} has a majority again", sight.group)));
        };
        match &mut self.lack {
            Some((known, since, told)) if *known == text => {
                let due = !*told && now.saturating_sub(*since) >= self.lasts;
                *told |= due;
                due.then_some((Level::Warn, text))
            }
            lack => {
                *lack = Some((text, now, false));
                None
            }
        }
    }
}

/// Describes what the group lacks, with the remedy. Returns `None` if the node sees no lack.
fn lack(sight: &Sight<'_>) -> Option<String> {
    let those = |shape: Shape| -> Vec<&str> {
        sight.others.iter().filter(|(_, is)| *is == shape).map(|(name, _)| *name).collect()
    };
    let (gone, without, there) = (those(Shape::Gone), those(Shape::Without), those(Shape::There));
    if sight.joining { unbegun(sight, &gone, &without, &there) } else { majority_lost(sight, &gone, &without, &there) }
}

/// Describes what a group lacks, if this node has no memory of the group.
fn unbegun(sight: &Sight<'_>, gone: &[&str], without: &[&str], there: &[&str]) -> Option<String> {
    let Sight { group, majority, hindrance, .. } = sight;
    let also = hindrance.as_ref().map_or(String::new(), |why| format!("; {why}"));
    if !gone.is_empty() {
        return Some(format!(
            "waits for members {}: {group} begins when all its members are there; if it has begun, it takes this one in when {majority} \
             members with its state are there{also}",
            gone.join(", ")
        ));
    }
    if there.len() >= *majority {
        return None;
    }
    if there.is_empty() {
        let why = hindrance.as_ref()?;
        return Some(format!("all members of {group} have no memory of it, and it does not begin: {why}"));
    }
    let (forgot, size) = (without.len() + 1, sight.others.len() + 1);
    Some(format!(
        "{forgot} of {size} members of {group} have no memory of it, so nobody is taken in: stop {} and start it anew, then {group} \
         begins from nothing; or `stentor group reset --group {group}` goes on with the state that is left",
        there.join(", ")
    ))
}

/// Describes what a group lacks, if this node has the group's state.
fn majority_lost(sight: &Sight<'_>, gone: &[&str], without: &[&str], there: &[&str]) -> Option<String> {
    let Sight { me, group, majority, .. } = sight;
    let (working, size) = (there.len() + 1, sight.others.len() + 1);
    if working >= *majority {
        return None;
    }
    let memory: Vec<_> = there.iter().chain([me]).copied().collect();
    let start = match gone {
        [] => "fewer than a majority have the group's state".to_owned(),
        gone => format!(
            "start {0} again; if {0} ended, and {1} not only cut off, fewer than a majority have the group's state",
            gone.join(", "),
            if gone.len() == 1 { "is" } else { "are" }
        ),
    };
    let wait = if without.is_empty() { String::new() } else { format!("{} without memory; ", without.join(", ")) };
    Some(format!(
        "{group} has lost its majority: {working} of its {size} members have its state and are there, {majority} have to, and nothing \
         is delivered; {wait}{start}: stop {} and start it anew: then {group} begins from nothing, when its clients and members of other \
         groups, which remember it, are started anew, too; or `stentor group reset --group {group}` goes on with the state that is \
         left; `stentor leader show` says how all of them stand",
        memory.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(joining: bool, b: Shape, c: Shape) -> Sight<'static> {
        let others = vec![("b", b), ("c", c)];
        let (me, group, leader) = ("a", "g1", "b");
        Sight { me, group, majority: 2, joining, epoch: 1, leader, leads: false, others, hindrance: None }
    }

    /// Returns the lines that are logged while the group stays in this condition.
    fn lasts(changes: &mut Changes, sight: &Sight<'_>) -> Vec<String> {
        let first = || HistoryNotice { text: "first".to_owned(), is_warning: false };
        let times = [0, 1, 3, 4, 9].map(Duration::from_secs);
        times.iter().flat_map(|now| changes.look(*now, sight.clone(), first)).map(|(_, text)| text).collect()
    }

    #[test]
    fn a_group_that_waits_for_members_names_them_once() {
        let mut changes = Changes::new(Duration::ZERO);
        let told = lasts(&mut changes, &sight(true, Shape::Gone, Shape::Gone));
        assert!(told.len() == 1 && told[0].starts_with("waits for members b, c: g1 begins when all"), "{told:?}");
        let told = lasts(&mut changes, &sight(true, Shape::Without, Shape::Gone));
        assert!(told.len() == 1 && told[0].starts_with("waits for members c: "), "{told:?}");
        let told = lasts(&mut changes, &sight(false, Shape::There, Shape::There));
        assert_eq!(told, ["first", "follows b, which leads g1 in epoch 1"]);
    }

    #[test]
    fn a_short_lack_is_not_logged() {
        let first = || HistoryNotice { text: "first".to_owned(), is_warning: false };
        let mut changes = Changes::new(Duration::ZERO);
        for (at, shape) in [(0, Shape::Gone), (1, Shape::Without), (2, Shape::Gone), (3, Shape::Without)] {
            let told = changes.look(Duration::from_secs(at), sight(true, shape, Shape::Gone), first);
            assert!(told.is_empty(), "{told:?}");
        }
    }

    #[test]
    fn a_majority_without_memory_is_logged_with_the_remedy_by_both_sides() {
        let told = lasts(&mut Changes::new(Duration::ZERO), &sight(true, Shape::Without, Shape::There));
        let expected = "2 of 3 members of g1 have no memory of it, so nobody is taken in: stop c and start it anew, then g1 begins from nothing; \
                        or `stentor group reset --group g1` goes on with the state that is left";
        assert_eq!(told, [expected]);
        let mut changes = Changes::new(Duration::ZERO);
        let told = lasts(&mut changes, &sight(false, Shape::Without, Shape::Without));
        assert_eq!(told.len(), 2, "no member has disappeared: {told:?}");
        let first = || HistoryNotice { text: String::new(), is_warning: false };
        assert!(changes.look(Duration::from_secs(10), sight(false, Shape::Gone, Shape::Gone), first).is_empty());
        let told = lasts(&mut changes, &sight(false, Shape::Without, Shape::Without));
        let last = told.last().expect("the loss of the majority is reported");
        assert!(told.len() == 1 && last.starts_with("g1 has lost its majority: 1 of its 3 members"), "{told:?}");
        assert!(last.contains("b, c without memory; fewer") && last.contains("stop a and start it anew"), "{last}");
        assert!(last.contains("`stentor group reset --group g1`") && last.contains("`stentor leader show`"), "{last}");
        let told = lasts(&mut changes, &sight(false, Shape::There, Shape::Without));
        assert_eq!(told, ["g1 has a majority again"]);
        let told = lasts(&mut changes, &sight(false, Shape::Gone, Shape::Gone));
        assert!(told[0].contains("start b, c again; if b, c ended"), "{told:?}");
    }

    #[test]
    fn each_change_of_the_leader_is_logged_once() {
        let mut changes = Changes::new(Duration::ZERO);
        let all_there = sight(false, Shape::There, Shape::There);
        lasts(&mut changes, &all_there);
        let begins = Sight { epoch: 2, leader: "a", ..all_there.clone() };
        assert!(lasts(&mut changes, &begins).is_empty(), "it does not lead in its own epoch yet");
        assert_eq!(lasts(&mut changes, &Sight { leads: true, ..begins }), ["leads g1, in epoch 2"]);
        let told = lasts(&mut changes, &Sight { epoch: 3, leader: "c", ..all_there });
        assert_eq!(told, ["follows c, which leads g1 in epoch 3"]);
    }

    #[test]
    fn the_hindrance_of_a_group_without_memory_is_logged() {
        let hindrance = Some("c0 remembers incarnation 1 of it; stop c0".to_owned());
        let told = lasts(
            &mut Changes::new(Duration::ZERO),
            &Sight { hindrance, ..sight(true, Shape::Without, Shape::Without) },
        );
        assert_eq!(
            told,
            [
                "all members of g1 have no memory of it, and it does not begin: c0 remembers incarnation 1 of it; stop c0"
            ]
        );
        assert!(lasts(&mut Changes::new(Duration::ZERO), &sight(true, Shape::Without, Shape::Without)).is_empty());
    }
}
