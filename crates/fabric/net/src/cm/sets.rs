//! Sets: queue pairs whose other end is no process but something in the network that copies what is written to it.

use std::fmt;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;

use stentor_fabric::{Completion, ConnectError, PostError, ProcessId, QpConfig, QpId, SetSpec, SetWrite};

use super::ConnectionManager;
use super::transport::Transport;

/// Where there is nothing that copies.
pub const NO_SETS: PostError = PostError::Unsupported("multicast by the network");
const NO_SET: PostError = PostError::Unsupported("copies by the network on a queue pair that is no set");

/// All sets of a process, and how it joins and leaves them. The connection manager calls these functions; those that have a
/// default are right where there are no sets.
///
/// `set` is the number that [`ConnectionManager::add_set`] was given.
pub trait Sets: Sized {
    /// What the ends of queue pairs are.
    type Transport: Transport;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        true
    }

    /// Whether there are sets, and nothing that copies for them.
    fn is_connecting(&self) -> bool {
        false
    }

    /// Returns a socket to wait for, which may be another one at any time.
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns the next thing that a person should know. Told once.
    fn next_note(&mut self) -> Option<String> {
        None
    }

    /// Makes this process's end of a set. `make` makes the fabric's part of it, for this peer, with the number that is given,
    /// and with this configuration. `held_bytes` is how much of what is posted may wait while the member list changes.
    ///
    /// # Errors
    /// See [`ConnectError`]; what `make` says, too.
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
    /// See [`ConnectError`].
    fn begin(
        cm: &mut ConnectionManager<Self>,
        transport: &mut Self::Transport,
        set: usize,
    ) -> Result<(), ConnectError> {
        let _ = (cm, transport, set);
        Err(ConnectError::NoSets)
    }

    /// A set's queue pair is broken.
    fn broke(cm: &mut ConnectionManager<Self>, set: usize) {
        let _ = (cm, set);
    }

    /// Runs one round.
    fn pump(cm: &mut ConnectionManager<Self>, transport: &mut Self::Transport) {
        let _ = (cm, transport);
    }

    /// The sender of a set has left a generation, and asks whether this process is out of it. It is when
    /// [`say_left`](ConnectionManager::say_left) tells.
    fn asked_to_leave(
        cm: &mut ConnectionManager<Self>,
        transport: &mut Self::Transport,
        sender: ProcessId,
        (number, generation): (u16, u64),
    ) {
        let _ = transport;
        cm.say_left(sender, (number, generation));
    }

    /// A receiver of a set is out of a generation that this process has left.
    fn left(cm: &mut ConnectionManager<Self>, receiver: ProcessId, generation: (u16, u64)) {
        let _ = (cm, receiver, generation);
    }

    /// The control connection with a peer is over.
    fn lost(cm: &mut ConnectionManager<Self>, transport: &mut Self::Transport, peer: ProcessId) {
        let _ = (cm, transport, peer);
    }

    /// Whether a set's queue pair is ready and reaches this peer.
    fn reaches(cm: &ConnectionManager<Self>, qp: QpId, peer: ProcessId) -> bool {
        let _ = (cm, qp, peer);
        false
    }

    /// Whether nothing that was posted on earlier lives of a set's queue pair can land at this peer any more.
    fn is_settled(cm: &ConnectionManager<Self>, qp: QpId, peer: ProcessId) -> bool {
        let _ = (cm, qp, peer);
        true
    }

    /// Posts a write of a set. `is_alive` is false where the fabric knows that the queue pair broke a moment ago,
    /// `inline_bytes` is the longest data.
    ///
    /// # Errors
    /// See [`PostError`].
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

    /// Takes a completion of a set's queue pair; returns what the caller is to hear of it.
    fn completed(
        cm: &mut ConnectionManager<Self>,
        transport: &mut Self::Transport,
        done: &Completion,
    ) -> Option<Completion> {
        let _ = (cm, transport);
        Some(*done)
    }

    /// Returns a completion that no queue pair told of. Called when those of the queue pairs were taken.
    fn next_flushed(cm: &mut ConnectionManager<Self>) -> Option<Completion> {
        let _ = cm;
        None
    }
}

/// Where nothing in the network copies.
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
