//! A sealed record at a fixed location, overwritten with ever higher laps. A slot holds values of which only the newest
//! counts, such as cumulative credits.

use crate::memory::{LINE_WORDS, Ordering, Word};
use crate::seal::{HEADER_WORDS, Seal, record_words};

/// The writing end of a slot.
#[derive(Clone, Debug)]
pub struct SealedSlot {
    seal: Seal,
    lap: u64,
}

impl SealedSlot {
    /// Creates the writer of a slot that was never written.
    #[must_use]
    pub fn new(seal: Seal) -> Self {
        SealedSlot { seal, lap: 0 }
    }

    /// Seals the next value into `record`, with the payload words `values`, and returns the words to write.
    ///
    /// # Panics
    /// Panics if `record` is shorter than the header and `values`.
    #[inline]
    pub fn seal<'a>(&mut self, values: &[u64], record: &'a mut [u64]) -> &'a [u64] {
        let words = record_words(values.len() * 8);
        let record = &mut record[..words];
        record[HEADER_WORDS..].copy_from_slice(values);
        self.close(record);
        record
    }

    /// Seals the next value, whose words are in `record[3..]`.
    ///
    /// # Panics
    /// Panics if `record` is shorter than a header.
    #[inline]
    pub fn close(&mut self, record: &mut [u64]) {
        self.lap += 1;
        self.seal.close(self.lap, (record.len() - HEADER_WORDS) * 8, record);
    }

    /// Continues above `lap`, the highest lap that an earlier writer may have left in the slot.
    pub fn resume_after(&mut self, lap: u64) {
        self.lap = self.lap.max(lap);
    }
}

/// The reading end of a slot of one cache line.
#[derive(Clone, Debug)]
pub struct SlotReader {
    seal: Seal,
    lap: u64,
}

impl SlotReader {
    /// Creates the reader of a slot that was never read.
    #[must_use]
    pub fn new(seal: Seal) -> Self {
        SlotReader { seal, lap: 0 }
    }

    /// Returns the value of the slot if it is complete, has `N` words and is newer than the last value that was read.
    /// `shared` begins at the slot.
    #[inline]
    pub fn read<const N: usize>(&mut self, shared: &[Word]) -> Option<[u64; N]> {
        const { assert!(HEADER_WORDS + N <= LINE_WORDS, "a slot fits in one cache line") }
        // Most polls find nothing new.
        if shared.get(1)?.load(Ordering::Acquire) <= self.lap {
            return None;
        }
        let mut private = [0_u64; LINE_WORDS];
        let (lap, bytes) = self.seal.open_newer(self.lap, shared, &mut private)?;
        if bytes != N * 8 {
            return None;
        }
        self.lap = lap;
        let mut values = [0; N];
        values.copy_from_slice(&private[HEADER_WORDS..HEADER_WORDS + N]);
        Some(values)
    }

    /// Returns the lap of the value that was read last; 0 before the first.
    #[must_use]
    pub fn lap(&self) -> u64 {
        self.lap
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ProcessId;

    #[test]
    fn each_newer_value_is_read_once() {
        let seal = Seal::new(ProcessId(1), 0);
        let (mut slot, mut reader) = (SealedSlot::new(seal), SlotReader::new(seal));
        let memory: Vec<Word> = (0..8).map(|_| Word::new(0)).collect();
        let mut record = [0; 8];
        assert_eq!(reader.read::<2>(&memory), None);
        for value in [5, 6] {
            for (to, from) in memory.iter().zip(slot.seal(&[value, 9], &mut record)) {
                to.store(*from, crate::memory::Ordering::Relaxed);
            }
            assert_eq!(reader.read(&memory), Some([value, 9]));
            assert_eq!(reader.read::<2>(&memory), None);
        }
        assert_eq!(reader.lap(), 2);
    }
}
