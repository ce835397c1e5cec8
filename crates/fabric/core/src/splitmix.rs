//! SplitMix64: a random number generator with one word of state, for fault injectors, stand-ins and tests. Protocols
//! use its mixing functions for seals, tags and hashes.

/// The generator SplitMix64 (Steele, Lea and Flood, 2014). The same seed yields the same numbers on every machine and
/// in every version, because recorded seeds rely on it.
///
/// ```
/// assert_eq!(stentor_fabric::SplitMix64(0).word(), 0xe220_a839_7b1d_cdaf);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// Increment of the state per number: 2^64 divided by the golden ratio, rounded to an odd integer.
    pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Draws 64 bits.
    #[inline]
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::GOLDEN);
        Self::finish(self.0)
    }

    /// Draws a number below `limit`, or 0 if `limit` is 0. One word is drawn in either case.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        self.word() % limit.max(1)
    }

    /// Draws an index into a list of `len` elements, or 0 if `len` is 0.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns true with probability 1 / `n`, and false for 0. Draws nothing for 0.
    #[inline]
    pub fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }

    /// Computes a number from a state. This is the last step of the generator, and it is a bijection.
    #[inline]
    #[must_use]
    pub fn finish(state: u64) -> u64 {
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Spreads the bits of `word` over a whole word. This is the first number of the generator that `word` seeds.
    #[inline]
    #[must_use]
    pub fn mix(word: u64) -> u64 {
        SplitMix64(word).word()
    }
}
