//! A bad network on purpose: loss, repetition, reordering, damage, delay.

use std::collections::VecDeque;
use std::net::IpAddr;

use stentor_fabric::SplitMix64;
use stentor_wire::Envelope;

use crate::endpoint::Check;

/// What happens to a packet, each with a chance from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Chances {
    /// It is lost.
    pub drop: f64,
    /// It comes twice.
    pub duplicate: f64,
    /// Up to four later ones overtake it.
    pub reorder: f64,
    /// One bit is wrong.
    pub corrupt: f64,
    /// Every packet is this much later, nanoseconds.
    pub delay: u64,
}

impl Chances {
    /// Whether anything happens at all.
    #[must_use]
    pub fn is_any(&self) -> bool {
        *self != Chances::default()
    }
}

/// Faults of a network that may change while it is used.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Faults {
    /// The probability from 0 to 1 that a packet is lost, in both directions.
    pub drop: f64,
    /// Addresses from which every packet is lost.
    pub from: Vec<IpAddr>,
    /// Addresses to which every packet is lost.
    pub to: Vec<IpAddr>,
}

/// A packet that is held.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) envelope: Envelope,
    pub(crate) transport: Vec<u8>,
    pub(crate) check: Check,
}

/// How long a packet waits for others to overtake it, nanoseconds.
const OVERTAKEN: u64 = 2_000_000;

impl AsMut<[u8]> for Parcel {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.transport
    }
}

/// One direction of a bad network, through which packets go as `P`; what is damaged are the bytes that they give.
#[derive(Debug)]
pub struct Injector<P> {
    chances: Chances,
    random: SplitMix64,
    waiting: VecDeque<(u64, u32, P)>,
    /// Packets lost, repeated, reordered, damaged.
    pub counts: [u64; 4],
}

impl<P: Clone + AsMut<[u8]>> Injector<P> {
    /// The seed decides everything.
    #[must_use]
    pub fn new(chances: Chances, seed: u64) -> Self {
        Injector { chances, random: SplitMix64(seed), waiting: VecDeque::new(), counts: [0; 4] }
    }

    /// Sets the probability that a packet is lost.
    pub fn set_drop(&mut self, chance: f64) {
        self.chances.drop = chance;
    }

    /// Draws once.
    pub fn happens(&mut self, chance: f64) -> bool {
        chance > 0.0 && ((self.random.word() >> 11) as f64) < chance * (1_u64 << 53) as f64
    }

    /// Takes a packet in; `now` counts nanoseconds.
    pub fn push(&mut self, now: u64, mut parcel: P) {
        // Whoever waits to be overtaken has been overtaken by one more.
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

    /// The next packet that is due.
    pub fn pop(&mut self, now: u64) -> Option<P> {
        let due = |(at, overtakers, _): &(u64, u32, P)| {
            *at <= now && (*overtakers == 0 || at.saturating_add(OVERTAKEN) <= now)
        };
        let place = self.waiting.iter().position(due)?;
        self.waiting.remove(place).map(|(_, _, parcel)| parcel)
    }

    /// When [`pop`](Self::pop) gives something by the passing of time alone.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        let when = |(at, overtakers, _): &(u64, u32, P)| if *overtakers == 0 { *at } else { at + OVERTAKEN };
        self.waiting.iter().map(when).min()
    }
}
