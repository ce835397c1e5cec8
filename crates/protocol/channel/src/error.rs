//! What goes wrong with a connection: which operation, with whom, why (C5).

use std::time::Duration;

use stentor_fabric::{PostError, ProcessId, Status};
use thiserror::Error;

use crate::Scheme;

/// What was being done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// The two ends were finding out whether they can talk.
    Open,
    /// A message was being written; its number.
    Write(u64),
    /// A message was being read; its number.
    Read(u64),
    /// The ends told each other about credits, or about the end.
    Control,
    /// It was being closed.
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

/// Why.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum Cause {
    /// The fabric reported an error for the operation. A suspicion, no proof that the peer is gone.
    #[error("the fabric reports {0:?}")]
    Fabric(Status),
    /// The queue pair broke; what was posted on it may have arrived or not.
    #[error("the connection of the fabric broke")]
    Broken,
    /// The fabric did not take the operation.
    #[error("the fabric refused the operation: {0}")]
    Refused(Refusal),
    /// The ends were opened with different parameters.
    #[error("{what} is {ours} here and {theirs} there; open both ends with the same parameters")]
    Disagree {
        /// Which parameter.
        what: &'static str,
        /// Here.
        ours: u64,
        /// There.
        theirs: u64,
    },
    /// The peer speaks another version.
    #[error("this end speaks version {ours} of the protocol, the other version {theirs}; update the older one")]
    Version {
        /// Here.
        ours: u8,
        /// There.
        theirs: u8,
    },
    /// The peer announced a message beyond the limit.
    #[error("the peer announced a message of {bytes} bytes; the limit is {limit}")]
    TooLong {
        /// What it announced.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The peer used a sequence that cannot be in flight.
    #[error("the peer sent {kind} {sequence}, {expected} or one of the {window} after it was possible")]
    Sequence {
        /// `length`, `payload` or `control`.
        kind: &'static str,
        /// What came.
        sequence: u32,
        /// The first that was possible.
        expected: u32,
        /// How many were.
        window: u32,
    },
    /// A message of the fabric has another size than was announced.
    #[error("the peer sent a {kind} of {bytes} bytes where {expected} were announced")]
    Size {
        /// `length`, `payload` or `control`.
        kind: &'static str,
        /// What came.
        bytes: u64,
        /// What was announced.
        expected: u64,
    },
    /// What the peer says contradicts itself.
    #[error("the peer contradicts itself: {0}")]
    Nonsense(&'static str),
    /// The peer gave the connection up.
    #[error("the peer gave the connection up: {0}")]
    PeerGaveUp(Reason),
    /// This end gave it up.
    #[error("this end gave the connection up")]
    Aborted,
    /// This end gave it up because it had waited for so long.
    #[error("nothing was heard for {0:?}")]
    TimedOut(Duration),
}

/// Why the fabric did not take an operation.
pub type Refusal = PostErrorKind;

/// A [`PostError`] that can be hashed and compared cheaply; the text is the fabric's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub struct PostErrorKind(pub PostError);

impl std::hash::Hash for PostErrorKind {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::mem::discriminant(&self.0).hash(state);
    }
}

/// Why a peer gave a connection up, as it says itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[repr(u8)]
pub enum Reason {
    /// Its application did not want it any more.
    #[error("its application aborted it")]
    Aborted = 1,
    /// It saw an error that it could not live with.
    #[error("it saw an error")]
    Error = 2,
}

impl Reason {
    /// The reason of that number.
    #[must_use]
    pub fn of(number: u8) -> Option<Reason> {
        [Reason::Aborted, Reason::Error].into_iter().find(|reason| *reason as u8 == number)
    }
}

/// Why a connection failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[error("connection {connection} with {peer}: {operation}: {cause}")]
pub struct ChannelError {
    /// The connection.
    pub connection: u32,
    /// The other end.
    pub peer: ProcessId,
    /// What was being done.
    pub operation: Operation,
    /// Why it did not work.
    #[source]
    pub cause: Cause,
}

/// Why a message was not taken for writing. The call changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum WriteError {
    /// Longer than any message may be.
    #[error("a message of {bytes} bytes: the limit of this connection is {limit}")]
    TooLong {
        /// What was given.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Not all of the message before was handed over.
    #[error("the message before it is not handed over yet: {left} bytes are left")]
    Busy {
        /// How much is left of it, bytes.
        left: u64,
    },
    /// The connection is closed, closing or failed.
    #[error("the connection is closed")]
    Closed,
    /// The message that was given is not the one that was begun.
    #[error(
        "a message of {given} bytes, and one of {begun} bytes was begun; hand over the same message until all of it is"
    )]
    OtherLength {
        /// The length that the message was begun with, bytes.
        begun: u64,
        /// The length of what was given, bytes.
        given: u64,
    },
    /// The message does not lie in its region.
    #[error(
        "a message of {bytes} bytes at offset {offset} of a region of {region_bytes}: begin at a multiple of 8, and end \
         where the next multiple of 8 is in the region"
    )]
    OutOfRegion {
        /// The length of the message, bytes.
        bytes: u64,
        /// Where it begins.
        offset: u64,
        /// The length of the region, bytes.
        region_bytes: u64,
    },
}

/// A peer that breaks the rules, before it is said which operation that was.
pub(crate) type Violation = Cause;

impl Scheme {
    /// Its number in messages.
    pub(crate) fn number(self) -> u64 {
        self as u64
    }
}
