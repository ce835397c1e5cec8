//! The pace of what its owner turns, a channel or a broadcast: when it looks after its connections, and when it sleeps.

use std::time::{Duration, Instant};

use stentor_fabric::{Backoff, Idle, WaitMode};

/// The fabric is asked for events once in so many rounds, and whenever there is nothing else to do.
const HOUSEKEEP_ROUNDS: u32 = 64;
/// The longest sleep: not all that happens to connections makes the descriptor readable.
const LONGEST_SLEEP: Duration = Duration::from_millis(5);
/// The same where nobody can wait for what lands.
const BLIND: Duration = Duration::from_millis(1);

/// Counts rounds, and says what to do after each. What has nothing to do for long hardly spins.
#[derive(Debug)]
pub(crate) struct Pace {
    backoff: Backoff,
    rounds: u32,
    /// When something happened last, as far as it was looked at.
    last_work: Instant,
    has_worked: bool,
}

impl Pace {
    pub(crate) fn new(wait: WaitMode) -> Self {
        Pace { backoff: Backoff::new(wait), rounds: 0, last_work: Instant::now(), has_worked: false }
    }

    /// Begins a round.
    #[inline]
    pub(crate) fn begin_round(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
    }

    /// Returns whether this round does what is done rarely: it asks the fabric for events, even if there is other work.
    #[inline]
    pub(crate) fn is_rare(&self) -> bool {
        self.rounds.is_multiple_of(HOUSEKEEP_ROUNDS)
    }

    /// Notes whether anything happened in this round.
    #[inline]
    pub(crate) fn note(&mut self, worked: bool) {
        self.has_worked |= worked;
    }

    /// Returns what to do after a round.
    #[inline]
    pub(crate) fn after(&mut self, worked: bool) -> Idle {
        let idle = self.backoff.after(worked);
        if idle == Idle::Sleep {
            let now = Instant::now();
            if std::mem::take(&mut self.has_worked) {
                self.last_work = now;
            }
            self.backoff.quiet_for(now - self.last_work);
        }
        idle
    }

    /// Returns for how long to sleep at most, on a descriptor or without one.
    pub(crate) fn longest_sleep(has_descriptor: bool) -> Duration {
        if has_descriptor { LONGEST_SLEEP } else { BLIND }
    }
}
