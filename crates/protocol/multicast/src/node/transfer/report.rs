//! What became of a transfer, for whoever runs the member.

use std::fmt;

use stentor_fabric::ProcessId;
use thiserror::Error;

/// A member's part in a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransferRole {
    /// It gives its state.
    Donor,
    /// It takes another member's state.
    Receiver,
}

/// Why a transfer ended before the receiver had the state. Unless the state is too large, the receiver asks again.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GivenUp {
    /// The state is larger than is allowed.
    #[error(
        "the state has {bytes} bytes or more, `snapshot_mib` allows {limit} bytes: raise it at all processes and start them \
         again, or make the state smaller"
    )]
    TooLarge {
        /// Bytes of the state, as far as it was looked at.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// More was delivered meanwhile than the backlog takes, although clients were slowed down.
    #[error(
        "more than {limit} bytes were delivered before the receiver had the state, although clients were slowed down: raise \
         `backlog_mib`, lower `slowed_percent`, or send less until the receiver is back"
    )]
    BacklogFull {
        /// The limit.
        limit: u64,
    },
    /// The receiver made no progress for too long, or its connection was broken for too long.
    #[error("the receiver makes no progress")]
    Silent,
    /// The receiver takes another donor's state, or was started again.
    #[error("the receiver does not take part in it any more")]
    Abandoned,
    /// The donor does not lead any more: the new leader is the next donor.
    #[error("the group has another leader, who is the next donor")]
    LeaderChanged,
    /// The application of the donor could not write its state.
    #[error("the donor's application cannot write its state: the donor's log says why")]
    Unwritable,
}

/// How a transfer stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransferOutcome {
    /// It began.
    Began,
    /// It goes on after a broken connection.
    Resumed,
    /// The receiver has the state.
    Complete,
    /// It ended early.
    GivenUp(GivenUp),
}

/// News about a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TransferReport {
    /// What this member does in it.
    pub role: TransferRole,
    /// The other member.
    pub peer: ProcessId,
    /// Deliveries that the frozen state contains.
    pub position: u64,
    /// Bytes of the frozen state that were sent or received so far.
    pub bytes: u64,
    /// How it stands.
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
