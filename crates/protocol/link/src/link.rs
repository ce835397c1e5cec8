//! One queue pair: its connections, the room in its send queue, and posting.

use stentor_fabric::{
    ConnectError, Fabric, ProcessId, QpConfig, QpId, QpState, RemoteSpan, SendQueue, Service, Source, Verb, WorkRequest,
};

/// Number of bits of a work request's id that hold the number of the request. The remaining 12 bits distinguish a
/// connection from earlier ones. Of earlier connections, the fabric can still report completions of only the latest
/// one.
const NUMBER_BITS: u32 = 52;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;

/// State of a link, which determines what may be posted; see the [crate's documentation](crate).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Down,
    Up,
    Closed,
}

/// A queue pair and its state.
#[derive(Debug)]
pub struct Link {
    qp: QpId,
    peer: ProcessId,
    state: State,
    /// Number of times that the queue pair was found broken.
    connection_id: u64,
    queue: SendQueue,
}

impl Link {
    /// Begins to connect. The send queue has the configured depth, or the fabric's limit if that is smaller.
    ///
    /// # Errors
    /// Returns the fabric's error if it refuses the queue pair.
    pub fn open<F: Fabric>(
        fabric: &mut F,
        peer: ProcessId,
        service: Service,
        config: QpConfig,
    ) -> Result<Self, ConnectError> {
        let depth = config.send_depth.min(fabric.capabilities().max_send_depth);
        let qp = fabric.connect(peer, service, QpConfig { send_depth: depth, ..config })?;
        Ok(Link::new(qp, peer, depth))
    }

    pub(crate) fn new(qp: QpId, peer: ProcessId, depth: u32) -> Self {
        Link { qp, peer, state: State::Down, connection_id: 0, queue: SendQueue::new(depth) }
    }

    /// Returns the queue pair.
    #[inline]
    #[must_use]
    pub fn qp(&self) -> QpId {
        self.qp
    }

    /// Returns the process at the other end, or the sender of a set.
    #[inline]
    #[must_use]
    pub fn peer(&self) -> ProcessId {
        self.peer
    }

    /// Returns whether the queue pair is connected, as far as is known.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state == State::Up
    }

    /// Returns whether the link is closed, so that nothing is posted any more.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Returns the number of the present connection, which is the number of times that the queue pair was found broken.
    #[inline]
    #[must_use]
    pub fn connection_id(&self) -> u64 {
        self.connection_id
    }

    /// Returns whether a request can be posted.
    #[inline]
    #[must_use]
    pub fn can_post(&self) -> bool {
        self.has_room(1)
    }

    /// Returns whether that many requests can be posted.
    #[inline]
    #[must_use]
    pub fn has_room(&self, requests: u32) -> bool {
        self.is_ready() && self.queue.free() >= requests
    }

    /// Returns the number of the last request that was posted, or 0 before the first.
    #[inline]
    #[must_use]
    pub fn last(&self) -> u64 {
        self.queue.next_id() - 1
    }

    /// Returns the number up to which all requests are done.
    #[inline]
    #[must_use]
    pub fn done(&self) -> u64 {
        self.queue.done()
    }

    /// Returns whether all requests are done.
    #[inline]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.done() == self.last()
    }

    /// Returns the id of a work request of this connection. `number` must be below 2⁵².
    #[inline]
    #[must_use]
    pub fn id(&self, number: u64) -> u64 {
        self.connection_id << NUMBER_BITS | number
    }

    /// Returns the number in the id of a work request. Returns `None` if the request was posted for an earlier
    /// connection, so that its completion is stale.
    #[inline]
    #[must_use]
    pub fn number(&self, id: u64) -> Option<u64> {
        (id >> NUMBER_BITS == self.connection_id & (u64::MAX >> NUMBER_BITS)).then_some(id & NUMBER_MASK)
    }

    /// Posts a WRITE. Returns the number of the request, or `None` if the fabric refuses it. A refusal takes the link
    /// down, so check [`can_post`](Link::can_post) first. The request is done when [`done`](Link::done) returns this
    /// number or a larger one. `awaited` means that the caller waits for the completion, so the request is signalled.
    #[inline]
    pub fn write<F: Fabric>(
        &mut self,
        fabric: &mut F,
        source: Source<'_>,
        target: RemoteSpan,
        awaited: bool,
    ) -> Option<u64> {
        match source {
            Source::Inline(data) => self.write_inline(fabric, data, target, awaited),
            // The NIC reads the source later. A completion must show that it has, because the source is reused.
            Source::Region(_) => self.post(fabric, Verb::Write { source, target }, true),
        }
    }

    /// Posts an inline WRITE, which is the most frequent request. Arguments and result are those of
    /// [`write`](Link::write).
    // Without inlining, the call costs 4 % of the time of a broadcast.
    #[inline(always)]
    pub fn write_inline<F: Fabric>(
        &mut self,
        fabric: &mut F,
        data: &[u8],
        target: RemoteSpan,
        awaited: bool,
    ) -> Option<u64> {
        let signalled = awaited || self.queue.signal_next();
        let posted = fabric.write_inline(self.qp, self.next_id(), data, target, signalled);
        self.posted(posted.is_ok(), signalled)
    }

    /// Posts an inline WRITE whose completion this process awaits, and of which the fabric need not notify the peer.
    /// The result is that of [`write`](Link::write).
    pub fn write_quietly<F: Fabric>(&mut self, fabric: &mut F, data: &[u8], target: RemoteSpan) -> Option<u64> {
        let posted = fabric.write_quietly(self.qp, self.next_id(), data, target, true);
        self.posted(posted.is_ok(), true)
    }

    /// Posts a request of any kind. `awaited` and the result have the same meaning as in [`write`](Link::write).
    #[inline]
    pub fn post<F: Fabric>(&mut self, fabric: &mut F, verb: Verb<'_>, awaited: bool) -> Option<u64> {
        let signalled = awaited || self.queue.signal_next();
        let posted = fabric.post(self.qp, WorkRequest { id: self.next_id(), verb, signalled });
        self.posted(posted.is_ok(), signalled)
    }

    /// Returns the id of the next request.
    #[inline]
    pub(crate) fn next_id(&self) -> u64 {
        self.id(self.queue.next_id())
    }

    #[inline]
    pub(crate) fn posted(&mut self, taken: bool, signalled: bool) -> Option<u64> {
        if !taken {
            self.refused();
            return None;
        }
        Some(self.queue.posted(signalled))
    }

    /// Takes the link down after a refused post: the queue pair broke, and the event that reports it has not been
    /// polled yet.
    pub(crate) fn refused(&mut self) {
        if self.is_ready() {
            self.state = State::Down;
        }
    }

    /// Records the completion of a request of this connection.
    #[inline]
    pub fn completed(&mut self, number: u64) {
        self.queue.completed(number);
    }

    /// Closes the link for good.
    pub fn close(&mut self) {
        self.state = State::Closed;
    }

    /// Processes a connection event while the queue pair is in `state`. Returns whether the link became up.
    pub(crate) fn connected(&mut self, state: QpState) -> bool {
        let connects = self.state == State::Down && state == QpState::Ready;
        if connects {
            self.state = State::Up;
        }
        connects
    }

    /// Ends the connection and resets the queue pair, if the queue pair is broken. A closed link's queue pair is not
    /// reset. Returns whether the queue pair was broken.
    pub(crate) fn check<F: Fabric>(&mut self, fabric: &mut F) -> bool {
        if fabric.state(self.qp) != QpState::Error {
            return false;
        }
        if !self.is_closed() {
            self.state = State::Down;
            // The fabric may refuse the reset, for example while it lacks a resource. `Links::check_down` retries it.
            let _ = fabric.reset(self.qp);
        }
        self.connection_id += 1;
        self.queue.completed(u64::MAX);
        true
    }
}
