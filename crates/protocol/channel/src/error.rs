//! Failures of a connection: the operation, the peer and the cause (property C5 in `docs/channel.md`).

use std::time::Duration;

use stentor_fabric::{PostError, ProcessId, Status};
use thiserror::Error;

use crate::Scheme;

/// Operation that failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// The two ends were exchanging their hellos.
    Open,
    /// The message with this number was being written.
    Write(u64),
    /// The message with this number was being read.
    Read(u64),
    /// The ends were exchanging credits or closing notices, or the queue pair broke after the hellos.
    Control,
    /// The owner was aborting the connection.
    Close,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Operation::Open => f.write_str("opening"),
            Operation::Write(k) => write!(f, "write of message {k}"),
            Operation::Read(k) => write!(f, "read of message {k}"),
            Operation::Control => f.write_str("credits"),
            Operation::Close => f.write_str("closing"),
        }
    }
}

/// Cause of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum Cause {
    /// The fabric reported an error for the operation. This is a suspicion, not proof that the peer has crashed.
    #[error("the fabric reports {0:?}")]
    Fabric(Status),
    /// The queue pair broke. Operations that were posted on it may or may not have taken effect.
    #[error("the connection of the fabric broke")]
    Broken,
    /// The fabric refused to post the operation.
    #[error("the fabric refused the operation: {0}")]
    Refused(Refusal),
    /// The ends were opened with different parameters.
    #[error("{what} is {ours} here and {theirs} there; open both ends with the same parameters")]
    Disagree {
        /// Name of the parameter.
        what: &'static str,
        /// Value at this end.
        ours: u64,
        /// Value at the peer.
        theirs: u64,
    },
    /// The peer uses another version of the protocol.
    #[error("this end has protocol version {ours} and the other end version {theirs}; update the older one")]
    Version {
        /// Protocol version of this end.
        ours: u8,
        /// Protocol version of the peer.
        theirs: u8,
    },
    /// The peer announced a message that is longer than the limit.
    #[error("the peer announced a message of {bytes} bytes; the limit is {limit}")]
    TooLong {
        /// Announced length, in bytes.
        bytes: u64,
        /// Limit, in bytes.
        limit: u64,
    },
    /// The peer used a sequence that cannot be in flight or has arrived before.
    #[error("the peer sent {kind} {sequence}; only the {window} sequences that begin with {expected} are valid")]
    Sequence {
        /// Kind of message: `length`, `payload`, `message` or `control`.
        kind: &'static str,
        /// Sequence that arrived.
        sequence: u32,
        /// First sequence that was valid.
        expected: u32,
        /// Number of sequences that were valid.
        window: u32,
    },
    /// A message of the fabric does not have the size that the protocol or an announced length requires.
    #[error("the peer sent a {kind} of {bytes} bytes instead of {expected} bytes")]
    Size {
        /// Kind of message: `length`, `whole message`, `payload` or `control`.
        kind: &'static str,
        /// Size that arrived, in bytes.
        bytes: u64,
        /// Required size, in bytes.
        expected: u64,
    },
    /// The peer broke another rule of the protocol, which the text names.
    #[error("the peer contradicts itself: {0}")]
    Nonsense(&'static str),
    /// The connection was aborted, or failed, at the peer.
    #[error("the peer aborted the connection: {0}")]
    PeerGaveUp(Reason),
    /// This end aborted the connection.
    #[error("this end aborted the connection")]
    Aborted,
    /// This end aborted the connection after it had waited for the peer for this time.
    #[error("the peer did not respond for {0:?}")]
    TimedOut(Duration),
}

/// Reason why the fabric refused to post an operation.
pub type Refusal = PostErrorKind;

/// A [`PostError`] that implements `Hash`. The hash covers only the variant. The text is that of the `PostError`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub struct PostErrorKind(pub PostError);

impl std::hash::Hash for PostErrorKind {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::mem::discriminant(&self.0).hash(state);
    }
}

/// Reason why the connection ended at the peer, as reported by the peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[repr(u8)]
pub enum Reason {
    /// The peer's application aborted the connection.
    #[error("its application requested the abort")]
    Aborted = 1,
    /// The connection failed at the peer, for example by an error of its fabric or by a timeout of its application.
    #[error("it detected an error")]
    Error = 2,
}

impl Reason {
    /// Returns the reason with that number, or `None` if there is none.
    #[must_use]
    pub fn of(number: u8) -> Option<Reason> {
        [Reason::Aborted, Reason::Error].into_iter().find(|reason| *reason as u8 == number)
    }
}

/// Failure of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[error("connection {connection} with {peer}: {operation}: {cause}")]
pub struct ChannelError {
    /// Number of the connection.
    pub connection: u32,
    /// The other end.
    pub peer: ProcessId,
    /// Operation that failed.
    pub operation: Operation,
    /// Cause of the failure.
    #[source]
    pub cause: Cause,
}

/// Reason why a call that writes a message or finishes writing was refused. The call had no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum WriteError {
    /// The message is longer than the limit.
    #[error("a message of {bytes} bytes is too long: the limit of this connection is {limit} bytes")]
    TooLong {
        /// Length of the message, in bytes.
        bytes: u64,
        /// Limit, in bytes.
        limit: u64,
    },
    /// The previous message has not been handed over completely.
    #[error("the previous message is not handed over yet: {left} bytes are left")]
    Busy {
        /// Number of bytes of the previous message that are not handed over yet.
        left: u64,
    },
    /// The connection is closed, closing or failed.
    #[error("the connection is closed")]
    Closed,
    /// The message has another length than the one that was begun.
    #[error("the message has {given} bytes, but one of {begun} bytes was begun; hand over all of that one first")]
    OtherLength {
        /// Length with which the message was begun, in bytes.
        begun: u64,
        /// Length of the message in this call, in bytes.
        given: u64,
    },
    /// The message does not lie in its region, or its offset is not a multiple of 8.
    #[error(
        "a message of {bytes} bytes at offset {offset} does not fit in a region of {region_bytes} bytes: the offset must \
         be a multiple of 8, and the region must contain the message up to the next multiple of 8"
    )]
    OutOfRegion {
        /// Length of the message, in bytes.
        bytes: u64,
        /// Offset of the message in the region, in bytes.
        offset: u64,
        /// Length of the region, in bytes.
        region_bytes: u64,
    },
}

/// Cause of a failure. The connection adds the operation to form a [`ChannelError`].
pub(crate) type Violation = Cause;

impl Scheme {
    /// Returns the scheme's number on the wire.
    pub(crate) fn number(self) -> u64 {
        self as u64
    }
}
