//! Which of the processes that a member's place had, one after the other, is meant.
//!
//! A life is named by its life, and later ones have larger lives. Who heard of one knows that those before
//! it are over: it asked to be taken in, because it has no memory.
//!
//! Lives are times of starts. When the clock was set back, a process takes a name above the one that its group
//! remembers, and keeps the lower half of its own: so no two processes of a place have one name as long as those halves
//! differ, whatever each of them was told.

use stentor_fabric::ProcessId;

use super::{Rejected, Replica, Stage};
use crate::{Effects, GroupId, Topology};

/// Bits of an life that its process keeps under every name: some four seconds, in nanoseconds.
const OWN_BITS: u32 = 32;

/// The first name above `elder` for a process whose own is this one; `None` if there is none left.
fn name_above(elder: u64, own: u64) -> Option<u64> {
    let upper = u32::try_from((elder >> OWN_BITS) + 1).ok()?;
    Some(u64::from(upper) << OWN_BITS | own & u64::from(u32::MAX))
}

/// By member of a group, the life of its last life that was heard of; of this member, its own.
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

    /// What another member has heard of. It does not make another life of this one.
    pub(super) fn hear_of_all(&mut self, lives: &[u64]) {
        for (index, (last, life)) in self.last.iter_mut().zip(lives).enumerate() {
            if index != self.own {
                *last = (*last).max(*life);
            }
        }
    }

    /// The life that took this one's place, if there is one among those that another member has heard of.
    fn successor(&self, lives: &[u64]) -> Option<u64> {
        lives.get(self.own).copied().filter(|life| *life > self.last[self.own])
    }

    /// Whether what a member wrote, having heard of `lives`, is of the last life of it that is known here.
    pub(super) fn is_last(&self, process: ProcessId, lives: &[u64]) -> bool {
        lives.get(self.index(process)).is_some_and(|life| *life >= self.of(process))
    }

    /// Whether there is one for each member.
    pub(super) fn check(&self, lives: &[u64]) -> Result<(), Rejected> {
        if lives.len() == self.last.len() { Ok(()) } else { Err(Rejected::State("another number of members")) }
    }
}

/// Who else asked lately to be taken in. All repeat that as often as this process does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asking {
    /// Members, since the last change of turns.
    pub(super) now: u64,
    /// In the turn before that.
    pub(super) before: u64,
    asked: u8,
}

impl Asking {
    /// How often this process asks in a turn: whoever is not heard in two turns may have been taken in.
    const TURN: u8 = 50;

    /// This process asks again.
    pub(super) fn pass(&mut self) {
        self.asked += 1;
        if self.asked >= Asking::TURN {
            *self = Asking { now: 0, before: self.now, asked: 0 };
        }
    }
}

impl Replica {
    /// Whether another process of this place was started after this one: its group has heard of it. Nothing that this one
    /// says counts any more, and it says nothing.
    #[inline]
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.superseded
    }

    /// Whether this process is the last of its place among the lives that another member has heard of. If it is not, it has
    /// no part in what that one says, or in anything any more; unless it is not taken in yet: then it may be the last one,
    /// after the clock was set back, and asks under another name.
    pub(super) fn is_last_of<E: Effects>(&mut self, lives: &[u64], effects: &mut E) -> bool {
        let Some(successor) = self.lives.successor(lives) else { return true };
        if self.is_joining() {
            self.on_elder(successor, effects);
        } else {
            (self.superseded, self.leads, self.stage) = (true, false, Stage::Idle);
        }
        false
    }

    /// The group remembers a process of this place with a larger life than this one's: the clock that lives
    /// are taken from was set back. Whoever is not taken in yet may choose a larger one.
    pub(super) fn on_elder<E: Effects>(&mut self, elder: u64, effects: &mut E) {
        let own = self.joining.filter(|life| *life < elder);
        if let Some(life) = own.and_then(|own| name_above(elder, own)) {
            self.joining = Some(life);
            self.lives.be(life);
            self.join(effects);
        }
    }
}
