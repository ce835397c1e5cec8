//! One end of a queue pair, and the messages that travel between two ends.

use std::collections::VecDeque;

use stentor_fabric::{
    Completion, Opcode, ProcessId, QpConfig, QpId, QpKind, QpState, RemoteSpan, Service, Span, Status,
};

/// A work request in the send queue. It keeps its place until its own completion or a later one is polled.
pub(crate) struct Sent {
    pub(crate) id: u64,
    pub(crate) opcode: Opcode,
    pub(crate) signalled: bool,
    /// What the network said, once it did.
    pub(crate) outcome: Option<Status>,
    /// When the responder's CPU sees the data, ns.
    pub(crate) visible_at: u64,
    /// Copies without an outcome: more than one only of a set's writes.
    pub(crate) copies: u32,
    /// Some of several copies have landed, and others not.
    pub(crate) partly: bool,
}

/// A posted receive.
#[derive(Clone, Copy)]
pub(crate) struct PostedRecv {
    pub(crate) id: u64,
    pub(crate) local: Span,
    /// Tag and ignored bits.
    pub(crate) tag: Option<(u64, u64)>,
}

/// A tagged message that came before its receive.
pub(crate) struct Unexpected {
    pub(crate) tag: u64,
    pub(crate) bytes: u32,
    pub(crate) data: Vec<u64>,
}

/// What a queue pair is in a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Its owner's end: what it posts goes out here, and its peer is the owner itself.
    Own(u16),
    /// Where the copies of its peer's writes come in. Its owner does not know of it.
    From(u16),
}

pub(crate) struct Qp {
    pub(crate) peer: ProcessId,
    /// `None`: not of a set.
    pub(crate) set: Option<Part>,
    pub(crate) service: Service,
    pub(crate) config: QpConfig,
    pub(crate) state: QpState,
    /// The connection that both ends belong to; 0 while there is none.
    pub(crate) connection: u64,
    /// The connection that it belonged to last.
    pub(crate) broken: u64,
    pub(crate) peer_qp: QpId,

    /// Places of the send queue, the oldest first; numbers are consecutive.
    pub(crate) sent: VecDeque<Sent>,
    /// Number of the newest request; never starts over.
    pub(crate) posted: u64,
    /// Everything up to this number has an outcome that was acted upon.
    pub(crate) released: u64,

    pub(crate) recvs: VecDeque<PostedRecv>,
    pub(crate) tagged_recvs: VecDeque<PostedRecv>,
    pub(crate) unexpected: VecDeque<Unexpected>,
    /// Messages that wait behind one that found no receive.
    pub(crate) waiting: VecDeque<u32>,
    pub(crate) rnr_attempts: u32,
    /// A message of the peer was given up or refused: nothing after it executes.
    pub(crate) gave_up: bool,
    /// Receives that were consumed and complete when their data is visible, the oldest first.
    pub(crate) undelivered: VecDeque<u32>,
    /// Number of the newest message of the peer that executed.
    pub(crate) executed: u64,

    /// The newest arrival that was planned for a message of ours, ns.
    pub(crate) last_arrival: u64,
    /// When the last answer of ours to the peer arrives there, ns.
    pub(crate) last_answer: u64,
    /// When our CPU sees everything that the peer wrote through this queue pair, ns.
    pub(crate) visible_at: u64,
}

impl Qp {
    pub(crate) fn new(peer: ProcessId, service: Service, config: QpConfig) -> Self {
        Qp {
            peer,
            set: None,
            service,
            config,
            state: QpState::Connecting,
            connection: 0,
            broken: 0,
            peer_qp: QpId(0),
            sent: VecDeque::with_capacity(config.send_depth as usize),
            posted: 0,
            released: 0,
            recvs: VecDeque::new(),
            tagged_recvs: VecDeque::new(),
            unexpected: VecDeque::new(),
            waiting: VecDeque::new(),
            rnr_attempts: 0,
            gave_up: false,
            undelivered: VecDeque::new(),
            executed: 0,
            last_arrival: 0,
            last_answer: 0,
            visible_at: 0,
        }
    }

    /// The set of which this is its owner's end.
    pub(crate) fn own_set(&self) -> Option<u16> {
        if let Some(Part::Own(number)) = self.set { Some(number) } else { None }
    }

    pub(crate) fn reliable(&self) -> bool {
        self.config.kind == QpKind::Reliable
    }

    /// Number of the oldest request that holds a place.
    pub(crate) fn oldest(&self) -> u64 {
        self.posted + 1 - self.sent.len() as u64
    }

    pub(crate) fn request(&mut self, seq: u64) -> Option<&mut Sent> {
        let oldest = self.oldest();
        if seq < oldest { None } else { self.sent.get_mut((seq - oldest) as usize) }
    }

    /// The completion of request `seq` was polled: it and everything before it leave the send queue.
    pub(crate) fn free_places(&mut self, seq: u64) {
        while !self.sent.is_empty() && self.oldest() <= seq {
            self.sent.pop_front();
        }
    }
}

/// A completion that waits to be polled.
pub(crate) struct Queued {
    pub(crate) completion: Completion,
    /// The send-queue number, for completions of requests.
    pub(crate) seq: Option<u64>,
}

/// What a message asks of the responder.
#[derive(Clone, Copy)]
pub(crate) enum RequestKind {
    Write { target: RemoteSpan },
    WriteImm { target: RemoteSpan, imm: u32 },
    Read { local: Span, remote: RemoteSpan },
    Send { imm: Option<u32> },
    CompareSwap { local: Span, remote: RemoteSpan, expected: u64, new: u64 },
    FetchAdd { local: Span, remote: RemoteSpan, add: u64 },
    Tagged { tag: u64 },
}

impl RequestKind {
    pub(crate) fn opcode(&self) -> Opcode {
        match self {
            RequestKind::Write { .. } | RequestKind::WriteImm { .. } => Opcode::Write,
            RequestKind::Read { .. } => Opcode::Read,
            RequestKind::Send { .. } => Opcode::Send,
            RequestKind::CompareSwap { .. } | RequestKind::FetchAdd { .. } => Opcode::Atomic,
            RequestKind::Tagged { .. } => Opcode::TaggedSend,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            RequestKind::Write { .. } => "WRITE",
            RequestKind::WriteImm { .. } => "WRITE_IMM",
            RequestKind::Read { .. } => "READ",
            RequestKind::Send { .. } => "SEND",
            RequestKind::CompareSwap { .. } => "CAS",
            RequestKind::FetchAdd { .. } => "FAA",
            RequestKind::Tagged { .. } => "TAGGED",
        }
    }

    /// Whether this is a pure WRITE, which rule 5 lets overtake others on its own queue pair.
    pub(crate) fn is_plain_write(&self) -> bool {
        matches!(self, RequestKind::Write { .. })
    }

    /// Where the answer's data goes.
    pub(crate) fn local(&self) -> Option<Span> {
        match self {
            RequestKind::Read { local, .. }
            | RequestKind::CompareSwap { local, .. }
            | RequestKind::FetchAdd { local, .. } => Some(*local),
            _ => None,
        }
    }
}

/// A work request on its way to the responder and back.
pub(crate) struct Message {
    pub(crate) from: ProcessId,
    pub(crate) from_qp: QpId,
    pub(crate) to: ProcessId,
    pub(crate) to_qp: QpId,
    pub(crate) connection: u64,
    pub(crate) reliable: bool,
    /// Number in the send queue.
    pub(crate) seq: u64,
    /// Number among those of its queue pair that go to this responder: the same, but for copies of a set's writes.
    pub(crate) order: u64,
    /// A copy of a set's write, and which of them, from 0.
    pub(crate) copy: Option<u32>,
    /// Number among all messages between the two processes.
    pub(crate) pair_seq: u64,
    pub(crate) kind: RequestKind,
    pub(crate) bytes: u32,
    /// The data, as words; the answer's data once there is an answer.
    pub(crate) data: Vec<u64>,
    /// The source, while it is not read yet.
    pub(crate) unread: Option<Span>,
    /// When it left, or will leave, the initiator's NIC, ns.
    pub(crate) departs: u64,
    /// It never left: its process crashed or its queue pair broke first.
    pub(crate) dropped: bool,
    /// It was dropped while the NIC was sending it: some of it left.
    pub(crate) partial: bool,
    /// The responder's NIC has it.
    pub(crate) executed: bool,
    /// When the responder's CPU sees it, ns.
    pub(crate) visible_at: u64,
    pub(crate) status: Status,
    /// Identifies it in a trace.
    pub(crate) flow: u64,
}
