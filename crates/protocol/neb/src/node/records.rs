//! Sealed records by slot, in private memory with the layout of the rings to which they are written.

use std::ops::Range;

use stentor_fabric::memory::WORD;
use stentor_fabric::seal::{HEADER_WORDS, Seal, record_cells, record_words};
use stentor_fabric::{Source, Span};
use zerocopy::IntoBytes;

use crate::Layout;

/// Largest number of records per write.
pub(super) const RUN_RECORDS: u64 = 8;
/// Largest number of bytes per write of several records. It is limited so that the first record is visible soon.
const RUN_BYTES: u64 = 4096;

/// The records of the last window. Adjacent slots are adjacent here, too, so that one write carries several.
#[derive(Debug)]
pub(super) struct Records {
    words: Vec<u64>,
    /// Number of words of a slot.
    pitch: usize,
    /// Number of slots of the ring.
    slots: u64,
    /// Length of each payload by slot, in bytes.
    bytes: Vec<usize>,
    /// Number of records that one write may carry.
    run: u64,
    /// Length of the longest inline write, in bytes.
    inline: usize,
}

impl Records {
    pub(super) fn new(layout: &Layout, window: u32, inline_bytes: u32) -> Self {
        let pitch = layout.slot_bytes() as usize / WORD;
        Records {
            words: vec![0; pitch * window as usize],
            pitch,
            slots: u64::from(window),
            bytes: vec![0; window as usize],
            run: (RUN_BYTES / layout.slot_bytes()).clamp(1, RUN_RECORDS),
            inline: inline_bytes as usize,
        }
    }

    /// Returns the memory of a slot.
    pub(super) fn place(&mut self, slot: u64) -> &mut [u64] {
        let first = slot as usize * self.pitch;
        &mut self.words[first..first + self.pitch]
    }

    pub(super) fn close(&mut self, seal: &Seal, lap: u64, slot: u64, bytes: usize) {
        self.bytes[slot as usize] = bytes;
        seal.close(lap, bytes, self.place(slot));
    }

    /// Returns the record of a slot.
    #[inline]
    pub(super) fn get(&self, slot: u64) -> &[u64] {
        &self.words[self.words_of(slot, slot)]
    }

    /// Returns the payload of a slot.
    pub(super) fn payload(&self, slot: u64) -> &[u64] {
        &self.get(slot)[HEADER_WORDS..]
    }

    /// Returns whether the record of a slot is too long for inline data. A copy in registered memory is then posted.
    #[inline]
    pub(super) fn is_staged(&self, slot: u64) -> bool {
        record_words(self.bytes[slot as usize]) * WORD > self.inline
    }

    /// Returns the number of records that one write may carry if it begins at `slot`, at most `most`. The write must
    /// not extend beyond the ring's end, and must not touch any cache line that separate writes would not touch.
    #[inline]
    pub(super) fn run(&self, slot: u64, most: u64) -> u64 {
        let most = most.min(self.run).min(self.slots - slot);
        let staged = self.is_staged(slot);
        let (mut count, mut words) = (1, self.pitch);
        while count < most && self.fills(slot + count - 1) {
            words += self.pitch;
            if self.is_staged(slot + count) != staged || !staged && words * WORD > self.inline {
                break;
            }
            count += 1;
        }
        count
    }

    /// Returns whether the record of a slot reaches into the slot's last cache line.
    fn fills(&self, slot: u64) -> bool {
        record_cells(self.bytes[slot as usize]) == record_cells((self.pitch - HEADER_WORDS) * WORD)
    }

    /// Returns the words of the records from one slot to another.
    #[inline]
    fn words_of(&self, first: u64, last: u64) -> Range<usize> {
        let end = last as usize * self.pitch + record_words(self.bytes[last as usize]);
        first as usize * self.pitch..end
    }

    /// Returns the source of a [`run`](Records::run) of `count` records: the records themselves, or their copies in
    /// `staging`.
    #[inline]
    pub(super) fn source(&self, slot: u64, count: u64, staging: Span) -> Source<'_> {
        let words = self.words_of(slot, slot + count - 1);
        if self.is_staged(slot) {
            return Source::Region(Span { bytes: (words.len() * WORD) as u32, ..staging });
        }
        Source::Inline(self.words[words].as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use stentor_fabric::{ProcessId, RegionId};

    use super::*;
    use crate::{Config, FaultModel, Mode};

    const STAGING: Span = Span { region: RegionId(3), offset: 640, bytes: 0 };

    /// Creates eight slots of two lines, with payloads of these lengths.
    fn records(inline: u32, bytes: [usize; 8]) -> Records {
        let sized = Config::new(4, Mode::Quorum(FaultModel::LyingSender), 1);
        let config = Config { window: 8, payload_bytes: 64, ..sized };
        let mut records = Records::new(&Layout::new(&config), 8, inline);
        let seal = Seal::new(ProcessId(0), 1);
        for (slot, bytes) in bytes.into_iter().enumerate() {
            records.close(&seal, 1, slot as u64, bytes);
        }
        records
    }

    #[test]
    fn full_neighbours_share_a_write_up_to_the_ring_end() {
        let records = records(4096, [80, 80, 40, 41, 80, 80, 80, 80]);
        assert_eq!(records.run(0, 8), 3, "slot 2 has a line to spare, so it is the last");
        assert_eq!(records.run(3, 8), 5, "41 bytes and the header reach the second line; the ring ends");
        assert_eq!((records.run(3, 2), records.run(7, 8)), (2, 1));
        let Source::Inline(bytes) = records.source(3, 5, STAGING) else { panic!("it goes inline") };
        assert_eq!(bytes.len(), 4 * 128 + 24 + 80);
    }

    #[test]
    fn run_is_either_inline_or_staged() {
        let records = records(300, [80; 8]);
        assert_eq!(records.run(0, 8), 2, "256 bytes go inline, 384 do not");
        let short = self::records(100, [80, 72, 80, 80, 72, 72, 80, 80]);
        assert_eq!([0, 1, 2, 4].map(|slot| short.run(slot, 8)), [1, 1, 2, 1]);
        let Source::Region(span) = short.source(2, 2, STAGING) else { panic!("too long to go inline") };
        assert_eq!((span.region, span.offset, span.bytes), (RegionId(3), 640, 128 + 104));
    }
}
