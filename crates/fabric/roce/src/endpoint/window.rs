//! The packets of a queue pair that may be under way, and what losses do to that.
//!
//! A queue pair begins with all that it may have. After a loss it has fewer, and each window that is acknowledged adds one. The
//! round trip tells why a packet was lost, and that decides how many fewer:
//! - **Packets wait in a queue** (the round trip is more than twice the least one): the queue was full. The window becomes half, as
//!   TCP's does, so that both get a share of a link. Everything behind the lost packet is sent again, while the queue is still
//!   full. So the window first becomes a quarter, and doubles with the next round trip.
//! - **Nothing waits**: the link lost the packet, and a smaller window does not make it lose fewer. But each loss has about a window
//!   sent again. The window becomes at most half as long as the way from the loss before, so that two of three packets are new;
//!   but not less than half of what it was.

/// How much longer than twice the least round trip one is while nothing waits, nanoseconds: processes get a processor late.
const LATE: u64 = 200_000;

/// A window of packets.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Window {
    packets: u32,
    most: u32,
    /// Up to here the window doubles with each round trip.
    threshold: u32,
    /// Packets acknowledged since the window grew.
    acknowledged: u32,
    /// Packets acknowledged since the last loss.
    since_loss: u32,
}

impl Window {
    /// A window that is fully open.
    pub(crate) fn new(most: u32) -> Window {
        Window { packets: most, most, threshold: 0, acknowledged: 0, since_loss: 0 }
    }

    /// Packets that may be under way.
    #[inline]
    pub(crate) fn packets(&self) -> u32 {
        self.packets
    }

    /// So many packets were acknowledged.
    #[inline]
    pub(crate) fn acknowledge(&mut self, count: u32) {
        self.acknowledged += count;
        self.since_loss = self.since_loss.saturating_add(count);
        if self.packets < self.threshold {
            self.packets = (self.packets + self.acknowledged).min(self.threshold);
            self.acknowledged = 0;
        } else if self.acknowledged >= self.packets {
            self.acknowledged = 0;
            self.packets = (self.packets + 1).min(self.most);
        }
    }

    /// A packet was lost.
    pub(crate) fn lost(&mut self, trip: RoundTrip) {
        let whole = self.packets.max(self.threshold);
        let half = (whole / 2).max(2).min(self.most);
        if trip.is_queued() {
            (self.packets, self.threshold) = ((half / 2).max(1), half);
        } else {
            self.threshold = whole.min((self.since_loss / 2).max(half));
            self.packets = self.packets.min(self.threshold);
        }
        (self.acknowledged, self.since_loss) = (0, 0);
    }

    /// What was sent again is sent again once more. If the queue in front of the link is long, it was only waiting there.
    pub(crate) fn repeated(&mut self) {
        self.threshold = self.threshold.max(self.packets);
        self.packets = (self.packets / 2).max(1);
    }

    /// Nothing was heard for the transport timeout.
    pub(crate) fn timed_out(&mut self) {
        self.threshold = self.packets.max(self.threshold) / 2;
        (self.packets, self.acknowledged) = (1, 0);
    }

    /// The network or the peer says that there is too much.
    pub(crate) fn notified(&mut self) {
        self.packets = (self.packets / 2).max(1);
        (self.threshold, self.acknowledged) = (0, 0);
    }
}

/// How long acknowledgements take, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct RoundTrip {
    /// Smoothed; 0 if unknown.
    pub(crate) smooth: u64,
    /// The least one that there was; 0 if unknown.
    least: u64,
}

impl RoundTrip {
    /// Takes a measurement.
    pub(crate) fn measured(&mut self, took: u64) {
        let before = self.smooth;
        self.smooth = if before == 0 { took } else { before - before / 8 + took / 8 };
        self.least = if self.least == 0 { took } else { self.least.min(took) };
    }

    /// Whether packets wait in a queue. An unknown round trip counts as a long one.
    fn is_queued(self) -> bool {
        self.smooth == 0 || self.smooth > 2 * self.least + LATE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: RoundTrip = RoundTrip { smooth: 400_000, least: 100_000 };
    const QUEUED: RoundTrip = RoundTrip { smooth: 400_001, least: 100_000 };

    #[test]
    fn a_loss_behind_a_queue_halves_the_window_after_a_round_trip_with_a_quarter() {
        for trip in [QUEUED, RoundTrip::default()] {
            let mut window = Window::new(64);
            window.acknowledge(1000);
            window.lost(trip);
            assert_eq!(window.packets(), 16);
            window.acknowledge(16);
            assert_eq!(window.packets(), 32);
            window.acknowledge(31);
            assert_eq!(window.packets(), 32);
            window.acknowledge(1);
            assert_eq!(window.packets(), 33, "one for each window");
        }
    }

    #[test]
    fn a_loss_without_a_queue_cuts_the_window_to_half_of_the_way_from_the_loss_before() {
        for (acknowledged, packets) in [(1000, 64), (100, 50), (10, 32), (0, 32)] {
            let mut window = Window::new(64);
            window.acknowledge(acknowledged);
            window.lost(SHORT);
            assert_eq!(window.packets(), packets);
        }
    }

    #[test]
    fn losses_leave_a_packet_and_never_more_than_the_most() {
        for most in [1, 2, 3, 16] {
            let mut window = Window::new(most);
            for trip in [QUEUED, SHORT].iter().cycle().take(20) {
                window.lost(*trip);
                assert!((1..=most).contains(&window.packets()), "{window:?}");
            }
            window.acknowledge(10_000);
            window.acknowledge(10_000);
            assert!((2.min(most)..=most).contains(&window.packets()), "{window:?}");
        }
    }

    #[test]
    fn silence_halves_the_window_until_something_is_heard() {
        let mut window = Window::new(64);
        (0..10).for_each(|_| window.repeated());
        assert_eq!(window.packets(), 1);
        for packets in [2, 4, 8, 16, 32, 64, 64] {
            window.acknowledge(window.packets());
            assert_eq!(window.packets(), packets);
        }
        window.timed_out();
        assert_eq!(window.packets(), 1);
        (0..5).for_each(|_| window.acknowledge(window.packets()));
        assert_eq!(window.packets(), 32, "half, and from there one by one");
        window.acknowledge(32);
        assert_eq!(window.packets(), 33);
    }

    #[test]
    fn a_notification_halves_the_window() {
        let mut window = Window::new(3);
        for packets in [1, 1] {
            window.notified();
            assert_eq!(window.packets(), packets);
        }
        window.acknowledge(1);
        assert_eq!(window.packets(), 2);
    }
}
