//! The lives of a group's members, which distinguish the processes that follow each other under one process id.

use stentor_fabric::ProcessId;

use crate::{GroupId, Topology};

/// Number of low bits of its life that a process keeps when it raises the life. Lives count nanoseconds, so these bits
/// span about four seconds.
const OWN_BITS: u32 = 32;

/// Returns a life above `elder` with the lower half of `own`, or `None` if the upper half of `elder` cannot be
/// increased.
pub(super) fn name_above(elder: u64, own: u64) -> Option<u64> {
    let upper = u32::try_from((elder >> OWN_BITS) + 1).ok()?;
    Some(u64::from(upper) << OWN_BITS | own & u64::from(u32::MAX))
}

/// The last known life of each member of a group, including this process's own.
///
/// Lives are numbers, and later ones are larger. Once a process knows a life of a member, all smaller lives of that
/// member have ended: a process names a new life when it has no memory and asks to be admitted.
///
/// A life is the time of the process's start. If the clock was set back, the process chooses a life above the one that
/// its group remembers, and keeps the lower half of its first choice ([`name_above`]). So no two processes of a member
/// have the same life as long as those halves differ, whatever the group reported to each of them.
///
/// # Invariants
/// No entry decreases, and reports of others never change this process's own entry.
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

    /// Returns the last known life of a process, or 0 if it is not a member.
    pub(super) fn of(&self, process: ProcessId) -> u64 {
        self.last.get(self.index(process)).copied().unwrap_or(0)
    }

    /// Returns this process's own life.
    pub(super) fn own(&self) -> u64 {
        self.last[self.own]
    }

    /// Sets this process's own life.
    pub(super) fn be(&mut self, life: u64) {
        self.last[self.own] = life;
    }

    /// Records a life of another member.
    pub(super) fn hear_of(&mut self, process: ProcessId, life: u64) {
        let index = self.index(process);
        if let Some(last) = self.last.get_mut(index).filter(|_| index != self.own) {
            *last = life.max(*last);
        }
    }

    /// Merges the lives that another member knows, except this process's own.
    pub(super) fn hear_of_all(&mut self, lives: &[u64]) {
        let own = self.own();
        self.last.iter_mut().zip(lives).for_each(|(last, life)| *last = (*last).max(*life));
        self.be(own);
    }

    /// Returns the life that superseded this one, if another member's lives contain one.
    pub(super) fn successor(&self, lives: &[u64]) -> Option<u64> {
        lives.get(self.own).copied().filter(|life| *life > self.own())
    }

    /// Returns whether a message is of the last known life of its sender, given the lives that the sender knew.
    pub(super) fn is_last(&self, process: ProcessId, lives: &[u64]) -> bool {
        lives.get(self.index(process)).is_some_and(|life| *life >= self.of(process))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_that_others_know_do_not_change_the_own_life() {
        let topology = Topology::new(&[1, 3], 0).expect("the topology is possible");
        let mut lives = Lives::new(&topology, GroupId(1), 1);
        lives.be(5);
        assert_eq!((lives.successor(&[9, 5, 9]), lives.successor(&[0, 6, 0])), (None, Some(6)));
        lives.hear_of_all(&[3, 9, 4]);
        lives.hear_of(ProcessId(1), 2);
        assert_eq!(lives.all(), [3, 5, 4]);
        assert!(lives.is_last(ProcessId(3), &[0, 0, 4]) && !lives.is_last(ProcessId(3), &[0, 0, 3]));
    }

    #[test]
    fn a_raised_life_keeps_its_lower_half() {
        assert_eq!(name_above(7 << 32 | 1, 5 << 32 | 6), Some(8 << 32 | 6));
        assert_eq!(name_above(u64::MAX, 1), None);
    }
}
