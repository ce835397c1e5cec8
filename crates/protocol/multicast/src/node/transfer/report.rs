//! Reports about transfers, for the program that runs the member.

use std::fmt;

use stentor_fabric::ProcessId;
use thiserror::Error;

/// A member's role in a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransferRole {
    /// The member provides its state.
    Donor,
    /// The member receives another member's state.
    Receiver,
}

/// The reason why a transfer ended before the receiver had the state. If the receiver still needs a state, it asks
/// again, and the next attempt begins after a pause.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GivenUp {
    /// The state is larger than the limit.
    #[error(
        "the state has {bytes} bytes or more, `snapshot_mib` allows {limit} bytes: raise it at all processes and start them \
         again, or make the state smaller"
    )]
    TooLarge {
        /// Bytes of the state, if its size is known in advance; otherwise the bytes that were read or received.
        bytes: u64,
        /// Limit in bytes.
        limit: u64,
    },
    /// More was delivered during the transfer than fits into the backlog, although clients were slowed down.
    #[error(
        "more than {limit} bytes were delivered before the receiver had the state, although clients were slowed down: raise \
         `backlog_mib`, lower `slowed_percent`, or send less until the receiver is back"
    )]
    BacklogFull {
        /// Limit in bytes.
        limit: u64,
    },
    /// The receiver made no progress for too long, or its connection was broken for too long.
    #[error("the receiver makes no progress")]
    Silent,
    /// The receiver no longer takes part, for example because it accepted another donor's state, caught up otherwise,
    /// or restarted.
    #[error("the receiver no longer takes part in the transfer")]
    Abandoned,
    /// The donor no longer leads, its group began another incarnation, or the donor adopts another member's state
    /// itself. The new leader is the next donor.
    #[error("the group has another leader, which is the next donor")]
    LeaderChanged,
    /// The donor's application could not write its state.
    #[error("the donor's application cannot write its state: see the donor's log for the reason")]
    Unwritable,
}

/// The status of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransferOutcome {
    /// The transfer began.
    Began,
    /// The transfer continues after a broken connection.
    Resumed,
    /// The receiver has the state or, if the receiver is a candidate, the donor has sent it.
    Complete,
    /// The transfer ended early.
    GivenUp(GivenUp),
}

/// A report about a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TransferReport {
    /// This member's role.
    pub role: TransferRole,
    /// The other member.
    pub peer: ProcessId,
    /// Number of deliveries that the frozen state contains.
    pub position: u64,
    /// Bytes of the frozen state that were sent or received so far.
    pub bytes: u64,
    /// The transfer's status.
    pub outcome: TransferOutcome,
}

impl fmt::Display for TransferOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransferOutcome::Began => write!(f, "began"),
            TransferOutcome::Resumed => write!(f, "goes on after a broken connection"),
            TransferOutcome::Complete => write!(f, "is complete"),
            TransferOutcome::GivenUp(why) => write!(f, "was given up: {why}"),
        }
    }
}
