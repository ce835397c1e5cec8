//! One end of a queue pair, and the messages that travel between two ends.

use std::collections::VecDeque;

use stentor_fabric::{
    Completion, Opcode, ProcessId, QpConfig, QpId, QpKind, QpState, RemoteSpan, Service, Span, Status,
};

/// A work request in the send queue. It keeps its slot until its own completion or a later one is polled.
pub(crate) struct Sent {
    pub(crate) id: u64,
    pub(crate) opcode: Opcode,
    pub(crate) signalled: bool,
    /// Outcome of the request, when it is known.
    pub(crate) outcome: Option<Status>,
    /// Time at which the responder's CPU sees the data, in nanoseconds.
    pub(crate) visible_at: u64,
    /// Number of copies without an outcome. Only writes of sets have more than one.
    pub(crate) copies: u32,
    /// `true` if some, but not all of several copies have landed.
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

/// A tagged message that arrived before its receive.
pub(crate) struct Unexpected {
    pub(crate) tag: u64,
    pub(crate) bytes: u32,
    pub(crate) data: Vec<u64>,
}

/// Role of a queue pair in a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// The end on which the owner posts its writes. The peer of this end is the owner itself.
    Own(u16),
    /// The end at which the copies of the peer's writes arrive. The fabric of its owner does not expose it.
    From(u16),
}

pub(crate) struct Qp {
    pub(crate) peer: ProcessId,
    /// Role in a set, if the queue pair belongs to one.
    pub(crate) set: Option<Part>,
    pub(crate) service: Service,
    pub(crate) config: QpConfig,
    pub(crate) state: QpState,
    /// The connection that both ends belong to; 0 while there is none.
    pub(crate) connection: u64,
    /// The previous connection.
    pub(crate) broken: u64,
    pub(crate) peer_qp: QpId,

    /// The send queue, the oldest request first; numbers are consecutive.
    pub(crate) sent: VecDeque<Sent>,
    /// Number of the newest request. It is never reset.
    pub(crate) posted: u64,
    /// Number up to which all requests have an outcome that has taken effect.
    pub(crate) released: u64,

    pub(crate) recvs: VecDeque<PostedRecv>,
    pub(crate) tagged_recvs: VecDeque<PostedRecv>,
    pub(crate) unexpected: VecDeque<Unexpected>,
    /// Messages that wait because the first of them found no receive.
    pub(crate) waiting: VecDeque<u32>,
    pub(crate) rnr_attempts: u32,
    /// `true` if a message of the peer was given up or refused: nothing after it executes.
    pub(crate) gave_up: bool,
    /// Receives that were consumed and complete when their data is visible, the oldest first.
    pub(crate) undelivered: VecDeque<u32>,
    /// Number of the peer's newest message that executed.
    pub(crate) executed: u64,

    /// Time of the newest planned arrival of this end's messages that stay in order, in nanoseconds.
    pub(crate) last_arrival: u64,
    /// Time at which this end's last answer arrives at the peer, in nanoseconds.
    pub(crate) last_answer: u64,
    /// Time at which this process's CPU sees all ordered data that the peer sent on this queue pair, in nanoseconds.
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

    /// Returns the number of the set if this is the end on which the owner posts writes of a set.
    pub(crate) fn own_set(&self) -> Option<u16> {
        if let Some(Part::Own(number)) = self.set { Some(number) } else { None }
    }

    pub(crate) fn reliable(&self) -> bool {
        self.config.kind == QpKind::Reliable
    }

    /// Returns the number of the oldest request in the send queue.
    pub(crate) fn oldest(&self) -> u64 {
        self.posted + 1 - self.sent.len() as u64
    }

    pub(crate) fn request(&mut self, seq: u64) -> Option<&mut Sent> {
        let oldest = self.oldest();
        if seq < oldest { None } else { self.sent.get_mut((seq - oldest) as usize) }
    }

    /// Frees the slots of request `seq` and of all requests before it, after the completion of `seq` was polled.
    pub(crate) fn free_places(&mut self, seq: u64) {
        while !self.sent.is_empty() && self.oldest() <= seq {
            self.sent.pop_front();
        }
    }
}

/// A completion that waits to be polled.
pub(crate) struct Queued {
    pub(crate) completion: Completion,
    /// Number in the send queue, for completions of requests.
    pub(crate) seq: Option<u64>,
}

/// The operation that a message requests from the responder.
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

    /// Returns whether this is a pure WRITE, which may overtake others on its own queue pair (rule 5 of the contract).
    pub(crate) fn is_plain_write(&self) -> bool {
        matches!(self, RequestKind::Write { .. })
    }

    /// Returns the destination of the answer's data.
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
    /// Number among the messages of its queue pair to this responder. It equals `seq`, except for copies of a set's
    /// writes.
    pub(crate) order: u64,
    /// Index of a copy of a set's write, from 0; `None` for other messages.
    pub(crate) copy: Option<u32>,
    /// Number among all messages between the two processes.
    pub(crate) pair_seq: u64,
    pub(crate) kind: RequestKind,
    pub(crate) bytes: u32,
    /// The data as words; later the answer's data.
    pub(crate) data: Vec<u64>,
    /// The source, if it has not been read yet.
    pub(crate) unread: Option<Span>,
    /// Time at which the message leaves the initiator's NIC, in nanoseconds.
    pub(crate) departs: u64,
    /// `true` if the message never left the NIC, because its process crashed or its queue pair broke before, or if the
    /// network dropped it with its set.
    pub(crate) dropped: bool,
    /// `true` if the message was dropped while the NIC was sending it, so that a part of it left the NIC.
    pub(crate) partial: bool,
    /// `true` if the responder's NIC has executed the message.
    pub(crate) executed: bool,
    /// Time at which the message becomes visible to the responder's CPU, in nanoseconds.
    pub(crate) visible_at: u64,
    pub(crate) status: Status,
    /// Identifies the message in a trace.
    pub(crate) flow: u64,
}
