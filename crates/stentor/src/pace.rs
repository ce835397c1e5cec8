//! The pace of a channel or broadcast that its owner drives: when it polls its connections, and when it sleeps.

use std::time::{Duration, Instant};

use stentor_fabric::{Backoff, Idle, WaitMode};

/// Number of rounds between two polls of the fabric for events. Rounds without other work poll as well.
const HOUSEKEEP_ROUNDS: u32 = 64;
/// Longest sleep with a descriptor. Some connection events do not make the descriptor readable.
const LONGEST_SLEEP: Duration = Duration::from_millis(5);
/// Longest sleep on a fabric without a descriptor, where an incoming write does not wake the owner.
const BLIND: Duration = Duration::from_millis(1);

/// Counts rounds, and decides whether the owner spins, yields or sleeps after each one. An endpoint that has been idle
/// for long hardly spins.
#[derive(Debug)]
pub(crate) struct Pace {
    backoff: Backoff,
    rounds: u32,
    /// Time at which the last round with work was noticed. The clock is read only before a sleep.
    last_work: Instant,
    has_worked: bool,
}

impl Pace {
    pub(crate) fn new(wait: WaitMode) -> Self {
        Pace { backoff: Backoff::new(wait), rounds: 0, last_work: Instant::now(), has_worked: false }
    }

    /// Starts a round.
    #[inline]
    pub(crate) fn begin_round(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
    }

    /// Returns whether this round also does the rare work, such as polling the fabric for events, even if there is
    /// other work.
    #[inline]
    pub(crate) fn is_rare(&self) -> bool {
        self.rounds.is_multiple_of(HOUSEKEEP_ROUNDS)
    }

    /// Records whether this round did any work.
    #[inline]
    pub(crate) fn note(&mut self, worked: bool) {
        self.has_worked |= worked;
    }

    /// Returns whether to spin, yield or sleep after a round.
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

    /// Returns the longest time to sleep, on a descriptor or without one.
    pub(crate) fn longest_sleep(has_descriptor: bool) -> Duration {
        if has_descriptor { LONGEST_SLEEP } else { BLIND }
    }
}
