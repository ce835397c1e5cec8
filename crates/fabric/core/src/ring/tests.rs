//! A writer and a reader of one ring in the same memory.

use proptest::prelude::*;

use super::{Geometry, RingReader, RingWriter};
use crate::ProcessId;
use crate::memory::{LINE_WORDS, Ordering, WORD, Word};
use crate::seal::{HEADER_WORDS, Seal, record_words};

struct Pair {
    writer: RingWriter,
    reader: RingReader,
    memory: Vec<Word>,
}

fn pair(cells: u64, max_payload: usize) -> Pair {
    let geometry = Geometry::new(64, cells, max_payload);
    let seal = Seal::new(ProcessId(1), 99);
    let words = (geometry.offset + geometry.bytes()) as usize / WORD;
    Pair {
        writer: RingWriter::new(geometry, seal),
        reader: RingReader::new(geometry, seal),
        memory: (0..words).map(|_| Word::new(0)).collect(),
    }
}

impl Pair {
    fn write(&mut self, payload: &[u64]) -> bool {
        let mut record = vec![0; record_words(payload.len() * WORD)];
        record[HEADER_WORDS..].copy_from_slice(payload);
        let Some(place) = self.writer.seal(payload.len() * WORD, &mut record) else { return false };
        for (i, word) in record.iter().enumerate() {
            self.memory[place.offset as usize / WORD + i].store(*word, Ordering::Relaxed);
        }
        true
    }

    fn read(&mut self) -> Option<Vec<u64>> {
        let mut private = vec![0; record_words(self.reader.geometry().max_payload())];
        let record = self.reader.peek(&self.memory, &mut private)?;
        self.reader.advance(&record);
        Some(private[HEADER_WORDS..HEADER_WORDS + record.bytes / WORD].to_vec())
    }
}

#[test]
fn a_full_ring_refuses_records_until_credited() {
    let mut pair = pair(4, 40);
    for n in 0..4 {
        assert!(pair.write(&[n; 5]), "record {n}");
    }
    assert!(!pair.write(&[4; 5]));
    assert_eq!(pair.read(), Some(vec![0; 5]));
    assert!(!pair.write(&[4; 5]), "read is not freed");
    let freed = pair.reader.position();
    let credit = pair.reader.credit(freed);
    pair.writer.credit(credit);
    assert!(pair.write(&[4; 5]));
}

/// The mirror holds records of one line each. The next record has two lines and would overwrite the first two of them.
#[test]
fn unfreed_records_of_a_mirror_are_not_overwritten() {
    let mut pair = pair(4, 80);
    let mut mirror = vec![0; 4 * LINE_WORDS];
    let mut freed = [0; 4];
    for n in 0..4 {
        assert!(pair.write(&[n; 5]));
        let record = pair.reader.peek_mirrored(&pair.memory, &mut mirror, 0).expect("there is room for it");
        pair.reader.advance(&record);
        freed[n as usize] = record.end;
    }
    // The acknowledgements of other readers free the whole ring.
    pair.writer.credit(4);
    assert!(pair.write(&[9; 10]));
    let before = mirror.clone();
    for too_little in [0, freed[0]] {
        assert_eq!(pair.reader.peek_mirrored(&pair.memory, &mut mirror, too_little), None);
        assert_eq!(mirror, before);
    }
    let record = pair.reader.peek_mirrored(&pair.memory, &mut mirror, freed[1]).expect("two lines are free");
    assert_eq!((record.bytes, &mirror[HEADER_WORDS..][..10]), (80, &[9; 10][..]));
    assert_eq!(mirror[2 * LINE_WORDS..], before[2 * LINE_WORDS..]);
}

/// A reader may forward a delivered record from its mirror until the record is overwritten. A poll that finds no record
/// writes nothing.
#[test]
fn touched_covers_only_copied_records() {
    let mut pair = pair(4, 80);
    let mut mirror = vec![0; 8 * LINE_WORDS];
    assert!(pair.write(&[1; 10]));
    let record = pair.reader.peek_mirrored(&pair.memory, &mut mirror, 0).expect("a record of two lines");
    pair.reader.advance(&record);
    assert_eq!((record.start, record.end), (0, 2));
    assert!(pair.reader.peek_mirrored(&pair.memory, &mut mirror, 2).is_none(), "nothing is there");
    assert_eq!(pair.reader.touched(), 2);
    // A torn record is copied to the mirror before its checksum fails.
    assert!(pair.write(&[2; 10]));
    let last = (64 + 3 * 64) / WORD;
    let torn = pair.memory[last].load(Ordering::Relaxed);
    pair.memory[last].store(torn ^ 1, Ordering::Relaxed);
    assert!(pair.reader.peek_mirrored(&pair.memory, &mut mirror, 2).is_none());
    assert_eq!((pair.reader.position(), pair.reader.touched()), (2, 4));
    pair.reader.restart(9, Seal::new(ProcessId(1), 99));
    assert_eq!(pair.reader.touched(), 9);
}

#[test]
fn a_credit_that_goes_back_or_beyond_what_was_written_changes_nothing() {
    let mut pair = pair(4, 40);
    pair.write(&[1; 5]);
    pair.writer.credit(2);
    assert!(!pair.writer.is_drained());
    pair.writer.credit(1);
    pair.writer.credit(0);
    assert!(pair.writer.is_drained());
}

#[test]
fn a_restarted_reader_skips_earlier_records_and_refuses_another_seal() {
    let mut pair = pair(4, 40);
    for n in 0..3 {
        assert!(pair.write(&[n; 5]));
    }
    let next = pair.writer.position();
    pair.reader.restart(next, Seal::new(ProcessId(1), 99));
    assert_eq!((pair.read(), pair.reader.uncredited(next)), (None, 0));
    pair.writer.credit(next);
    assert!(pair.write(&[7; 5]) && pair.write(&[8; 5]));
    assert_eq!(pair.read(), Some(vec![7; 5]));
    // The next writer with this id uses another seal and begins at position 0: no record of this writer validates.
    let seal = Seal::new(ProcessId(1), 100);
    pair.reader.restart(0, seal);
    assert_eq!(pair.read(), None);
    pair.writer = RingWriter::new(*pair.reader.geometry(), seal);
    assert!(pair.write(&[9; 5]));
    assert_eq!((pair.read(), pair.read()), (Some(vec![9; 5]), None));
}

proptest! {
    #[test]
    fn records_of_any_size_are_read_once_and_in_order(
        sizes in prop::collection::vec(0_usize..40, 1..200),
        reads in prop::collection::vec(0_usize..4, 1..50),
    ) {
        let mut pair = pair(11, 40 * WORD);
        let mut expected = 0_u64;
        let mut sent = 0_u64;
        let mut reads = reads.into_iter().cycle();
        let check = |pair: &mut Pair, expected: &mut u64| {
            if let Some(payload) = pair.read() {
                assert_eq!(payload, vec![*expected; sizes[*expected as usize]]);
                *expected += 1;
            }
            let freed = pair.reader.position();
            let credit = pair.reader.credit(freed);
            pair.writer.credit(credit);
        };
        while (sent as usize) < sizes.len() {
            if pair.write(&vec![sent; sizes[sent as usize]]) {
                sent += 1;
            } else {
                check(&mut pair, &mut expected);
            }
            for _ in 0..reads.next().unwrap_or(0) {
                check(&mut pair, &mut expected);
            }
        }
        for _ in 0..sizes.len() {
            check(&mut pair, &mut expected);
        }
        prop_assert_eq!(expected as usize, sizes.len());
        prop_assert!(pair.writer.is_drained());
    }
}

#[test]
fn a_sealed_record_is_sealed_again_only_in_another_lap() {
    let seal = Seal::new(ProcessId(2), 5);
    let geometry = Geometry::new(0, 2, 8);
    let memory: Vec<Word> = (0..geometry.bytes() / 8).map(|_| Word::new(0)).collect();
    let mut record = [0, 0, 0, 77];
    let (mut first, mut second) = (RingWriter::new(geometry, seal), RingWriter::new(geometry, seal));
    assert!(first.seal(8, &mut record).is_some());
    let sealed = record;
    assert!(second.seal_unless(8, &mut record, true).is_some());
    assert_eq!(record, sealed, "the same lap");
    second.credit(1);
    assert!(second.seal_unless(8, &mut record, true).is_some());
    let place = second.seal_unless(8, &mut record, true).expect("one of two cells is free");
    assert_ne!(record, sealed, "the next lap");
    for (to, word) in memory[place.offset as usize / 8..].iter().zip(record) {
        to.store(word, Ordering::Relaxed);
    }
    let mut reader = RingReader::new(geometry, seal);
    reader.restart(geometry.lap_cells(), seal);
    assert_eq!(reader.peek(&memory, &mut [0; 8]).map(|record| record.bytes), Some(8));
}

#[test]
fn the_record_after_next_is_seen_before_the_next_is_consumed() {
    let seal = Seal::new(ProcessId(2), 5);
    let geometry = Geometry::new(0, 4, 8);
    let memory: Vec<Word> = (0..geometry.bytes() / 8).map(|_| Word::new(0)).collect();
    let (mut writer, reader) = (RingWriter::new(geometry, seal), RingReader::new(geometry, seal));
    let mut write = || {
        let mut record = [0, 0, 0, 77];
        let place = writer.seal(8, &mut record).expect("the ring has room");
        for (to, word) in memory[place.offset as usize / 8..].iter().zip(record) {
            to.store(word, Ordering::Relaxed);
        }
    };
    write();
    let record = reader.peek(&memory, &mut [0; 8]).expect("the record is in the ring");
    assert!(!reader.looks_ready_behind(&record, &memory));
    write();
    assert!(reader.looks_ready_behind(&record, &memory));
}
