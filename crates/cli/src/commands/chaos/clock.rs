//! The clock of the hang detector.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What counts of a pause between two looks.
const MOST: Duration = Duration::from_millis(250);

/// Time in which this process ran: a stopped laptop or a busy machine is nobody's hang. One thread looks, all may read.
#[derive(Debug, Default)]
pub(super) struct RunClock(AtomicU64);

impl RunClock {
    /// Milliseconds, as of the last look.
    pub(super) fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn pass(&self, time: Duration) {
        self.0.fetch_add(time.min(MOST).as_millis() as u64, Ordering::Relaxed);
    }
}

/// Whoever looks.
#[derive(Debug)]
pub(super) struct Looks {
    last: Instant,
}

impl Looks {
    pub(super) fn begin() -> Self {
        Looks { last: Instant::now() }
    }

    /// Lets time pass.
    pub(super) fn look(&mut self, clock: &RunClock) -> u64 {
        let passed = self.last.elapsed();
        // Whole milliseconds; the rest counts the next time.
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
    fn a_pause_counts_a_quarter_of_a_second_at_most() {
        let clock = RunClock::default();
        clock.pass(Duration::from_millis(10));
        clock.pass(Duration::from_secs(3600));
        assert_eq!(clock.now(), 260);
    }
}
