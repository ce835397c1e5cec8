//! A network in virtual time that drops, duplicates, corrupts, delays and marks packets.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use stentor_wire::IpRepr;

use super::{Flying, SplitMix64};

/// Minimum travel time from one side to the other, in nanoseconds.
const TRAVEL: u64 = 5_000;
/// Code point "congestion experienced" of explicit congestion notification.
const CONGESTED: u8 = 3;

/// Faults of a network. A fault with value n happens to one packet in n on average; 0 means never.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) loss: u64,
    pub(crate) repetition: u64,
    pub(crate) damage: u64,
    /// Maximum extra delay of a packet, in nanoseconds. This value is not a chance.
    pub(crate) jitter: u64,
    pub(crate) congestion: u64,
}

/// The packets in flight between two sides.
pub(crate) struct Network {
    pub(crate) faults: Faults,
    random: SplitMix64,
    /// Arrival time, number and direction of each packet in flight.
    flying: BinaryHeap<Reverse<(u64, u64, bool)>>,
    packets: HashMap<u64, Flying>,
    number: u64,
}

impl Network {
    pub(crate) fn new(faults: Faults, seed: u64) -> Network {
        Network { faults, random: SplitMix64(seed), flying: BinaryHeap::new(), packets: HashMap::new(), number: 0 }
    }

    pub(crate) fn send(&mut self, now: u64, to_b: bool, packet: &Flying) {
        let copies = if self.random.one_in(self.faults.repetition) { 2 } else { 1 };
        for _ in 0..copies {
            if self.random.one_in(self.faults.loss) {
                continue;
            }
            let mut packet = packet.clone();
            if self.random.one_in(self.faults.damage) {
                let at = self.random.index(packet.1.len());
                packet.1[at] ^= 1 << self.random.below(8);
            }
            if self.random.one_in(self.faults.congestion)
                && let IpRepr::V4(ip) = &mut packet.0.ip
            {
                ip.tos |= CONGESTED;
            }
            let late = if self.faults.jitter > 0 { self.random.below(self.faults.jitter) } else { 0 };
            self.number += 1;
            self.flying.push(Reverse((now + TRAVEL + late, self.number, to_b)));
            self.packets.insert(self.number, packet);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.flying.is_empty()
    }

    /// Returns the arrival time of the next packet.
    pub(crate) fn next(&self) -> Option<u64> {
        self.flying.peek().map(|Reverse((at, ..))| *at)
    }

    /// Returns a packet that has arrived by `now`, and whether it is for the second side.
    pub(crate) fn arrived(&mut self, now: u64) -> Option<(bool, Flying)> {
        if self.next().is_none_or(|at| at > now) {
            return None;
        }
        let Reverse((_, number, to_b)) = self.flying.pop()?;
        Some((to_b, self.packets.remove(&number)?))
    }
}
