//! The output of a member's steps.

use stentor_fabric::ProcessId;

use crate::peer_message::PeerMessage;
use crate::{Ack, Ballot, ClientId, Incarnation, MessageId, RemoteTimestamp, StreamItem, Timestamp};

/// Where the output of a step goes.
pub trait Effects {
    /// Append to the stream of every follower of the own group, in this order.
    fn to_followers(&mut self, item: &StreamItem<'_>);
    /// Write a timestamp to another group's leader.
    fn timestamp(&mut self, to: ProcessId, item: &RemoteTimestamp);
    /// Write an acknowledgement to another destination process.
    fn acknowledge(&mut self, to: ProcessId, ack: &Ack<'_>);
    /// Whether the application takes one more message, of any length. What is due stays undelivered until
    /// [`go_on_delivering`](super::Replica::go_on_delivering) is called when it does.
    #[inline]
    fn has_room(&self) -> bool {
        true
    }
    /// Hand a message to the application.
    fn deliver(&mut self, delivery: &Delivery);
    /// Slots of a client are free that were not delivered: its process may wait for them.
    fn freed(&mut self, _client: ClientId) {}
    /// A held message is void. Its body is no longer needed, and its slot may be used again.
    fn dropped(&mut self, _client: ClientId, _slot: u64, _sequence: u64) {}
    /// A client's place has changed, so its process must be told.
    fn place_changed(&mut self, _client: ClientId) {}
    /// Whether what was appended for followers before has not gone out yet: saying it again would only add to it.
    fn is_held_up(&self) -> bool {
        false
    }
    /// Whether a message to a member would be written now. One that is not is told everything when it is connected
    /// ([`on_connected`](super::Replica::on_connected)).
    fn reaches(&self, _to: ProcessId) -> bool {
        true
    }
    /// Append to the stream of every follower: what follows is of this ballot. What was not yet written of an earlier
    /// ballot need not be written any more.
    fn begin_stream(&mut self, ballot: Ballot);
    /// This member begins to prepare a ballot of its own, with the clock that it recovered: whoever installs the ballot has that clock at
    /// least.
    fn recovered(&mut self, _ballot: Ballot, _clock: u64) {}
    /// Write a message to a member. If it [carries a snapshot](PeerMessage::carries_snapshot), the application's state as it
    /// is now goes with it.
    fn send(&mut self, to: ProcessId, message: &PeerMessage);
    /// Forward the body that is held in a slot to a member; answer [`PeerMessage::Gone`] if it is not there any more.
    fn body(&mut self, to: ProcessId, client: ClientId, slot: u64);
    /// Forward a body as well, if it is still there.
    fn spare_body(&mut self, to: ProcessId, client: ClientId, slot: u64) {
        self.body(to, client, slot);
    }
    /// The application takes over a state that counts at least `number` deliveries. It came with this peer message or before it.
    fn restore(&mut self, number: u64);
    /// The group is founded, or reset with nothing: whatever the application was given before is of a history that is over.
    fn begin_history(&mut self) {}
}

/// A message that is due.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Delivery {
    /// The message.
    pub id: MessageId,
    /// Its slot at this group.
    pub slot: u64,
    /// Its final timestamp, which orders it.
    pub timestamp: Timestamp,
    /// Number of this delivery at this process, from 1.
    pub number: u64,
    /// The own group's ballot; the message was decided under it, or was known by then to be decided.
    pub ballot: Ballot,
    /// Where the history that it is part of began: the group was founded or reset there last. The same at every member of the
    /// group.
    pub origin: Incarnation,
}
