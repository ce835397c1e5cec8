//! No-ops: slots that a group agreed to skip, so that a message that a dead client wrote only to some members does not
//! block later ones.
//!
//! A client's slots are assigned in order. If the client died, and no running process holds the message of one of them,
//! the later slots can never be assigned. Another group that has assigned its own timestamp to a message in one of
//! those then waits for ever. So the leader fills the blocking slot with a no-op, by an entry of its dense stream.
//!
//! # States of a no-op
//! *proposed* (the leader appended the entry) → *settled* (a majority of the group has processed such an entry under
//! one ballot).
//!
//! # Invariants
//! - *A gap is filled only when the process that left it has ended at a majority of the group*, and when these members,
//!   in the leader's ballot, held nothing there. So no synced message is lost. A process *ends at a member* when the
//!   member closes its generation for a successor (`succession.rs`), or gives it up because it was away for long
//!   (`node/member/absent.rs`). A member where a process has ended refuses the process's connections. So a running
//!   client of which no slot became a no-op still has a majority, and a client that has lost its majority learns that
//!   it is superseded. A member that forgot that a process has ended may accept the process again. A member that knows
//!   that the process's generation is closed does not accept the process, and sends it no credit even if it accepted
//!   the process before. So no client counts one of its own slots as delivered that became a no-op. A member that lost
//!   its memory lacks the messages that it held. But the leader that admits it has received those messages from the
//!   members that promised (`Recovery::count_promises`), so the member receives them, too.
//! - *A no-op counts when it is settled.* Then every later leader's state has it, like everything that a majority
//!   acknowledged. No leader assigned the slot before, so no majority acknowledged a message in it, and none will.
//!   Until then a new leader may lack the no-op and assign the slot. So no member counts the slot as passed, and no
//!   other group is notified. Later entries of the same leader's stream need no such care: a majority that processed
//!   those has processed the no-op's entry.
//! - *`Refused` states that a destination group has settled that the message is a no-op, or void*: it can never be
//!   decided anywhere. So a leader that receives it fills the slot although the slot is assigned. Members deliver
//!   messages after it only when that no-op is settled, like any other no-op. A later leader that does not know the
//!   no-op restores the message, but only until it is refused again.
//! - *Generations close.* The generations in the sequences distinguish the processes of a client id. Messages that a
//!   process multicast after a no-op are not assigned any more (M6 allows no holes); their slots are filled in turn.
//!   The closed generations are part of the state, and follow from its no-ops.
//! - Possibly no member here knows the name of the message whose slot is filled. The no-op is then identified by its
//!   slot and generation.

use stentor_fabric::ProcessId;

use super::Effects;
use super::agreement::Agreement;
use super::slot::Slot;
use super::window::Gap;
use crate::item::{Head, ShortSlot, StreamEntry, StreamItem};
use crate::mutant::mutant;
use crate::peer_message::{PeerMessage, SlotRef, Verdict};
use crate::{ClientId, GroupId, ids};

/// The part of a member that fills slots with no-ops. If a function returns that a slot was filled, the caller assigns
/// and delivers the messages after it.
pub(super) struct NoOps<'a, E> {
    pub(super) agreement: &'a mut Agreement,
    pub(super) effects: &'a mut E,
}

/// The part at a leader.
impl<E: Effects> NoOps<'_, E> {
    /// Asks the group for the message in the first unassigned slot, if that slot blocks later ones and the process that
    /// left it has ended here. Fills the slot when a majority lacks the message. Returns whether the slot was filled.
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
        // A member that holds the message sends it to the leader without a request. So the leader asks only after a
        // longer time.
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

    /// Handles a member's answer that it lacks the message in a slot. Returns whether messages may be due.
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

    /// Fills the gap in a client's slots if a majority lacks the message there. Returns whether the slot was filled.
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

    /// Fills the first unassigned slot if it belongs to a closed generation, according to its message's id or the first
    /// held message after it. Returns whether the slot was filled.
    pub(super) fn close(&mut self, client: ClientId, slot: u64) -> bool {
        let window = self.agreement.messages.window(client);
        // A message id alone does not suffice: it may come from a late item about a message that was never assigned,
        // and a new process may use that slot.
        let Some(behind) = window.first_from(slot, |message: &Slot| message.body) else { return false };
        let generation = window.left_by(slot, behind);
        if generation >= window.closed || mutant!(self.agreement.id.mutant(), EraNotClosed) {
            return false;
        }
        self.fill(client, slot, generation);
        true
    }

    /// Handles another group's report that it has settled that the message is a no-op or void. A report of an ended
    /// history of that group does not count: see `settling.rs`. Returns whether the message's slot was filled.
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

    /// Fills a slot: the first unassigned one, or one whose message was refused or lost.
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

    /// Appends the no-op to the stream. Followers report that they have processed it until it is settled.
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

    /// Handles the report that a follower has processed a no-op. Returns whether messages may be due.
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

    /// Ages an unsettled no-op by a tick. Returns whether it was proposed again.
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

/// The part at a follower.
impl<E: Effects> NoOps<'_, E> {
    /// Processes a no-op in the leader's stream; see [`propose`](NoOps::propose) for the leader's part.
    pub(super) fn on_entry(&mut self, head: &Head, settled: bool) {
        let owns_ballot = self.agreement.owns_ballot();
        let window = self.agreement.messages.window_mut(head.client);
        // A freed slot was settled or delivered long ago, and the leader needs no answer.
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

    /// Answers a leader that looks for the message in a slot.
    ///
    /// A member never reports that it lacks a message that a running process may still write. A member at which the
    /// process has not ended stays silent, because the successor that the leader knows may never have begun, while the
    /// process before it runs.
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

    /// Records that the no-op in the slot is settled: a majority has processed its entry.
    fn settle(&mut self, client: ClientId, slot: u64) {
        if self.agreement.messages.window_mut(client).settle(slot) {
            self.effects.freed(client);
        }
    }
}
