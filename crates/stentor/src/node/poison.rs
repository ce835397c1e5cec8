//! The decision when a node with a poisoned state machine starts over.

use std::time::Duration;

use crate::Position;

/// Longest time for which a poisoned leader waits until another member leads, before it starts over.
const HANDING_OVER: Duration = Duration::from_secs(2);

/// The node's view of its group while its machine is poisoned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    /// Number of other members that are connected, are not poisoned, and have applied the command.
    pub(super) beyond: usize,
    /// Number of members that form a majority.
    pub(super) majority: usize,
    pub(super) leads: bool,
}

/// Decides when a node whose machine is poisoned starts over: once the group has a majority without the node. Until
/// then, the group needs the node's vote more than its machine.
///
/// # Invariant
/// A node does not start over twice in succession for the same command. Otherwise a machine that panics at that command
/// again would restart forever.
#[derive(Debug, Default)]
pub(super) struct Poison {
    since: Option<Duration>,
    /// The last command for which the node started over.
    over: Option<u64>,
}

impl Poison {
    /// Returns whether the node starts over now. `at` is the command at which its machine is poisoned, if it is.
    pub(super) fn starts_over(&mut self, now: Duration, at: Option<Position>, sight: impl FnOnce() -> Sight) -> bool {
        let Some(at) = at else {
            self.since = None;
            return false;
        };
        let since = *self.since.get_or_insert(now);
        if self.over == Some(at.index) {
            return false;
        }
        let Sight { beyond, majority, leads } = sight();
        let waits = leads && now.saturating_sub(since) < HANDING_OVER;
        if beyond < majority || waits {
            return false;
        }
        (self.since, self.over) = (None, Some(at.index));
        true
    }
}

#[cfg(test)]
mod tests {
    use stentor_multicast::GroupId;

    use super::*;
    use crate::Group;

    const MS: Duration = Duration::from_millis(1);

    fn at(index: u64) -> Option<Position> {
        let group = Group(GroupId(0));
        Some(Position { time: 9, group, index, applied_in: group, incarnation: 1, heard: 0 })
    }

    fn sight(beyond: usize, leads: bool) -> impl Fn() -> Sight {
        move || Sight { beyond, majority: 2, leads }
    }

    #[test]
    fn a_node_starts_over_only_if_a_majority_remains_without_it() {
        let mut poison = Poison::default();
        assert!(!poison.starts_over(MS, None, sight(2, false)));
        assert!(!poison.starts_over(MS, at(3), sight(1, false)));
        assert!(poison.starts_over(2 * MS, at(3), sight(2, false)));
    }

    #[test]
    fn a_poisoned_leader_waits_for_its_successor_for_a_bounded_time() {
        let mut poison = Poison::default();
        assert!(!poison.starts_over(MS, at(3), sight(2, true)));
        assert!(!poison.starts_over(HANDING_OVER, at(3), sight(2, true)));
        assert!(poison.starts_over(HANDING_OVER + MS, at(3), sight(2, true)));
    }

    #[test]
    fn a_machine_that_panics_at_the_same_command_again_stays_poisoned() {
        let mut poison = Poison::default();
        assert!(poison.starts_over(MS, at(3), sight(2, false)));
        assert!(!poison.starts_over(MS, at(3), sight(2, false)));
        assert!(poison.starts_over(MS, at(4), sight(2, false)), "it panicked at another command");
    }
}
