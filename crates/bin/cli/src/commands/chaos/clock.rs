//! The clock of the hang detector.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest time that the clock advances by one look.
const MOST: Duration = Duration::from_millis(250);

/// A clock that counts only the time during which this process ran. It excludes the time in which a laptop was
/// suspended, and most of the delays of a busy machine. One thread advances it, and all threads may read it.
#[derive(Debug, Default)]
pub(super) struct RunClock(AtomicU64);

impl RunClock {
    /// Returns the time of the last look in milliseconds.
    pub(super) fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn pass(&self, time: Duration) {
        self.0.fetch_add(time.min(MOST).as_millis() as u64, Ordering::Relaxed);
    }
}

/// The state of the one thread that advances the clock.
#[derive(Debug)]
pub(super) struct Looks {
    last: Instant,
}

impl Looks {
    pub(super) fn begin() -> Self {
        Looks { last: Instant::now() }
    }

    /// Advances the clock by the time since the last look, but by at most [`MOST`]. Returns the clock's time.
    pub(super) fn look(&mut self, clock: &RunClock) -> u64 {
        let passed = self.last.elapsed();
        // Only whole milliseconds count now. The rest counts the next time.
        let whole = Duration::from_millis(passed.as_millis() as u64);
        self.last += whole;
        clock.pass(whole);
        clock.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_counts_at_most_250_ms() {
        let clock = RunClock::default();
        clock.pass(Duration::from_millis(10));
        clock.pass(Duration::from_secs(3600));
        assert_eq!(clock.now(), 260);
    }
}
