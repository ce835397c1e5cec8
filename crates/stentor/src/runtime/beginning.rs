//! The texts about a group that starts, or cannot start. A node's log and `stentor node` share them.

use stentor_fabric::ProcessId;
use stentor_multicast::{Hindrance, Incarnation, Replica};

use super::cluster::ClusterRuntime;

/// A message about the start of a group's history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryNotice {
    /// Text of the message.
    pub text: String,
    /// `true` if an operator has to act, for example because a group was reset, or because it began from nothing
    /// although its members know of an earlier incarnation.
    pub is_warning: bool,
}

impl HistoryNotice {
    /// Returns the level at which the message is logged.
    #[must_use]
    pub fn level(&self) -> log::Level {
        if self.is_warning { log::Level::Warn } else { log::Level::Info }
    }

    pub(super) fn info(text: String) -> Self {
        HistoryNotice { text, is_warning: false }
    }

    pub(super) fn warning(text: String) -> Self {
        HistoryNotice { text, is_warning: true }
    }
}

/// Describes how a member obtained its first state.
#[must_use]
pub fn first_state(replica: &Replica, plan: &ClusterRuntime) -> HistoryNotice {
    let (group, incarnation) = (plan.group_name(replica.group()), replica.incarnation());
    // A group that was just founded or reset is in the first ballot of its incarnation. A member that joins later
    // receives deliveries or is in a later ballot.
    if replica.delivered() > 0 || replica.ballot().number() != 1 {
        let delivered = replica.delivered();
        let text = format!("taken in by its group, which has delivered {delivered}, in incarnation {incarnation}");
        return HistoryNotice::info(text);
    }
    if replica.was_remembered() {
        let text = format!(
            "an operator reset {group}: it begins from nothing, in incarnation {incarnation}, and its deliveries are numbered from 1; what \
             was under way to it is lost; start its clients again"
        );
        return HistoryNotice::warning(text);
    }
    let text = format!(
        "{group} begins from nothing: its deliveries are numbered from 1; incarnation {incarnation}: no process that was reached \
         remembers another"
    );
    // A number above the first shows that the members know of an earlier incarnation.
    HistoryNotice { text, is_warning: incarnation.number > Incarnation::FIRST.number }
}

/// Describes in a few words why a group cannot start.
pub fn told_hindrance<'a>(hindrance: &Hindrance, name: impl Fn(ProcessId) -> &'a str) -> String {
    match hindrance {
        Hindrance::Remembered { by, incarnation } => format!("{} remembers incarnation {incarnation} of it", name(*by)),
        Hindrance::Missing(process) => format!("{} was not heard", name(*process)),
        Hindrance::Operator => "total_loss = \"refuse\" leaves it to the operator".to_owned(),
    }
}

/// Returns the reason why a group cannot start, unless that is a missing member. Missing members are reported
/// separately.
#[must_use]
pub fn hindrance_beside_missing(replica: &Replica) -> Option<Hindrance> {
    replica.hindrance().filter(|hindrance| !matches!(hindrance, Hindrance::Missing(_)))
}

/// Returns the operator's remedy for a hindrance. Returns `None` for a missing member, which is reported separately.
pub fn hindrance_remedy<'a>(hindrance: &Hindrance, group: &str, name: impl Fn(ProcessId) -> &'a str) -> Option<String> {
    let resets = format!("`stentor group reset --group {group}`");
    match hindrance {
        Hindrance::Remembered { by, .. } => Some(format!(
            "stop {0} and start it anew, if it has nothing that is needed, or {resets} says what is lost and goes on without \
             waiting for that",
            name(*by)
        )),
        Hindrance::Missing(_) => None,
        Hindrance::Operator => Some(format!("{resets} lets it begin")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hindrance_names_the_remembering_process_and_a_remedy() {
        let hindrance = Hindrance::Remembered { by: ProcessId(3), incarnation: Incarnation::FIRST };
        let name = |_| "g2.1";
        assert_eq!(told_hindrance(&hindrance, name), "g2.1 remembers incarnation 1-00000000 of it");
        let remedy = hindrance_remedy(&hindrance, "g1", name).expect("the hindrance has a remedy");
        assert!(remedy.starts_with("stop g2.1 and start it anew") && remedy.contains("group reset --group g1"));
        assert_eq!(hindrance_remedy(&Hindrance::Missing(ProcessId(1)), "g1", name), None);
    }
}
