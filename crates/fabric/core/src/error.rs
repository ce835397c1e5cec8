//! Errors, one type per kind of call. Each message names the obstacle, and some name a remedy.

use thiserror::Error;

use crate::{OsError, ProcessId, Purpose, QpId, QpState, RegionId};

/// The reason why a region was not registered.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum RegisterError {
    /// The size is 0 or not a multiple of 64.
    #[error("cannot register a region of {bytes} bytes: the size must be a non-zero multiple of 64")]
    Size {
        /// Requested size in bytes.
        bytes: u64,
    },
    /// The pair (writer, purpose) is in use.
    #[error("region {purpose:?} for {writer} is registered already")]
    Duplicate {
        /// The purpose.
        purpose: Purpose,
        /// The writer.
        writer: ProcessId,
    },
    /// The cluster has no such process.
    #[error("process {0} is not in the cluster")]
    UnknownProcess(ProcessId),
    /// The operating system refused the memory; [`OsError::remedy`] returns the remedy.
    #[error("cannot get {bytes} bytes of registered memory: {source}")]
    Refused {
        /// Requested size in bytes.
        bytes: u64,
        /// The error of the operating system.
        source: OsError,
    },
    /// The memory is unavailable for another reason.
    #[error("cannot get {bytes} bytes of registered memory: {reason}")]
    System {
        /// Requested size in bytes.
        bytes: u64,
        /// The message of the operating system, and the remedy.
        reason: String,
    },
}

/// The reason why a grant or a revocation of access failed.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum AccessError {
    /// No region has this id.
    #[error("{0:?} is not registered")]
    UnknownRegion(RegionId),
    /// The region is for another peer.
    #[error("{region:?} is for {writer}; access was requested for {peer}")]
    NotForPeer {
        /// The region.
        region: RegionId,
        /// The process that the region is for.
        writer: ProcessId,
        /// The process in the call.
        peer: ProcessId,
    },
    /// The operating system or the fabric refused the change.
    #[error("cannot change access to {region:?}: {reason}")]
    System {
        /// The region.
        region: RegionId,
        /// The reason that the operating system or the fabric reported.
        reason: String,
    },
}

/// The reason why a queue pair could not be created, reset or disconnected.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ConnectError {
    /// The cluster has no such process.
    #[error("process {0} is not in the cluster")]
    UnknownProcess(ProcessId),
    /// The queue is deeper than the fabric supports.
    #[error("a {what} of {asked} work requests is too deep: this fabric allows at most {limit}")]
    TooDeep {
        /// `send queue` or `receive queue`.
        what: &'static str,
        /// Requested depth, in work requests.
        asked: u32,
        /// Maximum depth, in work requests; see [`Capabilities`](crate::Capabilities).
        limit: u32,
    },
    /// The operating system, or a limit of this process, prevents the queue pair.
    #[error("cannot make a queue pair to {peer}: {reason}")]
    System {
        /// The peer.
        peer: ProcessId,
        /// The obstacle, and the remedy.
        reason: String,
    },
    /// The fabric has no unreliable connections.
    #[error("this fabric has no unreliable connections")]
    NoUnreliable,
    /// The network makes no copies.
    #[error("this fabric has no multicast by the network; write to each peer over a separate queue pair")]
    NoSets,
    /// The set is invalid: its size, a process in it, or its number.
    #[error(
        "set {number} of {members} processes is invalid: a set has 2 to 32 different processes, including this one, and a \
         process joins each set number once"
    )]
    Set {
        /// Number of the set.
        number: u16,
        /// Number of processes in the call.
        members: usize,
    },
    /// No queue pair has this id.
    #[error("{0:?} does not exist")]
    UnknownQp(QpId),
    /// The queue pair is not in the error state; only a broken one can be reset.
    #[error("{qp:?} is {state:?}; only a broken queue pair is reset")]
    NotBroken {
        /// The queue pair.
        qp: QpId,
        /// State of the queue pair.
        state: QpState,
    },
    /// The fabric refused, for example because another process on this host has the same id, or this process has
    /// crashed (`sim`).
    #[error("{peer} refused the connection: {reason}")]
    Refused {
        /// The peer.
        peer: ProcessId,
        /// The reason, with the remedy if there is one.
        reason: String,
    },
    /// The pair (peer, service) is in use.
    #[error("a queue pair to {peer} for {service:?} exists already")]
    Duplicate {
        /// The peer.
        peer: ProcessId,
        /// The service.
        service: crate::Service,
    },
}

/// The reason why a work request or receive was not posted. The call had no effect.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum PostError {
    /// No queue pair has this id.
    #[error("{0:?} does not exist")]
    UnknownQp(QpId),
    /// The queue pair is not connected, or is broken.
    #[error("{qp:?} is {state:?}")]
    NotReady {
        /// The queue pair.
        qp: QpId,
        /// State of the queue pair.
        state: QpState,
    },
    /// The send queue is full. Poll for completions, then post again. Unsignalled requests keep their slots until a
    /// later one completes.
    #[error("the send queue of {qp:?} is full ({depth} work requests)")]
    SendQueueFull {
        /// The queue pair.
        qp: QpId,
        /// Depth of the send queue, in work requests.
        depth: u32,
    },
    /// The receive queue is full. Poll for completions, then post again.
    #[error("the receive queue of {qp:?} is full ({depth} receives)")]
    RecvQueueFull {
        /// The queue pair.
        qp: QpId,
        /// Depth of the receive queue, in receives.
        depth: u32,
    },
    /// The set does not reach this peer now, or the list of targets is empty or names a peer twice.
    #[error(
        "the set {qp:?} does not reach {peer}, or its list of targets is invalid; write to {peer} over an ordinary queue pair"
    )]
    NotReached {
        /// The set's queue pair.
        qp: QpId,
        /// The peer in question.
        peer: ProcessId,
    },
    /// The inline data is longer than the fabric's limit.
    #[error("{bytes} bytes inline: the limit is {limit}; use a registered region")]
    InlineTooLong {
        /// Length of the data, in bytes.
        bytes: u64,
        /// Maximum length, in bytes.
        limit: u32,
    },
    /// The span is outside the local region.
    #[error("local span {offset}+{bytes} is outside {region:?}")]
    OutOfLocalRegion {
        /// The region.
        region: RegionId,
        /// Offset, in bytes.
        offset: u64,
        /// Length, in bytes.
        bytes: u64,
    },
    /// The message is longer than the fabric's limit.
    #[error("{bytes} bytes in one message: the limit is {limit}")]
    TooLong {
        /// Length of the message, in bytes.
        bytes: u64,
        /// Maximum length, in bytes.
        limit: u64,
    },
    /// The offset of a local span, or the offset or length of a one-sided operation, is not a multiple of 8, or the
    /// local span of an atomic operation is not 8 bytes long.
    #[error("offset {offset}, length {bytes}: one-sided operations take multiples of 8")]
    Misaligned {
        /// Offset, in bytes.
        offset: u64,
        /// Length, in bytes.
        bytes: u64,
    },
    /// The operating system did not register local memory for this queue pair. Registration happens when a queue pair
    /// first uses a region.
    #[error("{region:?} cannot be registered for {qp:?}: {}; raise the limit of locked memory (ulimit -l)", std::io::Error::from_raw_os_error(*errno))]
    NotRegistered {
        /// The queue pair.
        qp: QpId,
        /// The region.
        region: RegionId,
        /// Error number of the operating system.
        errno: i32,
    },
    /// The fabric does not have this operation; check [`Capabilities`](crate::Capabilities) first.
    #[error("this fabric has no {0}")]
    Unsupported(&'static str),
}

/// The reason why waiting failed.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum WaitError {
    /// The system call failed.
    #[error("cannot wait: {0}")]
    System(String),
}
