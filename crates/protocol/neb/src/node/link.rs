//! One queue pair: places in its send queue, and what its completions mean.
//!
//! The pseudocode packs (message id, origin, replayer) into the work-request id. Here the id is the place in the send
//! queue, which counts, and what waits for it stands in a queue beside it: one completion may speak for many requests.

use std::collections::VecDeque;

use stentor_fabric::{
    Fabric, ProcessId, Purpose, QpConfig, QpId, RemoteRegion, RemoteSpan, SendQueue, Service, Source, Span, Verb,
    WorkRequest,
};

use super::NodeError;

/// The queue pair for everything.
pub(crate) const SERVICE: Service = Service(0x20);
/// Depth of every send queue.
pub(super) const SEND_DEPTH: u32 = 1024;

/// Bits of a work-request id that count posts; above them the connection counts.
const EPOCH_SHIFT: u32 = 40;

/// What a completion tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Done {
    /// Own broadcasts below this index were written.
    Broadcast { upto: u64 },
    /// Registers of a stream below this index are complete.
    Register { stream: ProcessId, upto: u64 },
    /// A floor is raised, by the proof in this place where there are proofs.
    Floor { stream: ProcessId, floor: u64, proof: u64 },
    /// A round's registers, or floors, are here.
    Read { stream: ProcessId, serial: u64 },
    /// A credit went out.
    Credit,
}

/// A queue pair and what is known about it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: ProcessId,
    pub(crate) qp: QpId,
    pub(crate) ready: bool,
    /// The peer is fenced: nothing is posted any more.
    pub(crate) closed: bool,
    /// How often it broke: the suspicions of this peer.
    pub(crate) suspicions: u64,
    /// Counts connections; part of every work-request id.
    epoch: u64,
    queue: SendQueue,
    awaited: VecDeque<(u64, Done)>,
    resolved: Vec<(Purpose, RemoteRegion)>,
}

impl Link {
    pub(crate) fn open<F: Fabric>(fabric: &mut F, peer: ProcessId) -> Result<Self, NodeError> {
        let depth = SEND_DEPTH.min(fabric.capabilities().max_send_depth);
        let qp = fabric.connect(peer, SERVICE, QpConfig::reliable(depth, 0))?;
        Ok(Link {
            peer,
            qp,
            ready: false,
            closed: false,
            suspicions: 0,
            epoch: 0,
            queue: SendQueue::new(depth),
            awaited: VecDeque::with_capacity(depth as usize),
            resolved: Vec::new(),
        })
    }

    /// Whether this many requests can be posted.
    #[inline]
    pub(crate) fn has_room(&self, requests: u32) -> bool {
        self.ready && self.queue.free() >= requests
    }

    /// The peer's region, once it was granted and heard of.
    #[inline]
    pub(crate) fn resolve<F: Fabric>(&mut self, fabric: &mut F, purpose: Purpose) -> Option<RemoteRegion> {
        if let Some((_, region)) = self.resolved.iter().find(|(known, _)| *known == purpose) {
            return Some(*region);
        }
        let region = fabric.resolve(self.peer, purpose)?;
        self.resolved.push((purpose, region));
        Some(region)
    }

    /// `staged`: what is posted from must be known to have been read before it is written over.
    fn post<F: Fabric>(&mut self, fabric: &mut F, verb: Verb<'_>, done: Option<Done>, staged: bool) -> bool {
        let signalled = done.is_some() || staged || self.queue.signal_next();
        let id = self.epoch << EPOCH_SHIFT | self.queue.next_id();
        let request = WorkRequest { id, verb, signalled };
        if fabric.post(self.qp, request).is_err() {
            self.ready = false;
            return false;
        }
        self.await_done(signalled, done);
        true
    }

    #[inline]
    fn await_done(&mut self, signalled: bool, done: Option<Done>) {
        let number = self.queue.posted(signalled);
        if let Some(done) = done {
            self.awaited.push_back((number, done));
        }
    }

    /// Posts a WRITE; whether the queue pair took it.
    #[inline]
    pub(crate) fn write<F: Fabric>(
        &mut self,
        fabric: &mut F,
        source: Source<'_>,
        target: RemoteSpan,
        done: Option<Done>,
    ) -> bool {
        let Source::Inline(data) = source else {
            return self.post(fabric, Verb::Write { source, target }, done, true);
        };
        let signalled = done.is_some() || self.queue.signal_next();
        let id = self.epoch << EPOCH_SHIFT | self.queue.next_id();
        if fabric.write_inline(self.qp, id, data, target, signalled).is_err() {
            self.ready = false;
            return false;
        }
        self.await_done(signalled, done);
        true
    }

    /// Posts a READ; whether the queue pair took it. Without `done`, a later completion speaks for it.
    #[inline]
    pub(crate) fn read<F: Fabric>(
        &mut self,
        fabric: &mut F,
        local: Span,
        remote: RemoteSpan,
        done: Option<Done>,
    ) -> bool {
        self.post(fabric, Verb::Read { local, remote }, done, false)
    }

    /// A completion came. One from before the queue pair broke says nothing about what was posted since.
    pub(crate) fn completed(&mut self, id: u64) {
        if id >> EPOCH_SHIFT == self.epoch {
            self.queue.completed(id & ((1 << EPOCH_SHIFT) - 1));
        }
    }

    /// The next thing that is known to be done.
    #[inline]
    pub(crate) fn next_done(&mut self) -> Option<Done> {
        let (number, done) = *self.awaited.front()?;
        if number > self.queue.done() {
            return None;
        }
        self.awaited.pop_front();
        Some(done)
    }

    /// The queue pair is ready, with empty queues.
    pub(crate) fn connected(&mut self) {
        self.ready = !self.closed;
        self.forget();
    }

    /// The peer is fenced. What is awaited never comes.
    pub(crate) fn close(&mut self) {
        (self.ready, self.closed) = (false, true);
        self.forget();
    }

    /// It broke.
    pub(crate) fn broke(&mut self) {
        self.ready = false;
        self.suspicions += 1;
        self.forget();
    }

    fn forget(&mut self) {
        self.epoch += 1;
        self.queue.reset();
        self.awaited.clear();
        self.resolved.clear();
    }
}
