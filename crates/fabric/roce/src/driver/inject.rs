//! A fault injector for packets: loss, duplication, reordering, corruption, delay.

use std::collections::VecDeque;
use std::net::IpAddr;

use stentor_fabric::SplitMix64;
use stentor_wire::Envelope;

use crate::endpoint::Check;

/// Faults of packets. The probabilities are from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Chances {
    /// Probability that a packet is lost.
    pub drop: f64,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that one to four later packets overtake a packet.
    pub reorder: f64,
    /// Probability that one bit of a packet is flipped.
    pub corrupt: f64,
    /// Additional delay of every packet, in nanoseconds.
    pub delay: u64,
}

impl Chances {
    /// Returns whether any fault is enabled.
    #[must_use]
    pub fn is_any(&self) -> bool {
        *self != Chances::default()
    }
}

/// Faults of a network that can be changed while the network is in use.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Faults {
    /// Probability from 0 to 1 that a packet is lost, in both directions.
    pub drop: f64,
    /// Source addresses: all packets from them are lost.
    pub from: Vec<IpAddr>,
    /// Destination addresses: all packets to them are lost.
    pub to: Vec<IpAddr>,
}

/// A packet that waits in memory.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) envelope: Envelope,
    pub(crate) transport: Vec<u8>,
    pub(crate) check: Check,
}

/// Maximum time that a packet waits to be overtaken, in nanoseconds.
const OVERTAKEN: u64 = 2_000_000;

impl AsMut<[u8]> for Parcel {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.transport
    }
}

/// One direction of a faulty network, for packets of type `P`. Corruption changes the bytes that `AsMut` returns.
#[derive(Debug)]
pub struct Injector<P> {
    chances: Chances,
    random: SplitMix64,
    waiting: VecDeque<(u64, u32, P)>,
    /// Numbers of packets lost, duplicated, reordered and corrupted.
    pub counts: [u64; 4],
}

impl<P: Clone + AsMut<[u8]>> Injector<P> {
    /// Creates an injector. The seed determines all random choices.
    #[must_use]
    pub fn new(chances: Chances, seed: u64) -> Self {
        Injector { chances, random: SplitMix64(seed), waiting: VecDeque::new(), counts: [0; 4] }
    }

    /// Sets the probability that a packet is lost.
    pub fn set_drop(&mut self, chance: f64) {
        self.chances.drop = chance;
    }

    /// Returns `true` with the given probability. Draws a random number unless the probability is 0.
    pub fn happens(&mut self, chance: f64) -> bool {
        chance > 0.0 && ((self.random.word() >> 11) as f64) < chance * (1_u64 << 53) as f64
    }

    /// Adds a packet at time `now`, in nanoseconds.
    pub fn push(&mut self, now: u64, mut parcel: P) {
        // This packet counts as overtaking every waiting packet.
        for (_, overtakers, _) in &mut self.waiting {
            *overtakers = overtakers.saturating_sub(1);
        }
        if self.happens(self.chances.drop) {
            self.counts[0] += 1;
            return;
        }
        if self.happens(self.chances.corrupt) {
            self.counts[3] += 1;
            let bit = self.random.word() as usize;
            let bytes = parcel.as_mut();
            let bit = bit % (bytes.len().max(1) * 8);
            if let Some(byte) = bytes.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
        if self.happens(self.chances.duplicate) {
            self.counts[1] += 1;
            self.waiting.push_back((now + self.chances.delay, 0, parcel.clone()));
        }
        let overtakers = if self.happens(self.chances.reorder) { 1 + self.random.word() as u32 % 4 } else { 0 };
        self.counts[2] += u64::from(overtakers > 0);
        self.waiting.push_back((now + self.chances.delay, overtakers, parcel));
    }

    /// Returns the next packet that is due at time `now`, in nanoseconds.
    pub fn pop(&mut self, now: u64) -> Option<P> {
        let due = |(at, overtakers, _): &(u64, u32, P)| {
            *at <= now && (*overtakers == 0 || at.saturating_add(OVERTAKEN) <= now)
        };
        let place = self.waiting.iter().position(due)?;
        self.waiting.remove(place).map(|(_, _, parcel)| parcel)
    }

    /// Returns the next time at which [`pop`](Self::pop) returns a packet if no other packet is added.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        let when = |(at, overtakers, _): &(u64, u32, P)| if *overtakers == 0 { *at } else { at + OVERTAKEN };
        self.waiting.iter().map(when).min()
    }
}
