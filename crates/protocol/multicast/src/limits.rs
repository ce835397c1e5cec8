//! The sizes of rings, windows and messages. They are fixed at start, so the memory of a process has a bound that is
//! known in advance (property M8 in `docs/guarantees.md`).

use stentor_fabric::memory::{LINE, WORD};
use stentor_fabric::ring::Geometry;
use stentor_fabric::seal::record_cells;
use thiserror::Error;

use crate::message::MAX_DESTINATIONS;
use crate::node::{IN_FLIGHT_BYTES, INBOX_BYTES, PIECE_BYTES, PIECES, STORED_BYTES};
use crate::{Header, Replica, Topology};

/// Bytes of the credit cells in front of the ring in a control region. One cell is for the control ring in the other
/// direction, one for the stream.
pub(crate) const CREDIT_CELLS_BYTES: u64 = 128;
/// Bytes of the cell for a peer's credit for a ring of replies or queries.
pub(crate) const RECORD_CREDIT_BYTES: u64 = LINE as u64;
/// Bytes after the ring in a stream region. The leader writes there to confirm that it still leads.
const CONFIRM_BYTES: u64 = LINE as u64;
/// Byte offset of the credit for the stream in a control region.
pub(crate) const STREAM_CREDIT_OFFSET: u64 = 64;

/// The sizes that all processes of a cluster agree on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// Size of the longest message, in bytes.
    pub message_bytes: usize,
    /// Number of undelivered messages that a client may have at one group; a power of two.
    pub window: u32,
    /// Size of the ring for one client's messages at one member, in bytes. The size is rounded up so that two messages
    /// of the maximum length fit.
    pub body_ring_bytes: u64,
    /// Size of a ring between two members, in bytes: of the ring for stream entries, and of the one for timestamps,
    /// acknowledgements and peer messages.
    pub control_ring_bytes: u64,
    /// Size of the largest application state that one member transfers to another one, in bytes.
    pub snapshot_bytes: u64,
    /// Size of the backlog of deliveries that a donor keeps for the receiver of a transfer, in bytes.
    pub backlog_bytes: u64,
    /// Lowest rate to which clients are slowed down when the backlog is nearly full, in percent of their usual rate.
    pub slowed_percent: u32,
    /// Size of the longest reply of a member to a client, in bytes. At 0 there are no replies, and no memory is
    /// registered for them.
    pub reply_bytes: usize,
    /// Size of the ring for one member's replies at one client, in bytes. The size is rounded up so that two replies of
    /// the maximum length fit.
    pub reply_ring_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            message_bytes: 65536,
            window: 1024,
            body_ring_bytes: 1 << 20,
            control_ring_bytes: 64 << 10,
            snapshot_bytes: 2 << 30,
            backlog_bytes: 256 << 20,
            slowed_percent: 25,
            reply_bytes: 0,
            reply_ring_bytes: 64 << 10,
        }
    }
}

/// The reason why a size is invalid.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum LimitsError {
    /// Messages are too long.
    #[error("messages of {0} bytes: at most {max} are possible", max = Limits::MAX_MESSAGE_BYTES)]
    MessageBytes(usize),
    /// The window is not a power of two, or is too large.
    #[error("a window of {0} messages: a power of two up to {max} is possible", max = Limits::MAX_WINDOW)]
    Window(u32),
    /// A ring is too large.
    #[error("rings of {0} bytes: at most {max} are possible", max = Limits::MAX_RING_BYTES)]
    Ring(u64),
    /// The state or the backlog is too large, or the backlog is too small.
    #[error(
        "a state of {snapshot} bytes and a backlog of {backlog} bytes: at most {max} are possible for each, and the \
         backlog must hold at least one message",
        max = Limits::MAX_SNAPSHOT_BYTES
    )]
    Transfer {
        /// Size of the state, in bytes.
        snapshot: u64,
        /// Size of the backlog, in bytes.
        backlog: u64,
    },
    /// Replies are too long.
    #[error("replies of {0} bytes: at most {max} are possible", max = Limits::MAX_REPLY_BYTES)]
    ReplyBytes(usize),
    /// The percentage is not between 1 and 100.
    #[error("clients slowed down to {0} percent: 1 to 100 percent are possible")]
    Percent(u32),
}

impl Limits {
    /// Largest value of `message_bytes`, in bytes.
    pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
    /// Largest value of `reply_bytes`, in bytes.
    pub const MAX_REPLY_BYTES: usize = 2 << 20;
    /// Largest value of `window`, in messages.
    pub const MAX_WINDOW: u32 = 1 << 16;
    /// Largest size of a ring, in bytes.
    pub const MAX_RING_BYTES: u64 = 1 << 30;
    /// Largest size of the state and of the backlog, in bytes.
    pub const MAX_SNAPSHOT_BYTES: u64 = 1 << 40;

    /// Checks the sizes.
    ///
    /// # Errors
    /// See [`LimitsError`].
    pub fn check(&self) -> Result<(), LimitsError> {
        if self.message_bytes > Self::MAX_MESSAGE_BYTES {
            return Err(LimitsError::MessageBytes(self.message_bytes));
        }
        if !self.window.is_power_of_two() || self.window > Self::MAX_WINDOW {
            return Err(LimitsError::Window(self.window));
        }
        if self.reply_bytes > Self::MAX_REPLY_BYTES {
            return Err(LimitsError::ReplyBytes(self.reply_bytes));
        }
        let rings = [self.body_ring_bytes, self.control_ring_bytes, self.reply_ring_bytes];
        if let Some(bytes) = rings.into_iter().find(|bytes| *bytes > Self::MAX_RING_BYTES) {
            return Err(LimitsError::Ring(bytes));
        }
        let (snapshot, backlog) = (self.snapshot_bytes, self.backlog_bytes);
        if snapshot.max(backlog) > Self::MAX_SNAPSHOT_BYTES || backlog < self.least_backlog() {
            return Err(LimitsError::Transfer { snapshot, backlog });
        }
        if !(1..=100).contains(&self.slowed_percent) {
            return Err(LimitsError::Percent(self.slowed_percent));
        }
        Ok(())
    }

    /// Returns the size of the smallest backlog that fits any message, in bytes.
    fn least_backlog(&self) -> u64 {
        self.message_bytes as u64 + 64
    }

    /// Returns the geometry of the ring for one client's messages at one member.
    #[must_use]
    pub fn body_ring(&self, topology: &Topology) -> Geometry {
        let destinations = topology.groups().min(MAX_DESTINATIONS);
        let longest = Header::words(destinations) * 8 + self.message_bytes;
        Geometry::new(0, self.body_ring_bytes / 64, longest)
    }

    /// Returns the geometry of the ring for the stream between two members.
    #[must_use]
    pub fn stream_ring(&self, topology: &Topology) -> Geometry {
        Geometry::new(0, self.control_ring_bytes / 64, longest_batch(topology))
    }

    /// Returns the size of the region of a stream, in bytes: the ring, and with [replies](Limits::has_replies) one more
    /// line.
    ///
    /// The leader writes to that line to confirm that it still leads.
    #[must_use]
    pub fn stream_region_bytes(&self, topology: &Topology) -> u64 {
        self.stream_ring(topology).bytes() + if self.has_replies() { CONFIRM_BYTES } else { 0 }
    }

    /// Returns the geometry of the ring for timestamps, acknowledgements and peer messages between two members. Credits
    /// are stored in front of it.
    #[must_use]
    pub fn control_ring(&self, topology: &Topology) -> Geometry {
        Geometry::new(CREDIT_CELLS_BYTES, self.control_ring_bytes / 64, longest_batch(topology))
    }

    /// Returns the number of slots at a member: a window for each client, and one for each of the two kinds of the
    /// group's own entries.
    ///
    /// Only members that can reply to clients order such entries
    /// ([`ReplicaConfig::time_entries`](crate::ReplicaConfig::time_entries)).
    fn places(&self, topology: &Topology) -> u64 {
        (topology.clients() as u64 + 2 * u64::from(self.has_replies())) * u64::from(self.window)
    }

    /// Returns whether members can reply to clients.
    #[must_use]
    pub fn has_replies(&self) -> bool {
        self.reply_bytes > 0
    }

    /// Returns the geometry of the ring for one member's replies at one client, if there are
    /// [replies](Limits::has_replies).
    #[must_use]
    pub fn reply_ring(&self) -> Geometry {
        Geometry::new(0, self.reply_ring_bytes / 64, self.reply_bytes)
    }

    /// Returns the largest payload of a record in any ring, in bytes.
    #[must_use]
    pub fn longest_payload(&self, topology: &Topology) -> usize {
        let between = self.control_ring(topology).max_payload().max(self.stream_ring(topology).max_payload());
        self.body_ring(topology).max_payload().max(between).max(self.reply_bytes)
    }

    /// Returns the geometry of the ring for one client's queries at one member, if there are
    /// [replies](Limits::has_replies).
    ///
    /// A query may be as long as a message. The ring has the configured size of a ring of replies.
    #[must_use]
    pub fn query_ring(&self) -> Geometry {
        Geometry::new(0, self.reply_ring_bytes / 64, self.message_bytes)
    }

    /// Returns the number of bytes that a client registers for replies and queries.
    ///
    /// For each member these are a ring for its replies, and a cell for its credit for the client's queries. Staging is
    /// added if the record of a query may exceed the inline limit of the fabric. Without replies the result is 0.
    #[must_use]
    pub fn client_reply_bytes(&self, topology: &Topology, inline_bytes: u32) -> u64 {
        let each = self.reply_ring().bytes() + written_bytes(&self.query_ring(), inline_bytes);
        if self.has_replies() { topology.all_members() as u64 * each } else { 0 }
    }

    /// Returns the number of bytes that a member registers for replies and queries.
    ///
    /// For each client these are a ring for its queries, and a cell for its credit for the member's replies. Staging is
    /// added if the record of a reply may exceed the inline limit of the fabric. Without replies the result is 0.
    #[must_use]
    pub fn member_reply_bytes(&self, topology: &Topology, inline_bytes: u32) -> u64 {
        let each = self.query_ring().bytes() + written_bytes(&self.reply_ring(), inline_bytes);
        if self.has_replies() { topology.clients() as u64 * each } else { 0 }
    }

    /// Returns the memory that one member registers and allocates, by the formula that `stentor config check` prints.
    ///
    /// `inline_bytes` is the fabric's inline limit. Longer records are posted from a staging region that is as large as
    /// their ring.
    #[must_use]
    pub fn memory(&self, topology: &Topology, group_size: usize, inline_bytes: u32) -> MemoryPlan {
        let clients = topology.clients() as u64;
        let others = topology.all_members() as u64 - 1;
        let followers = group_size as u64 - 1;
        let body = self.body_ring(topology).bytes();
        let (control, stream) = (self.control_ring(topology), self.stream_ring(topology));
        let staged = record_cells(control.max_payload()) as u64 * LINE as u64 > u64::from(inline_bytes);
        // The stream always has staging: from there the leader sends the entries that a reconnecting follower missed.
        let pulses = if followers > 0 { group_size as u64 * LINE as u64 } else { 0 };
        let staging = stream.bytes() + if staged { others * control.bytes() } else { 0 };
        let longest = self.body_ring(topology).max_payload().next_multiple_of(WORD) as u64;
        MemoryPlan {
            registered: clients * body
                + others * (CREDIT_CELLS_BYTES + control.bytes())
                + followers * self.stream_region_bytes(topology)
                + (others + clients) * INBOX_BYTES
                + pulses
                + staging
                + self.member_reply_bytes(topology, inline_bytes),
            mirrors: clients * body,
            windows: self.places(topology) * (Self::slot_bytes() + Self::slot_heap_bytes(topology)),
            queues: self.queue_bytes(topology, others + followers),
            aside: clients * u64::from(self.window) * longest,
            letters: others * 2 * self.letter_bytes(topology),
            transfers: self.snapshot_bytes + self.backlog_bytes + PIECES * (PIECE_BYTES.max(longest) + LINE as u64),
        }
    }

    /// Returns the number of bytes that a member allocates for each slot of a window.
    ///
    /// These bytes hold the state of the slot's message, its entry in the order, and the location of its body. The
    /// operating system provides the memory when the slot is first used.
    #[must_use]
    pub fn slot_bytes() -> u64 {
        Replica::slot_bytes() + STORED_BYTES
    }

    /// Returns the number of additional bytes that a member keeps for each slot that has held a message to the largest
    /// possible number of destination groups.
    ///
    /// These bytes hold destinations, times and the votes for one vector. If the acknowledgements of a message name
    /// several vectors, as after a change of leader, the slot needs more until that message is delivered.
    #[must_use]
    pub fn slot_heap_bytes(topology: &Topology) -> u64 {
        Replica::slot_heap_bytes(topology.groups().min(MAX_DESTINATIONS))
    }

    /// Returns the largest number of bytes that a client keeps for each slot of its window at each group.
    ///
    /// For each slot, the client waits for two events: the delivery of the slot's message, and the report that a
    /// majority holds that message.
    #[must_use]
    pub fn awaited_bytes() -> u64 {
        2 * IN_FLIGHT_BYTES
    }

    /// Returns the largest size of a peer message, in bytes. All peer messages that are queued for one peer have the
    /// same limit in total.
    ///
    /// The result is twice the size of all clients' body rings, twice the largest description of all slots, and 1 MiB
    /// for all other content.
    #[must_use]
    pub fn letter_bytes(&self, topology: &Topology) -> u64 {
        let groups = topology.groups().min(MAX_DESTINATIONS) as u64;
        let places = self.places(topology);
        2 * topology.clients() as u64 * self.body_ring(topology).bytes()
            + 2 * places * (3 + 2 * groups) * WORD as u64
            + (1 << 20)
    }

    /// Returns the largest number of bytes that can wait in outboxes.
    ///
    /// An item about a message can wait only if the reader has not freed the message, or if the writer has not freed it
    /// because an acknowledgement is late. These messages are at most two windows per client id. In V2, a member writes
    /// at most two items about a message to another member: a timestamp or assignment, and a vector or acknowledgement.
    /// In V1 it writes one timestamp per group and the acknowledgement. A timestamp takes at most five words. A vector
    /// or acknowledgement takes three words and one more per group.
    fn queue_bytes(&self, topology: &Topology, outboxes: u64) -> u64 {
        let messages = 2 * self.places(topology);
        let groups = topology.groups().min(MAX_DESTINATIONS) as u64;
        let longest_items = groups * 5 + (3 + groups);
        outboxes * messages * longest_items * WORD as u64
    }
}

/// Returns the number of bytes that the writer of a ring of records registers: the credit, and staging if a record may
/// exceed the inline limit.
fn written_bytes(ring: &Geometry, inline_bytes: u32) -> u64 {
    let staged = record_cells(ring.max_payload()) as u64 * LINE as u64 > u64::from(inline_bytes);
    RECORD_CREDIT_BYTES + if staged { ring.bytes() } else { 0 }
}

/// Returns the size of the longest batch of items in one record, in bytes: 4096, or that of one item with all
/// destinations if it is longer.
fn longest_batch(topology: &Topology) -> usize {
    let item = (3 + topology.groups().min(MAX_DESTINATIONS)) * WORD;
    item.max(4096)
}

/// The memory of one member, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemoryPlan {
    /// Registered regions.
    ///
    /// - For each client: a body ring.
    /// - For each other member: a control ring with credits.
    /// - For each other member of the group: a stream ring.
    /// - For each member of a group of several, this one included: a line for heartbeats.
    /// - For each client and other member: buffers for hellos.
    /// - Staging, for the stream and for rings whose records may exceed the inline limit.
    ///
    /// With replies, one more line follows each stream ring. There are then, for each client, a line for its credit, a
    /// ring for its queries, and staging if the records of replies may exceed the inline limit.
    pub registered: u64,
    /// Private copies of the messages: one body ring for each client.
    pub mirrors: u64,
    /// Slots of the windows of the clients and of the group's own entries: the state of each slot's message and the
    /// location of its body. The operating system provides the memory as slots are used.
    pub windows: u64,
    /// Upper limit of the bytes that wait in outboxes.
    pub queues: u64,
    /// Upper limit of the bytes of messages that are stored outside the mirrors: a window of the longest messages for
    /// each client.
    ///
    /// These messages were forwarded, or were read before their ring restarted. The memory is allocated only after a
    /// failure.
    pub aside: u64,
    /// Upper limit of the bytes of peer messages in flight, in both directions with each other member. The memory is
    /// allocated as needed; large peer messages follow only a failure or a change of leader.
    pub letters: u64,
    /// Upper limit of the bytes that a transfer of the application's state uses, without the memory of the
    /// application's own freeze.
    ///
    /// The limit is the sum for the state that this member receives, the backlog that it keeps for a receiver, and the
    /// pieces in flight. The memory is allocated only for a transfer.
    pub transfers: u64,
}

impl MemoryPlan {
    /// Returns the upper limit of the bytes that wait in all queues.
    #[must_use]
    pub fn all_queues(&self) -> u64 {
        self.queues + self.aside + self.letters + self.transfers
    }
}

/// The memory in use at a member, in bytes (M8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemoryUse {
    /// Registered bytes.
    pub regions: u64,
    /// Limit of the registered bytes, [`MemoryPlan::registered`].
    pub region_limit: u64,
    /// Largest number of bytes that waited at one time: in outboxes, outside the mirrors, as peer messages, and for
    /// transfers.
    pub most_queued: u64,
    /// Limit of the waiting bytes, [`MemoryPlan::all_queues`].
    pub queue_limit: u64,
}

impl MemoryUse {
    /// Returns the memory of a member that has registered `regions` bytes so far and queues nothing.
    pub(crate) fn begun(plan: &MemoryPlan, regions: u64) -> Self {
        MemoryUse { regions, region_limit: plan.registered, most_queued: 0, queue_limit: plan.all_queues() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_possible_up_to_the_limit() {
        let limits = |reply_bytes, reply_ring_bytes| Limits { reply_bytes, reply_ring_bytes, ..Limits::default() };
        let (longest, largest) = (Limits::MAX_REPLY_BYTES, Limits::MAX_RING_BYTES);
        assert_eq!(limits(longest, largest).check(), Ok(()));
        assert_eq!(limits(longest + 1, 0).check(), Err(LimitsError::ReplyBytes(longest + 1)));
        assert_eq!(limits(1, largest + 1).check(), Err(LimitsError::Ring(largest + 1)));
        let problem = limits(longest + 1, 0).check().expect_err("the message is too long").to_string();
        assert_eq!(problem, "replies of 2097153 bytes: at most 2097152 are possible");
        assert!(limits(longest, 0).reply_ring().bytes() > 2 * longest as u64, "two of the longest fit");
    }

    #[test]
    fn memory_for_replies_is_counted_at_the_process_that_registers_it() {
        let topology = Topology::new(&[3, 1], 5).expect("the topology is possible");
        let limits = Limits { reply_bytes: 300, ..Limits::default() };
        let (ring, queries) = (limits.reply_ring().bytes(), limits.query_ring().bytes());
        // A record of 300 bytes takes six lines.
        assert_eq!(limits.member_reply_bytes(&topology, 384), 5 * (64 + queries));
        assert_eq!(limits.member_reply_bytes(&topology, 383), 5 * (64 + ring + queries));
        assert_eq!(limits.client_reply_bytes(&topology, 1 << 17), 4 * (ring + 64));
        assert_eq!(limits.client_reply_bytes(&topology, 384), 4 * (ring + 64 + queries));
        assert_eq!(limits.longest_payload(&topology), limits.body_ring(&topology).max_payload());
        let long = Limits { message_bytes: 8, reply_bytes: 5000, ..limits };
        assert_eq!(long.longest_payload(&topology), 5000);
        assert_eq!(Limits { reply_bytes: 0, ..long }.longest_payload(&topology), 4096);
        let none = Limits::default();
        assert_eq!((none.member_reply_bytes(&topology, 0), none.client_reply_bytes(&topology, 0)), (0, 0));
        let more = limits.memory(&topology, 3, 0).registered - none.memory(&topology, 3, 0).registered;
        let lines = 2 * 64;
        assert_eq!(more, limits.member_reply_bytes(&topology, 0) + lines, "a line for each follower");
    }
}
