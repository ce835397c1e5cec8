//! The layout of a ring's records in memory.

use crate::memory::LINE;
use crate::seal::record_cells;

/// The size and location of a ring inside a region. Both ends use the same geometry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Geometry {
    /// Offset of the ring in its region, in bytes; a multiple of 64.
    pub offset: u64,
    /// Number of cells in which records may start.
    cells: u64,
    /// Number of additional cells at the end, into which the last record of a lap can extend.
    tail: u64,
    max_payload: usize,
}

impl Geometry {
    /// Returns the geometry of a ring at `offset` in which records of up to `max_payload` bytes start in at least
    /// `cells` cells.
    ///
    /// # Panics
    /// Panics if `offset` is not a multiple of 64, or `max_payload` does not fit in 32 bits.
    #[must_use]
    pub fn new(offset: u64, cells: u64, max_payload: usize) -> Self {
        assert!(offset.is_multiple_of(LINE as u64), "a ring begins at a cache line, not at {offset}");
        assert!(u32::try_from(max_payload).is_ok(), "records of {max_payload} bytes do not fit a 32-bit length");
        let record = record_cells(max_payload) as u64;
        // The ring has room for at least two of the longest records. A reader may therefore delay its credit until it
        // has freed a part of the ring: the missing credit does not keep the writer from writing such a record.
        Geometry { offset, cells: cells.max(2 * record), tail: record - 1, max_payload }
    }

    /// Returns the maximum payload of one record, in bytes.
    #[must_use]
    pub fn max_payload(&self) -> usize {
        self.max_payload
    }

    /// Returns the size of the ring's memory from `offset`, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.lap_cells() * LINE as u64
    }

    /// Returns the number of cells per lap.
    #[inline]
    #[must_use]
    pub fn lap_cells(&self) -> u64 {
        self.cells + self.tail
    }
}

/// A position in a ring, split once into cell and lap. A division at every poll would cost more than the poll itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Cursor {
    position: u64,
    /// Number of cells since the beginning of the lap.
    cell: u64,
    /// Number of the lap, from 1. It seals the record at this position.
    lap: u64,
}

impl Cursor {
    pub(crate) fn new(geometry: &Geometry, position: u64) -> Self {
        let lap_cells = geometry.lap_cells();
        Cursor { position, cell: position % lap_cells, lap: position / lap_cells + 1 }
    }

    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    #[inline]
    pub(crate) fn cell(&self) -> u64 {
        self.cell
    }

    #[inline]
    pub(crate) fn lap(&self) -> u64 {
        self.lap
    }

    /// Returns the byte offset in the region of the record at the cursor.
    #[inline]
    pub(crate) fn byte_offset(&self, geometry: &Geometry) -> u64 {
        geometry.offset + self.cell * LINE as u64
    }

    /// Returns the position after a record of `cells` cells at the cursor.
    #[inline]
    pub(crate) fn after(&self, geometry: &Geometry, cells: u64) -> u64 {
        let next = self.cell + cells;
        if next >= geometry.cells { self.position - self.cell + geometry.lap_cells() } else { self.position + cells }
    }

    /// Advances to a position that [`after`](Cursor::after) returned.
    #[inline]
    pub(crate) fn go_to(&mut self, geometry: &Geometry, position: u64) {
        self.cell += position - self.position;
        self.position = position;
        if self.cell >= geometry.lap_cells() {
            self.cell -= geometry.lap_cells();
            self.lap += 1;
        }
        debug_assert_eq!(*self, Cursor::new(geometry, position));
    }
}
