//! One queue pair: its connections, the places in its send queue, posting.

use stentor_fabric::{
    ConnectError, Fabric, ProcessId, QpConfig, QpId, QpState, RemoteSpan, SendQueue, Service, Source, Verb, WorkRequest,
};

/// Bits of a work-request id below the connection. The remaining 12 bits tell a connection from those before it, of which
/// the fabric keeps the completions of the last one at most.
const NUMBER_BITS: u32 = 52;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;

/// Whether requests may be posted; see the [crate's documentation](crate).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Down,
    Up,
    Closed,
}

/// A queue pair and what is known about it.
#[derive(Debug)]
pub struct Link {
    qp: QpId,
    peer: ProcessId,
    state: State,
    /// Resets so far.
    connection_id: u64,
    queue: SendQueue,
}

impl Link {
    /// Begins to connect. The send queue is as deep as asked for, or as deep as the fabric allows.
    ///
    /// # Errors
    /// If the fabric refuses the queue pair.
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

    /// The queue pair.
    #[inline]
    #[must_use]
    pub fn qp(&self) -> QpId {
        self.qp
    }

    /// The process at the other end; of a set its sender.
    #[inline]
    #[must_use]
    pub fn peer(&self) -> ProcessId {
        self.peer
    }

    /// Whether the queue pair is connected, as far as is known.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state == State::Up
    }

    /// Whether nothing is ever posted again.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// The number of the present connection: how often the queue pair broke.
    #[inline]
    #[must_use]
    pub fn connection_id(&self) -> u64 {
        self.connection_id
    }

    /// Whether a request can be posted.
    #[inline]
    #[must_use]
    pub fn can_post(&self) -> bool {
        self.has_room(1)
    }

    /// Whether `requests` can be posted.
    #[inline]
    #[must_use]
    pub fn has_room(&self, requests: u32) -> bool {
        self.is_ready() && self.queue.free() >= requests
    }

    /// The number of the last request that was posted; 0 before the first.
    #[inline]
    #[must_use]
    pub fn last(&self) -> u64 {
        self.queue.next_id() - 1
    }

    /// All requests up to this number are done.
    #[inline]
    #[must_use]
    pub fn done(&self) -> u64 {
        self.queue.done()
    }

    /// Whether all requests are done.
    #[inline]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.done() == self.last()
    }

    /// The id of a work request of this connection. `number` is any number below 2⁵².
    #[inline]
    #[must_use]
    pub fn id(&self, number: u64) -> u64 {
        self.connection_id << NUMBER_BITS | number
    }

    /// The number in the id of a work request of this connection. `None`: the request was posted for an earlier one, and
    /// what its completion says is stale.
    #[inline]
    #[must_use]
    pub fn number(&self, id: u64) -> Option<u64> {
        (id >> NUMBER_BITS == self.connection_id & (u64::MAX >> NUMBER_BITS)).then_some(id & NUMBER_MASK)
    }

    /// Posts a WRITE. Returns the number of the request, which [`done`](Link::done) reaches; `None` if the queue pair is
    /// broken. `awaited`: somebody waits for its completion.
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
            // What the NIC reads later must be known to have been read: its place is used again.
            Source::Region(_) => self.post(fabric, Verb::Write { source, target }, true),
        }
    }

    /// Posts an inline WRITE, the commonest request, like [`write`](Link::write).
    // The call of a function of its own costs 4 % of a broadcast.
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

    /// Posts an inline WRITE that somebody waits for here, and of which the peer need not hear; like [`write`](Link::write).
    pub fn write_quietly<F: Fabric>(&mut self, fabric: &mut F, data: &[u8], target: RemoteSpan) -> Option<u64> {
        let posted = fabric.write_quietly(self.qp, self.next_id(), data, target, true);
        self.posted(posted.is_ok(), true)
    }

    /// Posts any request, like [`write`](Link::write).
    #[inline]
    pub fn post<F: Fabric>(&mut self, fabric: &mut F, verb: Verb<'_>, awaited: bool) -> Option<u64> {
        let signalled = awaited || self.queue.signal_next();
        let posted = fabric.post(self.qp, WorkRequest { id: self.next_id(), verb, signalled });
        self.posted(posted.is_ok(), signalled)
    }

    /// The id of the next send.
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

    /// A post was refused: the queue pair broke, and the event that says so is still to come.
    pub(crate) fn refused(&mut self) {
        if self.is_ready() {
            self.state = State::Down;
        }
    }

    /// A send of this connection completed.
    #[inline]
    pub fn completed(&mut self, number: u64) {
        self.queue.completed(number);
    }

    /// Closes the link for good.
    pub fn close(&mut self) {
        self.state = State::Closed;
    }

    /// A connection event came, and the queue pair is in this state. Returns whether the link is up now, and was not before.
    pub(crate) fn connected(&mut self, state: QpState) -> bool {
        let connects = self.state == State::Down && state == QpState::Ready;
        if connects {
            self.state = State::Up;
        }
        connects
    }

    /// Ends the connection if the queue pair is broken, and resets it. Returns whether it was broken.
    pub(crate) fn check<F: Fabric>(&mut self, fabric: &mut F) -> bool {
        if fabric.state(self.qp) != QpState::Error {
            return false;
        }
        if !self.is_closed() {
            self.state = State::Down;
            // Refused only while something is short. It is asked for again until it works.
            let _ = fabric.reset(self.qp);
        }
        self.connection_id += 1;
        self.queue.completed(u64::MAX);
        true
    }
}
