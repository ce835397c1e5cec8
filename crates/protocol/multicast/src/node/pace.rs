//! Who stands still: a peer that frees nothing of what is written to it, while others do.
//!
//! # States of a peer as a writer sees it
//! *counts* → *standing* (it owed something all the time and freed nothing for as long as the [`Patience`] has) → *expelled*, if it is of the
//! slowest minority of its group: its connections end from here ([`Fabric::disconnect`](stentor_fabric::Fabric::disconnect)) →
//! *counts* again when it has greeted on a new connection.
//!
//! # Invariants
//! - *Only a minority is expelled, and only while a majority is ahead of it.* If a majority stands still, writers wait: what is
//!   written needs that majority, and expelling it would end nothing.
//! - *Expelling is what a broken connection is*, from here on: the same code, and no vote, no permission and no quorum changes. So it
//!   can harm nothing that is agreed. A cell that the peer has not freed is written again only on a new connection.
//! - *A writer that stood still itself blames nobody.* Only time in which it looked counts, a little for each look.
//! - A peer that owes nothing is not looked at: an idle group expels nobody.

use std::time::Duration;

/// How long a writer waits for a peer that frees nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// While there is room.
    lag: Duration,
    /// The time of the last look.
    looked: Option<Duration>,
}

/// How long a writer waits if nothing else is set.
pub const EXPEL_AFTER: Duration = Duration::from_millis(500);

/// The part of the lag that a writer waits when there is no room.
const FULL_PART: u32 = 10;
/// The part of that by which a look counts at most.
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

    /// How long a peer may free nothing.
    fn limit(&self, full: bool) -> Duration {
        if full { self.lag / FULL_PART } else { self.lag }
    }

    /// Another look. Returns the time that counts since the last one.
    pub(super) fn look(&mut self, now: Duration) -> Duration {
        let before = self.looked.replace(now).unwrap_or(now);
        now.saturating_sub(before).min(self.limit(true) / LOOK_PART)
    }
}

/// How far a peer is, and for how long it has been there.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Pace {
    freed: u64,
    idle: Duration,
}

impl Pace {
    /// Looks at a peer again after `step`. `owes`: it has something to free, and would say so.
    pub(super) fn look(&mut self, step: Duration, freed: u64, owes: bool) {
        if freed != self.freed || !owes {
            *self = Pace { freed, idle: Duration::ZERO };
        } else {
            self.idle += step;
        }
    }

    /// Begins anew, on a new connection.
    pub(super) fn restart(&mut self) {
        *self = Pace::default();
    }

    /// Whether the peer stands still. `full`: there is no room for more.
    pub(super) fn stands(&self, patience: &Patience, full: bool) -> bool {
        self.idle >= patience.limit(full).max(Duration::from_nanos(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_peer_stands_that_frees_nothing_for_long_and_sooner_when_there_is_no_room() {
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
    fn who_stood_still_itself_blames_nobody() {
        let mut patience = Patience::new(500 * MS);
        assert_eq!(patience.look(100 * MS), Duration::ZERO);
        assert_eq!(patience.look(102 * MS), 2 * MS);
        assert_eq!(patience.look(30_000 * MS), 10 * MS);
    }
}
