//! A bad network and a bad loop on purpose.

use stentor_fabric_roce::driver::{Chances, Injector};

/// What goes wrong on the switch's links and in its loop.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Faults {
    /// What happens to packets that come and to packets that leave.
    pub links: Chances,
    /// The chance of a mirror copy to be lost in the loop, 0 to 1.
    pub loop_drop: f64,
    /// Decides everything.
    pub seed: u64,
}

impl Faults {
    /// Whether anything happens at all.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.links.is_any() || self.loop_drop > 0.0
    }
}

/// A packet that a bad network holds, and the address that it came to or leaves from, by number.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) gate: usize,
    pub(crate) bytes: Vec<u8>,
}

/// IPv4 and UDP: a network that damages them delivers nothing.
pub(crate) const OUTER: usize = 28;

impl AsMut<[u8]> for Held {
    fn as_mut(&mut self) -> &mut [u8] {
        let outer = OUTER.min(self.bytes.len());
        &mut self.bytes[outer..]
    }
}

/// The network in both directions, and the loop.
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

    /// Whether the loop loses a copy now.
    pub(crate) fn loses_copy(&mut self) -> bool {
        let lost = self.looping.happens(self.loop_drop);
        self.lost_in_loop += u64::from(lost);
        lost
    }

    /// When something is due by the passing of time alone, nanoseconds.
    pub(crate) fn next(&self) -> Option<u64> {
        self.incoming.next().into_iter().chain(self.outgoing.next()).min()
    }

    /// Lost, repeated, reordered, damaged, lost in the loop.
    pub(crate) fn counts(&self) -> [u64; 5] {
        let [a, b] = [self.incoming.counts, self.outgoing.counts];
        [a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], self.lost_in_loop]
    }
}
