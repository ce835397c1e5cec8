//! Which of the processes that followed each other under a member's id is meant.

use stentor_fabric::ProcessId;

use crate::{GroupId, Topology};

/// Bits of a life's name that its process keeps under every name: some four seconds, in nanoseconds.
const OWN_BITS: u32 = 32;

/// The first name above `elder` for a process whose own is this one; `None` if there is none left.
pub(super) fn name_above(elder: u64, own: u64) -> Option<u64> {
    let upper = u32::try_from((elder >> OWN_BITS) + 1).ok()?;
    Some(u64::from(upper) << OWN_BITS | own & u64::from(u32::MAX))
}

/// By member of a group, its last life that was heard of; of this member, its own.
///
/// Lives are numbers, and later ones are larger. Once a member has heard of a life, those before it are over: its process
/// asked to be taken in, because it has no memory.
///
/// A life's number is the time of its start. When the clock was set back, a process takes a number above the one that its
/// group remembers, and keeps the lower half of its own ([`name_above`]): so no two processes of a member have one number
/// as long as those halves differ, whatever each of them was told.
///
/// # Invariants
/// No entry becomes smaller, and what others have heard of never changes this member's own.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Lives {
    first: ProcessId,
    own: usize,
    last: Vec<u64>,
}

impl Lives {
    pub(super) fn new(topology: &Topology, group: GroupId, own: usize) -> Self {
        Lives { first: topology.first_ballot(group).leader(), own, last: vec![0; topology.size(group)] }
    }

    pub(super) fn all(&self) -> &[u64] {
        &self.last
    }

    fn index(&self, process: ProcessId) -> usize {
        process.index().wrapping_sub(self.first.index())
    }

    /// The last life of a process; 0 if it is no member.
    pub(super) fn of(&self, process: ProcessId) -> u64 {
        self.last.get(self.index(process)).copied().unwrap_or(0)
    }

    /// This process's own life.
    pub(super) fn own(&self) -> u64 {
        self.last[self.own]
    }

    /// This process is this life.
    pub(super) fn be(&mut self, life: u64) {
        self.last[self.own] = life;
    }

    /// Another member has, or had, this life.
    pub(super) fn hear_of(&mut self, process: ProcessId, life: u64) {
        let index = self.index(process);
        if let Some(last) = self.last.get_mut(index).filter(|_| index != self.own) {
            *last = life.max(*last);
        }
    }

    /// Takes over what another member has heard of. It does not make another life of this one.
    pub(super) fn hear_of_all(&mut self, lives: &[u64]) {
        let own = self.own();
        self.last.iter_mut().zip(lives).for_each(|(last, life)| *last = (*last).max(*life));
        self.be(own);
    }

    /// The life that superseded this one, if there is one among those that another member has heard of.
    pub(super) fn successor(&self, lives: &[u64]) -> Option<u64> {
        lives.get(self.own).copied().filter(|life| *life > self.own())
    }

    /// Whether what a member wrote, having heard of `lives`, is of the last life of it that is known here.
    pub(super) fn is_last(&self, process: ProcessId, lives: &[u64]) -> bool {
        lives.get(self.index(process)).is_some_and(|life| *life >= self.of(process))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_heard_of_is_not_this_members_own_life() {
        let topology = Topology::new(&[1, 3], 0).expect("possible");
        let mut lives = Lives::new(&topology, GroupId(1), 1);
        lives.be(5);
        assert_eq!((lives.successor(&[9, 5, 9]), lives.successor(&[0, 6, 0])), (None, Some(6)));
        lives.hear_of_all(&[3, 9, 4]);
        lives.hear_of(ProcessId(1), 2);
        assert_eq!(lives.all(), [3, 5, 4]);
        assert!(lives.is_last(ProcessId(3), &[0, 0, 4]) && !lives.is_last(ProcessId(3), &[0, 0, 3]));
    }

    #[test]
    fn a_larger_name_keeps_the_lower_half() {
        assert_eq!(name_above(7 << 32 | 1, 5 << 32 | 6), Some(8 << 32 | 6));
        assert_eq!(name_above(u64::MAX, 1), None);
    }
}
