//! One sender's stream at one other process: the pure state machine.
//!
//! An index goes through these steps, in this order:
//!
//! 1. [`poll_bcast_bufs`](Replay::poll_bcast_bufs) takes a *snapshot* of the value in the sender's buffer. From then on
//!    only the snapshot is used. The node writes it to this process's write-once register for the index.
//! 2. [`published`](Replay::published) records the hosts that have the register. *Publish before read*: if two
//!    processes have different values, the one that publishes later reads the other's.
//! 3. [`next_round`](Replay::next_round) and [`poll_read_cq`](Replay::poll_read_cq) read the others' registers, one
//!    round for all indices that are published by then. No register may show another value; an empty register is no
//!    conflict.
//! 4. [`next_outcome`](Replay::next_outcome) delivers in the order of indices. Step 3 is not needed for an index if all
//!    other processes were seen to replay the same value ([`pushed`](Replay::pushed), the fast path).
//!
//! # Invariants
//! - I1: the published value of an index never changes ([`Entry::value`] is set once, in step 1).
//! - I2: a round contains only indices whose register was complete at a quorum (in mode `all`: stored) before it began.
//! - I3: a conflict is never withdrawn.
//! - I4: an index is given up for ever once a READ for it finds that a replayer has reused the register.
//! - I5: `head` only grows, and each index has one outcome.
//! - I6: the processes that answered are a set of named processes; errors change no set.

mod removed;
mod round;

use std::hash::Hash;

use stentor_fabric::ProcessId;

use crate::authority::Authority;
use crate::value::{Value, content};
use crate::{Config, Cut, Layout, Mode, ProcessSet, mutant};

pub use round::{Round, Seen};

/// One index of the stream.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Entry {
    /// Snapshot, or empty if the buffer already held a newer index.
    value: Vec<u64>,
    /// `true` if the index was given up, because the buffer or a replayer's register already held a newer index.
    lost: bool,
    /// `true` if enough hosts have answered for this index, and it was not given up. The index is delivered only if
    /// `conflict` is empty, too.
    clear: bool,
    /// Processes that showed another value.
    conflict: ProcessSet,
    /// Processes that were seen to replay the same value without a READ.
    alike: ProcessSet,
    /// Number of answers without conflict, for the mutant that counts.
    tracker: usize,
    /// `true` if the value was delivered. Only the mutant that delivers in any order uses this.
    delivered: bool,
}

/// Outcome of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome<'a> {
    /// The value is delivered.
    Deliver(Value<'a>),
    /// The index is skipped because it came too late: the sender, or a process that replays for it, was more than a
    /// window ahead. Or the sender was removed, and no member holds the value any more.
    Skip(u64),
}

/// Two values of one index.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Evidence {
    /// Sender of the stream.
    pub sender: ProcessId,
    /// Index that has the two values.
    pub index: u64,
    /// Value that this process took a snapshot of, all words.
    pub ours: Vec<u64>,
    /// Value that the witness replayed, all words.
    pub other: Vec<u64>,
    /// Process that showed the other value.
    pub witness: ProcessId,
    /// `true` if the sender has signed both values. Without signatures the witness may be the liar, unless the fault
    /// model excludes it.
    pub proven: bool,
}

/// A sender's stream at one process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Replay {
    config: Config,
    me: ProcessId,
    sender: ProcessId,
    /// Mode `all`: current members. All but the sender and this process must answer.
    members: ProcessSet,
    /// Mode `quorum`: hosts that keep the registers.
    replicas: ProcessSet,
    /// The other replayers.
    others: ProcessSet,
    layout: Layout,
    next: u64,
    head: u64,
    /// State of the indices of the last window, by slot.
    entries: Vec<Entry>,
    /// Index, for each host, below which all registers are complete there.
    published: Vec<u64>,
    round: Option<Round>,
    serial: u64,
    /// Index at which the stream ends, if it does: there is a conflict or another violation, or the sender is being
    /// removed. Only [`fate`](Replay::fate) has outcomes at or above this index.
    ended: Option<u64>,
    /// Operator's decision about the removed sender's stream, if there is one. It determines the outcome of every index
    /// at or above [`head`](Replay::head).
    fate: Option<Box<Cut>>,
    again: Option<u64>,
}

impl Replay {
    /// Creates the stream of `sender` at `me`, at its beginning.
    #[must_use]
    pub fn new(config: &Config, me: ProcessId, sender: ProcessId) -> Self {
        Replay {
            config: *config,
            me,
            sender,
            members: config.everybody(),
            replicas: config.replicas(sender),
            others: config.everybody().without(sender).without(me),
            layout: Layout::new(config),
            next: 0,
            head: 0,
            entries: vec![Entry::default(); config.window as usize],
            published: vec![0; config.processes],
            round: None,
            serial: 0,
            ended: None,
            fate: None,
            again: None,
        }
    }

    /// Returns the next index to take from the sender's buffer.
    #[inline]
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the sender of the stream.
    #[must_use]
    pub fn sender(&self) -> ProcessId {
        self.sender
    }

    /// Returns whether the next outcome is due because registers were read, not by the fast path alone.
    #[must_use]
    pub fn was_read(&self) -> bool {
        self.entry(self.head).clear
    }

    /// Returns the index below which every index has an outcome. This cumulative counter frees slots.
    #[inline]
    #[must_use]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Returns the index at which the stream ends, because there is a conflict or another violation, or because the
    /// sender is being removed. No index at or above it is delivered, unless the [decision](Replay::decide) about a
    /// removed sender's stream contains it.
    #[must_use]
    pub fn ended(&self) -> Option<u64> {
        self.ended
    }

    /// Returns whether the next index can be accepted: the stream has not ended, and the slot here is free.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.ended.is_none() && self.next < self.head + u64::from(self.config.window)
    }

    #[inline]
    fn entry(&self, index: u64) -> &Entry {
        &self.entries[self.layout.slot(index) as usize]
    }

    #[inline]
    fn entry_mut(&mut self, index: u64) -> &mut Entry {
        let slot = self.layout.slot(index);
        &mut self.entries[slot as usize]
    }

    /// Takes a snapshot of the value in the sender's buffer for [`next`](Replay::next). Returns its index, which is to
    /// be published.
    ///
    /// # Panics
    /// Panics if [`has_room`](Replay::has_room) is false.
    pub fn poll_bcast_bufs(&mut self, value: &Value<'_>) -> u64 {
        assert!(self.has_room(), "the slot is not free");
        let index = self.next;
        let entry = self.entry_mut(index);
        let mut words = std::mem::take(&mut entry.value);
        words.clear();
        words.extend_from_slice(value.words());
        *entry = Entry { value: words, ..Entry::default() };
        self.next += 1;
        index
    }

    /// Records that the index [`next`](Replay::next) is lost, because the buffer holds a newer index.
    ///
    /// # Panics
    /// Panics if [`has_room`](Replay::has_room) is false.
    pub fn overtaken(&mut self) {
        assert!(self.has_room(), "the slot is not free");
        let next = self.next;
        let entry = self.entry_mut(next);
        entry.value.clear();
        *entry = Entry { value: std::mem::take(&mut entry.value), lost: true, ..Entry::default() };
        self.next += 1;
    }

    /// Records that the sender violated the protocol at [`next`](Replay::next). No further value of the sender is
    /// accepted.
    pub fn end(&mut self) {
        self.ended.get_or_insert(self.next);
    }

    /// Returns the snapshot of an index that has no outcome yet, or `None` if there is no snapshot.
    #[must_use]
    pub fn snapshot(&self, index: u64) -> Option<&[u64]> {
        let known = (self.head..self.next).contains(&index);
        known.then(|| &self.entry(index).value[..]).filter(|value| !value.is_empty())
    }

    /// Returns whether this process has a register for an index of the last window, with or without an outcome.
    #[must_use]
    pub fn has_register(&self, index: u64) -> bool {
        let kept = index < self.next && index + u64::from(self.config.window) >= self.next;
        kept && !self.entry(index).value.is_empty()
    }

    /// Records that all registers of this stream below `upto` are complete at a host.
    pub fn published(&mut self, host: ProcessId, upto: u64) {
        let published = &mut self.published[host.index()];
        *published = (*published).max(upto);
    }

    /// Returns the index up to which a host has all registers of this stream.
    #[must_use]
    pub fn published_at(&self, host: ProcessId) -> u64 {
        self.published[host.index()]
    }

    /// Returns whether a register is published as soon as it is stored (mode `all`).
    #[inline]
    pub(crate) fn is_stored(&self) -> bool {
        self.config.mode == Mode::All
    }

    /// Returns whether the register of an index is published at enough hosts.
    #[must_use]
    pub fn is_published(&self, index: u64) -> bool {
        if self.config.mode == Mode::All || mutant!(self.config.mutant, ReadBeforePublish) {
            return true;
        }
        let at = self.replicas.iter().filter(|host| self.published[host.index()] > index);
        at.count() >= self.config.quorum()
    }

    /// Records a replayer's register that arrived without a READ: the fast path. An index is delivered when all other
    /// processes replay the same value, because no correct process can then hold another one. Returns evidence if the
    /// register conflicts with this process's value.
    pub fn pushed(
        &mut self,
        replayer: ProcessId,
        index: u64,
        value: &Value<'_>,
        authority: Option<&Authority>,
    ) -> Option<Evidence> {
        self.snapshot(index)?;
        if content(&self.entry(index).value, self.config.signed) != value.content() {
            return self.conflict(replayer, index, value, authority);
        }
        self.entry_mut(index).alike.insert(replayer);
        None
    }

    fn is_fast(&self, entry: &Entry) -> bool {
        if mutant!(self.config.mutant, FastQuorum) {
            return self.config.fast_path && entry.alike.len() + 1 >= self.config.quorum();
        }
        self.config.fast_path && self.config.mode != Mode::All && entry.alike.covers(self.others)
    }

    /// Records that a process shows another value. This is a conflict if values are not signed, or if the sender has
    /// signed that value. Returns the evidence of the first conflict of an index.
    fn conflict(
        &mut self,
        witness: ProcessId,
        index: u64,
        other: &Value<'_>,
        authority: Option<&Authority>,
    ) -> Option<Evidence> {
        let mutant = self.config.mutant;
        if mutant!(mutant, Counter) {
            return None;
        }
        let own = other.index() == index && other.is_authentic(self.sender, authority);
        if self.config.signed && !own && !mutant!(mutant, UnsignedConflict) {
            return None;
        }
        let (sender, proven) = (self.sender, self.config.signed && own);
        let entry = self.entry_mut(index);
        let first = entry.conflict.is_empty();
        entry.conflict.insert(witness);
        let (ours, other) = (entry.value.clone(), other.words().to_vec());
        if !mutant!(mutant, ConflictNotSticky) {
            self.ended = Some(self.ended.map_or(index, |ended| ended.min(index)));
        }
        first.then_some(Evidence { sender, index, ours, other, witness, proven })
    }

    /// Returns the next outcome, if it is due. [`settled`](Replay::settled) advances to the one after it.
    #[must_use]
    pub fn next_outcome(&self) -> Option<Outcome<'_>> {
        if let Some(index) = self.again.filter(|_| mutant!(self.config.mutant, DeliverAgain)) {
            return Some(Outcome::Deliver(Value::trusted(&self.entry(index).value, self.config.signed)));
        }
        if mutant!(self.config.mutant, OutOfOrder) {
            let due = |index: &u64| {
                let entry = self.entry(*index);
                (entry.clear || self.is_fast(entry)) && !entry.delivered && entry.conflict.is_empty()
            };
            let index = (self.head..self.next).rev().find(due)?;
            return Some(Outcome::Deliver(Value::trusted(&self.entry(index).value, self.config.signed)));
        }
        if self.ended.is_some_and(|ended| self.head >= ended) {
            return self.fated();
        }
        if self.head == self.next {
            return None;
        }
        let entry = self.entry(self.head);
        if entry.lost {
            return Some(Outcome::Skip(self.head));
        }
        let due = entry.conflict.is_empty() && (entry.clear || self.is_fast(entry));
        due.then(|| Outcome::Deliver(Value::trusted(&entry.value, self.config.signed)))
    }

    /// Records that the caller has acted on the outcome.
    ///
    /// # Panics
    /// Panics if no outcome was due.
    pub fn settled(&mut self) {
        if self.again.take().is_some() {
            return;
        }
        if mutant!(self.config.mutant, OutOfOrder) {
            let Some(Outcome::Deliver(value)) = self.next_outcome() else { return };
            let index = value.index();
            self.entry_mut(index).delivered = true;
            while self.head < self.next && self.entry(self.head).delivered {
                self.head += 1;
            }
            return;
        }
        assert!(self.next_outcome().is_some(), "no outcome was due");
        // After this point only the value is needed, to write the register to hosts that lack it.
        let entry = self.entry_mut(self.head);
        (entry.clear, entry.conflict, entry.alike, entry.tracker) = (false, ProcessSet::EMPTY, ProcessSet::EMPTY, 0);
        self.head += 1;
    }

    /// Records a transport error at a peer, which is a suspicion. It changes nothing (I6), except for mutants that
    /// treat it as a crash.
    pub fn suspect(&mut self, peer: ProcessId) {
        let mutant = self.config.mutant;
        if !mutant.shrinks() || self.config.mode != Mode::All {
            return;
        }
        self.members.remove(peer);
        if mutant!(mutant, ConflictNotSticky) {
            self.entries.iter_mut().for_each(|entry| entry.conflict.remove(peer));
        }
        self.settle_round();
    }

    /// Returns the current members, in mode `all`. All but the sender and this process must answer.
    #[must_use]
    pub fn members(&self) -> ProcessSet {
        self.members
    }
}
