//! Random numbers of a script.

use stentor_fabric::SplitMix64;

/// Random numbers that depend only on the seed of a run and on the number of the client.
#[derive(Clone, Debug)]
pub struct SimRandom(SplitMix64);

impl SimRandom {
    /// Returns the generator of one client.
    pub(super) fn of_client(seed: u64, client: usize) -> SimRandom {
        SimRandom(SplitMix64(SplitMix64::mix(seed ^ SplitMix64::mix(client as u64 ^ 0x7363_7269_7074))))
    }

    /// Draws 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0.word()
    }

    /// Draws a number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.below(limit)
    }

    /// Returns true in about `percent` of a hundred draws.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.0.below(100) < percent
    }

    /// Draws one of several values; `None` if there are none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.0.index(from.len()))
    }
}
