//! Self-validating records.
//!
//! A sealed record, which one process writes into another's memory, is aligned to 64 bytes and has this layout (little
//! endian):
//!
//! | word | content |
//! |---|---|
//! | 0 | checksum: xxh3-64, seeded with the cluster's salt, over lap, writer, length and payload |
//! | 1 | lap, from 1; never 0 |
//! | 2 | writer (low 32 bits), payload length in bytes (high 32 bits) |
//! | 3… | payload, padded with zeros to a word |
//!
//! A reader checks the length against its bounds, copies the record to private memory and validates the copy. A
//! mismatch means "not yet", never an error, because a write may have landed partially (rule 2). The checksum covers
//! the lap, so the previous lap's record at the same location never validates. No value of the checksum is a sentinel.

use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::IntoBytes;

use crate::memory::{LINE_WORDS, Ordering, WORD, Word, copy_out};
use crate::{Mutant, ProcessId};

/// Number of words before the payload.
pub const HEADER_WORDS: usize = 3;
/// Number of bytes before the payload.
pub const HEADER_BYTES: usize = HEADER_WORDS * WORD;

/// Returns the number of words of a record with a payload of `bytes`.
#[inline]
#[must_use]
pub const fn record_words(bytes: usize) -> usize {
    HEADER_WORDS + bytes.div_ceil(WORD)
}

/// Returns the number of 64-byte cells of a record with a payload of `bytes`.
#[inline]
#[must_use]
pub const fn record_cells(bytes: usize) -> usize {
    record_words(bytes).div_ceil(LINE_WORDS)
}

/// The identity that seals and validates the records of one writer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seal {
    writer: u32,
    salt: u64,
    mutant: Mutant,
}

impl Seal {
    /// Creates the seal of records that `writer` writes, in the cluster with this salt.
    #[must_use]
    pub fn new(writer: ProcessId, salt: u64) -> Self {
        Seal { writer: u32::from(writer.0), salt, mutant: Mutant::None }
    }

    /// Returns this seal with a mutant.
    #[must_use]
    pub fn with_mutant(self, mutant: Mutant) -> Self {
        Seal { mutant, ..self }
    }

    pub(crate) fn mutant(&self) -> Mutant {
        self.mutant
    }

    fn checksum(&self, record: &[u64], bytes: usize) -> u64 {
        let skip = if self.mutant.seal_without_lap() { 2 } else { 1 };
        xxh3_64_with_seed(&record.as_bytes()[skip * WORD..HEADER_BYTES + bytes], self.salt)
    }

    /// Fills in the header of a record whose payload of `bytes` is already in `record[3..]`.
    ///
    /// # Panics
    /// Panics if `record` is shorter than the header and the payload, or `lap` is 0.
    #[inline]
    pub fn close(&self, lap: u64, bytes: usize, record: &mut [u64]) {
        assert!(lap > 0, "laps count from 1");
        record[1] = lap;
        record[2] = u64::from(self.writer) | (bytes as u64) << 32;
        record[0] = self.checksum(record, bytes);
    }

    /// Copies the record at the start of `shared` to `private` and validates the copy. Returns the length in bytes of
    /// the payload in `private[3..]`, or `None` if the record of this lap is missing or incomplete.
    #[inline]
    pub fn open(&self, lap: u64, shared: &[Word], private: &mut [u64]) -> Option<usize> {
        let seen = shared.get(1)?.load(Ordering::Acquire);
        if seen != lap && !(self.mutant.seal_without_lap() && seen != 0) {
            return None;
        }
        self.open_seen(seen, shared, private)
    }

    /// Validates a record like [`open`](Seal::open), but accepts any lap above `after`. Returns the lap and the length.
    #[inline]
    pub fn open_newer(&self, after: u64, shared: &[Word], private: &mut [u64]) -> Option<(u64, usize)> {
        let seen = shared.get(1)?.load(Ordering::Acquire);
        if seen <= after {
            return None;
        }
        self.open_seen(seen, shared, private).map(|bytes| (seen, bytes))
    }

    /// Validates a record like [`open`](Seal::open), and also returns the number of words of `private` that were
    /// written. That number may be non-zero even if the record is incomplete.
    #[inline]
    pub(crate) fn open_counting(&self, lap: u64, shared: &[Word], private: &mut [u64]) -> (Option<usize>, usize) {
        let seen = shared.get(1).map_or(0, |word| word.load(Ordering::Acquire));
        if seen != lap && !(self.mutant.seal_without_lap() && seen != 0) {
            return (None, 0);
        }
        let mut written = 0;
        let opened = self.open_and_count(seen, shared, private, &mut written);
        (opened, written)
    }

    fn open_seen(&self, lap: u64, shared: &[Word], private: &mut [u64]) -> Option<usize> {
        self.open_and_count(lap, shared, private, &mut 0)
    }

    #[inline]
    fn open_and_count(&self, lap: u64, shared: &[Word], private: &mut [u64], written: &mut usize) -> Option<usize> {
        let bytes = (shared.get(2)?.load(Ordering::Relaxed) >> 32) as usize;
        let words = record_words(bytes);
        if words > shared.len() || words > private.len() {
            return None;
        }
        *written = words;
        copy_out(&shared[..words], &mut private[..words]);
        let header = u64::from(self.writer) | (bytes as u64) << 32;
        let sound = private[1] == lap && private[2] == header && private[0] == self.checksum(private, bytes);
        (sound || self.mutant.unvalidated()).then_some(bytes)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn shared(words: &[u64]) -> Vec<Word> {
        words.iter().map(|w| Word::new(*w)).collect()
    }

    fn record(lap: u64, payload: &[u64], bytes: usize) -> Vec<u64> {
        let mut record = vec![0; HEADER_WORDS + payload.len()];
        record[HEADER_WORDS..].copy_from_slice(payload);
        Seal::new(ProcessId(3), 7).close(lap, bytes, &mut record);
        record
    }

    #[test]
    fn a_closed_record_opens_at_its_lap_only() {
        let seal = Seal::new(ProcessId(3), 7);
        let memory = shared(&record(5, &[1, 2, 3], 20));
        let mut private = [0; 8];
        assert_eq!(seal.open(5, &memory, &mut private), Some(20));
        assert_eq!(private[3..6], [1, 2, 3]);
        assert_eq!(seal.open(4, &memory, &mut private), None);
        assert_eq!(seal.open(6, &memory, &mut private), None);
        assert_eq!(seal.open_newer(4, &memory, &mut private), Some((5, 20)));
        assert_eq!(seal.open_newer(5, &memory, &mut private), None);
    }

    #[test]
    fn another_writer_or_another_cluster_does_not_validate() {
        let memory = shared(&record(1, &[9], 8));
        let mut private = [0; 8];
        assert_eq!(Seal::new(ProcessId(4), 7).open(1, &memory, &mut private), None);
        assert_eq!(Seal::new(ProcessId(3), 8).open(1, &memory, &mut private), None);
    }

    #[test]
    fn every_torn_mixture_of_two_laps_is_refused() {
        let old = record(1, &[10, 11, 12], 24);
        let new = record(2, &[20, 21, 22], 24);
        let seal = Seal::new(ProcessId(3), 7);
        let mut private = [0; 8];
        for landed in 0..1_u32 << old.len() {
            let torn: Vec<u64> = (0..old.len()).map(|i| if landed >> i & 1 == 1 { new[i] } else { old[i] }).collect();
            // Word 2 is equal in both laps, so two masks mean the whole new record.
            let whole = landed | 4 == (1 << old.len()) - 1;
            assert_eq!(seal.open(2, &shared(&torn), &mut private).is_some(), whole, "landed {landed:b}");
        }
    }

    #[test]
    fn a_length_beyond_the_bounds_does_not_validate() {
        let mut bytes = record(1, &[9], 8);
        bytes[2] = 3 | 1 << 60;
        let mut private = [0; 8];
        assert_eq!(Seal::new(ProcessId(3), 7).open(1, &shared(&bytes), &mut private), None);
        assert_eq!(Seal::new(ProcessId(3), 7).open(1, &shared(&bytes[..1]), &mut private), None);
        assert_eq!(Seal::new(ProcessId(3), 7).open(1, &[], &mut private), None);
    }
}
