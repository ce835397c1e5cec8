//! Decides which peers a round of polling looks at, and which rounds are skipped.

use stentor_fabric::{Fabric, PollHint, ProcessId};

/// Number of rounds after which a round polls all peers regardless of hints. So a write that the hints missed is found
/// late, but not lost.
const QUIET_ROUNDS: u32 = 64;

/// The selection of the peers that a round of polling looks at, and of the rounds that may be skipped.
#[derive(Debug)]
pub(super) struct PollGate {
    /// `true` if the last round left neither input nor output over.
    idle: bool,
    /// The peers whose writes this round looks at.
    heard: PollHint,
    /// The peers whose writes the next round looks at in any case.
    left: PollHint,
    rounds: u32,
}

impl Default for PollGate {
    fn default() -> Self {
        PollGate { idle: false, heard: PollHint::ANYBODY, left: PollHint::ANYBODY, rounds: 0 }
    }
}

impl PollGate {
    /// Begins a round. Returns whether the round may be skipped, because it would find nothing and has nothing else to
    /// do.
    #[inline]
    pub(super) fn skips<F: Fabric>(&mut self, fabric: &mut F) -> bool {
        // The hint is taken first, and in every round: writes that land after this belong to the next round.
        self.heard = fabric.poll_hint().and(std::mem::replace(&mut self.left, PollHint::NOTHING));
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(QUIET_ROUNDS) {
            self.heard = PollHint::ANYBODY;
        }
        self.idle && self.heard.is_nothing()
    }

    /// Returns whether this round looks at the writes of `process`.
    #[inline]
    pub(super) fn looks_at(&self, process: ProcessId) -> bool {
        self.heard.is_from(process)
    }

    /// Returns the processes below `processes` whose writes this round looks at.
    #[inline]
    pub(super) fn looked_at(&self, processes: usize) -> impl Iterator<Item = ProcessId> + use<> {
        self.heard.among(processes)
    }

    /// Returns whether this round looks at no peer's writes. A member then only sends what is left, and polls nothing
    /// unless a tick is due or deliveries that were held back continue.
    #[inline]
    pub(super) fn looks_at_nothing(&self) -> bool {
        self.heard.is_nothing()
    }

    /// Returns whether nothing is left and nothing has arrived since the round began.
    #[inline]
    pub(super) fn is_done<F: Fabric>(&mut self, fabric: &mut F) -> bool {
        self.left = self.left.and(fabric.poll_hint());
        self.left.is_nothing()
    }

    /// Ends the round. `more`: input remains; `left_over`: output remains.
    #[inline]
    pub(super) fn after(&mut self, more: bool, left_over: bool) {
        self.idle = !more && !left_over;
    }

    /// Makes the next round poll a process again, because not all its records were read.
    #[inline]
    pub(super) fn leave(&mut self, process: ProcessId) {
        self.left = self.left.and(PollHint::from(process));
    }

    /// Prevents the next round from being skipped, because there are items to write. The set of peers at which that
    /// round looks does not change.
    #[inline]
    pub(super) fn resume(&mut self) {
        self.idle = false;
    }

    /// Makes this round and the next one poll all peers, because of another event.
    pub(super) fn disturb(&mut self) {
        (self.heard, self.left) = (PollHint::ANYBODY, PollHint::ANYBODY);
    }
}
