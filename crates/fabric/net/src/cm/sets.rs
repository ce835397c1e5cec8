//! Fan-out sets: queue pairs whose other end is not a process but a device in the network that copies each write.

use std::fmt;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;

use stentor_fabric::{Completion, ConnectError, PostError, ProcessId, QpConfig, QpId, SetSpec, SetWrite};

use super::ConnectionManager;
use super::transport::Transport;

/// The error on fabrics without fan-out sets.
pub const NO_SETS: PostError = PostError::Unsupported("multicast by the network");
const NO_SET: PostError = PostError::Unsupported("copies by the network on a queue pair that does not belong to a set");

/// The fan-out sets of a process, and the operations on them, which the connection manager calls. The default methods
/// are those of a fabric without sets.
///
/// `set` is the index that was passed to [`ConnectionManager::add_set`]. A generation of a set consists of the members
/// that have joined: the switch begins a new one whenever a member joins, leaves or fails.
pub trait Sets: Sized {
    /// The fabric's ends of queue pairs.
    type Transport: Transport;

    /// Returns whether there are no sets.
    fn is_empty(&self) -> bool {
        true
    }

    /// Returns whether there are sets but no connection to a switch.
    fn is_connecting(&self) -> bool {
        false
    }

    /// Returns a socket to wait for, which may be replaced at any time.
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns the next message for the operator. Each is returned once.
    fn next_note(&mut self) -> Option<String> {
        None
    }

    /// Creates this process's end of a set. `make` creates the fabric's part of it, with the given id, peer and
    /// parameters. `held_bytes` is the maximum number of posted bytes that may wait while the member list changes.
    ///
    /// # Errors
    /// Returns a [`ConnectError`], which may be that of `make`.
    fn join(
        cm: &mut ConnectionManager<Self>,
        transport: &mut Self::Transport,
        (spec, config): (SetSpec<'_>, QpConfig),
        held_bytes: usize,
        make: impl FnOnce(&mut Self::Transport, QpId, ProcessId, QpConfig) -> Result<(), ConnectError>,
    ) -> Result<QpId, ConnectError> {
        let _ = (cm, transport, spec, config, held_bytes, make);
        Err(ConnectError::NoSets)
    }

    /// Begins the next life of a set's queue pair.
    ///
    /// # Errors
    /// Returns a [`ConnectError`].
    fn begin(
        cm: &mut ConnectionManager<Self>,
        transport: &mut Self::Transport,
        set: usize,
    ) -> Result<(), ConnectError> {
        let _ = (cm, transport, set);
        Err(ConnectError::NoSets)
    }

    /// Handles the break of a set's queue pair.
    fn broke(cm: &mut ConnectionManager<Self>, set: usize) {
        let _ = (cm, set);
    }

    /// Runs one round.
    fn pump(cm: &mut ConnectionManager<Self>, transport: &mut Self::Transport) {
        let _ = (cm, transport);
    }

    /// Handles the question of a set's sender that has left a generation: has this process left it, too? The
    /// implementation answers with [`say_left`](ConnectionManager::say_left) once this process has left it.
    fn asked_to_leave(
        cm: &mut ConnectionManager<Self>,
        transport: &mut Self::Transport,
        sender: ProcessId,
        (number, generation): (u16, u64),
    ) {
        let _ = transport;
        cm.say_left(sender, (number, generation));
    }

    /// Handles the answer of a receiver: it has left a generation that this process has left.
    fn left(cm: &mut ConnectionManager<Self>, receiver: ProcessId, generation: (u16, u64)) {
        let _ = (cm, receiver, generation);
    }

    /// Handles the loss of the control connection to a peer.
    fn lost(cm: &mut ConnectionManager<Self>, transport: &mut Self::Transport, peer: ProcessId) {
        let _ = (cm, transport, peer);
    }

    /// Returns whether a set's queue pair is ready and reaches this peer.
    fn reaches(cm: &ConnectionManager<Self>, qp: QpId, peer: ProcessId) -> bool {
        let _ = (cm, qp, peer);
        false
    }

    /// Returns whether nothing that was posted on earlier lives of a set's queue pair can land at this peer any more.
    fn is_settled(cm: &ConnectionManager<Self>, qp: QpId, peer: ProcessId) -> bool {
        let _ = (cm, qp, peer);
        true
    }

    /// Posts a write of a set. `is_alive` is `true` if the queue pair is ready. `inline_bytes` is the maximum length of
    /// the data.
    ///
    /// # Errors
    /// Returns a [`PostError`].
    fn post(
        cm: &mut ConnectionManager<Self>,
        transport: &mut Self::Transport,
        qp: QpId,
        write: &SetWrite<'_>,
        (is_alive, inline_bytes): (bool, u32),
    ) -> Result<(), PostError> {
        let _ = (transport, write, is_alive, inline_bytes);
        Err(if cm.state(qp).is_some() { NO_SET } else { NO_SETS })
    }

    /// Handles a completion of a set's queue pair. Returns the completion to report to the caller, if any.
    fn completed(
        cm: &mut ConnectionManager<Self>,
        transport: &mut Self::Transport,
        done: &Completion,
    ) -> Option<Completion> {
        let _ = (cm, transport);
        Some(*done)
    }

    /// Returns a completion that no queue pair reported. The fabric calls this after it has polled the completions of
    /// the queue pairs.
    fn next_flushed(cm: &mut ConnectionManager<Self>) -> Option<Completion> {
        let _ = cm;
        None
    }
}

/// The [`Sets`] of a fabric without fan-out sets.
pub struct NoSets<T>(PhantomData<fn(T)>);

impl<T> Default for NoSets<T> {
    fn default() -> Self {
        NoSets(PhantomData)
    }
}

impl<T> fmt::Debug for NoSets<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoSets")
    }
}

impl<T: Transport> Sets for NoSets<T> {
    type Transport = T;
}
