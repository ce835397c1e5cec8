//! What `poll` and `next_event` return.

use crate::{ProcessId, QpId, RegionId};

/// Which operation completed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Opcode {
    /// A WRITE or WRITE_WITH_IMM of ours.
    Write,
    /// A READ of ours: the local span may be looked at now.
    Read,
    /// A SEND of ours.
    Send,
    /// A compare-and-swap or fetch-and-add of ours: the old value is in the local span.
    Atomic,
    /// A posted receive was consumed by a peer's SEND.
    Recv,
    /// A posted receive was consumed by a peer's WRITE_WITH_IMM; the data went to the written span.
    RecvWriteImm,
    /// A tagged send of ours.
    TaggedSend,
    /// A posted tagged receive was matched.
    TaggedRecv,
}

/// How an operation ended; the numbers are those of `ibv_wc_status`.
///
/// An error is a suspicion, never proof of a crash (rule 7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Success = 0,
    /// The message is longer than the posted receive (`IBV_WC_LOC_LEN_ERR`).
    LocalLength = 1,
    /// Memory of this side that the operation was to use is not registered any more (`IBV_WC_LOC_PROT_ERR`).
    LocalProtection = 4,
    /// The queue pair was in the error state before the operation could start (`IBV_WC_WR_FLUSH_ERR`).
    Flushed = 5,
    /// The responder refused the request as wrong in itself, such as a SEND longer than the receive
    /// (`IBV_WC_REM_INV_REQ_ERR`).
    RemoteInvalidRequest = 9,
    /// The responder refused: outside the region, or the access was revoked (`IBV_WC_REM_ACCESS_ERR`).
    RemoteAccess = 10,
    /// The responder could not, for reasons of its own (`IBV_WC_REM_OP_ERR`).
    RemoteOperational = 11,
    /// No acknowledgement within the retries (`IBV_WC_RETRY_EXC_ERR`).
    RetryExceeded = 12,
    /// The responder had no receive posted within the retries (`IBV_WC_RNR_RETRY_EXC_ERR`).
    RnrRetryExceeded = 13,
    /// A tagged receive was given back unused, because its owner asked for it
    /// ([`cancel_tagged_recv`](crate::Fabric::cancel_tagged_recv)). The queue pair goes on. `ibv_wc_status` has nothing of
    /// the kind; libfabric's is `FI_ECANCELED`.
    Cancelled = 125,
    /// The completion queue had no place for a completion, this one or another: nobody knows whether the operation was done,
    /// and no queue pair of this process works any more. `ibv_wc_status` has nothing of the kind; libfabric's is
    /// `FI_EOVERRUN`. See [`max_completions`](crate::Capabilities::max_completions).
    QueueOverrun = 126,
}

/// One completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Completion {
    /// The queue pair.
    pub qp: QpId,
    /// The id given with the work request or the receive.
    pub id: u64,
    /// Which operation.
    pub opcode: Opcode,
    /// How it ended. With anything but success and [`Status::Cancelled`] the queue pair is in the error state.
    pub status: Status,
    /// Bytes received; 0 for operations of ours.
    pub bytes: u32,
    /// The immediate, for receives that carry one.
    pub imm: Option<u32>,
    /// The tag, for tagged receives.
    pub tag: u64,
}

impl Completion {
    /// Completes something that carries no bytes, immediate or tag.
    #[inline]
    #[must_use]
    pub const fn new(qp: QpId, id: u64, opcode: Opcode, status: Status) -> Completion {
        Completion { qp, id, opcode, status, bytes: 0, imm: None, tag: 0 }
    }

    /// Fills buffers before a poll: a completion that no fabric reports.
    pub const BLANK: Completion = Completion::new(QpId(u32::MAX), u64::MAX, Opcode::Write, Status::Flushed);
}

/// What happened beside work requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Both ends of a queue pair are ready; the regions that the peer granted before it connected can be resolved.
    /// Nothing that was posted on an earlier connection of this queue pair lands after this, in the peer's last life or
    /// in this one. The peer may have been ready first: what it writes and sends on this connection may be there already.
    Connected {
        /// The queue pair.
        qp: QpId,
        /// The other end.
        peer: ProcessId,
    },
    /// A queue pair went to the error state: something that was posted here failed, or the peer's end broke, or the peer
    /// is gone. All that was outstanding can be polled now, and nothing of it comes later.
    /// [`Fabric::reset`](crate::Fabric::reset) makes it connect again. Comes once per break, sometimes without a
    /// [`Connected`](Event::Connected) since the last one. Until the next one, writes of the peer may still land.
    Disconnected {
        /// The queue pair.
        qp: QpId,
        /// The other end.
        peer: ProcessId,
    },
    /// A revocation took effect: nothing that the peer posts from now on lands where the owner reads, and what had
    /// completed before is in [`Fabric::memory`](crate::Fabric::memory).
    Revoked {
        /// The region.
        region: RegionId,
        /// Who lost access.
        peer: ProcessId,
    },
}
