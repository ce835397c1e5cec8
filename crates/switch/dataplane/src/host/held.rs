//! A FIFO buffer for the data of waiting writes, in which each piece is contiguous.

/// A ring buffer of a fixed size. Pieces are freed in the order in which they were added.
#[derive(Debug)]
pub(super) struct Held {
    bytes: Box<[u8]>,
    /// Offset of the oldest piece.
    first: usize,
    /// Offset of the next free byte. If it equals `first`, the buffer is empty or full.
    next: usize,
    pieces: usize,
}

impl Held {
    pub(super) fn new(bytes: usize) -> Held {
        Held { bytes: vec![0; bytes].into_boxed_slice(), first: 0, next: 0, pieces: 0 }
    }

    /// Adds a piece, which is not empty. Returns its offset, or `None` if no contiguous room is left.
    pub(super) fn put(&mut self, piece: &[u8]) -> Option<usize> {
        if self.pieces == 0 {
            (self.first, self.next) = (0, 0);
        }
        let wraps = self.pieces > 0 && self.next <= self.first;
        let end = if wraps { self.first } else { self.bytes.len() };
        let at = if end - self.next >= piece.len() {
            self.next
        } else if !wraps && self.pieces > 0 && self.first >= piece.len() {
            0
        } else {
            return None;
        };
        self.bytes[at..at + piece.len()].copy_from_slice(piece);
        self.next = at + piece.len();
        self.pieces += 1;
        Some(at)
    }

    /// Returns the piece of `len` bytes at offset `at`.
    pub(super) fn get(&self, at: usize, len: usize) -> &[u8] {
        self.bytes.get(at..at + len).unwrap_or(&[])
    }

    /// Frees the oldest piece; `behind` is the offset of the piece after it, if any.
    pub(super) fn free(&mut self, behind: Option<usize>) {
        self.pieces = self.pieces.saturating_sub(1);
        if let Some(behind) = behind {
            self.first = behind;
        }
    }

    /// Frees all pieces.
    pub(super) fn clear(&mut self) {
        (self.first, self.next, self.pieces) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Compares the buffer with a queue of vectors, with pieces of many lengths.
    #[test]
    fn pieces_come_back_whole_and_in_order() {
        let mut held = Held::new(64);
        let mut known: VecDeque<(usize, Vec<u8>)> = VecDeque::new();
        let (mut draw, mut refused) = (7_u32, 0);
        for n in 0..20_000_u32 {
            draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if draw >> 31 == 0 {
                let piece = vec![n as u8; 1 + (draw >> 8) as usize % 39];
                match held.put(&piece) {
                    Some(at) => known.push_back((at, piece)),
                    None => {
                        refused += 1;
                        assert!(!known.is_empty(), "an empty buffer has room");
                    }
                }
            } else if let Some((at, piece)) = known.pop_front() {
                assert_eq!(held.get(at, piece.len()), piece);
                held.free(known.front().map(|(at, _)| *at));
            }
            for (at, piece) in &known {
                assert_eq!(held.get(*at, piece.len()), piece);
            }
        }
        assert!(refused > 100);
    }

    #[test]
    fn piece_of_buffer_size_fits_an_empty_buffer() {
        let mut held = Held::new(16);
        assert_eq!(held.put(&[1; 8]), Some(0));
        assert_eq!(held.put(&[2; 16]), None);
        held.free(None);
        assert_eq!(held.put(&[2; 16]), Some(0));
        assert_eq!(held.put(&[3; 1]), None, "full");
        held.clear();
        assert_eq!(held.put(&[3; 1]), Some(0));
    }
}
