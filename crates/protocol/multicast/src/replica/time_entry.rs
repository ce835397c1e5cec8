//! Time entries: messages of a group to itself, without a body. They advance the time of its order when no client does.
//! The statements about their sequences also apply to version entries (`version_entry.rs`).
//!
//! A group's time is that of its last delivery, so it does not advance in an idle group. In an idle group, actions at a
//! given time, such as the end of a session, would wait for a client's next message. So a group has one more client id,
//! which no process uses ([`Topology::time_client`](crate::Topology::time_client)), and its messages are time entries.
//! The leader orders one when its shell asks for it: [`Replica::order_time`].
//!
//! # Why time entries are messages
//! All properties of messages hold for time entries: they have a timestamp of the group, a position in its order and a
//! number among its deliveries. A majority decides them, a new leader repeats them, and promises and states contain
//! them. Nothing is added to the stream, to the ballots or to the order, and no new argument is needed for them.
//!
//! # Why no content is sent
//! The content of a time entry follows from its slot. The group alone is its destination, and its sequence is one more
//! than the slot, in the first generation of the incarnation in which it is named. Two leaders of one incarnation that
//! use a slot name the same message, whatever their ballots. So if one leader's assignment was in vain, the next leader
//! assigns the same message, as if both had received it from a client. A member creates the message when the leader's
//! stream assigns it, or when it adopts a state in which it is assigned. It never holds one that is not assigned. So no
//! promise lists one, no member requests its body, and no member waits for it.
//!
//! # Invariants
//! - *A leader has at most one undelivered time entry.* A request for another one is refused meanwhile, because the
//!   entry in progress may be late enough. So time entries take no more of the stream than one client that waits for
//!   each of its messages.
//! - *The time of a time entry is later than the requested one*, like that of a message with a `not_before`: the leader
//!   raises its clock first, within the bound of clocks.
//! - *No time entry is a no-op.* No process that could die multicasts them, no other group can refuse one, and an
//!   assignment in vain leaves no gap: the next leader begins with that slot. Peer messages about processes and bodies
//!   are never sent about time entries ([`PeerMessage::place`](crate::PeerMessage)); an input that contradicts this is
//!   refused.
//! - *Time entries are not counted against clients.* They wait for no share, and make no client wait for its share.
//!
//! A slot is reused after a window of later time entries, whether all members have delivered its entry or not: no
//! member sends credits for them. A member that follows the stream processes each entry in its turn. A member that has
//! missed more than a window of entries receives the application's state with the leader's state, as if it had missed a
//! window of a client's messages.

use super::leader::Leader;
use super::{Effects, Rejected, Replica};
use crate::item::{Head, ShortSlot};
use crate::physical_clock::END_OF_TIME;
use crate::state::ClientState;
use crate::{ClientId, Destination, GroupId, MessageId, ids};

/// Returns the sequence of the entry in a slot, as leaders of this incarnation name it.
fn sequence_of(slot: u64, incarnation: u32) -> u64 {
    ids::first_of_generation(ids::first_generation_of(incarnation)) + slot + 1
}

/// Returns whether this is the sequence of the entry in a slot, in some incarnation.
fn names(sequence: u64, slot: u64) -> bool {
    sequence & ((1 << ids::INCARNATION_SHIFT) - 1) == slot + 1
}

/// Checks that an item names the entry of its slot.
///
/// # Errors
/// Returns [`Rejected::OtherMessage`] if it does not.
pub(super) fn check(head: &Head, slot: u64) -> Result<(), Rejected> {
    if head.groups == 1 && names(head.sequence, slot) {
        return Ok(());
    }
    Err(Rejected::OtherMessage { client: head.client.0, slot, sequence: head.sequence })
}

/// Returns whether a state's part about a group's own entries is valid: each has this group as its only destination, is
/// assigned and is not a no-op.
pub(crate) fn is_possible(state: &ClientState, group: GroupId) -> bool {
    let of_processes = state.closed != 0 || !state.successions.is_empty() || !state.held.is_empty();
    let mut entries = (state.from..).zip(&state.entries);
    !of_processes
        && entries.all(|(slot, entry)| {
            let alone = entry.destinations[..] == [Destination { group, slot }];
            alone && !entry.no_op && names(entry.sequence, slot)
        })
}

impl<E: Effects> Leader<'_, E> {
    /// Assigns the next entry of one of the group's own client ids. Returns `None` if a whole window of such entries is
    /// in progress.
    pub(super) fn order_own_entry(&mut self, client: ClientId, not_before: u64) -> Option<MessageId> {
        let (group, incarnation) = (self.agreement.id.group, self.agreement.ballots.installed.incarnation());
        let most = u64::from(self.agreement.id.config.window);
        let window = self.agreement.messages.window_mut(client);
        let slot = window.assigned;
        let under_way = window.pending();
        if under_way.end - under_way.start >= most {
            return None;
        }
        let sequence = sequence_of(slot, incarnation);
        let head = Head { client, sequence, slot: ShortSlot::of(slot), groups: 1 };
        window.make_room(slot);
        let message = window.slot_mut(slot);
        message.hold_empty(&head, slot, group).ok()?;
        message.not_before = not_before;
        self.assign_ready(client);
        Some(MessageId { client, sequence })
    }
}

impl Replica {
    /// Orders a time entry, and returns its id. A time entry is a message of this group to itself, without a body,
    /// whose time is later than `not_before`. It is delivered like any other message, and its id names [the group's
    /// client](crate::Topology::time_client).
    ///
    /// Returns `None` if this member does not lead, if the last entry is not delivered here yet, if `not_before` is
    /// farther ahead of the physical time than the bound of clocks, or if this group orders none
    /// ([`time_entries`](super::ReplicaConfig::time_entries)). Ask again later if the entry is still needed. A deposed
    /// leader may leave an entry undecided. If its successor does not know the entry, the entry is lost, and must be
    /// requested from the successor.
    pub fn order_time<E: Effects>(&mut self, not_before: u64, effects: &mut E) -> Option<MessageId> {
        let leads = self.is_leader() && !self.is_superseded();
        let agreement = &mut self.agreement;
        let client = agreement.messages.time_client().filter(|_| leads)?;
        let mutant = agreement.id.mutant();
        // A clock that has reached this time needs no raise, however far it is ahead of the physical time.
        let not_before = if not_before <= agreement.clock.now() { 0 } else { not_before };
        if not_before >= END_OF_TIME || agreement.clock.beyond(not_before, mutant) > 0 {
            return None;
        }
        if !agreement.messages.window(client).pending().is_empty() {
            return None;
        }
        let ordered = self.leader(effects).order_own_entry(client, not_before);
        self.deliver(effects);
        ordered
    }

    /// Returns the group's time entry that is ordered and not delivered here.
    #[must_use]
    pub fn time_entry_under_way(&self) -> Option<MessageId> {
        let client = self.agreement.messages.time_client()?;
        let window = self.agreement.messages.window(client);
        let first = window.pending().next()?;
        Some(MessageId { client, sequence: window.slot(first).sequence })
    }
}
