//! The due times of messages.

use std::time::Duration;

use super::pause::LONGEST;

/// A schedule that sends messages as fast as possible, or at a fixed rate.
///
/// At a fixed rate, a latency counts from the due time of its message and not from its transmission, because a message
/// that waits for a slow earlier one is late, too. Otherwise a sender that waits would measure only the messages that
/// did not wait (coordinated omission).
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    start: u64,
    /// Rate in messages per second; 0 for no fixed rate.
    rate: u64,
}

impl Schedule {
    /// Returns a schedule that starts at `start`, in nanoseconds. `rate` is in messages per second; 0 means as fast as
    /// possible.
    pub(super) fn starting(start: u64, rate: u64) -> Self {
        Schedule { start, rate }
    }

    /// Returns a schedule that starts now.
    pub(super) fn new(rate: u64) -> Self {
        Schedule::starting(super::clock::now(), rate)
    }

    fn time(self, n: u64) -> u64 {
        // The product does not overflow: 2^26 messages times 10^9 needs 56 bits.
        self.start + n * 1_000_000_000 / self.rate
    }

    /// Returns the time from which the latency of message `n` counts, or `None` if it is not due at `now`.
    #[inline]
    pub(super) fn due(self, n: u64, now: u64) -> Option<u64> {
        if self.rate == 0 {
            return Some(now);
        }
        let time = self.time(n);
        (time <= now).then_some(time)
    }

    /// Returns how long a sender that has sent `n` of `total` messages may sleep: until the next message is due, but
    /// not longer than [`LONGEST`].
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
    fn messages_without_a_rate_are_due_when_sent() {
        let schedule = Schedule::starting(100, 0);
        assert_eq!(schedule.due(7, 500), Some(500));
        assert_eq!(schedule.longest_sleep(7, 8, 500), LONGEST);
    }

    #[test]
    fn late_message_counts_from_its_due_time() {
        let schedule = Schedule::starting(1_000_000, 1000);
        assert_eq!(schedule.due(0, 1_000_000), Some(1_000_000));
        assert_eq!(schedule.due(3, 3_999_999), None);
        assert_eq!(schedule.due(3, 4_000_000), Some(4_000_000));
        assert_eq!(schedule.due(3, 90_000_000), Some(4_000_000));
        // A rate that does not divide a second drifts by less than a nanosecond.
        let third = Schedule::starting(0, 3);
        assert_eq!(third.due(3_000_000, u64::MAX), Some(1_000_000_000_000_000));
    }

    #[test]
    fn a_sender_sleeps_until_the_next_message_is_due() {
        let schedule = Schedule::starting(0, 100);
        assert_eq!(schedule.longest_sleep(5, 9, 48_000_000), Duration::from_millis(2));
        assert_eq!(schedule.longest_sleep(5, 9, 50_000_000), Duration::ZERO);
        assert_eq!(schedule.longest_sleep(5, 9, 0), LONGEST);
        assert_eq!(schedule.longest_sleep(9, 9, 90_000_000), LONGEST, "no message is left");
    }
}
