//! The reading end of a ring.

use super::Geometry;
use super::geometry::Cursor;
use crate::memory::{LINE_WORDS, Ordering, WORD, Word};
use crate::seal::{Seal, record_cells};

/// The length and location of a validated record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Length of the payload, in bytes.
    pub bytes: usize,
    /// Offset of the record from the beginning of the ring, in words, for readers that keep a mirror.
    pub word: usize,
    /// Position of the record.
    pub start: u64,
    /// Position after the record.
    pub end: u64,
}

/// Reads records in order from memory that a peer writes.
#[derive(Clone, Debug)]
pub struct RingReader {
    geometry: Geometry,
    seal: Seal,
    cursor: Cursor,
    credited: u64,
    /// Position up to which a mirror may have been written, by valid records and by incomplete ones.
    touched: u64,
}

impl RingReader {
    /// Creates a reader of an empty ring.
    #[must_use]
    pub fn new(geometry: Geometry, seal: Seal) -> Self {
        RingReader { geometry, seal, cursor: Cursor::new(&geometry, 0), credited: 0, touched: 0 }
    }

    /// Returns the position at which the next record is expected.
    #[inline]
    #[must_use]
    pub fn position(&self) -> u64 {
        self.cursor.position()
    }

    /// Returns the size and location of the ring.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns whether the next record may be complete. This costs one load, for the polling loop.
    #[inline]
    #[must_use]
    pub fn looks_ready(&self, region: &[Word]) -> bool {
        self.looks_ready_at(&self.cursor, region)
    }

    /// Returns whether the record after `record` may be complete. The load may miss the cache: call this ahead of time,
    /// so that the line is there when it is needed.
    #[inline]
    #[must_use]
    pub fn looks_ready_behind(&self, record: &Record, region: &[Word]) -> bool {
        let mut cursor = self.cursor;
        cursor.go_to(&self.geometry, record.end);
        self.looks_ready_at(&cursor, region)
    }

    #[inline]
    fn looks_ready_at(&self, cursor: &Cursor, region: &[Word]) -> bool {
        let first = (cursor.byte_offset(&self.geometry) as usize) / WORD;
        let seen = region[first + 1].load(Ordering::Relaxed);
        seen == cursor.lap() || (seen != 0 && self.seal.mutant().seal_without_lap())
    }

    /// Copies the next record to the beginning of `private` and returns it, or `None` if it is not complete. The reader
    /// stays at this record until [`advance`](RingReader::advance).
    #[inline]
    pub fn peek(&self, region: &[Word], private: &mut [u64]) -> Option<Record> {
        self.looks_ready(region).then(|| self.open(region, private)).flatten()
    }

    /// Reads the next record like [`peek`](RingReader::peek), but into a mirror as large as the ring, at the record's
    /// location in the ring. The record can stay there until the ring is freed.
    ///
    /// Positions before `freed` are free. A record that reaches more than a lap beyond `freed` is refused, and the
    /// mirror does not change. A writer that respects this reader's credit never writes such a record. A writer that
    /// restarts the ring at a position that only other readers have freed may write one.
    #[inline]
    pub fn peek_mirrored(&mut self, region: &[Word], mirror: &mut [u64], freed: u64) -> Option<Record> {
        if !self.looks_ready(region) {
            return None;
        }
        let word = self.word();
        let room = (freed + self.geometry.lap_cells()).saturating_sub(self.position()) as usize * LINE_WORDS;
        let end = mirror.len().min(word + room);
        let (opened, written) = self.seal.open_counting(self.cursor.lap(), self.here(region), &mut mirror[word..end]);
        self.touched = self.touched.max(self.position() + written.div_ceil(LINE_WORDS) as u64);
        self.record(opened?)
    }

    /// Returns the position up to which [`peek_mirrored`](RingReader::peek_mirrored) may have written its mirror.
    #[must_use]
    pub fn touched(&self) -> u64 {
        self.touched.max(self.position())
    }

    fn word(&self) -> usize {
        self.cursor.cell() as usize * LINE_WORDS
    }

    fn open(&self, region: &[Word], private: &mut [u64]) -> Option<Record> {
        let bytes = self.seal.open(self.cursor.lap(), self.here(region), private)?;
        self.record(bytes)
    }

    /// Returns the memory of the ring, beginning at the next record.
    #[inline]
    fn here<'a>(&self, region: &'a [Word]) -> &'a [Word] {
        let first = (self.cursor.byte_offset(&self.geometry) as usize) / WORD;
        let ring_end = (self.geometry.offset + self.geometry.bytes()) as usize / WORD;
        &region[first..ring_end]
    }

    /// Returns the record of `bytes` bytes at the cursor, or `None` if `bytes` exceeds the maximum payload of this
    /// ring.
    #[inline]
    fn record(&self, bytes: usize) -> Option<Record> {
        if bytes > self.geometry.max_payload() {
            return None;
        }
        let end = self.cursor.after(&self.geometry, record_cells(bytes) as u64);
        Some(Record { bytes, word: self.word(), start: self.position(), end })
    }

    /// Advances to the record after `record`.
    #[inline]
    pub fn advance(&mut self, record: &Record) {
        self.cursor.go_to(&self.geometry, record.end);
    }

    /// Continues at `position` with records that `seal` closes. Everything before `position` is abandoned and counts as
    /// freed.
    pub fn restart(&mut self, position: u64, seal: Seal) {
        self.cursor = Cursor::new(&self.geometry, position);
        self.seal = seal;
        (self.credited, self.touched) = (position, position);
    }

    /// Moves to another position without a credit. Callers use it for records that were read before the start of the
    /// ring was known, or that must be read again.
    pub fn skip_to(&mut self, position: u64) {
        self.cursor = Cursor::new(&self.geometry, position);
    }

    /// Returns the credit to send for having freed everything before `freed`.
    #[inline]
    pub fn credit(&mut self, freed: u64) -> u64 {
        let before = std::mem::replace(&mut self.credited, freed);
        if self.seal.mutant().delta_credits() { freed - before } else { freed }
    }

    /// Returns the number of cells freed since the last credit.
    #[inline]
    #[must_use]
    pub fn uncredited(&self, freed: u64) -> u64 {
        freed - self.credited
    }
}
