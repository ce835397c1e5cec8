//! Errors, one type per kind of call: what was asked, what is in the way, what to do.

use thiserror::Error;

use crate::{OsError, ProcessId, Purpose, QpId, QpState, RegionId};

/// Why a region was not registered.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum RegisterError {
    /// Not a multiple of 64, or 0.
    #[error("a region of {bytes} bytes: sizes are multiples of 64 above 0")]
    Size {
        /// What was asked for.
        bytes: u64,
    },
    /// (writer, purpose) is taken.
    #[error("region {purpose:?} for {writer} is registered already")]
    Duplicate {
        /// The purpose.
        purpose: Purpose,
        /// The writer.
        writer: ProcessId,
    },
    /// No such process in the cluster.
    #[error("process {0} is not in the cluster")]
    UnknownProcess(ProcessId),
    /// The system refused the memory; [`OsError::remedy`] knows what to do.
    #[error("cannot get {bytes} bytes of registered memory: {source}")]
    Refused {
        /// What was asked for.
        bytes: u64,
        /// What the system said.
        source: OsError,
    },
    /// The memory cannot be had for another reason.
    #[error("cannot get {bytes} bytes of registered memory: {reason}")]
    System {
        /// What was asked for.
        bytes: u64,
        /// What the system said, and the remedy.
        reason: String,
    },
}

/// Why access was not granted or revoked.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum AccessError {
    /// No such region.
    #[error("{0:?} is not registered")]
    UnknownRegion(RegionId),
    /// A region is for one peer.
    #[error("{region:?} is for {writer}; access for {peer} was asked")]
    NotForPeer {
        /// The region.
        region: RegionId,
        /// Who it is for.
        writer: ProcessId,
        /// Who was named.
        peer: ProcessId,
    },
    /// The system refused.
    #[error("cannot change access to {region:?}: {reason}")]
    System {
        /// The region.
        region: RegionId,
        /// What the system said.
        reason: String,
    },
}

/// Why a queue pair was not made or reset.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ConnectError {
    /// No such process in the cluster.
    #[error("process {0} is not in the cluster")]
    UnknownProcess(ProcessId),
    /// A queue deeper than the fabric has.
    #[error("{what} of {asked} work requests: this fabric has at most {limit}")]
    TooDeep {
        /// `send queue` or `receive queue`.
        what: &'static str,
        /// What was asked for.
        asked: u32,
        /// The limit, see [`Capabilities`](crate::Capabilities).
        limit: u32,
    },
    /// The system, or a limit of this process, refused.
    #[error("cannot make a queue pair to {peer}: {reason}")]
    System {
        /// The peer.
        peer: ProcessId,
        /// What is in the way, and the remedy.
        reason: String,
    },
    /// The fabric has no unreliable connections.
    #[error("this fabric has no unreliable connections")]
    NoUnreliable,
    /// The network makes no copies here.
    #[error("this fabric has no multicast by the network; write to each peer by a queue pair of its own")]
    NoSets,
    /// Not a set that can be.
    #[error(
        "set {number} of {members} processes: a set has 2 to 32, each once, this one among them, and each number once"
    )]
    Set {
        /// Its number.
        number: u16,
        /// Processes that were named.
        members: usize,
    },
    /// No such queue pair.
    #[error("{0:?} does not exist")]
    UnknownQp(QpId),
    /// Only a queue pair in the error state can be reset.
    #[error("{qp:?} is {state:?}; only a broken queue pair is reset")]
    NotBroken {
        /// The queue pair.
        qp: QpId,
        /// Its state.
        state: QpState,
    },
    /// The peer refused: another version, another cluster, a second process of the same name.
    #[error("{peer} refused the connection: {reason}")]
    Refused {
        /// The peer.
        peer: ProcessId,
        /// Why, and the remedy.
        reason: String,
    },
    /// (peer, service) is taken.
    #[error("a queue pair to {peer} for {service:?} exists already")]
    Duplicate {
        /// The peer.
        peer: ProcessId,
        /// The service.
        service: crate::Service,
    },
}

/// Why a work request or receive was not posted. Nothing was done.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum PostError {
    /// No such queue pair.
    #[error("{0:?} does not exist")]
    UnknownQp(QpId),
    /// Not connected, or broken.
    #[error("{qp:?} is {state:?}")]
    NotReady {
        /// The queue pair.
        qp: QpId,
        /// Its state.
        state: QpState,
    },
    /// Poll for completions, then post again. Unsignalled requests keep their places until a later one completes.
    #[error("the send queue of {qp:?} is full ({depth} work requests)")]
    SendQueueFull {
        /// The queue pair.
        qp: QpId,
        /// Its depth.
        depth: u32,
    },
    /// Poll for completions, then post again.
    #[error("the receive queue of {qp:?} is full ({depth} receives)")]
    RecvQueueFull {
        /// The queue pair.
        qp: QpId,
        /// Its depth.
        depth: u32,
    },
    /// Not somebody whom this set reaches now, named twice, or nobody at all.
    #[error("{qp:?} does not reach {peer} by the network's copies; write to it by its own queue pair")]
    NotReached {
        /// The set's queue pair.
        qp: QpId,
        /// Who was named.
        peer: ProcessId,
    },
    /// Larger than the inline limit.
    #[error("{bytes} bytes inline: the limit is {limit}; use a registered region")]
    InlineTooLong {
        /// What was given.
        bytes: u64,
        /// The limit.
        limit: u32,
    },
    /// Outside the local region.
    #[error("local span {offset}+{bytes} is outside {region:?}")]
    OutOfLocalRegion {
        /// The region.
        region: RegionId,
        /// Offset, bytes.
        offset: u64,
        /// Length, bytes.
        bytes: u64,
    },
    /// Larger than one message may be.
    #[error("{bytes} bytes in one message: the limit is {limit}")]
    TooLong {
        /// What was given.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Offset or length of a one-sided operation is not a multiple of 8.
    #[error("offset {offset}, length {bytes}: one-sided operations take multiples of 8")]
    Misaligned {
        /// Offset, bytes.
        offset: u64,
        /// Length, bytes.
        bytes: u64,
    },
    /// The system did not let memory of this side be used on this queue pair, which was tried when it was first used there.
    #[error("{region:?} cannot be registered for {qp:?}: {}; raise the limit of locked memory (ulimit -l)", std::io::Error::from_raw_os_error(*errno))]
    NotRegistered {
        /// The queue pair.
        qp: QpId,
        /// The region.
        region: RegionId,
        /// What the system said.
        errno: i32,
    },
    /// The fabric does not have this operation; ask [`Capabilities`](crate::Capabilities) first.
    #[error("this fabric has no {0}")]
    Unsupported(&'static str),
}

/// Why waiting failed.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum WaitError {
    /// The system call failed.
    #[error("cannot wait: {0}")]
    System(String),
}
