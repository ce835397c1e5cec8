//! One queue pair of a node: readiness, send-queue places, posting.

use stentor_fabric::{Fabric, ProcessId, QpConfig, QpId, RemoteSpan, SendQueue, Service, Source, Verb, WorkRequest};

use super::{NodeError, SEND_DEPTH};

/// Rounds that a quiet fabric saves before everything is looked at all the same: what a peer that breaks the rules
/// forgets to announce is late, not lost.
const QUIET_ROUNDS: u32 = 64;

/// When a round of polling may be skipped.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    /// The last round found nothing and left nothing over.
    idle: bool,
    skipped: u32,
}

impl Quiet {
    /// Whether this round would find nothing.
    #[inline]
    pub(super) fn skips<F: Fabric>(&mut self, fabric: &mut F) -> bool {
        // Asked first and every time: what lands after this is for the next round.
        let quiet = fabric.is_quiet();
        if !(quiet && self.idle) {
            return false;
        }
        self.skipped += 1;
        if self.skipped == QUIET_ROUNDS {
            self.skipped = 0;
        }
        self.skipped != 0
    }

    /// What the round did.
    #[inline]
    pub(super) fn after(&mut self, worked: bool, left_over: bool) {
        self.idle = !worked && !left_over;
    }

    /// Something else happened: the next round looks at everything.
    pub(super) fn disturb(&mut self) {
        self.idle = false;
    }
}

/// A queue pair and what is known about it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) qp: QpId,
    pub(super) peer: ProcessId,
    pub(super) ready: bool,
    /// Broke once. A member that lost a queue pair has missed writes; it does not count for flow control any more.
    pub(super) broken: bool,
    pub(super) queue: SendQueue,
}

impl Link {
    pub(super) fn open<F: Fabric>(fabric: &mut F, peer: ProcessId, service: Service) -> Result<Self, NodeError> {
        let depth = SEND_DEPTH.min(fabric.capabilities().max_send_depth);
        let qp = fabric.connect(peer, service, QpConfig::reliable(depth, 0))?;
        Ok(Link { qp, peer, ready: false, broken: false, queue: SendQueue::new(depth) })
    }

    #[inline]
    pub(super) fn can_post(&self) -> bool {
        self.ready && self.queue.free() > 0
    }

    /// Posts a write; `None` if the queue pair is broken. Returns the number of the request, which
    /// [`SendQueue::done`] reaches when it is done. `awaited`: somebody waits for that.
    #[inline]
    pub(super) fn write<F: Fabric>(
        &mut self,
        fabric: &mut F,
        source: Source<'_>,
        target: RemoteSpan,
        awaited: bool,
    ) -> Option<u64> {
        // What is read later must be known to have been read: its place is used again.
        let signalled = awaited || self.queue.signal_next() || matches!(source, Source::Region(_));
        let id = self.queue.next_id();
        let request = WorkRequest { id, verb: Verb::Write { source, target }, signalled };
        if fabric.post(self.qp, request).is_err() {
            self.broke();
            return None;
        }
        Some(self.queue.posted(signalled))
    }

    pub(super) fn broke(&mut self) {
        self.ready = false;
        self.broken = true;
    }

    pub(super) fn connected(&mut self) {
        self.ready = true;
        self.queue.reset();
    }
}
