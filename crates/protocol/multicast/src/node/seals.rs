//! The seals of the records that processes write.

use stentor_fabric::seal::Seal;
use stentor_fabric::{Mutant, ProcessId, SplitMix64};

/// The source of the seals of one cluster's processes, which follow from the cluster's salt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seals {
    salt: u64,
    mutant: Mutant,
}

impl Seals {
    pub(super) fn new(salt: u64, mutant: Mutant) -> Self {
        Seals { salt, mutant }
    }

    /// Returns the seal for the records of one life of a process.
    pub(super) fn of(&self, process: ProcessId, life: u64) -> Seal {
        Seal::new(process, SplitMix64::mix(self.salt ^ SplitMix64::mix(life))).with_mutant(self.mutant)
    }

    /// Returns a value that distinguishes clusters. It does not hide the salt: the mixing can be inverted.
    pub(super) fn check(&self, magic: u64) -> u64 {
        SplitMix64::mix(SplitMix64::mix(self.salt) ^ magic)
    }
}
