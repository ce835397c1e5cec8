//! The budget of failures: in each group, at most f = ⌊(n − 1)/2⌋ members are down or without memory at once.

use stentor_fabric::ProcessId;
use stentor_multicast::{ProcessRole, Topology};

/// The health of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Health {
    /// The member has its group's state, or is in its first life.
    Well,
    /// The member is about to crash, immediately or at one of its next posts.
    Doomed,
    /// The member is down.
    Down,
    /// The member was restarted without memory. It counts as failed until it has its group's state.
    Memoryless,
}

/// The health of the members of all groups.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    health: Vec<Health>,
}

impl Budget {
    pub(super) fn new(topology: &Topology) -> Self {
        Budget { health: vec![Health::Well; topology.all_members()] }
    }

    pub(super) fn health(&self, member: ProcessId) -> Health {
        self.health[member.index()]
    }

    pub(super) fn set(&mut self, member: ProcessId, health: Health) {
        self.health[member.index()] = health;
    }

    /// Returns the number of members of the same group that are not well.
    pub(super) fn failed(&self, member: ProcessId, topology: &Topology) -> usize {
        let Some(ProcessRole::Member { group, .. }) = topology.role(member) else { return 0 };
        topology.members(group).filter(|other| self.health(*other) != Health::Well).count()
    }

    /// Returns whether this member is well and may crash now.
    pub(super) fn allows(&self, member: ProcessId, topology: &Topology) -> bool {
        let Some(ProcessRole::Member { group, .. }) = topology.role(member) else { return false };
        let most = (topology.size(group) - 1) / 2;
        self.health(member) == Health::Well && self.failed(member, topology) < most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minority_may_fail_and_members_without_memory_count() {
        let topology = Topology::new(&[3, 5, 2, 1], 1).expect("a possible cluster");
        let mut budget = Budget::new(&topology);
        let (three, five) = ([0, 1, 2].map(ProcessId), [3, 4, 5, 6, 7].map(ProcessId));
        assert!(budget.allows(three[0], &topology));
        budget.set(three[0], Health::Down);
        assert!(!budget.allows(three[0], &topology) && !budget.allows(three[1], &topology));
        budget.set(three[0], Health::Memoryless);
        assert!(!budget.allows(three[1], &topology));
        budget.set(three[0], Health::Well);
        assert!(budget.allows(three[1], &topology));
        budget.set(five[2], Health::Doomed);
        assert!(budget.allows(five[0], &topology) && !budget.allows(five[2], &topology));
        budget.set(five[0], Health::Down);
        assert!(!budget.allows(five[1], &topology));
        for nobody in [8, 9, 10, 11].map(ProcessId) {
            assert!(!budget.allows(nobody, &topology), "{nobody}: groups of two and one, and a client");
        }
    }
}
