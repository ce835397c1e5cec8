//! What is told of a group that begins, or does not: the words that a node's log and `stentor node` share.

use stentor_fabric::ProcessId;
use stentor_multicast::{Hindrance, Incarnation, Replica};

use super::cluster::ClusterRuntime;

/// How a member got its first state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FirstState {
    /// The line that says it.
    pub text: String,
    /// Whether somebody has to look: the group was reset, or began above another history.
    pub is_warning: bool,
}

/// Says how a member got its first state.
#[must_use]
pub fn first_state(replica: &Replica, plan: &ClusterRuntime) -> FirstState {
    let (group, incarnation) = (plan.group_name(replica.group()), replica.incarnation());
    // A founding and a reset have the first ballot of their incarnation; a member that is taken in later has a later one.
    if replica.delivered() > 0 || replica.ballot().number() != 1 {
        let delivered = replica.delivered();
        let text = format!("taken in by its group, which has delivered {delivered}, in incarnation {incarnation}");
        return FirstState { text, is_warning: false };
    }
    if replica.was_remembered() {
        let text = format!(
            "an operator reset {group}: it begins from nothing, in incarnation {incarnation}, and its deliveries are numbered from 1; what \
             was under way to it is lost; start its clients again"
        );
        return FirstState { text, is_warning: true };
    }
    let text = format!(
        "{group} begins from nothing: its deliveries are numbered from 1; incarnation {incarnation}: no process that was reached \
         remembers another"
    );
    // A larger number means that an incarnation before was heard of.
    FirstState { text, is_warning: incarnation.number > Incarnation::FIRST.number }
}

/// Describes in a few words what keeps a group from beginning.
pub fn told_hindrance<'a>(hindrance: &Hindrance, name: impl Fn(ProcessId) -> &'a str) -> String {
    match hindrance {
        Hindrance::Remembered { by, incarnation } => format!("{} remembers incarnation {incarnation} of it", name(*by)),
        Hindrance::Missing(process) => format!("{} was not heard", name(*process)),
        Hindrance::Operator => "total_loss = \"refuse\" leaves it to the operator".to_owned(),
    }
}
