//! The output of a member's steps.

use stentor_fabric::ProcessId;

use crate::peer_message::PeerMessage;
use crate::{Ack, Ballot, ClientId, Incarnation, MessageId, RemoteTimestamp, StreamItem, Timestamp};

/// The receiver of a step's output.
pub trait Effects {
    /// Appends an item to the stream of every follower of this group, in the order of the calls.
    fn to_followers(&mut self, item: &StreamItem<'_>);
    /// Writes a timestamp to another group's leader.
    fn timestamp(&mut self, to: ProcessId, item: &RemoteTimestamp);
    /// Writes an acknowledgement to another destination process.
    fn acknowledge(&mut self, to: ProcessId, ack: &Ack<'_>);
    /// Returns whether the application accepts one more message, of any length. If not, due messages stay undelivered.
    /// [`go_on_delivering`](super::Replica::go_on_delivering) must be called when the application has room.
    #[inline]
    fn has_room(&self) -> bool {
        true
    }
    /// Hands a message to the application.
    fn deliver(&mut self, delivery: &Delivery);
    /// Reports that slots of a client became free without a delivery. The client's process may wait for them.
    fn freed(&mut self, _client: ClientId) {}
    /// Reports that a held message is void, or of an ended history. Its body is no longer needed, and its slot may be
    /// reused.
    fn dropped(&mut self, _client: ClientId, _slot: u64, _sequence: u64) {}
    /// Reports that the succession of a client id, or the generation below which its processes have ended, may have
    /// changed. Its process must be notified.
    fn place_changed(&mut self, _client: ClientId) {}
    /// Returns whether earlier items for the followers are still unsent. While they are, the leader repeats no
    /// timestamps, vectors, no-ops and words, because that would only lengthen the queue.
    fn is_held_up(&self) -> bool {
        false
    }
    /// Returns whether a message to a member would be written now. If not, all messages for the member are written when
    /// it is connected ([`on_connected`](super::Replica::on_connected)).
    fn reaches(&self, _to: ProcessId) -> bool {
        true
    }
    /// Begins a ballot in the stream of every follower: the following items belong to it. Unsent items of an earlier
    /// ballot may be dropped.
    fn begin_stream(&mut self, ballot: Ballot);
    /// Reports that this member begins to prepare a ballot of its own, with the clock that it recovered. Every member
    /// that installs the ballot has at least that clock.
    fn recovered(&mut self, _ballot: Ballot, _clock: u64) {}
    /// Writes a message to a member. If it [carries a snapshot](PeerMessage::carries_snapshot), the application's
    /// current state is sent with it.
    fn send(&mut self, to: ProcessId, message: &PeerMessage);
    /// Forwards the body that is held in a slot to a member. Sends [`PeerMessage::Gone`] if it is not held any more.
    fn body(&mut self, to: ProcessId, client: ClientId, slot: u64);
    /// Forwards a body that `to` has not named in its request, if the body is still held.
    fn spare_body(&mut self, to: ProcessId, client: ClientId, slot: u64) {
        self.body(to, client, slot);
    }
    /// Reports that this member's deliveries continue after number `number`, because it adopted a state. The
    /// application must adopt a state with at least as many deliveries. Such a state arrived with the current peer
    /// message or earlier.
    fn restore(&mut self, number: u64);
    /// Reports that the group is founded, or reset to an empty state. All messages that the application has received
    /// belong to an ended history.
    fn begin_history(&mut self) {}
}

/// A message that is due.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Delivery {
    /// The message.
    pub id: MessageId,
    /// Slot of the message at this group.
    pub slot: u64,
    /// Final timestamp of the message, which determines its position in the order.
    pub timestamp: Timestamp,
    /// Number of this delivery, from 1. Deliveries that came with another member's state are counted, too.
    pub number: u64,
    /// This group's ballot that was installed here when the message was delivered.
    pub ballot: Ballot,
    /// The incarnation in which the history of the delivery began: the last one that was founded or reset before the
    /// delivery. It is equal at all members of the group.
    pub origin: Incarnation,
}
