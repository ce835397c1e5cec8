//! The only source of randomness: ChaCha8, with the same values on every machine and in every build.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use stentor_fabric::SplitMix64;

/// One million, the unit of all probabilities here. They are integers, so that no rounding mode affects a run.
pub const MILLION: u32 = 1_000_000;

/// Random numbers from a seed and a stream number.
#[derive(Clone, Debug)]
pub struct SimRng(ChaCha8Rng);

impl SimRng {
    /// Creates the generator of `seed`. Different streams of one seed are independent.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&stream.to_le_bytes());
        key[16..].copy_from_slice(b"stentor sim seed");
        SimRng(ChaCha8Rng::from_seed(key))
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns `true` with a probability of `ppm` per million. Draws nothing if the result is certain.
    #[inline]
    pub fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && (ppm >= MILLION || self.below(u64::from(MILLION)) < u64::from(ppm))
    }
}

/// Hashes an index. The hash decides which partial landing of a torn write includes a word, without a table.
#[inline]
pub(crate) fn scatter(seed: u64, index: u64) -> u64 {
    let x = seed ^ index.wrapping_mul(SplitMix64::GOLDEN);
    SplitMix64::finish(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_seed_are_reproducible() {
        let mut rng = SimRng::new(1, 0);
        let values: Vec<u64> = (0..3).map(|_| rng.word()).collect();
        let mut again = SimRng::new(1, 0);
        assert_eq!(values, (0..3).map(|_| again.word()).collect::<Vec<_>>());
        assert_ne!(values[0], SimRng::new(2, 0).word());
        assert_ne!(values[0], SimRng::new(1, 1).word());
    }

    #[test]
    fn chances_are_about_right_and_bounds_hold() {
        let mut rng = SimRng::new(3, 0);
        let hits = (0..10_000).filter(|_| rng.chance(250_000)).count();
        assert!((2_200..2_800).contains(&hits), "{hits} of 10000 at a quarter");
        assert!((0..1000).all(|_| rng.below(7) < 7));
        assert!(!rng.chance(0) && rng.chance(MILLION));
    }
}
