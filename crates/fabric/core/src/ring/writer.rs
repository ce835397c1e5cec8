//! The writing end of a ring.

use super::Geometry;
use super::geometry::Cursor;
use crate::seal::{Seal, record_cells, record_words};

/// Where a sealed record goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Byte offset in the reader's region.
    pub offset: u64,
    /// Words to write.
    pub words: usize,
    /// Position of the cell after it: free for reuse when the credit reaches this.
    pub end: u64,
}

/// Seals records and places them in a peer's ring; never overruns what the peer has freed.
#[derive(Clone, Debug)]
pub struct RingWriter {
    geometry: Geometry,
    seal: Seal,
    cursor: Cursor,
    freed: u64,
}

impl RingWriter {
    /// An empty ring.
    #[must_use]
    pub fn new(geometry: Geometry, seal: Seal) -> Self {
        RingWriter { geometry, seal, cursor: Cursor::new(&geometry, 0), freed: 0 }
    }

    /// Continues a ring that an earlier process of the same identity wrote up to `position`, all of it freed.
    pub fn resume(&mut self, position: u64) {
        self.cursor = Cursor::new(&self.geometry, position);
        self.freed = position;
    }

    /// Whether a record with this payload has room now.
    #[inline]
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.cursor.position() + record_cells(bytes) as u64 <= self.freed + self.geometry.lap_cells()
    }

    /// The longest payload of one record, bytes.
    #[must_use]
    pub fn max_payload(&self) -> usize {
        self.geometry.max_payload()
    }

    /// Where the next record starts.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.cursor.position()
    }

    /// The lap for which the next record is sealed.
    #[inline]
    #[must_use]
    pub fn lap(&self) -> u64 {
        self.cursor.lap()
    }

    /// Whether everything that was written has been freed.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.freed == self.cursor.position()
    }

    /// Seals the record whose payload of `bytes` is in `record[3..]` and takes the next place for it. `None` if there is
    /// no room: read the credit and try again.
    ///
    /// # Panics
    /// If the payload is longer than the ring's records may be.
    #[inline]
    pub fn seal(&mut self, bytes: usize, record: &mut [u64]) -> Option<Place> {
        self.seal_unless(bytes, record, false)
    }

    /// The same for a record that another ring with the same seal may have sealed, as it is now: `sealed`. Then that is not
    /// done again, if the lap is the same.
    ///
    /// # Panics
    /// If the payload is longer than the ring's records may be.
    #[inline]
    pub fn seal_unless(&mut self, bytes: usize, record: &mut [u64], sealed: bool) -> Option<Place> {
        assert!(bytes <= self.geometry.max_payload(), "record of {bytes} bytes in a ring of {}", self.max_payload());
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

    /// A credit came: the reader has freed everything before `freed`. Credits that go back, or beyond what was written,
    /// are not the reader's and change nothing.
    #[inline]
    pub fn credit(&mut self, freed: u64) {
        if freed > self.freed && freed <= self.cursor.position() {
            self.freed = freed;
        }
    }

    /// What a credit that came means, after `before`: itself, but for the mutant that takes it as a delta.
    #[inline]
    #[must_use]
    pub fn absorb(&self, before: u64, credit: u64) -> u64 {
        if self.seal.mutant().delta_credits() { before + credit } else { credit }
    }
}
