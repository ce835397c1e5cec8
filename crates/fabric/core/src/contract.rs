//! The trait that every fabric implements.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::{
    Access, AccessError, Capabilities, Completion, ConnectError, Event, PollHint, PostError, ProcessId, Purpose,
    QpConfig, QpId, QpState, RegionId, RegionSpec, RegisterError, RemoteRegion, RemoteSpan, Service, SetSpec, SetWrite,
    Source, Span, Verb, WaitError, Waker, Word, WorkRequest,
};

/// Why [`Fabric::wait`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wake {
    /// Something may have happened: poll.
    Notified,
    /// The time is over.
    TimedOut,
}

/// One process's access to its peers. Belongs to one thread.
///
/// Nothing blocks but [`wait`](Fabric::wait). Control-plane calls (`register` … `reset`) may make system calls;
/// [`post`](Fabric::post), [`flush`](Fabric::flush), [`poll`](Fabric::poll) and [`memory`](Fabric::memory) are the hot
/// path: no allocation, no system call unless a sleeping peer must be woken.
pub trait Fabric {
    /// This process.
    fn me(&self) -> ProcessId;

    /// What this fabric can do; constant.
    fn capabilities(&self) -> &Capabilities;

    /// Registers zeroed memory for one peer. No access is granted yet. The region stays registered, and granted if it is,
    /// however often the peer crashes and comes back; its contents stay, too.
    ///
    /// # Errors
    /// See [`RegisterError`].
    fn register(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError>;

    /// The memory of a region, as words of 8 bytes. Ask again after every call that takes `&mut self`: a revocation
    /// may have moved it.
    ///
    /// # Panics
    /// If the region was never registered here.
    fn memory(&self, region: RegionId) -> &[Word];

    /// Lets the peer that the region is for use it; takes effect at once for peers that are connected, otherwise when
    /// they connect. Granting again after [`Event::Revoked`] gives a fresh key to the same memory with the contents that
    /// it has: whoever wants it empty clears it between the two, when nothing of the peer lands. The peer notices by
    /// [`resolve`](Fabric::resolve), which gives another key than before; what it posts with the old one fails.
    ///
    /// Any other peer may be granted [`Access::Read`], and nothing else, where
    /// [`Capabilities::many_readers`] is true. It finds the region as [`resolve`](Fabric::resolve) says, so the regions
    /// of one owner that one peer may use have different purposes, whomever they are for.
    ///
    /// # Errors
    /// See [`AccessError`].
    fn grant(&mut self, region: RegionId, peer: ProcessId, access: Access) -> Result<(), AccessError>;

    /// Takes the access away. Takes effect with [`Event::Revoked`], not before: until then the peer's writes still
    /// land. After it, the peer's posts fail with [`Status::RemoteAccess`](crate::Status::RemoteAccess), which breaks the
    /// queue pair that they were posted on and no other; and everything that had completed successfully at the peer is in
    /// [`memory`](Fabric::memory), with nothing of a later write in front of an earlier one. The event comes whether the
    /// peer is connected, gone, or was never granted anything. Where one of several peers loses access, the others keep it,
    /// but what they post meanwhile may fail with [`Status::RemoteAccess`](crate::Status::RemoteAccess) and is posted again
    /// after a reset.
    ///
    /// # Errors
    /// See [`AccessError`].
    fn revoke(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError>;

    /// Makes a queue pair; it becomes ready ([`Event::Connected`]) when the peer has made its end for the same
    /// service. That may be never: a queue pair that waits costs next to nothing and holds up nobody. Where
    /// [`Capabilities::loopback`] is true the peer may be this process: one queue pair is both ends then, and one-sided
    /// verbs reach the regions that were registered for, and granted to, this process.
    ///
    /// # Errors
    /// See [`ConnectError`].
    fn connect(&mut self, peer: ProcessId, service: Service, config: QpConfig) -> Result<QpId, ConnectError>;

    /// State of a queue pair.
    ///
    /// # Panics
    /// If the queue pair was never made here.
    fn state(&self, qp: QpId) -> QpState;

    /// Ends the connection of a queue pair from this end, as if it had broken: what is outstanding is flushed, and both ends hear
    /// [`Event::Disconnected`]. The peer may stand still; then it hears of it when it goes on. A queue pair that is not ready
    /// stays as it is.
    ///
    /// # Errors
    /// [`ConnectError::UnknownQp`] if the queue pair was never made here.
    fn disconnect(&mut self, qp: QpId) -> Result<(), ConnectError>;

    /// Brings a broken queue pair back to connecting, with empty queues: receives are posted anew. It is ready when the
    /// peer has reset its end, too, or has made it in its next life; possibly at once. Poll until nothing comes before
    /// this: what is left belongs to the old connection. A queue pair may be left broken for as long as one likes.
    ///
    /// # Errors
    /// See [`ConnectError`].
    fn reset(&mut self, qp: QpId) -> Result<(), ConnectError>;

    /// The region of `peer` that this process was granted under `purpose`, once that was heard of. After
    /// [`Event::Connected`] it is never one of the peer's last life, and everything that the peer had granted before it
    /// made its end is there. After a revocation that this process has not heard of yet it may be the dead one. Cheap
    /// enough to be asked before each batch.
    fn resolve(&mut self, peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion>;

    /// Posts to a send queue. The fabric may hold requests back until [`flush`](Fabric::flush), `poll` or `wait`.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was done then. What goes wrong later comes as a [`Completion`].
    fn post(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError>;

    /// Posts an inline WRITE, the commonest request: the same as [`post`](Fabric::post) of one, by a shorter way where the
    /// fabric has one.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was done then.
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

    /// Posts an inline WRITE of which the peer need not hear: the same as [`write_inline`](Fabric::write_inline), but a fabric that wakes a
    /// peer when something lands there may leave that out. The peer's [`poll_hint`](Fabric::poll_hint) may leave it out, too. For words that
    /// nobody waits for.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was done then.
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

    /// Posts a receive. `local` may be empty for receives that only take WRITE_WITH_IMM.
    ///
    /// # Errors
    /// See [`PostError`].
    fn post_recv(&mut self, qp: QpId, local: Span, id: u64) -> Result<(), PostError>;

    /// Posts a tagged receive: matches a message whose tag equals `tag` in the bits that are 0 in `ignore`.
    ///
    /// # Errors
    /// [`PostError::Unsupported`] where [`Capabilities::tagged`] is false, else see [`PostError`].
    fn post_tagged_recv(&mut self, qp: QpId, local: Span, tag: u64, ignore: u64, id: u64) -> Result<(), PostError>;

    /// Asks for a posted tagged receive back. Returns at once; the receive completes all the same: with
    /// [`Status::Cancelled`](crate::Status::Cancelled), or as usual if a message has matched it meanwhile. Nothing is
    /// written to its span after that. A receive that has completed already is not looked for.
    ///
    /// # Errors
    /// [`PostError::Unsupported`] where [`Capabilities::tagged`] is false, else see [`PostError`].
    fn cancel_tagged_recv(&mut self, qp: QpId, id: u64) -> Result<(), PostError> {
        let _ = (qp, id);
        Err(PostError::Unsupported("tagged receives"))
    }

    /// Joins a set, as one of its processes: this process can send to the others, and they to it, by one queue pair. It
    /// becomes ready ([`Event::Connected`], whose peer is this process itself) when the network knows the set with at least
    /// one other process in it, breaks when any of its processes comes, goes or fails, and is [`reset`](Fabric::reset) like
    /// any other. What is granted to a peer it may also write by a set. Once for each number.
    ///
    /// # Errors
    /// [`ConnectError::NoSets`] where [`Capabilities::hardware_multicast`] is false, else see [`ConnectError`].
    fn join_set(&mut self, spec: SetSpec<'_>, config: QpConfig) -> Result<QpId, ConnectError> {
        let _ = (spec, config);
        Err(ConnectError::NoSets)
    }

    /// Whether a set's queue pair is ready and reaches this peer. Constant from [`Event::Connected`] to the next
    /// [`Event::Disconnected`].
    fn set_reaches(&self, set: QpId, peer: ProcessId) -> bool {
        let _ = (set, peer);
        false
    }

    /// Whether nothing that was posted on earlier lives of a set's queue pair can land at this peer any more (rule 16).
    /// Becomes true by itself when the peer has left that life, or is gone.
    fn set_settled(&self, set: QpId, peer: ProcessId) -> bool {
        let _ = (set, peer);
        true
    }

    /// Posts a WRITE to several peers of a set. It takes one place in the send queue; changing who gets copies or, between
    /// targets, the difference of their places takes another round trip.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was done then.
    fn post_set(&mut self, set: QpId, write: SetWrite<'_>) -> Result<(), PostError> {
        let _ = (set, write);
        Err(PostError::Unsupported("multicast by the network"))
    }

    /// Hands everything posted to the network and wakes sleeping peers: once per batch, the doorbell.
    fn flush(&mut self);

    /// What has landed and completed since the last call. A hint that saves polling loops the look at every ring;
    /// [`PollHint::ANYBODY`] when in doubt, and on fabrics that cannot tell.
    #[inline]
    fn poll_hint(&mut self) -> PollHint {
        PollHint::ANYBODY
    }

    /// Takes completions; returns how many were written to `out`. Flushes.
    fn poll(&mut self, out: &mut [Completion]) -> usize;

    /// Drives the control plane (connections, grants) and takes the next event. May make system calls: call it while
    /// connecting and every few milliseconds afterwards.
    fn next_event(&mut self) -> Option<Event>;

    /// Asks to be woken by the next thing that lands. Order: `arm`, poll everything once more, then
    /// [`wait`](Fabric::wait) — as with `ibv_req_notify_cq`.
    fn arm(&mut self);

    /// Sleeps until something landed since [`arm`](Fabric::arm), a [`waker`](Fabric::waker) was used since then, a control-plane
    /// event came, or the time is over.
    ///
    /// # Errors
    /// See [`WaitError`].
    fn wait(&mut self, timeout: Duration) -> Result<Wake, WaitError>;

    /// A file descriptor that becomes readable when something lands after [`arm`](Fabric::arm), or a [`waker`](Fabric::waker)
    /// is used, for callers with an event loop of their own; `None` where there is none (`sim`).
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Returns what ends a sleep from another thread of this process. Order: the other thread stores what it has for this one, then
    /// [`wake`](Waker::wake)s; this one calls [`arm`](Fabric::arm), looks at what others store, then sleeps. A wake before `arm` ends
    /// nothing. Where [`wait`](Fabric::wait) never sleeps (`sim`) there is nothing to end.
    fn waker(&self) -> Waker;
}
