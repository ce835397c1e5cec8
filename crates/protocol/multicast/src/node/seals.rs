//! The seals of what a process writes.

use stentor_fabric::seal::Seal;
use stentor_fabric::{Plant, ProcessId};

/// Makes the seals of a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seals {
    salt: u64,
    plant: Plant,
}

impl Seals {
    pub(super) fn new(salt: u64, plant: Plant) -> Self {
        Seals { salt, plant }
    }

    /// For what this life of a process writes.
    pub(super) fn of(&self, process: ProcessId, life: u64) -> Seal {
        Seal::new(process, mix(self.salt ^ mix(life))).with_plant(self.plant)
    }

    /// Tells clusters apart, and does not tell the salt.
    pub(super) fn check(&self, magic: u64) -> u64 {
        mix(mix(self.salt) ^ magic)
    }
}

/// Spreads a word's bits over the whole word (the finalizer of `SplitMix64`).
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
