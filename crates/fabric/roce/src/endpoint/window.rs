//! The window: the number of packets of a queue pair that may be in flight, and its reduction by losses.
//!
//! A queue pair begins with a full window. A loss reduces it, and each acknowledged window adds one packet. The
//! round-trip time reveals why a packet was lost, and the cause determines the reduction:
//! - **Packets wait in a queue** (the round trip is unknown, or longer than twice the shortest one plus 0.2 ms): the
//!   queue was full. The window is halved, as in TCP, so that this flow and TCP share a link. All packets after the
//!   lost one are sent again while the queue is still full. The window therefore first shrinks to a quarter, and
//!   doubles with the next round trip.
//! - **No queue**: the link lost the packet, and a smaller window does not reduce the link's losses. But each loss
//!   causes the retransmission of about one window. The window is therefore limited to half the number of packets since
//!   the previous loss, so that two of three packets are new ones. One loss never shrinks it to less than half.

/// Maximum excess over twice the shortest round trip that does not count as a queue, in nanoseconds. Such a delay
/// occurs if the scheduler runs processes late.
const LATE: u64 = 200_000;

/// A congestion window, in packets.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Window {
    packets: u32,
    most: u32,
    /// Size up to which the window doubles with each round trip.
    threshold: u32,
    /// Number of acknowledged packets that count towards the next growth of the window.
    acknowledged: u32,
    /// Number of packets acknowledged since the last loss.
    since_loss: u32,
}

impl Window {
    /// Creates a full window.
    pub(crate) fn new(most: u32) -> Window {
        Window { packets: most, most, threshold: 0, acknowledged: 0, since_loss: 0 }
    }

    /// Returns the number of packets that may be in flight.
    #[inline]
    pub(crate) fn packets(&self) -> u32 {
        self.packets
    }

    /// Records that `count` packets were acknowledged.
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

    /// Records the loss of a packet.
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

    /// Records that retransmitted packets are sent once more. If the queue in front of the link is long, the earlier
    /// copies may only be waiting there, so fewer packets are sent.
    pub(crate) fn repeated(&mut self) {
        self.threshold = self.threshold.max(self.packets);
        self.packets = (self.packets / 2).max(1);
    }

    /// Records a transport timeout.
    pub(crate) fn timed_out(&mut self) {
        self.threshold = self.packets.max(self.threshold) / 2;
        (self.packets, self.acknowledged) = (1, 0);
    }

    /// Records a congestion notification.
    pub(crate) fn notified(&mut self) {
        self.packets = (self.packets / 2).max(1);
        (self.threshold, self.acknowledged) = (0, 0);
    }
}

/// Round trip times, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct RoundTrip {
    /// Smoothed round trip; 0 if unknown.
    pub(crate) smooth: u64,
    /// Shortest round trip; 0 if unknown.
    least: u64,
}

impl RoundTrip {
    /// Adds a measurement.
    pub(crate) fn measured(&mut self, took: u64) {
        let before = self.smooth;
        self.smooth = if before == 0 { took } else { before - before / 8 + took / 8 };
        self.least = if self.least == 0 { took } else { self.least.min(took) };
    }

    /// Returns whether packets wait in a queue. An unknown round trip counts as a long one.
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
    fn a_loss_with_a_queue_halves_the_window_after_one_round_trip_at_a_quarter() {
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
    fn a_loss_without_a_queue_limits_the_window_to_half_the_distance_between_losses() {
        for (acknowledged, packets) in [(1000, 64), (100, 50), (10, 32), (0, 32)] {
            let mut window = Window::new(64);
            window.acknowledge(acknowledged);
            window.lost(SHORT);
            assert_eq!(window.packets(), packets);
        }
    }

    #[test]
    fn losses_keep_the_window_between_one_and_the_maximum() {
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
    fn silence_halves_the_window_until_an_acknowledgement() {
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
