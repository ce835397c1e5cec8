//! The trait that every fabric implements.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::{
    Access, AccessError, Capabilities, Completion, ConnectError, Event, PollHint, PostError, ProcessId, Purpose,
    QpConfig, QpId, QpState, RegionId, RegionSpec, RegisterError, RemoteRegion, RemoteSpan, Service, SetSpec, SetWrite,
    Source, Span, Verb, WaitError, Waker, Word, WorkRequest,
};

/// The reason why [`Fabric::wait`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wake {
    /// A write may have landed, a request may have completed, an event may have occurred, or a waker may have been
    /// used. The caller must poll.
    Notified,
    /// The timeout expired.
    TimedOut,
}

/// The access of one process to its peers. A fabric belongs to one thread.
///
/// Only [`wait`](Fabric::wait) blocks. Control-plane calls (`register` … `reset`) may make system calls.
/// [`post`](Fabric::post), [`flush`](Fabric::flush), [`poll`](Fabric::poll) and [`memory`](Fabric::memory) are the hot
/// path: they allocate nothing and, except to wake a sleeping peer, make no system call on fabrics that need none to
/// send and receive.
pub trait Fabric {
    /// Returns the id of this process.
    fn me(&self) -> ProcessId;

    /// Returns the capabilities of this fabric, which never change.
    fn capabilities(&self) -> &Capabilities;

    /// Registers zeroed memory for one peer, without granting access yet. The region, its contents and its grants
    /// persist, however often the peer crashes and restarts.
    ///
    /// # Errors
    /// Returns a [`RegisterError`].
    fn register(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError>;

    /// Returns the memory of a region, as words of 8 bytes. Call this again after every call that takes `&mut self`,
    /// because a revocation may have moved the memory.
    ///
    /// # Panics
    /// Panics if the region was never registered here.
    fn memory(&self, region: RegionId) -> &[Word];

    /// Grants `peer` access to a region. A connected peer is notified at once, another peer when it connects.
    ///
    /// After [`Event::Revoked`] a new grant creates a fresh key to the same memory with its present contents. An owner
    /// that needs empty memory clears it between the event and the grant, while nothing of the peer can land. The peer
    /// finds the new key with [`resolve`](Fabric::resolve). Requests that it posts with the old key fail.
    ///
    /// Where [`Capabilities::many_readers`] is true, peers other than the writer of the region may be granted
    /// [`Access::Read`], and nothing else. They find the region by [`resolve`](Fabric::resolve), which identifies it by
    /// owner and purpose. Therefore all regions of one owner that one peer may use need different purposes, even if
    /// they have different writers.
    ///
    /// # Errors
    /// Returns an [`AccessError`].
    fn grant(&mut self, region: RegionId, peer: ProcessId, access: Access) -> Result<(), AccessError>;

    /// Revokes a peer's access to a region. The revocation takes effect with [`Event::Revoked`], not before: until then
    /// the peer's writes still land.
    ///
    /// After the event, requests of the peer to this region fail with
    /// [`Status::RemoteAccess`](crate::Status::RemoteAccess), which breaks only the queue pair on which they were
    /// posted. Everything that had completed successfully at the peer is in [`memory`](Fabric::memory), and no later
    /// write is there without the earlier ones. The event is reported in any case, even if the peer has ended or never
    /// had access.
    ///
    /// If several peers have access, the others keep it. However, requests that they post meanwhile may fail with
    /// [`Status::RemoteAccess`](crate::Status::RemoteAccess). They then reset their queue pairs and post again.
    ///
    /// # Errors
    /// Returns an [`AccessError`].
    fn revoke(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError>;

    /// Creates a queue pair. It becomes ready ([`Event::Connected`]) when the peer has created its end for the same
    /// service. If that never happens, the connecting queue pair costs next to nothing and delays no other one. Where
    /// [`Capabilities::loopback`] is true, the peer may be this process. One queue pair is then both ends, and
    /// one-sided verbs reach the regions that were registered for, and granted to, this process.
    ///
    /// # Errors
    /// Returns a [`ConnectError`].
    fn connect(&mut self, peer: ProcessId, service: Service, config: QpConfig) -> Result<QpId, ConnectError>;

    /// Returns the state of a queue pair.
    ///
    /// # Panics
    /// Panics if the queue pair was never created here.
    fn state(&self, qp: QpId) -> QpState;

    /// Ends the connection of a queue pair from this end, as if it had broken. Outstanding requests are flushed, and
    /// both ends get [`Event::Disconnected`]. A stalled peer gets the event when it runs again. A queue pair that is
    /// not ready keeps its state.
    ///
    /// # Errors
    /// [`ConnectError::UnknownQp`] if the queue pair was never created here.
    fn disconnect(&mut self, qp: QpId) -> Result<(), ConnectError>;

    /// Returns a broken queue pair to the connecting state, with empty queues; receives must be posted again. The queue
    /// pair becomes ready, possibly at once, when the peer has also reset its end or has created it in its next life.
    /// Before the reset, poll until no completion is left, because the remaining ones belong to the old connection. A
    /// queue pair may stay broken for any time.
    ///
    /// # Errors
    /// Returns a [`ConnectError`].
    fn reset(&mut self, qp: QpId) -> Result<(), ConnectError>;

    /// Returns the region of `peer` that this process was granted under `purpose`, once the grant has arrived. After
    /// [`Event::Connected`] the call finds every region that the peer had granted before it created its end, and never
    /// a region of an earlier life of the peer. Until a revocation has arrived at this process, the result may be the
    /// revoked region. The call is cheap enough to make before each batch.
    fn resolve(&mut self, peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion>;

    /// Posts a request to a send queue. The fabric may hold requests back until [`flush`](Fabric::flush), `poll` or
    /// `wait`.
    ///
    /// # Errors
    /// Returns a [`PostError`] if nothing was posted. Later failures are reported by a [`Completion`].
    fn post(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError>;

    /// Posts an inline WRITE, the most frequent request. This is [`post`](Fabric::post) of one such request, but some
    /// fabrics have a shorter path for it.
    ///
    /// # Errors
    /// Returns a [`PostError`] if nothing was posted.
    #[inline]
    fn write_inline(
        &mut self,
        qp: QpId,
        id: u64,
        data: &[u8],
        target: RemoteSpan,
        signalled: bool,
    ) -> Result<(), PostError> {
        let verb = Verb::Write { source: Source::Inline(data), target };
        self.post(qp, WorkRequest { id, verb, signalled })
    }

    /// Posts an inline WRITE without notifying the peer. This is [`write_inline`](Fabric::write_inline), except that
    /// the fabric may skip the wake-up of the peer, and the peer's [`poll_hint`](Fabric::poll_hint) may omit the WRITE.
    /// Callers use this for words that no process waits for.
    ///
    /// # Errors
    /// Returns a [`PostError`] if nothing was posted.
    #[inline]
    fn write_quietly(
        &mut self,
        qp: QpId,
        id: u64,
        data: &[u8],
        target: RemoteSpan,
        signalled: bool,
    ) -> Result<(), PostError> {
        self.write_inline(qp, id, data, target, signalled)
    }

    /// Posts a receive. `local` may be empty for receives that only WRITE_WITH_IMM consumes.
    ///
    /// # Errors
    /// Returns a [`PostError`].
    fn post_recv(&mut self, qp: QpId, local: Span, id: u64) -> Result<(), PostError>;

    /// Posts a tagged receive. It matches a message whose tag equals `tag` in the bits that are 0 in `ignore`.
    ///
    /// # Errors
    /// [`PostError::Unsupported`] where [`Capabilities::tagged`] is false, otherwise another [`PostError`].
    fn post_tagged_recv(&mut self, qp: QpId, local: Span, tag: u64, ignore: u64, id: u64) -> Result<(), PostError>;

    /// Cancels a posted tagged receive and returns at once. The receive still completes: with
    /// [`Status::Cancelled`](crate::Status::Cancelled), or as usual if a message matched it meanwhile. Nothing is
    /// written to its span after the completion. Cancelling a receive that has already completed has no effect.
    ///
    /// # Errors
    /// [`PostError::Unsupported`] where [`Capabilities::tagged`] is false, otherwise another [`PostError`].
    fn cancel_tagged_recv(&mut self, qp: QpId, id: u64) -> Result<(), PostError> {
        let _ = (qp, id);
        Err(PostError::Unsupported("tagged receives"))
    }

    /// Joins a fan-out set as one of its processes. One queue pair then reaches all others of the set, and they reach
    /// this process. The queue pair becomes ready ([`Event::Connected`], with this process itself as the peer) once the
    /// network has registered this process and at least one other process of the set. The queue pair breaks when any
    /// process of the set joins, leaves or fails, and is [`reset`](Fabric::reset) like any other. A grant to a peer
    /// also covers the peer's writes by a set. A process may join each set number once.
    ///
    /// # Errors
    /// [`ConnectError::NoSets`] where [`Capabilities::hardware_multicast`] is false, otherwise another
    /// [`ConnectError`].
    fn join_set(&mut self, spec: SetSpec<'_>, config: QpConfig) -> Result<QpId, ConnectError> {
        let _ = (spec, config);
        Err(ConnectError::NoSets)
    }

    /// Returns whether a set's queue pair is ready and reaches `peer`. The answer does not change between
    /// [`Event::Connected`] and the next [`Event::Disconnected`].
    fn set_reaches(&self, set: QpId, peer: ProcessId) -> bool {
        let _ = (set, peer);
        false
    }

    /// Returns whether nothing that was posted on earlier connections of a set's queue pair can land at `peer` any more
    /// (rule 16). The answer becomes true without any call when the peer has left those connections or has ended.
    fn set_settled(&self, set: QpId, peer: ProcessId) -> bool {
        let _ = (set, peer);
        true
    }

    /// Posts a WRITE to several peers of a set. It occupies one slot of the send queue. A change of the list of
    /// targets, or of the distances between their offsets, costs another round trip.
    ///
    /// # Errors
    /// Returns a [`PostError`] if nothing was posted.
    fn post_set(&mut self, set: QpId, write: SetWrite<'_>) -> Result<(), PostError> {
        let _ = (set, write);
        Err(PostError::Unsupported("multicast by the network"))
    }

    /// Passes everything posted to the network and wakes sleeping peers. This is the doorbell: call it once per batch.
    fn flush(&mut self);

    /// Returns a hint about what has landed and completed since the last call, so that polling loops need not read
    /// every ring. Returns [`PollHint::ANYBODY`] in doubt, and on fabrics that have no such information.
    #[inline]
    fn poll_hint(&mut self) -> PollHint {
        PollHint::ANYBODY
    }

    /// Flushes, then writes completions to `out` and returns their number.
    fn poll(&mut self, out: &mut [Completion]) -> usize;

    /// Drives the control plane (connections, grants) and returns the next event. May make system calls: call it while
    /// connecting, and every few milliseconds afterwards.
    fn next_event(&mut self) -> Option<Event>;

    /// Requests a wake-up by the next write that lands or the next completion. The caller calls `arm`, polls everything
    /// once more, then calls [`wait`](Fabric::wait), as with `ibv_req_notify_cq`.
    fn arm(&mut self);

    /// Sleeps until a write has landed or a request has completed since [`arm`](Fabric::arm), a
    /// [`waker`](Fabric::waker) was used since then, a control-plane event arrives, or the timeout expires.
    ///
    /// # Errors
    /// Returns a [`WaitError`].
    fn wait(&mut self, timeout: Duration) -> Result<Wake, WaitError>;

    /// Returns a file descriptor for callers with an event loop. The descriptor becomes readable when a write lands or
    /// a request completes after [`arm`](Fabric::arm), or when a [`waker`](Fabric::waker) is used. Returns `None` if
    /// the fabric has none, for example on `sim` and on providers of libfabric without descriptors.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Returns a handle with which other threads of this process end a sleep. The other thread stores its work, then
    /// calls [`wake`](Waker::wake). The polling thread calls [`arm`](Fabric::arm), checks for such work, then sleeps. A
    /// wake before `arm` has no effect. Where [`wait`](Fabric::wait) never sleeps (`sim`), the waker does nothing.
    fn waker(&self) -> Waker;
}
