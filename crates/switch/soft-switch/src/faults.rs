//! Fault injection for the switch's links and its loop.

use stentor_fabric_roce::driver::{Chances, Injector};

/// Faults of the switch's links and of its loop.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Faults {
    /// Faults of incoming and outgoing packets.
    pub links: Chances,
    /// Probability that the loop loses a mirror copy, 0 to 1.
    pub loop_drop: f64,
    /// Seed of all random decisions.
    pub seed: u64,
}

impl Faults {
    /// Returns whether any fault is configured.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.links.is_any() || self.loop_drop > 0.0
    }
}

/// A packet that the fault injection holds, and the index of the address at which it arrived or from which it leaves.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) gate: usize,
    pub(crate) bytes: Vec<u8>,
}

/// Length of the IPv4 and UDP headers, in bytes. Faults do not damage these headers, because the kernel would not
/// deliver such a packet.
pub(crate) const OUTER: usize = 28;

impl AsMut<[u8]> for Held {
    fn as_mut(&mut self) -> &mut [u8] {
        let outer = OUTER.min(self.bytes.len());
        &mut self.bytes[outer..]
    }
}

/// Fault injection for both directions of the network and for the loop.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) incoming: Injector<Held>,
    pub(crate) outgoing: Injector<Held>,
    looping: Injector<Held>,
    loop_drop: f64,
    pub(crate) lost_in_loop: u64,
}

impl Network {
    pub(crate) fn new(faults: Faults) -> Network {
        let injector = |salt: u64| Injector::new(faults.links, faults.seed ^ salt);
        Network {
            incoming: injector(0),
            outgoing: injector(0x5eed_5eed),
            looping: injector(0x100b_100b),
            loop_drop: faults.loop_drop,
            lost_in_loop: 0,
        }
    }

    /// Draws whether the loop loses the next copy, and counts the loss.
    pub(crate) fn loses_copy(&mut self) -> bool {
        let lost = self.looping.happens(self.loop_drop);
        self.lost_in_loop += u64::from(lost);
        lost
    }

    /// Returns the time at which a held packet is due, in nanoseconds.
    pub(crate) fn next(&self) -> Option<u64> {
        self.incoming.next().into_iter().chain(self.outgoing.next()).min()
    }

    /// Returns the counts of packets lost, repeated, reordered, damaged, and lost in the loop.
    pub(crate) fn counts(&self) -> [u64; 5] {
        let [a, b] = [self.incoming.counts, self.outgoing.counts];
        [a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], self.lost_in_loop]
    }
}
