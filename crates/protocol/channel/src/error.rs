//! Failures of a connection: the operation, the peer and the cause (C5).

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
    /// The ends were exchanging credits or closing notices.
    Control,
    /// The connection was being closed.
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
    #[error("this end speaks version {ours} of the protocol, the other version {theirs}; update the older one")]
    Version {
        /// Version of this end.
        ours: u8,
        /// Version of the peer.
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
    /// The peer used a sequence that cannot be in flight.
    #[error("the peer sent {kind} {sequence}, {expected} or one of the {window} after it was possible")]
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
    /// A message of the fabric does not have the announced size.
    #[error("the peer sent a {kind} of {bytes} bytes where {expected} were announced")]
    Size {
        /// Kind of message: `length`, `whole message`, `payload` or `control`.
        kind: &'static str,
        /// Size that arrived, in bytes.
        bytes: u64,
        /// Size that was announced, in bytes.
        expected: u64,
    },
    /// The peer's messages contradict each other.
    #[error("the peer contradicts itself: {0}")]
    Nonsense(&'static str),
    /// The peer aborted the connection.
    #[error("the peer gave the connection up: {0}")]
    PeerGaveUp(Reason),
    /// This end aborted the connection.
    #[error("this end gave the connection up")]
    Aborted,
    /// This end aborted the connection after it had waited for that time.
    #[error("nothing was heard for {0:?}")]
    TimedOut(Duration),
}

/// Reason why the fabric refused to post an operation.
pub type Refusal = PostErrorKind;

/// A [`PostError`] with a cheap hash and comparison. It displays the fabric's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub struct PostErrorKind(pub PostError);

impl std::hash::Hash for PostErrorKind {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::mem::discriminant(&self.0).hash(state);
    }
}

/// Reason for which a peer aborted a connection, as the peer reports it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[repr(u8)]
pub enum Reason {
    /// The peer's application aborted the connection.
    #[error("its application aborted it")]
    Aborted = 1,
    /// The peer saw an error that ends the connection.
    #[error("it saw an error")]
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

/// Reason why a message was not accepted for writing. The call had no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum WriteError {
    /// The message is longer than the limit.
    #[error("a message of {bytes} bytes: the limit of this connection is {limit}")]
    TooLong {
        /// Length of the message, in bytes.
        bytes: u64,
        /// Limit, in bytes.
        limit: u64,
    },
    /// The message before it has not been handed over completely.
    #[error("the message before it is not handed over yet: {left} bytes are left")]
    Busy {
        /// Number of bytes of that earlier message that are not handed over yet.
        left: u64,
    },
    /// The connection is closed, closing or failed.
    #[error("the connection is closed")]
    Closed,
    /// The message is not the one that was begun.
    #[error(
        "a message of {given} bytes, and one of {begun} bytes was begun; hand over the same message until all of it is"
    )]
    OtherLength {
        /// Length with which the message was begun, in bytes.
        begun: u64,
        /// Length of the message in this call, in bytes.
        given: u64,
    },
    /// The message does not lie in its region.
    #[error(
        "a message of {bytes} bytes at offset {offset} of a region of {region_bytes}: begin at a multiple of 8, and end \
         where the next multiple of 8 is in the region"
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

/// A peer's violation of the protocol, before the operation is added.
pub(crate) type Violation = Cause;

impl Scheme {
    /// Returns the scheme's number on the wire.
    pub(crate) fn number(self) -> u64 {
        self as u64
    }
}
