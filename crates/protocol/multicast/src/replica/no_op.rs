//! Slots that are given up: what a client that died left half-written must not stop the messages behind it.
//!
//! A client's slots are assigned in their order. If it died, and no living process holds what was in one of them, the ones
//! behind it can never be assigned; another group that has given its own timestamp to one of those then waits for ever. So
//! the leader fills the slot with a no-op, by an entry of its dense stream.
//!
//! # States of a no-op
//! *proposed* (the leader appended the entry) → *settled* (a majority of the group has processed an entry that says so under
//! one ballot).
//!
//! # Invariants
//! - *A gap is filled only when the process that left it is over at a majority of the group*, and when these members, in
//!   the leader's ballot, held nothing there: what was synced is not lost. A process is over at a member from the greeting
//!   of its successor, which multicasts nothing before all members hold nothing undelivered, gaps included; or from when
//!   it was given up, being away for long (`node/member/absent.rs`). A member where a process is over does not let it come
//!   back. So a client that lives and has no no-op has a majority, and one that has lost it learns that it is superseded.
//!   A member that forgot that a process is over may let it come back; but not when it knows that its generation is closed,
//!   and it writes it no credit then: a client whose slot became a no-op counts it nowhere as delivered.
//!   A member that lost its memory lacks what it held; but the leader that takes it in has that from the members that
//!   promised (`Recovery::count_promises`), and so it has it, too.
//! - *A no-op counts when it is settled.* Then every later leader's state has it, as it has what a majority acknowledged:
//!   nobody assigned the slot before, so no majority acknowledged what is in it, and nobody will. Until then a new leader may
//!   lack it and assign the slot; so no member counts the slot among those that are passed, and no other group is told. What
//!   the same leader puts into its stream behind the entry needs no such care: a majority that processed that has processed
//!   this.
//! - *`Refused` says that a destination group has settled that the message is a no-op*: it can be decided nowhere, ever. So a
//!   leader that is told fills the slot although it is assigned, and every member that hears of that delivers past it at
//!   once: a later leader that has not heard brings the message back, but only until it is refused again.
//! - *Generations close.* The processes of a client id are told apart by the generations of their sequences. What a process
//!   multicast after a no-op is not assigned any more (M6 allows no holes), but filled in turn. Which generations are closed
//!   is part of the state, and follows from its no-ops.
//! - Nobody here may have heard the name of the message whose slot is filled. It is known by its slot then, and by its
//!   generation.

use stentor_fabric::ProcessId;

use super::Effects;
use super::agreement::Agreement;
use super::slot::Slot;
use super::window::Gap;
use crate::item::{Head, ShortSlot, StreamEntry, StreamItem};
use crate::mutant::mutant;
use crate::peer_message::{PeerMessage, SlotRef, Verdict};
use crate::{ClientId, GroupId, ids};

/// The part of a member that fills slots with no-ops. Where a function returns whether a slot was filled, the caller assigns
/// and delivers what comes behind it.
pub(super) struct NoOps<'a, E> {
    pub(super) agreement: &'a mut Agreement,
    pub(super) effects: &'a mut E,
}

/// At a leader.
impl<E: Effects> NoOps<'_, E> {
    /// Asks the group for what is in the first unassigned slot, if that stands in the way; fills it when a majority lacks
    /// it. Returns whether it did.
    pub(super) fn look_for_gap(&mut self, client: ClientId) -> bool {
        let Agreement { id, ballots, messages, .. } = &mut *self.agreement;
        let window = messages.window_mut(client);
        let any = mutant!(id.mutant(), VoidOfTheLiving);
        if window.over_below == 0 && !any {
            return false;
        }
        let slot = window.assigned;
        let left_by = window.gap_before().map(|behind| window.left_by(slot, behind));
        let Some(generation) = left_by.filter(|generation| any || *generation < window.over_below) else {
            window.gap = Gap::default();
            return false;
        };
        if window.gap.slot != slot || window.gap.lacking == 0 {
            window.gap = Gap { slot, age: 0, lacking: id.bit };
        }
        window.gap.age = window.gap.age.saturating_add(1);
        // A member that holds something tells the leader without being asked: this is the last resort.
        if window.gap.age < id.config.retry_ticks.saturating_mul(4) {
            return false;
        }
        window.gap.age = 0;
        let wanted = SlotRef { client, slot, ballot: ballots.installed, generation };
        for member in id.others() {
            self.effects.send(member, &PeerMessage::Seek(wanted));
        }
        self.fill_gap(client)
    }

    /// A member lacks what is in a slot. Returns whether messages may be due.
    pub(super) fn on_lacking(&mut self, from: ProcessId, lacked: SlotRef) -> bool {
        let bit = self.agreement.id.bit_of(from);
        let current = lacked.ballot == self.agreement.ballots.installed;
        let window = self.agreement.messages.client_mut(lacked.client).filter(|_| current);
        let Some(gap) = window.map(|window| &mut window.gap).filter(|gap| gap.lacking != 0 && gap.slot == lacked.slot)
        else {
            return false;
        };
        gap.lacking |= bit;
        self.fill_gap(lacked.client);
        true
    }

    /// Fills the gap in a client's slots if a majority lacks what is there.
    fn fill_gap(&mut self, client: ClientId) -> bool {
        let window = self.agreement.messages.window(client);
        let (slot, lacking) = (window.assigned, window.gap.lacking);
        let stands = window.gap.slot == slot && !window.holds(slot) && self.agreement.id.is_majority(lacking);
        let behind = window.first_from(slot, |behind| behind.body).filter(|_| stands);
        let Some(generation) = behind.map(|behind| window.left_by(slot, behind)) else {
            return false;
        };
        if generation >= window.over_below && !mutant!(self.agreement.id.mutant(), VoidOfTheLiving) {
            return false;
        }
        self.fill(client, slot, generation);
        true
    }

    /// Fills the first unassigned slot, if it is of a closed generation: what is in it is, or the first known thing behind
    /// it. Returns whether it did.
    pub(super) fn close(&mut self, client: ClientId, slot: u64) -> bool {
        let window = self.agreement.messages.window(client);
        // A name alone may be a late word about what was never assigned; a new process may use that slot.
        let Some(behind) = window.first_from(slot, |message: &Slot| message.body) else { return false };
        let generation = window.left_by(slot, behind);
        if generation >= window.closed || mutant!(self.agreement.id.mutant(), EraNotClosed) {
            return false;
        }
        self.fill(client, slot, generation);
        true
    }

    /// A message can never be decided: a destination group has settled that it is a no-op. What a history of that group said
    /// that is over does not count: see `settling.rs`.
    pub(super) fn on_refused(&mut self, group: GroupId, verdict: Verdict) -> bool {
        if !self.agreement.ballots.is_known(group, verdict.ballot) {
            return false;
        }
        let (messages, refused) = (&self.agreement.messages, verdict.message);
        let Some(slot) = messages.find(refused) else { return false };
        let message = messages.get(refused.client, slot);
        if message.decided.is_some() || message.no_op || !message.ordered {
            return false;
        }
        self.fill(refused.client, slot, ids::generation(refused.sequence));
        true
    }

    /// Fills a slot: the first that is not assigned, or one whose message was refused or lost.
    pub(super) fn fill(&mut self, client: ClientId, slot: u64, generation: u64) {
        let owns_ballot = self.agreement.owns_ballot();
        let window = self.agreement.messages.window_mut(client);
        window.gap = Gap::default();
        window.make_room(slot);
        let known = window.slot(slot).sequence;
        let of_generation = ids::generation(known) == generation;
        let sequence = if of_generation { known } else { ids::first_of_generation(generation) };
        window.fill(slot, sequence, owns_ballot);
        self.propose(client, slot);
    }

    /// Tells the followers that a slot is a no-op; they answer until that is settled.
    pub(super) fn propose(&mut self, client: ClientId, slot: u64) {
        self.append(client, slot);
        self.count(client, slot);
    }

    fn append(&mut self, client: ClientId, slot: u64) {
        self.agreement.counter += 1;
        let message = self.agreement.messages.get_mut(client, slot);
        message.age = 0;
        let groups = message.groups.max(1) as u8;
        let head = Head { client, sequence: message.sequence, slot: ShortSlot::of(slot), groups };
        let entry = StreamEntry::NoOp { settled: message.settled };
        self.effects.to_followers(&StreamItem { head, counter: self.agreement.counter, entry });
    }

    /// A follower has processed that a slot is a no-op. Returns whether messages may be due.
    pub(super) fn on_processed(&mut self, from: ProcessId, processed: SlotRef) -> bool {
        let bit = self.agreement.id.bit_of(from);
        let current = processed.ballot == self.agreement.ballots.installed;
        let window = self.agreement.messages.client_mut(processed.client).filter(|_| current);
        let Some(window) = window.filter(|window| window.pending().contains(&processed.slot)) else { return false };
        let message = window.slot_mut(processed.slot);
        if !message.no_op {
            return false;
        }
        message.processed_by |= bit;
        self.count(processed.client, processed.slot);
        true
    }

    fn count(&mut self, client: ClientId, slot: u64) {
        let id = &self.agreement.id;
        let message = self.agreement.messages.get(client, slot);
        let enough = id.is_majority(message.processed_by | id.bit) || mutant!(id.mutant(), VoidAtOnce);
        if !message.settled && enough {
            self.settle(client, slot);
            self.append(client, slot);
        }
    }

    /// A no-op that is not settled is a tick older. Returns whether it was proposed again.
    pub(super) fn grow_old(&mut self, client: ClientId, slot: u64) -> bool {
        let message = self.agreement.messages.get_mut(client, slot);
        if message.settled {
            return false;
        }
        message.age += 1;
        let due = message.age >= self.agreement.id.config.retry_ticks;
        if due {
            self.propose(client, slot);
        }
        due
    }
}

/// At a follower.
impl<E: Effects> NoOps<'_, E> {
    /// The leader's stream says that a slot is a no-op: a follower's part of [`propose`](NoOps::propose).
    pub(super) fn on_entry(&mut self, head: &Head, settled: bool) {
        let owns_ballot = self.agreement.owns_ballot();
        let window = self.agreement.messages.window_mut(head.client);
        // A slot that is freed here is a no-op or delivered long since, and the leader needs no answer.
        let Some(slot) = window.resolve_no_op(head) else { return };
        if slot >= window.first_undelivered() {
            window.make_room(slot);
            window.fill(slot, head.sequence, owns_ballot);
        }
        if settled {
            self.settle(head.client, slot);
            self.agreement.deliver_due(self.effects);
        } else {
            let ballot = self.agreement.ballots.installed;
            let generation = ids::generation(head.sequence);
            let processed = SlotRef { client: head.client, slot, ballot, generation };
            self.effects.send(ballot.leader(), &PeerMessage::NoOpProcessed(processed));
        }
    }

    /// The leader looks for what is in a slot. Nobody lacks what a process may still write: a member that was not greeted by
    /// a successor is silent, because the leader's may have been one that never began, while the process before it lives.
    pub(super) fn on_seek(&mut self, from: ProcessId, wanted: SlotRef) {
        let Agreement { id, ballots, messages, .. } = &*self.agreement;
        let current = ballots.is_current() && ballots.installed == wanted.ballot;
        let Some(window) = messages.client(wanted.client).filter(|_| current) else { return };
        if window.is_here(wanted.slot) && window.slot(wanted.slot).body {
            self.effects.body(from, wanted.client, wanted.slot);
        } else if !window.holds(wanted.slot)
            && (wanted.generation < window.over_below || mutant!(id.mutant(), VoidOfTheLiving))
        {
            self.effects.send(from, &PeerMessage::Lacking(wanted));
        }
    }

    /// A majority has processed that the slot is a no-op.
    fn settle(&mut self, client: ClientId, slot: u64) {
        if self.agreement.messages.window_mut(client).settle(slot) {
            self.effects.freed(client);
        }
    }
}
