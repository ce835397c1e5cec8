//! One sender's stream at one other process: the pure state machine.
//!
//! An index goes through these steps, and every step only once:
//!
//! 1. [`poll_bcast_bufs`](Replay::poll_bcast_bufs): the value that lies in the sender's buffer here is *snapshot*; from now
//!    on only the snapshot is looked at. The shell writes it to this process's write-once register for the index.
//! 2. [`published`](Replay::published): the register is at these hosts. *Publish before you read*: of two processes with
//!    different values, whichever publishes later reads the other's.
//! 3. [`next_round`](Replay::next_round), [`poll_read_cq`](Replay::poll_read_cq): the others' registers are read, one
//!    round for all indices that are published by then. Nobody may show another value; an empty register is no conflict.
//! 4. [`next_outcome`](Replay::next_outcome): delivered in the order of indices.
//!
//! # Invariants
//! - I1: what is published for an index never changes ([`Entry::value`] is set once, at step 1).
//! - I2: a round holds only indices whose register was complete at a quorum (in mode `all`: stored) before it began.
//! - I3: a conflict is never taken back.
//! - I4: an index whose slot some replayer has used again is given up for ever.
//! - I5: `head` only grows, one outcome per index.
//! - I6: who answered is a set of named processes; errors change no set.

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
    /// The snapshot; empty if the index was lost or given up.
    value: Vec<u64>,
    /// Given up: it came too late.
    lost: bool,
    /// Nobody that had to answer showed another value.
    clear: bool,
    /// Who showed another value.
    conflict: ProcessSet,
    /// Who was seen to replay the same, without being asked.
    alike: ProcessSet,
    /// Answers that were no conflict: for the mutant that counts.
    tracker: usize,
    /// Delivered already: for the mutant that delivers in any order.
    delivered: bool,
}

/// What became of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome<'a> {
    /// Deliver this.
    Deliver(Value<'a>),
    /// It came too late: the sender, or somebody who replays for it, was more than a window ahead.
    Skip(u64),
}

/// Two values for one index.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Evidence {
    /// Whose stream.
    pub sender: ProcessId,
    /// The index.
    pub index: u64,
    /// What this process snapshot, all words.
    pub ours: Vec<u64>,
    /// What the other replayed, all words.
    pub other: Vec<u64>,
    /// Who showed it.
    pub witness: ProcessId,
    /// Both are signed by the sender. Without signatures the witness may be the liar, unless the fault model excludes it.
    pub proven: bool,
}

/// A stream at one process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Replay {
    config: Config,
    me: ProcessId,
    sender: ProcessId,
    /// Mode `all`: who must answer, by name.
    members: ProcessSet,
    /// Mode `quorum`: the hosts that keep the registers.
    replicas: ProcessSet,
    /// The other replayers.
    others: ProcessSet,
    layout: Layout,
    next: u64,
    head: u64,
    /// By slot.
    entries: Vec<Entry>,
    /// By host: everything below is complete there.
    published: Vec<u64>,
    round: Option<Round>,
    serial: u64,
    /// Nothing from this index on is ever delivered.
    ended: Option<u64>,
    /// What an operator's removal of the sender decided; nothing above [`head`](Replay::head) has another outcome then.
    fate: Option<Box<Cut>>,
    again: Option<u64>,
}

impl Replay {
    /// The stream of `sender` at `me`, from its beginning.
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

    /// The next index to take from the sender's buffer; `next[i]` of the pseudocode.
    #[inline]
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whose stream this is.
    #[must_use]
    pub fn sender(&self) -> ProcessId {
        self.sender
    }

    /// Whether the next outcome is due because registers were read, not by the fast path alone.
    #[must_use]
    pub fn was_read(&self) -> bool {
        self.entry(self.head).clear
    }

    /// Everything below has an outcome: the cumulative counter that frees slots, `read_upto`.
    #[inline]
    #[must_use]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// From where on nothing is delivered, because the sender did not keep to the protocol.
    #[must_use]
    pub fn ended(&self) -> Option<u64> {
        self.ended
    }

    /// Whether the next index can be taken: its slot here is free.
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

    /// Takes the snapshot of the value that lies in the sender's buffer for [`next`](Replay::next), and returns its index:
    /// to be published.
    ///
    /// # Panics
    /// Without [`has_room`](Replay::has_room).
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

    /// The buffer holds a newer index where [`next`](Replay::next) was: that one is lost.
    ///
    /// # Panics
    /// Without [`has_room`](Replay::has_room).
    pub fn overtaken(&mut self) {
        assert!(self.has_room(), "the slot is not free");
        let next = self.next;
        let entry = self.entry_mut(next);
        entry.value.clear();
        *entry = Entry { value: std::mem::take(&mut entry.value), lost: true, ..Entry::default() };
        self.next += 1;
    }

    /// The sender broke the protocol at [`next`](Replay::next): nothing more of it is taken.
    pub fn end(&mut self) {
        self.ended.get_or_insert(self.next);
    }

    /// The snapshot of an index that has no outcome yet; `None` if there is none.
    #[must_use]
    pub fn snapshot(&self, index: u64) -> Option<&[u64]> {
        let known = (self.head..self.next).contains(&index);
        known.then(|| &self.entry(index).value[..]).filter(|value| !value.is_empty())
    }

    /// Whether this process has a register for an index of the last window, with or without an outcome.
    #[must_use]
    pub fn has_register(&self, index: u64) -> bool {
        let kept = index < self.next && index + u64::from(self.config.window) >= self.next;
        kept && !self.entry(index).value.is_empty()
    }

    /// All registers of this stream below `upto` are complete at a host.
    pub fn published(&mut self, host: ProcessId, upto: u64) {
        let published = &mut self.published[host.index()];
        *published = (*published).max(upto);
    }

    /// Up to where a host has all registers of this stream.
    #[must_use]
    pub fn published_at(&self, host: ProcessId) -> u64 {
        self.published[host.index()]
    }

    /// Mode `all`: a register is where it must be as soon as it is stored.
    #[inline]
    pub(crate) fn is_stored(&self) -> bool {
        self.config.mode == Mode::All
    }

    /// Whether the register of an index is where those who read must find it.
    #[must_use]
    pub fn is_published(&self, index: u64) -> bool {
        if self.config.mode == Mode::All || mutant!(self.config.mutant, ReadBeforePublish) {
            return true;
        }
        let at = self.replicas.iter().filter(|host| self.published[host.index()] > index);
        at.count() >= self.config.quorum()
    }

    /// A replayer's register for an index was seen without asking: the fast path. Deliver when everybody else replays the
    /// same: then no correct process can hold another value.
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

    /// Somebody shows another value. Without signatures that is enough; with them only if it is the sender's own.
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

    /// The next outcome, if it is due; [`settled`](Replay::settled) goes on to the one after it.
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

    /// The outcome was acted upon.
    ///
    /// # Panics
    /// If none was due.
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
        // Only the value matters from here on, to who writes the register where it is missing.
        let entry = self.entry_mut(self.head);
        (entry.clear, entry.conflict, entry.alike, entry.tracker) = (false, ProcessSet::EMPTY, ProcessSet::EMPTY, 0);
        self.head += 1;
    }

    /// A transport error at a peer: a suspicion. It changes nothing (I6), except for mutants that take it for a crash.
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

    /// Who must answer, in mode `all`.
    #[must_use]
    pub fn members(&self) -> ProcessSet {
        self.members
    }
}
