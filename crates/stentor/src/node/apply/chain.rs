//! Chains and marks, by which the state machines of a group's members are compared.
//!
//! Members apply the same commands in the same order. If `apply` depends on nothing else, their replies are equal as
//! well. So each member keeps a *chain*: a hash over the applied commands, the replies to them and the notifications,
//! in order. If two members differ in one reply, their chains differ at that place and at all later ones, except for
//! hash collisions. The chain is part of the state, so a member that restores a state continues the chain of the member
//! that wrote it.
//!
//! Chains are compared at *marks*: places in the order that all members choose alike. If a machine has a digest of its
//! value, the digest is computed at each mark. Members send each other their last marks: see `reports.rs`.
//!
//! # Invariants
//! - A chain depends only on the order, the replies and the notifications.
//! - The thread that applies commands takes the lock of the marks at most once for each batch or round, and twice for
//!   each restoration. Readers of marks take it a few times in each check (`reports.rs`), at most 50 times a second.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use stentor_multicast::Incarnation;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Distance of marks: there is a mark at each of the first `EVERY` places, and at each later multiple of `EVERY`.
const EVERY: u64 = 64;
/// Maximum number of marks that are kept. A member can be compared while it is at most about `KEPT * EVERY` places
/// behind.
const KEPT: usize = 1024;

/// A place in a group's order, with the values of one member at that place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node) struct Mark {
    /// The origin of the history that the place belongs to.
    pub(in crate::node) origin: Incarnation,
    /// The index of the place. 0 if nothing was applied.
    pub(in crate::node) index: u64,
    pub(in crate::node) chain: u64,
    /// The machine's digest at this place. `None` if the machine has none, or if this member did not compute it there.
    pub(in crate::node) digest: Option<u64>,
}

impl Default for Mark {
    fn default() -> Self {
        Mark { origin: Incarnation::NONE, index: 0, chain: 0, digest: None }
    }
}

/// The marks of a member, as shared with other threads.
#[derive(Debug, Default)]
pub(in crate::node) struct Marks(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    marks: VecDeque<Mark>,
    /// The last applied place, which need not be a mark.
    last: Mark,
    /// Number of places in the state that was restored last.
    begun: u64,
}

impl Marks {
    fn with<T>(&self, look: impl FnOnce(&mut Kept) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the last place and the last mark.
    pub(in crate::node) fn last(&self) -> (Mark, Option<Mark>) {
        self.with(|kept| (kept.last, kept.marks.back().copied()))
    }

    /// Returns the number of places in the state that was restored last. This member did not apply the places up to
    /// there itself.
    pub(in crate::node) fn begun(&self) -> u64 {
        self.with(|kept| kept.begun)
    }

    /// Returns this member's values at a place of a history, if they are kept.
    pub(in crate::node) fn at(&self, origin: Incarnation, index: u64) -> Option<Mark> {
        let same = |mark: &&Mark| mark.index == index && mark.origin == origin;
        self.with(|kept| kept.marks.iter().rev().find(same).or(Some(&kept.last).filter(same)).copied())
    }
}

/// The chain of a member, on the thread that applies commands.
#[derive(Debug, Default)]
pub(in crate::node) struct Chain {
    last: Mark,
    /// Marks that are not published yet.
    fresh: Vec<Mark>,
    /// `true` if a place was applied since the last publication.
    is_ahead: bool,
    marks: Arc<Marks>,
}

impl Chain {
    pub(in crate::node) fn marks(&self) -> &Arc<Marks> {
        &self.marks
    }

    /// Returns the chain's value, which is part of a state.
    pub(in crate::node) fn value(&self) -> u64 {
        self.last.chain
    }

    /// Adds an applied command, a reply or a notification of the present place.
    #[inline]
    pub(in crate::node) fn add(&mut self, bytes: &[u8]) {
        self.last.chain = xxh3_64_with_seed(bytes, self.last.chain);
    }

    /// Returns whether there is a mark at a place.
    #[inline]
    pub(in crate::node) fn has_mark(index: u64) -> bool {
        index <= EVERY || index.is_multiple_of(EVERY)
    }

    /// Records that a place was applied. `digest` is the machine's digest, if there is a mark.
    #[inline]
    pub(in crate::node) fn pass(&mut self, origin: Incarnation, index: u64, digest: Option<u64>) {
        self.last = Mark { origin, index, digest, ..self.last };
        self.is_ahead = true;
        if Chain::has_mark(index) {
            self.fresh.push(self.last);
        }
    }

    /// Publishes the last place and the new marks.
    #[inline]
    pub(in crate::node) fn publish(&mut self) {
        if !std::mem::take(&mut self.is_ahead) {
            return;
        }
        let Chain { last, fresh, marks, .. } = self;
        marks.with(|kept| {
            kept.last = *last;
            kept.marks.extend(fresh.drain(..));
            let too_many = kept.marks.len().saturating_sub(KEPT);
            kept.marks.drain(..too_many);
        });
    }

    /// Continues the chain of a restored state. Earlier marks are dropped.
    pub(in crate::node) fn begin_anew(&mut self, (origin, index): (Incarnation, u64), chain: u64) {
        self.fresh.clear();
        self.last = Mark { origin, index, chain, digest: None };
        self.is_ahead = true;
        self.marks.with(|kept| {
            kept.marks.clear();
            kept.begun = index;
        });
        self.publish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTORY: Incarnation = Incarnation::FIRST;

    fn passed(replies: impl IntoIterator<Item = u64>) -> Chain {
        let mut chain = Chain::default();
        for (index, reply) in (1..).zip(replies) {
            chain.add(b"command");
            chain.add(&reply.to_le_bytes());
            chain.pass(HISTORY, index, Some(reply).filter(|_| Chain::has_mark(index)));
        }
        chain.publish();
        chain
    }

    #[test]
    fn one_reply_makes_all_later_marks_differ_and_no_earlier_one() {
        let (one, other) = (passed(0..500), passed((0..500).map(|n| if n == 100 { 7 } else { n })));
        let at = |chain: &Chain, index| chain.marks().at(HISTORY, index).map(|mark| mark.chain);
        for index in (1..=64).chain((128..=448).step_by(64)).chain([500]) {
            assert!(at(&one, index).is_some());
            assert_eq!(at(&one, index) == at(&other, index), index <= 100, "{index}");
        }
        assert_eq!((at(&one, 65), at(&one, 501)), (None, None));
        assert_eq!(one.marks().at(Incarnation { number: 2, tag: 0 }, 64), None, "another history");
    }

    #[test]
    fn marks_have_the_digest_and_are_kept_for_a_while() {
        let chain = passed(0..100_000);
        let first = 100_000 / EVERY - KEPT as u64 + 1;
        assert_eq!(chain.marks().at(HISTORY, (first - 1) * EVERY), None);
        let mark = chain.marks().at(HISTORY, first * EVERY).expect("the mark is kept");
        assert_eq!(mark.digest, Some(first * EVERY - 1));
        let (last, mark) = chain.marks().last();
        assert_eq!((last.index, last.digest), (100_000, None));
        assert_eq!(mark.map(|mark| mark.index), Some(99_968));
    }

    #[test]
    fn a_restored_state_continues_the_chain_of_its_donor() {
        let (mut donor, mut other) = (passed(0..70), passed(0..3));
        other.begin_anew((HISTORY, 70), donor.value());
        assert_eq!(other.marks().at(HISTORY, 3), None);
        for chain in [&mut donor, &mut other] {
            chain.add(b"more");
            chain.pass(HISTORY, 71, None);
            chain.publish();
        }
        assert_eq!(donor.marks().last().0, other.marks().last().0);
    }
}
