//! One queue pair of a node: its lives, send-queue places, posting.

use stentor_fabric::{
    Fabric, PollHint, ProcessId, QpConfig, QpId, RemoteSpan, SendQueue, Service, Source, Verb, WorkRequest,
};

use super::{NodeError, SEND_DEPTH};

/// Rounds after which everything is looked at all the same: what a peer that breaks the rules forgets to announce is late,
/// not lost.
const QUIET_ROUNDS: u32 = 64;

/// What a round of polling looks at, and when it may be skipped.
#[derive(Debug)]
pub(super) struct Quiet {
    /// The last round found nothing and left nothing over.
    idle: bool,
    /// What this round looks at.
    heard: PollHint,
    /// What the next round looks at in any case.
    left: PollHint,
    rounds: u32,
}

impl Default for Quiet {
    fn default() -> Self {
        Quiet { idle: false, heard: PollHint::ANYBODY, left: PollHint::ANYBODY, rounds: 0 }
    }
}

impl Quiet {
    /// Begins a round. Whether it would find nothing, and has nothing else to do.
    #[inline]
    pub(super) fn skips<F: Fabric>(&mut self, fabric: &mut F) -> bool {
        // Asked first and every time: what lands after this is for the next round.
        self.heard = fabric.poll_hint().and(std::mem::replace(&mut self.left, PollHint::NOTHING));
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(QUIET_ROUNDS) {
            self.heard = PollHint::ANYBODY;
        }
        self.idle && self.heard.is_nothing()
    }

    /// Whether this round looks at what that process writes.
    #[inline]
    pub(super) fn hears(&self, process: ProcessId) -> bool {
        self.heard.is_from(process)
    }

    /// The processes below `processes` whose writes this round looks at.
    #[inline]
    pub(super) fn hears_of(&self, processes: usize) -> impl Iterator<Item = ProcessId> + use<> {
        self.heard.among(processes)
    }

    /// Whether this round looks at nothing: it only does what was left for when nothing comes.
    #[inline]
    pub(super) fn hears_nothing(&self) -> bool {
        self.heard.is_nothing()
    }

    /// Whether nothing is left and nothing has come since the round began.
    #[inline]
    pub(super) fn is_done<F: Fabric>(&mut self, fabric: &mut F) -> bool {
        self.left = self.left.and(fabric.poll_hint());
        self.left.is_nothing()
    }

    /// What the round left.
    #[inline]
    pub(super) fn after(&mut self, more: bool, left_over: bool) {
        self.idle = !more && !left_over;
    }

    /// Not everything of a process was taken: the next round goes on.
    #[inline]
    pub(super) fn leave(&mut self, process: ProcessId) {
        self.left = self.left.and(PollHint::from(process));
    }

    /// Something else happened: this round and the next look at everything.
    pub(super) fn disturb(&mut self) {
        (self.heard, self.left) = (PollHint::ANYBODY, PollHint::ANYBODY);
    }
}

/// A queue pair and what is known about it. A *life* is the time between two resets: one connection at most.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) qp: QpId,
    pub(super) peer: ProcessId,
    /// Connected, as far as is known.
    pub(super) ready: bool,
    /// How often it was reset: tells receives and remote regions of an earlier life from those of this one.
    pub(super) life: u32,
    /// The incarnation that greeted in this life.
    pub(super) heard: Option<u64>,
    /// Receives that the peer's writes with an immediate consumed in this life.
    pub(super) consumed: u64,
    pub(super) queue: SendQueue,
}

impl Link {
    pub(super) fn open<F: Fabric>(
        fabric: &mut F,
        peer: ProcessId,
        service: Service,
        receives: u32,
    ) -> Result<Self, NodeError> {
        let depth = SEND_DEPTH.min(fabric.capabilities().max_send_depth);
        let qp = fabric.connect(peer, service, QpConfig::reliable(depth, receives))?;
        Ok(Link { qp, peer, ready: false, life: 0, heard: None, consumed: 0, queue: SendQueue::new(depth) })
    }

    #[inline]
    pub(super) fn can_post(&self) -> bool {
        self.ready && self.queue.free() > 0
    }

    /// Whether both ends have greeted each other.
    #[inline]
    pub(super) fn is_met(&self) -> bool {
        self.ready && self.heard.is_some()
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
        let awaited = awaited || matches!(source, Source::Region(_));
        self.post(fabric, Verb::Write { source, target }, awaited)
    }

    /// Posts an inline write, the commonest; like [`write`](Link::write).
    #[inline]
    pub(super) fn write_inline<F: Fabric>(
        &mut self,
        fabric: &mut F,
        data: &[u8],
        target: RemoteSpan,
        awaited: bool,
    ) -> Option<u64> {
        let signalled = awaited || self.queue.signal_next();
        if fabric.write_inline(self.qp, self.queue.next_id(), data, target, signalled).is_err() {
            // It broke; the event that says so is still to come.
            self.ready = false;
            return None;
        }
        Some(self.queue.posted(signalled))
    }

    /// Posts anything; like [`write`](Link::write).
    #[inline]
    pub(super) fn post<F: Fabric>(&mut self, fabric: &mut F, verb: Verb<'_>, awaited: bool) -> Option<u64> {
        let signalled = awaited || self.queue.signal_next();
        let id = self.queue.next_id();
        if fabric.post(self.qp, WorkRequest { id, verb, signalled }).is_err() {
            // It broke; the event that says so is still to come.
            self.ready = false;
            return None;
        }
        Some(self.queue.posted(signalled))
    }

    /// A life begins. Requests go on being numbered where they were, so that a completion of an earlier life that is
    /// polled late frees nothing of this one; whatever was posted before is flushed.
    pub(super) fn connected(&mut self) {
        self.ready = true;
        self.queue.completed(u64::MAX);
    }

    pub(super) fn reset(&mut self) {
        self.ready = false;
        self.life += 1;
        self.heard = None;
        self.consumed = 0;
        self.queue.completed(u64::MAX);
    }
}
