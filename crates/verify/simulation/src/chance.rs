//! What a simulation draws from its seed, beside what the network draws.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::SimRng;

/// Random choices of one part of a run; parts have streams of their own, so that one's choices do not move another's.
pub(crate) struct Chance(SimRng);

impl Chance {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Chance(SimRng::new(seed, 1000 + stream))
    }

    /// A stream of its own for each incarnation of a process.
    pub(crate) fn of_process(seed: u64, process: ProcessId, incarnation: u64) -> Self {
        Chance::new(seed, 2_000 + u64::from(process.0) * 1_000 + incarnation)
    }

    /// Between two bounds, both possible.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.0.below(most - least + 1)
    }

    /// One of several.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.0.below(from.len() as u64) as usize]
    }

    /// Fills bytes.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.word().to_le_bytes()[..chunk.len()]);
        }
    }
}
