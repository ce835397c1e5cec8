//! Layout of regions, slots and seals. It is the same at every process, and a Byzantine process uses it, too.
//!
//! | region at p | access | content |
//! |---|---|---|
//! | broadcast | writer i | a ring of slots for the broadcasts of i |
//! | registers of q (mode `quorum`) | writer q, all read | floors; per stream a ring of slots |
//! | registers of p (mode `all`) | stored by p, all read | as in mode `quorum` |
//! | control | writer i | the index up to which i has freed p's stream |
//!
//! Index n lies in slot n mod W, sealed with lap n / W + 1. A floor is one word per stream: the index below which
//! registers may be reused. It is written before any of those registers is reused. A reader that finds a torn register
//! can therefore determine whether an old value is being overwritten there.
//!
//! If values are signed, a Byzantine replayer's floor must not be trusted. Two slots for each stream, after all
//! registers, then hold proofs instead of floors. A proof is a value of the sender's whose index is a window or more
//! ahead of every register that is being reused. While a proof is written to one of the two slots, the other slot keeps
//! its proof.

use stentor_fabric::memory::LINE;
use stentor_fabric::seal::{Seal, record_words};
use stentor_fabric::{ProcessId, SplitMix64};

use crate::Config;

/// Number of proofs of each stream: while one is being written, the other is whole.
pub(crate) const PROOFS: u64 = 2;

/// Sizes and offsets of all parts of the regions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    processes: u64,
    window: u64,
    /// Binary logarithm of the window, or `None` if the window is not a power of two. A shift replaces a slow division.
    shift: Option<u32>,
    slot_bytes: u64,
    value_bytes: usize,
    signed: bool,
}

impl Layout {
    /// Returns the layout for a configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Layout {
            processes: config.processes as u64,
            window: u64::from(config.window),
            shift: config.window.is_power_of_two().then(|| config.window.trailing_zeros()),
            slot_bytes: config.slot_bytes(),
            value_bytes: config.value_bytes(),
            signed: config.signed,
        }
    }

    /// Returns the slot of an index.
    #[inline]
    #[must_use]
    pub fn slot(&self, index: u64) -> u64 {
        match self.shift {
            Some(shift) => index & ((1 << shift) - 1),
            None => index % self.window,
        }
    }

    /// Returns the lap of an index.
    #[inline]
    #[must_use]
    pub fn lap(&self, index: u64) -> u64 {
        1 + match self.shift {
            Some(shift) => index >> shift,
            None => index / self.window,
        }
    }

    /// Returns the size of a slot, in bytes.
    #[inline]
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// Returns the number of words of the longest record.
    #[must_use]
    pub fn record_words(&self) -> usize {
        record_words(self.value_bytes)
    }

    /// Returns the offset of an index in a ring of slots.
    #[inline]
    #[must_use]
    pub fn ring_offset(&self, index: u64) -> u64 {
        self.slot(index) * self.slot_bytes
    }

    fn floors_bytes(&self) -> u64 {
        (self.processes * 8).next_multiple_of(LINE as u64)
    }

    /// Returns the offset of the register for an index of a stream.
    #[inline]
    #[must_use]
    pub fn register_offset(&self, stream: ProcessId, index: u64) -> u64 {
        self.floors_bytes() + (u64::from(stream.0) * self.window + self.slot(index)) * self.slot_bytes
    }

    /// Returns the offset of a stream's floor.
    #[must_use]
    pub fn floor_offset(&self, stream: ProcessId) -> u64 {
        u64::from(stream.0) * 8
    }

    /// Returns the offset of one of the two proofs that a stream's sender is far enough ahead for registers to be
    /// reused.
    #[must_use]
    pub fn proof_offset(&self, stream: ProcessId, proof: u64) -> u64 {
        self.floors_bytes()
            + self.processes * self.window * self.slot_bytes
            + (u64::from(stream.0) * PROOFS + proof) * self.slot_bytes
    }

    fn proofs_bytes(&self) -> u64 {
        if self.signed { PROOFS * self.slot_bytes } else { 0 }
    }

    /// Returns the size of a broadcast region, in bytes.
    #[must_use]
    pub fn broadcast_bytes(&self) -> u64 {
        self.window * self.slot_bytes
    }

    /// Returns the size of a control region, in bytes.
    #[must_use]
    pub fn control_bytes(&self) -> u64 {
        LINE as u64
    }

    /// Returns the size of one writer's registers, in bytes.
    #[must_use]
    pub fn register_bytes(&self) -> u64 {
        self.floors_bytes() + self.processes * (self.window * self.slot_bytes + self.proofs_bytes())
    }

    /// Returns the size of the memory that is posted from, in bytes: own broadcasts and own registers.
    #[must_use]
    pub fn own_bytes(&self) -> u64 {
        self.broadcast_bytes() + self.register_bytes()
    }

    /// Returns the offset of the registers in the staging region.
    pub(crate) fn staged_registers(&self) -> u64 {
        self.broadcast_bytes()
    }

    /// Returns the size of the memory for READs from one host, in bytes: per stream, the floors, registers and proofs
    /// of every replayer.
    #[must_use]
    pub fn scratch_bytes(&self) -> u64 {
        self.processes * self.scratch_stream_bytes()
    }

    fn scratch_stream_bytes(&self) -> u64 {
        self.floors_bytes() + self.processes * (self.window * self.slot_bytes + self.proofs_bytes())
    }

    pub(crate) fn scratch_offset(&self, stream: ProcessId, replayer: ProcessId, slot: u64) -> u64 {
        u64::from(stream.0) * self.scratch_stream_bytes()
            + self.floors_bytes()
            + (u64::from(replayer.0) * self.window + slot) * self.slot_bytes
    }

    /// Returns the offset of a replayer's proofs, which are adjacent, in the memory for READs.
    pub(crate) fn scratch_proofs(&self, stream: ProcessId, replayer: ProcessId) -> u64 {
        u64::from(stream.0) * self.scratch_stream_bytes()
            + self.floors_bytes()
            + self.processes * self.window * self.slot_bytes
            + u64::from(replayer.0) * self.proofs_bytes()
    }

    pub(crate) fn scratch_floor(&self, stream: ProcessId, replayer: ProcessId) -> u64 {
        u64::from(stream.0) * self.scratch_stream_bytes() + u64::from(replayer.0) * 8
    }
}

/// Returns the seal of a sender's broadcasts. Salts prevent a record of one kind of region from being accepted in
/// another.
#[must_use]
pub fn broadcast_seal(config: &Config, sender: ProcessId, salt: u64) -> Seal {
    Seal::new(sender, salt).with_mutant(config.mutant.fabric())
}

/// Returns the seal of a replayer's registers for a stream.
#[must_use]
pub fn register_seal(config: &Config, replayer: ProcessId, stream: ProcessId, salt: u64) -> Seal {
    let salt = salt ^ (SplitMix64::GOLDEN.wrapping_mul(2 + u64::from(stream.0)));
    Seal::new(replayer, salt).with_mutant(config.mutant.fabric())
}

/// Returns the seal of credits.
#[must_use]
pub fn credit_seal(process: ProcessId, salt: u64) -> Seal {
    Seal::new(process, !salt)
}
