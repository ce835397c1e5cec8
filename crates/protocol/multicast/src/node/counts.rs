//! Counters of remote writes, by the step of the protocol that causes them.

use stentor_fabric::ProcessId;

use crate::MessageId;
use crate::item::ItemKind;

/// A step of the protocol that writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(usize)]
pub enum Step {
    /// Step 1: a client writes a message.
    Body = 0,
    /// Step 2: a leader writes its timestamp to its followers.
    Assign = 1,
    /// Step 2: a leader writes its timestamp to the other leaders.
    Timestamp = 2,
    /// Step 3: a leader writes the vector (V2) or each other timestamp (V1) to its followers. No-ops and announcements
    /// about other groups count here, too.
    Vector = 3,
    /// Step 4: a member writes its acknowledgement to the other destination processes.
    Ack = 4,
    /// Flow control, and notification of clients; not part of the protocol's counts.
    Credit = 5,
    /// Hellos, peer messages, records that a peer missed, and stream entries that begin a ballot or a succession; not
    /// part of the protocol's counts.
    PeerMessage = 6,
    /// A member's replies to clients; not part of the protocol's counts.
    Reply = 7,
    /// A client's queries to members; not part of the protocol's counts.
    Query = 8,
    /// Writes with which a leader confirms that it still leads; not part of the protocol's counts.
    Confirm = 9,
}

impl Step {
    /// All steps, in order.
    pub const ALL: [Step; 10] = [
        Step::Body,
        Step::Assign,
        Step::Timestamp,
        Step::Vector,
        Step::Ack,
        Step::Credit,
        Step::PeerMessage,
        Step::Reply,
        Step::Query,
        Step::Confirm,
    ];

    /// Returns the name of the step in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["body", "assign", "timestamp", "vector", "ack", "credit", "letter", "reply", "query", "confirm"][self as usize]
    }
}

impl From<ItemKind> for Step {
    fn from(kind: ItemKind) -> Self {
        match kind {
            ItemKind::Assign => Step::Assign,
            ItemKind::Timestamp => Step::Timestamp,
            ItemKind::Vector | ItemKind::Remote | ItemKind::NoOp | ItemKind::RemoteBallot | ItemKind::Word => {
                Step::Vector
            }
            ItemKind::Begin | ItemKind::Succeed => Step::PeerMessage,
            ItemKind::Ack => Step::Ack,
        }
    }
}

/// The counters of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    writes: [u64; Step::ALL.len()],
    items: [u64; Step::ALL.len()],
    copies: u64,
    /// Number of records, items, peer messages and hellos that were refused. Correct peers cause refusals, too, for
    /// example by a message beyond the window or a time that is too far ahead.
    pub rejected: u64,
    /// Bodies that arrived through a client's ring although the message was held or delivered already, for example
    /// because another member had forwarded it.
    pub held_already: u64,
    /// Credits to clients that freed ring space but no slot.
    pub space_credits: u64,
    /// Submissions that a client refused because a ring or a send queue was full, or an earlier copy could still land
    /// there.
    pub ring_waits: u64,
}

impl Counts {
    /// Returns the remote writes of a step. A write with items of several steps counts for the first of them.
    #[must_use]
    pub fn writes(&self, step: Step) -> u64 {
        self.writes[step as usize]
    }

    /// Returns the items of a step, one per message and receiver: the number of writes without batching.
    #[must_use]
    pub fn items(&self, step: Step) -> u64 {
        self.items[step as usize]
    }

    /// Returns the number of copies that the network made of first-step writes. Each such write counts once in
    /// [`writes`](Counts::writes), however many receivers get a copy.
    #[must_use]
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// Returns the remote writes of steps 1 to 4, which the protocol's formulas count.
    #[must_use]
    pub fn protocol_writes(&self) -> u64 {
        self.writes[..Step::Credit as usize].iter().sum()
    }

    #[inline]
    pub(super) fn write(&mut self, step: Step, writes: u64) {
        self.writes[step as usize] += writes;
    }

    #[inline]
    pub(super) fn copy(&mut self, copies: u64) {
        self.copies += copies;
    }

    #[inline]
    pub(super) fn item(&mut self, step: Step, receivers: u64) {
        self.items[step as usize] += receivers;
    }
}

/// One remote operation on behalf of a message, if recording is enabled; see property M7 in `docs/guarantees.md`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemoteOp {
    /// The message on whose behalf the operation was posted.
    pub message: MessageId,
    /// The step of the protocol.
    pub step: Step,
    /// The process whose memory the operation accesses.
    pub to: ProcessId,
}
