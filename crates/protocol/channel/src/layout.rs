//! Offsets of message slots in the memory that is registered for a peer.

use stentor_fabric::memory::{LINE, Ordering, WORD, Word};

use crate::config::{CONTROL_BYTES, CONTROLS, LENGTH_BYTES};
use crate::{Config, Kind};

/// Layout of an area, which holds the slots of one direction of one connection. A region holds several areas in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Size of a slot, in bytes, by kind.
    strides: [u64; 4],
    /// Offset of the first slot of each kind in the area, in bytes.
    begins: [u64; 4],
    area: u64,
}

impl Layout {
    pub(crate) fn new(config: &Config) -> Self {
        let line = |bytes: u32| u64::from(bytes).next_multiple_of(LINE as u64);
        let strides = [
            line(LENGTH_BYTES + config.eager_bytes),
            line(config.piece_bytes),
            line(CONTROL_BYTES),
            line(CONTROL_BYTES),
        ];
        let counts = [config.lengths + config.spare(), config.pieces, CONTROLS, 1];
        let mut begins = [0; 4];
        let mut area = 0;
        for kind in 0..4 {
            begins[kind] = area;
            area += strides[kind] * u64::from(counts[kind]);
        }
        Layout { strides, begins, area }
    }

    /// Returns the size of one area, in bytes.
    pub(crate) fn area_bytes(&self) -> u64 {
        self.area
    }

    /// Returns the offset of a slot in the region, in bytes.
    pub(crate) fn offset(&self, area: u32, kind: Kind, place: u16) -> u64 {
        u64::from(area) * self.area + self.begins[kind.index()] + u64::from(place) * self.strides[kind.index()]
    }
}

/// Returns the words that begin at byte `offset`.
fn words(memory: &[Word], offset: u64) -> &[Word] {
    &memory[offset as usize / WORD..]
}

/// Stores bytes at an offset that is a multiple of 8. The last word is padded with zeroes.
pub(crate) fn store(memory: &[Word], offset: u64, bytes: &[u8]) {
    stentor_atomic_copy::store_bytes(words(memory, offset), bytes);
}

/// Stores words in wire order, little endian.
pub(crate) fn store_words(memory: &[Word], offset: u64, from: &[u64]) {
    for (word, from) in words(memory, offset).iter().zip(from) {
        word.store(from.to_le(), Ordering::Relaxed);
    }
}

/// Appends to `to` the bytes at an offset that is a multiple of 8.
pub(crate) fn load(memory: &[Word], offset: u64, bytes: u32, to: &mut Vec<u8>) {
    stentor_atomic_copy::append(words(memory, offset), bytes as usize, to);
}

/// Loads words that are in wire order, little endian.
pub(crate) fn load_words(memory: &[Word], offset: u64, to: &mut [u64]) {
    for (to, word) in to.iter_mut().zip(words(memory, offset)) {
        *to = u64::from_le(word.load(Ordering::Acquire));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap() {
        let config = Config { lengths: 3, pieces: 2, eager_bytes: 8, piece_bytes: 128, ..Config::default() };
        let layout = Layout::new(&config);
        let mut places = Vec::new();
        for area in 0..2 {
            for (kind, count, bytes) in
                [(Kind::Length, 3, 16), (Kind::Payload, 2, 128), (Kind::Control, 16, 64), (Kind::Greeting, 1, 64)]
            {
                places.extend((0..count).map(|place| (layout.offset(area, kind, place), bytes)));
            }
        }
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        let (last, bytes) = places[places.len() - 1];
        assert!(last + bytes <= 2 * layout.area_bytes() && layout.area_bytes().is_multiple_of(64));
    }

    #[test]
    fn stored_bytes_are_loaded_unchanged() {
        let memory: Vec<Word> = (0..8).map(|_| Word::new(u64::MAX)).collect();
        for length in 0..24 {
            let bytes: Vec<u8> = (0..length).collect();
            store(&memory, 16, &bytes);
            let mut out = vec![7];
            load(&memory, 16, u32::from(length), &mut out);
            assert_eq!(out[1..], bytes);
        }
    }
}
