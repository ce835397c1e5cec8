//! Where everything lies: regions, slots, seals. The same at every process; an adversary needs it as much as a correct one.
//!
//! | region at p | for | holds |
//! |---|---|---|
//! | broadcast | writer i | `bcast_buf[i]`: a ring of slots |
//! | registers of q (mode `quorum`) | writer q, readers: everybody | per stream a ring of slots, `replay_buf` of q kept at p; in front of them a floor per stream |
//! | registers of p (mode `all`) | p itself, readers: everybody | the same, stored by p's processor |
//! | control | writer i | what i has freed of p's stream |
//!
//! Index n lies in slot n mod W, sealed with lap n / W + 1. A floor is one word, written before registers below it are used
//! again: whoever finds a register torn can tell from it whether that is an old value being overwritten.
//!
//! Where values are signed, a replayer that lies must not be believed that. There two slots for each stream, behind all
//! registers, take the place of floors: one of them always holds, whole, a value of the sender's that is a window or more
//! ahead of every register that is being used again.

use stentor_fabric::memory::LINE;
use stentor_fabric::seal::{Seal, record_words};
use stentor_fabric::{ProcessId, SplitMix64};

use crate::Config;

/// Proofs of each stream: while one is written the other is whole.
pub(crate) const PROOFS: u64 = 2;

/// Sizes and places.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    processes: u64,
    window: u64,
    /// Of a window that is a power of two, the exponent: divisions are slow.
    shift: Option<u32>,
    slot_bytes: u64,
    value_bytes: usize,
    signed: bool,
}

impl Layout {
    /// For a configuration.
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

    /// The slot of an index.
    #[inline]
    #[must_use]
    pub fn slot(&self, index: u64) -> u64 {
        match self.shift {
            Some(shift) => index & ((1 << shift) - 1),
            None => index % self.window,
        }
    }

    /// The lap of an index.
    #[inline]
    #[must_use]
    pub fn lap(&self, index: u64) -> u64 {
        1 + match self.shift {
            Some(shift) => index >> shift,
            None => index / self.window,
        }
    }

    /// Bytes of a slot.
    #[inline]
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// Words of the longest record.
    #[must_use]
    pub fn record_words(&self) -> usize {
        record_words(self.value_bytes)
    }

    /// Offset of an index in a ring of slots.
    #[inline]
    #[must_use]
    pub fn ring_offset(&self, index: u64) -> u64 {
        self.slot(index) * self.slot_bytes
    }

    fn floors_bytes(&self) -> u64 {
        (self.processes * 8).next_multiple_of(LINE as u64)
    }

    /// Offset of the register for an index of a stream.
    #[inline]
    #[must_use]
    pub fn register_offset(&self, stream: ProcessId, index: u64) -> u64 {
        self.floors_bytes() + (u64::from(stream.0) * self.window + self.slot(index)) * self.slot_bytes
    }

    /// Offset of a stream's floor.
    #[must_use]
    pub fn floor_offset(&self, stream: ProcessId) -> u64 {
        u64::from(stream.0) * 8
    }

    /// Offset of one of the two proofs that a stream's sender is as far ahead as to use registers again.
    #[must_use]
    pub fn proof_offset(&self, stream: ProcessId, proof: u64) -> u64 {
        self.floors_bytes()
            + self.processes * self.window * self.slot_bytes
            + (u64::from(stream.0) * PROOFS + proof) * self.slot_bytes
    }

    fn proofs_bytes(&self) -> u64 {
        if self.signed { PROOFS * self.slot_bytes } else { 0 }
    }

    /// Bytes of a broadcast buffer.
    #[must_use]
    pub fn broadcast_bytes(&self) -> u64 {
        self.window * self.slot_bytes
    }

    /// Bytes of a control region.
    #[must_use]
    pub fn control_bytes(&self) -> u64 {
        LINE as u64
    }

    /// Bytes of one writer's registers.
    #[must_use]
    pub fn register_bytes(&self) -> u64 {
        self.floors_bytes() + self.processes * (self.window * self.slot_bytes + self.proofs_bytes())
    }

    /// Bytes that are posted from: own broadcasts, and one's own registers.
    #[must_use]
    pub fn own_bytes(&self) -> u64 {
        self.broadcast_bytes() + self.register_bytes()
    }

    /// Offset in the staging region of what goes to registers.
    pub(crate) fn staged_registers(&self) -> u64 {
        self.broadcast_bytes()
    }

    /// Bytes that READs from one host go to: per stream, the registers of every replayer and its floor.
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

    /// Where the proofs of a replayer go, one behind the other.
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

/// Seals broadcasts of a sender. Salts keep what lies in one kind of region from being taken for another.
#[must_use]
pub fn broadcast_seal(config: &Config, sender: ProcessId, salt: u64) -> Seal {
    Seal::new(sender, salt).with_mutant(config.mutant.fabric())
}

/// Seals registers of a replayer for a stream.
#[must_use]
pub fn register_seal(config: &Config, replayer: ProcessId, stream: ProcessId, salt: u64) -> Seal {
    let salt = salt ^ (SplitMix64::GOLDEN.wrapping_mul(2 + u64::from(stream.0)));
    Seal::new(replayer, salt).with_mutant(config.mutant.fabric())
}

/// Seals credits.
#[must_use]
pub fn credit_seal(process: ProcessId, salt: u64) -> Seal {
    Seal::new(process, !salt)
}
