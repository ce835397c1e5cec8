//! The seals of what a process writes.

use stentor_fabric::seal::Seal;
use stentor_fabric::{Mutant, ProcessId, SplitMix64};

/// Makes the seals of a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seals {
    salt: u64,
    mutant: Mutant,
}

impl Seals {
    pub(super) fn new(salt: u64, mutant: Mutant) -> Self {
        Seals { salt, mutant }
    }

    /// For what this life of a process writes.
    pub(super) fn of(&self, process: ProcessId, life: u64) -> Seal {
        Seal::new(process, SplitMix64::mix(self.salt ^ SplitMix64::mix(life))).with_mutant(self.mutant)
    }

    /// Tells clusters apart, and does not tell the salt.
    pub(super) fn check(&self, magic: u64) -> u64 {
        SplitMix64::mix(SplitMix64::mix(self.salt) ^ magic)
    }
}
