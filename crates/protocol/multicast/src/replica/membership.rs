//! Whether a member has its memory, and who else has none.

use super::identity::Identity;
use super::lives::{Lives, name_above};
use crate::peer_message::Joiner;

/// A member's part in its group, and the members that want one.
///
/// # States
/// *joining* (without memory: it promises nothing and votes for nothing) → *member* (its group took it in, or it began its
/// group's life together with all others) → *superseded* (another process of this member was started later; nothing that
/// this one says counts any more, and it says nothing).
///
/// # Invariants
/// - A joining process becomes a member only with a state of a ballot that takes its life in, or when all members are
///   joining.
/// - Only a joining process takes another life.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    /// The life of a process that is joining.
    joining: Option<u64>,
    superseded: bool,
    /// The members' lives; its own, too.
    pub(super) lives: Lives,
    /// Members that said they are without memory too, while this one is. They begin the group's life with this one, if they
    /// have not yet.
    pub(super) genesis: Vec<Joiner>,
    /// Processes that want to be taken in.
    pub(super) joiners: Vec<Joiner>,
    join: JoinState,
}

impl Membership {
    pub(super) fn joining(id: &Identity, life: u64) -> Self {
        let mut lives = Lives::new(id.topology(), id.group, id.bit.trailing_zeros() as usize);
        lives.be(life);
        Membership {
            joining: Some(life),
            superseded: false,
            lives,
            genesis: Vec::new(),
            joiners: Vec::new(),
            join: JoinState::default(),
        }
    }

    #[inline]
    pub(super) fn is_joining(&self) -> bool {
        self.joining.is_some()
    }

    /// The life of a process that is joining.
    pub(super) fn joining_life(&self) -> Option<u64> {
        self.joining
    }

    #[inline]
    pub(super) fn is_superseded(&self) -> bool {
        self.superseded
    }

    pub(super) fn supersede(&mut self) {
        self.superseded = true;
    }

    /// The group begins its life with this member and all of its genesis.
    pub(super) fn begin(&mut self) {
        self.joining = None;
        self.genesis.iter().for_each(|joiner| self.lives.hear_of(joiner.process, joiner.life));
    }

    /// The group took this process in, or it had its memory; the leader has heard of these lives.
    pub(super) fn adopt(&mut self, lives: &[u64]) {
        self.joining = None;
        self.lives.hear_of_all(lives);
    }

    /// The group remembers a process of this member with a larger life than this one's: the clock that lives are taken from
    /// was set back. A process that is joining may take a larger one. Returns whether it did.
    pub(super) fn outlive(&mut self, elder: u64) -> bool {
        let own = self.joining.filter(|life| *life < elder);
        let Some(life) = own.and_then(|own| name_above(elder, own)) else { return false };
        self.joining = Some(life);
        self.lives.be(life);
        true
    }

    /// Another process is without memory too. Returns whether all members of the group are known to be.
    pub(super) fn gather(&mut self, id: &Identity, joiner: Joiner) -> bool {
        replace(&mut self.genesis, joiner);
        let all = (1_u128 << id.topology().size(id.group)) as u64;
        self.genesis_members(id) | id.bit == all.wrapping_sub(1)
    }

    /// The members of the genesis, as bits.
    pub(super) fn genesis_members(&self, id: &Identity) -> u64 {
        self.genesis.iter().map(|joiner| id.bit_of(joiner.process)).sum()
    }

    /// A process without memory wants to be taken in.
    pub(super) fn welcome(&mut self, joiner: Joiner) {
        replace(&mut self.joiners, joiner);
    }

    /// Another member asks to be taken in, too.
    pub(super) fn note_asking(&mut self, members: u64) {
        self.join.now |= members;
    }

    /// This process asks again to be taken in.
    pub(super) fn ask_again(&mut self) {
        self.join.pass();
    }

    /// Other members that asked lately to be taken in, as bits.
    pub(super) fn asking(&self) -> u64 {
        if self.is_joining() { self.join.now | self.join.before } else { 0 }
    }

    /// Everything but what follows from the rest, or only delays things.
    pub(super) fn essence<'a>(&'a self, id: &Identity) -> impl std::hash::Hash + PartialEq + use<'a> {
        (self.joining, self.superseded, &self.lives, self.genesis_members(id), &self.joiners)
    }
}

/// Puts a process behind the others, in place of an earlier life of it.
fn replace(processes: &mut Vec<Joiner>, joiner: Joiner) {
    processes.retain(|known| known.process != joiner.process);
    processes.push(joiner);
}

/// The members that asked lately to be taken in. All repeat that as often as this process does.
#[derive(Clone, Copy, Debug, Default)]
struct JoinState {
    /// Members, since the last change of turns.
    now: u64,
    /// In the turn before that.
    before: u64,
    asked: u8,
}

impl JoinState {
    /// How often this process asks in a turn: a member that is not heard in two turns may have been taken in.
    const TURN: u8 = 50;

    /// This process asks again.
    fn pass(&mut self) {
        self.asked += 1;
        if self.asked >= JoinState::TURN {
            *self = JoinState { now: 0, before: self.now, asked: 0 };
        }
    }
}
