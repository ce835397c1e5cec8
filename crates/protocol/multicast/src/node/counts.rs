//! Remote writes, counted by the step of the protocol that they belong to.

use stentor_fabric::ProcessId;

use crate::MessageId;
use crate::item::ItemKind;

/// A step that writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(usize)]
pub enum Step {
    /// Step 1: a client writes the message.
    Body = 0,
    /// Step 2: a leader writes its timestamp to followers.
    Assign = 1,
    /// Step 2: a leader writes its timestamp to other leaders.
    Timestamp = 2,
    /// Step 3: a leader writes the vector (V2) or each other timestamp (V1) to followers.
    Vector = 3,
    /// Step 4: acknowledgements.
    Ack = 4,
    /// Flow control and notification of clients; not part of the protocol's counts.
    Credit = 5,
    /// Greetings, letters and what a follower missed; not part of the protocol's counts either.
    PeerMessage = 6,
    /// A member's replies to clients; not part of the protocol's counts either.
    Reply = 7,
    /// A client's queries to members; not part of the protocol's counts either.
    Query = 8,
    /// Words that a leader writes to its followers to see that it still leads; not part of the protocol's counts either.
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

    /// As in reports.
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

/// Counters of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    writes: [u64; Step::ALL.len()],
    items: [u64; Step::ALL.len()],
    copies: u64,
    /// Sealed input that was refused: a peer that does not keep to the protocol.
    pub rejected: u64,
    /// Bodies that came through a client's ring after the member had received them from another member.
    pub held_already: u64,
    /// Credits to clients that freed ring space and no slot.
    pub space_credits: u64,
    /// Submissions that a client put off because a ring was full.
    pub ring_waits: u64,
}

impl Counts {
    /// Remote writes of a step. A write that carries items of several steps counts for the first of them.
    #[must_use]
    pub fn writes(&self, step: Step) -> u64 {
        self.writes[step as usize]
    }

    /// Items of a step, one per message and receiver: what the writes would be without batching.
    #[must_use]
    pub fn items(&self, step: Step) -> u64 {
        self.items[step as usize]
    }

    /// Copies that the network made of writes of the first step: each of those writes counts once in
    /// [`writes`](Counts::writes), and brought its record to so many receivers.
    #[must_use]
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// Remote writes of steps 1 to 4: what the protocol's formulas count.
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

/// One remote operation on behalf of a message, when recording is on (M7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemoteOp {
    /// The message.
    pub message: MessageId,
    /// The step.
    pub step: Step,
    /// Whose memory it goes to.
    pub to: ProcessId,
}
