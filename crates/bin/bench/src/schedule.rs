//! When messages are due.

use std::time::Duration;

use super::pause::LONGEST;

/// Messages as fast as they go, or at a fixed rate.
///
/// At a fixed rate a latency counts from the moment at which its message was due, not from when it was sent: what waits behind
/// a slow message was late, too. Without that, a sender that waits measures only what it did not wait for (coordinated
/// omission).
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    start: u64,
    /// Messages a second; 0: no rate.
    rate: u64,
}

impl Schedule {
    /// So many messages a second from `start` on, ns; 0: as fast as they go.
    pub(super) fn starting(start: u64, rate: u64) -> Self {
        Schedule { start, rate }
    }

    /// The same from now on.
    pub(super) fn new(rate: u64) -> Self {
        Schedule::starting(super::clock::now(), rate)
    }

    fn time(self, n: u64) -> u64 {
        // Exact for as long as any bench runs: the product of 2^26 messages and 10^9 has 56 bits.
        self.start + n * 1_000_000_000 / self.rate
    }

    /// Returns from when the latency of message `n` counts, or `None` if it is not due at `now`.
    #[inline]
    pub(super) fn due(self, n: u64, now: u64) -> Option<u64> {
        if self.rate == 0 {
            return Some(now);
        }
        let time = self.time(n);
        (time <= now).then_some(time)
    }

    /// How long a sender may sleep that has sent `n` messages of `total`: until the next one is due, and never longer than a
    /// loop sleeps.
    #[inline]
    pub(super) fn longest_sleep(self, n: u64, total: u64, now: u64) -> Duration {
        if self.rate == 0 || n >= total {
            return LONGEST;
        }
        Duration::from_nanos(self.time(n).saturating_sub(now)).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_without_a_rate_are_due_when_they_go() {
        let schedule = Schedule::starting(100, 0);
        assert_eq!(schedule.due(7, 500), Some(500));
        assert_eq!(schedule.longest_sleep(7, 8, 500), LONGEST);
    }

    #[test]
    fn a_message_that_goes_late_counts_from_when_it_was_due() {
        let schedule = Schedule::starting(1_000_000, 1000);
        assert_eq!(schedule.due(0, 1_000_000), Some(1_000_000));
        assert_eq!(schedule.due(3, 3_999_999), None);
        assert_eq!(schedule.due(3, 4_000_000), Some(4_000_000));
        assert_eq!(schedule.due(3, 90_000_000), Some(4_000_000));
        // Rates that do not divide a second drift by less than a nanosecond.
        let third = Schedule::starting(0, 3);
        assert_eq!(third.due(3_000_000, u64::MAX), Some(1_000_000_000_000_000));
    }

    #[test]
    fn a_sender_sleeps_until_the_next_message_is_due() {
        let schedule = Schedule::starting(0, 100);
        assert_eq!(schedule.longest_sleep(5, 9, 48_000_000), Duration::from_millis(2));
        assert_eq!(schedule.longest_sleep(5, 9, 50_000_000), Duration::ZERO);
        assert_eq!(schedule.longest_sleep(5, 9, 0), LONGEST);
        assert_eq!(schedule.longest_sleep(9, 9, 90_000_000), LONGEST, "there is no such message");
    }
}
