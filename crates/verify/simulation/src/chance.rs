//! The random choices of a simulation, other than those of the simulated network.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::SimRng;

/// Random choices of one part of a run. Each part has its own stream, so that the choices of one part do not affect
/// those of another.
pub(crate) struct Chance(SimRng);

impl Chance {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Chance(SimRng::new(seed, 1000 + stream))
    }

    /// Creates the stream of one life of a process.
    pub(crate) fn of_process(seed: u64, process: ProcessId, incarnation: u64) -> Self {
        Chance::new(seed, 2_000 + u64::from(process.0) * 1_000 + incarnation)
    }

    /// Returns a number from `least` to `most`, both inclusive.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.0.below(most - least + 1)
    }

    /// Returns one of several values.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.0.below(from.len() as u64) as usize]
    }

    /// Fills a buffer with random bytes.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.word().to_le_bytes()[..chunk.len()]);
        }
    }
}
