//! Registered memory: the words that the CPU sees, and data that the NIC has but the CPU does not see yet.

use std::rc::Rc;

use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric::{Access, Completion, ProcessId, QpId, RegionSpec, Word};

use crate::event::Slab;
use crate::rng::scatter;

pub(crate) struct Region {
    pub(crate) spec: RegionSpec,
    pub(crate) words: Rc<[Word]>,
    /// Landings that are not completely visible, in the order in which the NIC executed them.
    pub(crate) pending: Vec<u32>,
    /// Key of the writer, if access is granted.
    pub(crate) key: Option<u32>,
    /// Other peers that may read, and their keys.
    pub(crate) readers: Vec<(ProcessId, u32)>,
}

impl Region {
    pub(crate) fn new(spec: RegionSpec) -> Self {
        let words: Rc<[Word]> = (0..spec.bytes as usize / WORD).map(|_| Word::new(0)).collect();
        Region { spec, words, pending: Vec::new(), key: None, readers: Vec::new() }
    }

    /// Returns the key with which a peer may use the region.
    pub(crate) fn key_of(&self, peer: ProcessId) -> Option<u32> {
        if self.spec.writer == peer {
            return self.key;
        }
        self.readers.iter().find_map(|(reader, key)| (*reader == peer).then_some(*key))
    }

    /// Removes and returns the key of a peer.
    pub(crate) fn take_key(&mut self, peer: ProcessId) -> Option<u32> {
        if self.spec.writer == peer {
            return self.key.take();
        }
        let place = self.readers.iter().position(|(reader, _)| *reader == peer)?;
        Some(self.readers.swap_remove(place).1)
    }
}

/// A granted access. Its index is the remote key; keys are never reused.
pub(crate) struct Key {
    pub(crate) owner: ProcessId,
    pub(crate) life: u32,
    pub(crate) region: u32,
    /// The process that may use the key.
    pub(crate) peer: ProcessId,
    pub(crate) access: Access,
    pub(crate) valid: bool,
}

/// Data that the NIC has and that becomes visible to the CPU in `parts` steps.
pub(crate) struct Landing {
    pub(crate) process: ProcessId,
    pub(crate) life: u32,
    pub(crate) region: u32,
    pub(crate) first: usize,
    pub(crate) data: Vec<u64>,
    /// Bits of the last word that are written.
    pub(crate) last_mask: u64,
    pub(crate) parts: u8,
    pub(crate) seed: u64,
    pub(crate) visible_at: u64,
    /// `true` if all of the data is visible.
    pub(crate) done: bool,
    /// Number of parts that are visible.
    pub(crate) landed: u8,
    pub(crate) flow: u64,
    /// Queue pair of the process's own READ or atomic whose result this is, if any.
    pub(crate) result_of: Option<QpId>,
}

impl Landing {
    pub(crate) fn part_of(&self, word: usize) -> u8 {
        if self.parts == 1 { 0 } else { (scatter(self.seed, word as u64) % u64::from(self.parts)) as u8 }
    }

    pub(crate) fn store(&self, word: usize, to: &[Word]) {
        let to = &to[self.first + word];
        let new = self.data[word];
        let keep = if word + 1 == self.data.len() { !self.last_mask } else { 0 };
        let old = if keep == 0 { 0 } else { to.load(Ordering::Relaxed) & keep };
        to.store(old | new & !keep, Ordering::Release);
    }

    pub(crate) fn covers(&self, word: usize) -> bool {
        (self.first..self.first + self.data.len()).contains(&word)
    }
}

/// Destination of a landing.
#[derive(Clone, Copy)]
pub(crate) struct LandingPlace {
    pub(crate) process: ProcessId,
    pub(crate) region: u32,
    pub(crate) first: usize,
    pub(crate) bytes: u32,
    /// Earliest time of visibility, in nanoseconds.
    pub(crate) not_before: u64,
    pub(crate) flow: u64,
    /// Queue pair of the process's own READ or atomic whose result this is, if any.
    pub(crate) result_of: Option<QpId>,
}

/// A receive that completes when its data is visible.
pub(crate) struct Delivery {
    pub(crate) to: ProcessId,
    pub(crate) life: u32,
    /// Region in which received data lands; `None` for the notification of a WRITE and for an empty message.
    pub(crate) region: Option<u32>,
    /// The completion; `None` after it was reported.
    pub(crate) completion: Option<Completion>,
}

pub(crate) fn last_mask(bytes: u32) -> u64 {
    match bytes as usize % WORD {
        0 => u64::MAX,
        rest => (1 << (rest * 8)) - 1,
    }
}

/// Converts inline data to words, and pads the last one with zeros.
pub(crate) fn pack(bytes: &[u8], words: &mut Vec<u64>) {
    words.clear();
    let chunks = bytes.chunks_exact(WORD);
    let rest = chunks.remainder();
    words.extend(chunks.map(|chunk| {
        let mut word = [0; WORD];
        word.copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    }));
    if !rest.is_empty() {
        let mut word = [0; WORD];
        word[..rest.len()].copy_from_slice(rest);
        words.push(u64::from_ne_bytes(word));
    }
}

/// The mask of the last word depends on the position of the first bytes in a word.
const _: () = assert!(cfg!(target_endian = "little"), "the simulator is written for little-endian machines");

pub(crate) type Landings = Slab<Landing>;
