//! Sizes, fixed at start: memory is bounded and printed (M8).

use stentor_fabric::memory::{LINE, WORD};
use stentor_fabric::ring::Geometry;
use stentor_fabric::seal::record_cells;
use thiserror::Error;

use crate::message::MAX_DESTINATIONS;
use crate::node::{IN_FLIGHT_BYTES, INBOX_BYTES, PIECE_BYTES, PIECES, STORED_BYTES};
use crate::{Header, Replica, Topology};

/// Bytes of a cell for credits, in front of the ring in a control region: one for the control ring in the other
/// direction, one for the stream.
pub(crate) const CREDIT_CELLS_BYTES: u64 = 128;
/// Bytes of a peer's credit for a ring of replies or of queries.
pub(crate) const RECORD_CREDIT_BYTES: u64 = LINE as u64;
/// Bytes behind the ring in a stream region, where a leader writes to see that it still leads.
const CONFIRM_BYTES: u64 = LINE as u64;
/// Byte offset of the credit for the stream in a control region.
pub(crate) const STREAM_CREDIT_OFFSET: u64 = 64;

/// Sizes that every process of a cluster agrees on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// The longest message, bytes.
    pub message_bytes: usize,
    /// Messages that a client may have undelivered at one group; a power of two.
    pub window: u32,
    /// Ring for one client's messages at one member, bytes (rounded up to two of the longest messages).
    pub body_ring_bytes: u64,
    /// Ring for timestamps, stream entries or acknowledgements between two members, bytes.
    pub control_ring_bytes: u64,
    /// The largest state of an application that one member gives another, bytes.
    pub snapshot_bytes: u64,
    /// Deliveries that a member keeps for another one that gets its state, bytes.
    pub backlog_bytes: u64,
    /// The share of their usual rate down to which clients are slowed when that is nearly full, percent.
    pub slowed_percent: u32,
    /// The longest reply of a member to a client, bytes; 0: there are no replies, and nothing is registered for them.
    pub reply_bytes: usize,
    /// Ring for one member's replies at one client, bytes (rounded up to two of the longest replies).
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

/// Why sizes are impossible.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum LimitsError {
    /// Messages too long.
    #[error("messages of {0} bytes: at most {max} are possible", max = Limits::MAX_MESSAGE_BYTES)]
    MessageBytes(usize),
    /// Not a power of two, or too large.
    #[error("a window of {0} messages: a power of two up to {max} is possible", max = Limits::MAX_WINDOW)]
    Window(u32),
    /// Ring too large.
    #[error("rings of {0} bytes: at most {max} are possible", max = Limits::MAX_RING_BYTES)]
    Ring(u64),
    /// Too large a state, or too long a backlog, or too short a one.
    #[error(
        "a state of {snapshot} bytes and a backlog of {backlog} bytes: at most {max} are possible, and at least a message \
         in the backlog",
        max = Limits::MAX_SNAPSHOT_BYTES
    )]
    Transfer {
        /// The state.
        snapshot: u64,
        /// The backlog.
        backlog: u64,
    },
    /// Replies too long.
    #[error("replies of {0} bytes: at most {max} are possible", max = Limits::MAX_REPLY_BYTES)]
    ReplyBytes(usize),
    /// No share.
    #[error("{0} percent: 1 to 100 are possible")]
    Percent(u32),
}

impl Limits {
    /// The longest message that can be configured, bytes.
    pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
    /// The longest reply that can be configured, bytes.
    pub const MAX_REPLY_BYTES: usize = 2 << 20;
    /// The largest window that can be configured.
    pub const MAX_WINDOW: u32 = 1 << 16;
    /// The largest ring that can be configured, bytes.
    pub const MAX_RING_BYTES: u64 = 1 << 30;
    /// The largest state, and the longest backlog, that can be configured, bytes.
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

    /// Returns the bytes of a backlog in which any message has a place.
    fn least_backlog(&self) -> u64 {
        self.message_bytes as u64 + 64
    }

    /// The ring for one client's messages at one member.
    #[must_use]
    pub fn body_ring(&self, topology: &Topology) -> Geometry {
        let destinations = topology.groups().min(MAX_DESTINATIONS);
        let longest = Header::words(destinations) * 8 + self.message_bytes;
        Geometry::new(0, self.body_ring_bytes / 64, longest)
    }

    /// The ring between two members, for the stream.
    #[must_use]
    pub fn stream_ring(&self, topology: &Topology) -> Geometry {
        Geometry::new(0, self.control_ring_bytes / 64, longest_batch(topology))
    }

    /// Returns the bytes of the region that a stream lies in: the ring, and with [replies](Limits::has_replies) a line where the leader
    /// writes to see that it still leads.
    #[must_use]
    pub fn stream_region_bytes(&self, topology: &Topology) -> u64 {
        self.stream_ring(topology).bytes() + if self.has_replies() { CONFIRM_BYTES } else { 0 }
    }

    /// The ring between two members, for timestamps and acknowledgements; credits lie in front of it.
    #[must_use]
    pub fn control_ring(&self, topology: &Topology) -> Geometry {
        Geometry::new(CREDIT_CELLS_BYTES, self.control_ring_bytes / 64, longest_batch(topology))
    }

    /// Places of messages at a member: a window for each client, and one for each kind of the group's own entries. Only members that can
    /// reply to clients order those ([`ReplicaConfig::time_entries`](crate::ReplicaConfig::time_entries)).
    fn places(&self, topology: &Topology) -> u64 {
        (topology.clients() as u64 + 2 * u64::from(self.has_replies())) * u64::from(self.window)
    }

    /// Whether members can reply to clients.
    #[must_use]
    pub fn has_replies(&self) -> bool {
        self.reply_bytes > 0
    }

    /// The ring for one member's replies at one client, if there are [any](Limits::has_replies).
    #[must_use]
    pub fn reply_ring(&self) -> Geometry {
        Geometry::new(0, self.reply_ring_bytes / 64, self.reply_bytes)
    }

    /// Returns the payload of the longest record in any ring, bytes.
    #[must_use]
    pub fn longest_payload(&self, topology: &Topology) -> usize {
        let between = self.control_ring(topology).max_payload().max(self.stream_ring(topology).max_payload());
        self.body_ring(topology).max_payload().max(between).max(self.reply_bytes)
    }

    /// The ring for one client's queries at one member, if there are [replies](Limits::has_replies). A query may be as long as a
    /// message, and as many fit as replies.
    #[must_use]
    pub fn query_ring(&self) -> Geometry {
        Geometry::new(0, self.reply_ring_bytes / 64, self.message_bytes)
    }

    /// Returns the bytes that a client registers for replies and queries. For each member: a ring for its replies, its credit for
    /// queries, and staging if the longest query is longer than what the fabric takes inline.
    #[must_use]
    pub fn client_reply_bytes(&self, topology: &Topology, inline_bytes: u32) -> u64 {
        let each = self.reply_ring().bytes() + written_bytes(&self.query_ring(), inline_bytes);
        if self.has_replies() { topology.all_members() as u64 * each } else { 0 }
    }

    /// Returns the bytes that a member registers for replies and queries. For each client: a ring for its queries, its credit for
    /// replies, and staging if the longest reply is longer than what the fabric takes inline.
    #[must_use]
    pub fn member_reply_bytes(&self, topology: &Topology, inline_bytes: u32) -> u64 {
        let each = self.query_ring().bytes() + written_bytes(&self.reply_ring(), inline_bytes);
        if self.has_replies() { topology.clients() as u64 * each } else { 0 }
    }

    /// What one member registers and keeps, by the formula that `stentor config check` prints. `inline_bytes` is the
    /// fabric's inline limit: longer records are posted from a staging region as large as their ring.
    #[must_use]
    pub fn memory(&self, topology: &Topology, group_size: usize, inline_bytes: u32) -> MemoryPlan {
        let clients = topology.clients() as u64;
        let others = topology.all_members() as u64 - 1;
        let followers = group_size as u64 - 1;
        let body = self.body_ring(topology).bytes();
        let (control, stream) = (self.control_ring(topology), self.stream_ring(topology));
        let staged = record_cells(control.max_payload()) as u64 * LINE as u64 > u64::from(inline_bytes);
        // The stream's is always there: a follower that comes back gets from it what it missed meanwhile.
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

    /// Returns the bytes that a member has for each slot of each client's window: what is known of the message there, its
    /// entry in the order, and where its body lies. Memory is touched when the slot is first used.
    #[must_use]
    pub fn slot_bytes() -> u64 {
        Replica::slot_bytes() + STORED_BYTES
    }

    /// Returns the most bytes that a member keeps besides for each such slot, once a message was there: destinations, times
    /// and votes, for as many groups as a message can go to.
    #[must_use]
    pub fn slot_heap_bytes(topology: &Topology) -> u64 {
        Replica::slot_heap_bytes(topology.groups().min(MAX_DESTINATIONS))
    }

    /// Returns the most bytes that a client keeps for each slot of its window at each group: it waits for the delivery of
    /// what is there, and for news that a majority holds it.
    #[must_use]
    pub fn awaited_bytes() -> u64 {
        2 * IN_FLIGHT_BYTES
    }

    /// The longest peer message, bytes, and the most that may wait for one of them: what a member holds for
    /// every client twice, what it knows of each place of each window, and 1 MiB for everything else.
    #[must_use]
    pub fn letter_bytes(&self, topology: &Topology) -> u64 {
        let groups = topology.groups().min(MAX_DESTINATIONS) as u64;
        let places = self.places(topology);
        2 * topology.clients() as u64 * self.body_ring(topology).bytes()
            + 2 * places * (3 + 2 * groups) * WORD as u64
            + (1 << 20)
    }

    /// Most bytes that can wait in outboxes. A message of which a member has written is one that the reader has not
    /// freed, or that the writer has not (a late acknowledgement): two windows per client. For each, a member writes to
    /// another at most two items (timestamp or assignment, and vector or acknowledgement; in V1 one timestamp per group and
    /// the acknowledgement): five words per group, and three with a time per group.
    fn queue_bytes(&self, topology: &Topology, outboxes: u64) -> u64 {
        let messages = 2 * self.places(topology);
        let groups = topology.groups().min(MAX_DESTINATIONS) as u64;
        let longest_items = groups * 5 + (3 + groups);
        outboxes * messages * longest_items * WORD as u64
    }
}

/// Returns the bytes that the writer of a ring of records registers: the credit, and staging if a record may be too long for inline.
fn written_bytes(ring: &Geometry, inline_bytes: u32) -> u64 {
    let staged = record_cells(ring.max_payload()) as u64 * LINE as u64 > u64::from(inline_bytes);
    RECORD_CREDIT_BYTES + if staged { ring.bytes() } else { 0 }
}

/// The longest batch of items in one record: 4 KiB, or one item with all destinations.
fn longest_batch(topology: &Topology) -> usize {
    let item = (3 + topology.groups().min(MAX_DESTINATIONS)) * WORD;
    item.max(4096)
}

/// Memory of one member, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemoryPlan {
    /// Regions: per client a body ring, per other member a control ring with credits, per other member of the own group a
    /// stream ring and a line for heartbeats; receives for greetings and peer messages per client and other member; and staging, for
    /// the stream and where records may be too long for inline. If there are replies, a line behind each stream ring, and per client
    /// a line for its credit, staging likewise, and a ring for its queries.
    pub registered: u64,
    /// Private copies of the messages: per client one body ring.
    pub mirrors: u64,
    /// Places of clients' windows: what is known of the message in each, and where it lies. Touched as they are used.
    pub windows: u64,
    /// The most that can wait in outboxes.
    pub queues: u64,
    /// The most that can lie aside: messages that did not come through a ring as it is now, a window of the longest ones
    /// per client. Taken only when something fails.
    pub aside: u64,
    /// The most that peer messages on their way can take, per other member one each way. Taken only when something fails.
    pub letters: u64,
    /// The most that a transfer of the application's state takes: the state as it comes, or the deliveries that another
    /// member is to get behind it, and the pieces under way. What the application's freeze holds comes on top. Taken only
    /// when something fails.
    pub transfers: u64,
}

impl MemoryPlan {
    /// The most that can wait in all queues.
    #[must_use]
    pub fn all_queues(&self) -> u64 {
        self.queues + self.aside + self.letters + self.transfers
    }
}

/// What a member uses of it, bytes (M8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemoryUse {
    /// Registered.
    pub regions: u64,
    /// [`MemoryPlan::registered`].
    pub region_limit: u64,
    /// The most that waited: in outboxes, aside, and as peer messages.
    pub most_queued: u64,
    /// [`MemoryPlan::all_queues`].
    pub queue_limit: u64,
}

impl MemoryUse {
    /// The memory of a member that has registered `regions` bytes so far and queues nothing.
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
        let problem = limits(longest + 1, 0).check().expect_err("too long").to_string();
        assert_eq!(problem, "replies of 2097153 bytes: at most 2097152 are possible");
        assert!(limits(longest, 0).reply_ring().bytes() > 2 * longest as u64, "two of the longest fit");
    }

    #[test]
    fn replies_are_counted_where_they_are_registered() {
        let topology = Topology::new(&[3, 1], 5).expect("possible");
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
