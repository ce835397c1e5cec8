//! Counts of the outcomes of groups that lost their memory, for reports.

use stentor_multicast::Settlements;

/// Names of the counts that must not be 0 after a simulation run of enough seeds.
pub(crate) const CLAIMS: [&str; 8] = [
    "groups_waiting",
    "groups_founded_anew",
    "groups_reset_with_nothing",
    "groups_reset_with_a_state",
    "runs_with_two_groups_reset",
    "settled_as_decided",
    "settled_as_lost",
    "old_incarnations_refused",
];

/// Counts of the outcomes of groups that lost their memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ForgetCounts {
    /// Groups that waited, because some process remembered them.
    pub waiting: u64,
    /// Groups that were founded anew.
    pub founded: u64,
    /// Groups that the operator reset with nothing.
    pub reset_with_nothing: u64,
    /// Groups that the operator reset with the state of a member.
    pub reset_with_a_state: u64,
    /// Runs in which more than one group was reset.
    pub two_reset: u64,
    /// Requests of the operator that a member refused.
    pub refused: u64,
    /// Members that were restarted because their group continued without their state, or because they could not install
    /// a state.
    pub ended: u64,
    /// `true` if at some time no process remembered anything.
    pub forgot_all: bool,
    /// Messages to both ended histories and survivors that some process delivered.
    pub delivered_by_survivors: u64,
    /// Messages to both ended histories and survivors that no process delivered.
    pub delivered_by_nobody: u64,
    /// Outcomes of in-doubt messages at members.
    pub settlements: Settlements,
}

impl ForgetCounts {
    /// Adds the counts of another member.
    pub(crate) fn add(&mut self, more: Settlements) {
        self.settlements.decided += more.decided;
        self.settlements.lost += more.lost;
        self.settlements.refused += more.refused;
    }

    /// Returns names and values in a fixed order.
    pub(crate) fn named(self) -> Vec<(&'static str, u64)> {
        vec![
            ("groups_waiting", self.waiting),
            ("groups_founded_anew", self.founded),
            ("groups_reset_with_nothing", self.reset_with_nothing),
            ("groups_reset_with_a_state", self.reset_with_a_state),
            ("runs_with_two_groups_reset", self.two_reset),
            ("resets_refused", self.refused),
            ("members_ended_by_resets", self.ended),
            ("runs_that_forgot_everything", self.forgot_all.into()),
            ("delivered_by_survivors", self.delivered_by_survivors),
            ("delivered_by_nobody", self.delivered_by_nobody),
            ("settled_as_decided", self.settlements.decided),
            ("settled_as_lost", self.settlements.lost),
            ("old_incarnations_refused", self.settlements.refused),
        ]
    }
}
