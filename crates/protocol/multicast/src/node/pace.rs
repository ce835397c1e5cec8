//! Detects stalled peers: a peer is stalled if it has records to free and frees none for a while.
//!
//! # States of a peer, as a writer sees it
//! *counts* → *stalled* (it owed something all the time and freed nothing for as long as [`Patience`] allows) →
//! *expelled*, if it belongs to the slowest minority of its group: the writer ends its connections with the peer
//! ([`Fabric::disconnect`](stentor_fabric::Fabric::disconnect)) → *counts* again when its hello arrived on a new
//! connection.
//!
//! # Invariants
//! - *Only a minority is expelled, and only while a majority is ahead of it* ([`expelling`](super::expelling)). If a
//!   majority is stalled, writers wait: a write needs that majority, so expelling it would not help.
//! - *Expelling a peer is the same as losing its connections.* The same code handles both, except that the last hello
//!   of an expelled member stays valid (`member/histories.rs`). No vote, permission or quorum changes, so expelling
//!   cannot affect agreement. A cell that the peer has not freed is written again only on a new connection.
//! - *A writer that was stalled itself expels no peer because of that.* Time counts only while it checks its peers, and
//!   each check adds a bounded amount.
//! - A peer that owes nothing is not stalled, so an idle group expels nobody.

use std::time::Duration;

/// The time that a writer waits for a peer that frees nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Time for which a peer may free nothing while the ring has room.
    lag: Duration,
    /// The time of the last check.
    looked: Option<Duration>,
}

/// The default time that a writer waits for a peer that frees nothing: 500 ms.
pub const EXPEL_AFTER: Duration = Duration::from_millis(500);

/// Divisor of the limit when the ring has no room.
const FULL_PART: u32 = 10;
/// Divisor of the limit that applies when the ring has no room. The result bounds the time that one check adds.
const LOOK_PART: u32 = 5;

impl Default for Patience {
    fn default() -> Self {
        Patience::new(EXPEL_AFTER)
    }
}

impl Patience {
    pub(super) fn new(lag: Duration) -> Self {
        Patience { lag, looked: None }
    }

    /// Returns how long a peer may free nothing.
    fn limit(&self, full: bool) -> Duration {
        if full { self.lag / FULL_PART } else { self.lag }
    }

    /// Starts another check. Returns the time since the last check, up to a bound.
    pub(super) fn look(&mut self, now: Duration) -> Duration {
        let before = self.looked.replace(now).unwrap_or(now);
        now.saturating_sub(before).min(self.limit(true) / LOOK_PART)
    }
}

/// The progress of a peer, and the time for which it has not changed.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Pace {
    freed: u64,
    idle: Duration,
}

impl Pace {
    /// Updates the peer's progress after `step`. `owes` is `true` if the peer holds records that it has to free, and
    /// would report that.
    pub(super) fn look(&mut self, step: Duration, freed: u64, owes: bool) {
        if freed != self.freed || !owes {
            *self = Pace { freed, idle: Duration::ZERO };
        } else {
            self.idle += step;
        }
    }

    /// Restarts the measurement on a new connection.
    pub(super) fn restart(&mut self) {
        *self = Pace::default();
    }

    /// Returns whether the peer is stalled. `full`: the ring has no room for more.
    pub(super) fn stands(&self, patience: &Patience, full: bool) -> bool {
        self.idle >= patience.limit(full).max(Duration::from_nanos(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn peer_stalls_after_the_limit_and_sooner_when_the_ring_is_full() {
        let patience = Patience::new(500 * MS);
        let mut pace = Pace::default();
        pace.look(49 * MS, 0, true);
        assert!(!pace.stands(&patience, true));
        pace.look(MS, 0, true);
        assert!(pace.stands(&patience, true) && !pace.stands(&patience, false));
        pace.look(450 * MS, 0, true);
        assert!(pace.stands(&patience, false));
        pace.look(MS, 1, true);
        assert!(!pace.stands(&patience, true), "it freed something");
        pace.look(500 * MS, 1, true);
        pace.look(MS, 1, false);
        assert!(!pace.stands(&patience, true), "it owes nothing");
    }

    #[test]
    fn time_in_which_the_writer_itself_was_stalled_does_not_count() {
        let mut patience = Patience::new(500 * MS);
        assert_eq!(patience.look(100 * MS), Duration::ZERO);
        assert_eq!(patience.look(102 * MS), 2 * MS);
        assert_eq!(patience.look(30_000 * MS), 10 * MS);
    }
}
