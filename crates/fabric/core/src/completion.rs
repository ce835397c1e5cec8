//! Results of `poll` and `next_event`.

use crate::{ProcessId, QpId, RegionId};

/// The kind of operation that completed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Opcode {
    /// A WRITE or WRITE_WITH_IMM of this process.
    Write,
    /// A READ of this process. The data is in the local span.
    Read,
    /// A SEND of this process.
    Send,
    /// A compare-and-swap or fetch-and-add of this process. The old value is in the local span.
    Atomic,
    /// A posted receive that a peer's SEND consumed, or that was flushed.
    Recv,
    /// A posted receive that a peer's WRITE_WITH_IMM consumed. The data is in the written span, not in the receive's.
    RecvWriteImm,
    /// A tagged send of this process.
    TaggedSend,
    /// A posted tagged receive that a message matched, or that was cancelled or flushed.
    TaggedRecv,
}

/// The outcome of an operation. The numbers are those of `ibv_wc_status`, except those of
/// [`Cancelled`](Status::Cancelled) and [`QueueOverrun`](Status::QueueOverrun).
///
/// An error is a suspicion, never proof of a crash (rule 7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Status {
    /// The operation succeeded.
    Success = 0,
    /// The message is longer than the posted receive (`IBV_WC_LOC_LEN_ERR`).
    LocalLength = 1,
    /// The local memory of the operation is no longer registered (`IBV_WC_LOC_PROT_ERR`).
    LocalProtection = 4,
    /// The queue pair entered the error state before the operation completed (`IBV_WC_WR_FLUSH_ERR`). The operation may
    /// have taken effect (rule 9).
    Flushed = 5,
    /// The responder refused the request as invalid, for example a SEND longer than the receive
    /// (`IBV_WC_REM_INV_REQ_ERR`).
    RemoteInvalidRequest = 9,
    /// The responder refused access: the request is outside the region, or the grant was revoked
    /// (`IBV_WC_REM_ACCESS_ERR`).
    RemoteAccess = 10,
    /// The responder could not execute the request because of a local fault (`IBV_WC_REM_OP_ERR`).
    RemoteOperational = 11,
    /// No acknowledgement arrived within the retries (`IBV_WC_RETRY_EXC_ERR`).
    RetryExceeded = 12,
    /// The responder had no receive posted within the retries (`IBV_WC_RNR_RETRY_EXC_ERR`).
    RnrRetryExceeded = 13,
    /// The owner cancelled this tagged receive before a message matched it
    /// ([`cancel_tagged_recv`](crate::Fabric::cancel_tagged_recv)). The queue pair stays usable. `ibv_wc_status` has no
    /// such status; libfabric's is `FI_ECANCELED`.
    Cancelled = 125,
    /// The completion queue overflowed, by this completion or another one. The outcome of the operation is unknown, and
    /// no queue pair of this process is usable any more. `ibv_wc_status` has no such status; libfabric's is
    /// `FI_EOVERRUN`. See [`max_completions`](crate::Capabilities::max_completions).
    QueueOverrun = 126,
}

/// The completion of one work request or receive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Completion {
    /// The queue pair.
    pub qp: QpId,
    /// The id of the work request or the receive.
    pub id: u64,
    /// The kind of operation.
    pub opcode: Opcode,
    /// The outcome. With any status but success and [`Status::Cancelled`], the queue pair is in the error state.
    pub status: Status,
    /// Number of bytes received; 0 for other operations.
    pub bytes: u32,
    /// The immediate, for receives of a message that carries one.
    pub imm: Option<u32>,
    /// The tag, for tagged receives.
    pub tag: u64,
}

impl Completion {
    /// Creates a completion without bytes, immediate or tag.
    #[inline]
    #[must_use]
    pub const fn new(qp: QpId, id: u64, opcode: Opcode, status: Status) -> Completion {
        Completion { qp, id, opcode, status, bytes: 0, imm: None, tag: 0 }
    }

    /// A completion that no fabric reports. It initializes buffers for [`poll`](crate::Fabric::poll).
    pub const BLANK: Completion = Completion::new(QpId(u32::MAX), u64::MAX, Opcode::Write, Status::Flushed);
}

/// A change of a queue pair or a region, as opposed to the completion of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Both ends of a queue pair are ready, and every region that the peer granted before it connected can be resolved.
    /// Nothing that was posted on an earlier connection of this queue pair lands after this event, whether it was
    /// posted in this life of the peer or in an earlier one. The peer may have become ready first, so its first WRITEs
    /// and SENDs on this connection may have landed already.
    Connected {
        /// The queue pair.
        qp: QpId,
        /// The process at the other end.
        peer: ProcessId,
    },
    /// A queue pair entered the error state, for example because a request of this end failed, one of the ends called
    /// [`Fabric::disconnect`](crate::Fabric::disconnect), or the peer ended. The completions of all outstanding
    /// requests can be polled now, and none is added later. [`Fabric::reset`](crate::Fabric::reset) starts a new
    /// connection. The event is reported once per break. Two breaks may follow each other without a
    /// [`Connected`](Event::Connected) in between. Writes of the peer may still land until the next
    /// [`Connected`](Event::Connected).
    Disconnected {
        /// The queue pair.
        qp: QpId,
        /// The process at the other end.
        peer: ProcessId,
    },
    /// A revocation took effect. After this event, no request under the revoked grant lands in the memory that the
    /// owner reads, whenever the peer posted it. Everything that had completed at the peer before is in
    /// [`Fabric::memory`](crate::Fabric::memory).
    Revoked {
        /// The region.
        region: RegionId,
        /// The process that lost access.
        peer: ProcessId,
    },
}
