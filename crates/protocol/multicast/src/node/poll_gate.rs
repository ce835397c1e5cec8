//! Which rounds of polling have anything to look at.

use stentor_fabric::{Fabric, PollHint, ProcessId};

/// Rounds after which everything is looked at all the same: what a peer that breaks the rules forgets to announce is late,
/// not lost.
const QUIET_ROUNDS: u32 = 64;

/// What a round of polling looks at, and when it may be skipped.
#[derive(Debug)]
pub(super) struct PollGate {
    /// The last round found nothing and left nothing over.
    idle: bool,
    /// What this round looks at.
    heard: PollHint,
    /// What the next round looks at in any case.
    left: PollHint,
    rounds: u32,
}

impl Default for PollGate {
    fn default() -> Self {
        PollGate { idle: false, heard: PollHint::ANYBODY, left: PollHint::ANYBODY, rounds: 0 }
    }
}

impl PollGate {
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
    pub(super) fn looks_at(&self, process: ProcessId) -> bool {
        self.heard.is_from(process)
    }

    /// The processes below `processes` whose writes this round looks at.
    #[inline]
    pub(super) fn looked_at(&self, processes: usize) -> impl Iterator<Item = ProcessId> + use<> {
        self.heard.among(processes)
    }

    /// Whether this round looks at nothing: it only does what was left for when nothing comes.
    #[inline]
    pub(super) fn looks_at_nothing(&self) -> bool {
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

    /// Something is to be written: the next round is not skipped. What it looks at stays the same.
    #[inline]
    pub(super) fn resume(&mut self) {
        self.idle = false;
    }

    /// Something else happened: this round and the next look at everything.
    pub(super) fn disturb(&mut self) {
        (self.heard, self.left) = (PollHint::ANYBODY, PollHint::ANYBODY);
    }
}
