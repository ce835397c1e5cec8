//! The writing end of a ring.

use super::Geometry;
use super::geometry::Cursor;
use crate::seal::{Seal, record_cells, record_words};

/// The location of a sealed record in the reader's ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Byte offset in the reader's region.
    pub offset: u64,
    /// Number of words to write.
    pub words: usize,
    /// Position of the next record. This record's cells are free for reuse when the credit reaches that position.
    pub end: u64,
}

/// Seals records and assigns them locations in a peer's ring. It never overwrites cells that the peer has not freed.
#[derive(Clone, Debug)]
pub struct RingWriter {
    geometry: Geometry,
    seal: Seal,
    cursor: Cursor,
    freed: u64,
}

impl RingWriter {
    /// Creates a writer of an empty ring.
    #[must_use]
    pub fn new(geometry: Geometry, seal: Seal) -> Self {
        RingWriter { geometry, seal, cursor: Cursor::new(&geometry, 0), freed: 0 }
    }

    /// Continues a ring that an earlier process with the same id wrote up to `position`, all of it freed.
    pub fn resume(&mut self, position: u64) {
        self.cursor = Cursor::new(&self.geometry, position);
        self.freed = position;
    }

    /// Returns whether the ring has room for a record with a payload of `bytes`.
    #[inline]
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.cursor.position() + record_cells(bytes) as u64 <= self.freed + self.geometry.lap_cells()
    }

    /// Returns the maximum payload of one record, in bytes.
    #[must_use]
    pub fn max_payload(&self) -> usize {
        self.geometry.max_payload()
    }

    /// Returns the position at which the next record starts.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.cursor.position()
    }

    /// Returns the lap for which the next record is sealed.
    #[inline]
    #[must_use]
    pub fn lap(&self) -> u64 {
        self.cursor.lap()
    }

    /// Returns whether everything that was written has been freed.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.freed == self.cursor.position()
    }

    /// Seals the record whose payload of `bytes` is in `record[3..]` and assigns it the next location. Returns `None`
    /// if there is no room: read the credit and retry.
    ///
    /// # Panics
    /// Panics if the payload exceeds the maximum of the ring.
    #[inline]
    pub fn seal(&mut self, bytes: usize, record: &mut [u64]) -> Option<Place> {
        self.seal_unless(bytes, record, false)
    }

    /// Like [`seal`](RingWriter::seal), but skips the sealing if `sealed` is `true` and `record` has the lap of this
    /// ring. `sealed` means that another ring with the same seal has sealed the present contents of `record`.
    ///
    /// # Panics
    /// Panics if the payload exceeds the maximum of the ring.
    #[inline]
    pub fn seal_unless(&mut self, bytes: usize, record: &mut [u64], sealed: bool) -> Option<Place> {
        assert!(
            bytes <= self.geometry.max_payload(),
            "a record of {bytes} bytes exceeds the maximum of {}",
            self.max_payload()
        );
        if !self.has_room(bytes) {
            return None;
        }
        if !(sealed && record[1] == self.cursor.lap()) {
            self.seal.close(self.cursor.lap(), bytes, record);
        }
        let offset = self.cursor.byte_offset(&self.geometry);
        let end = self.cursor.after(&self.geometry, record_cells(bytes) as u64);
        self.cursor.go_to(&self.geometry, end);
        Some(Place { offset, words: record_words(bytes), end })
    }

    /// Applies a credit: the reader has freed everything before `freed`. A credit that goes back, or beyond the last
    /// written record, is stale or invalid and is ignored.
    #[inline]
    pub fn credit(&mut self, freed: u64) {
        if freed > self.freed && freed <= self.cursor.position() {
            self.freed = freed;
        }
    }

    /// Returns the value of a received credit, given the sum `before` of earlier ones. It is the credit itself, except
    /// with the mutant that treats credits as deltas.
    #[inline]
    #[must_use]
    pub fn absorb(&self, before: u64, credit: u64) -> u64 {
        if self.seal.mutant().delta_credits() { before + credit } else { credit }
    }
}
