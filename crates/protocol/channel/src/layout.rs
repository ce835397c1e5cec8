//! Where the places of connections are in a region.

use stentor_fabric::memory::{LINE, Ordering, WORD, Word};

use crate::config::{CONTROL_BYTES, CONTROLS, LENGTH_BYTES};
use crate::{Config, Kind};

/// The places of one direction of one connection, and those of many after each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Bytes of a place, by kind.
    strides: [u64; 4],
    /// Where the places of a kind begin in the area.
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

    /// Bytes of one area.
    pub(crate) fn area_bytes(&self) -> u64 {
        self.area
    }

    /// Where a place begins.
    pub(crate) fn offset(&self, area: u32, kind: Kind, place: u16) -> u64 {
        u64::from(area) * self.area + self.begins[kind.index()] + u64::from(place) * self.strides[kind.index()]
    }
}

/// The words from a byte on.
fn words(memory: &[Word], offset: u64) -> &[Word] {
    &memory[offset as usize / WORD..]
}

/// Writes bytes at an offset that is a multiple of 8; the last word is filled up with zeroes.
pub(crate) fn store(memory: &[Word], offset: u64, bytes: &[u8]) {
    stentor_atomic_copy::store_bytes(words(memory, offset), bytes);
}

/// Writes words, as they are sent: little endian.
pub(crate) fn store_words(memory: &[Word], offset: u64, from: &[u64]) {
    for (word, from) in words(memory, offset).iter().zip(from) {
        word.store(from.to_le(), Ordering::Relaxed);
    }
}

/// Appends bytes from an offset that is a multiple of 8.
pub(crate) fn load(memory: &[Word], offset: u64, bytes: u32, to: &mut Vec<u8>) {
    stentor_atomic_copy::append(words(memory, offset), bytes as usize, to);
}

/// Reads words, as they were sent: little endian.
pub(crate) fn load_words(memory: &[Word], offset: u64, to: &mut [u64]) {
    for (to, word) in to.iter_mut().zip(words(memory, offset)) {
        *to = u64::from_le(word.load(Ordering::Acquire));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap() {
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
    fn bytes_come_out_as_they_went_in() {
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
