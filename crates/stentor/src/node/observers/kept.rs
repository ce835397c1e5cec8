//! The journal: the records of recently applied commands.

use std::collections::VecDeque;

use stentor_multicast::Incarnation;

use super::tap::Block;
use crate::observer::place::Place;
use crate::observer::record::{Record, read};

/// Size up to which short blocks are combined, in bytes.
const BLOCK: usize = 64 << 10;
/// Memory of a block besides its records, in bytes.
const OVERHEAD: usize = 128;

/// A block with the offset of its first byte in the stream of all records.
struct Part {
    begins: u64,
    block: Block,
}

/// The result of the search for an observer's position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// The position has this place, and the next record begins at this offset in the stream of records.
    At(u64, Place),
    /// The position is before the journal's beginning, and in the same history as far as that is known.
    Before,
    /// This member has not applied the position yet, or the position belongs to a later history.
    Ahead,
    /// The position belongs to a history that the group has left, or the journal does not reach back far enough to
    /// know.
    OtherHistory,
}

/// The journal of a member.
///
/// # Invariants
/// - Blocks are contiguous. Where a gap would occur, all earlier blocks are dropped.
/// - The blocks take at most `most` bytes, unless the newest one alone takes more.
pub(super) struct Kept {
    parts: VecDeque<Part>,
    bytes: usize,
    most: usize,
    /// End offset of the stream of records. It never decreases, so no offset is used twice.
    end: u64,
    /// The place of the machine. `None` if it is not known.
    head: Option<Place>,
}

impl Kept {
    pub(super) fn new(most: usize) -> Self {
        Kept { parts: VecDeque::new(), bytes: 0, most, end: 0, head: None }
    }

    /// Returns the place of the machine.
    pub(super) fn head(&self) -> Option<Place> {
        self.head
    }

    /// Returns the end offset of the stream of records.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the index after which all records are kept.
    pub(super) fn first(&self) -> u64 {
        let head = self.head.map_or(0, |head| head.index);
        self.parts.front().map_or(head, |part| part.block.before.index)
    }

    /// Drops all records. `head` is the place of the machine, if it is known.
    pub(super) fn clear(&mut self, head: Option<Place>) {
        self.parts.clear();
        self.bytes = 0;
        // The offset of an observer at the old end must not be valid in the stream that follows the gap.
        self.end += 1;
        self.head = head;
    }

    /// Records the place of the machine.
    pub(super) fn mark(&mut self, head: Place) {
        if self.head != Some(head) {
            self.clear(Some(head));
        }
    }

    /// Appends a copy of a block. The caller keeps its buffer.
    pub(super) fn push(&mut self, block: &Block) {
        if self.head != Some(block.before) {
            self.clear(Some(block.before));
        }
        self.head = Some(block.last);
        let begins = self.end;
        self.end += block.bytes.len() as u64;
        match self.parts.back_mut() {
            Some(last) if last.block.bytes.len() + block.bytes.len() <= BLOCK => {
                last.block.bytes.extend_from_slice(&block.bytes);
                last.block.last = block.last;
            }
            _ => {
                let mut bytes = Vec::with_capacity(block.bytes.len().max(BLOCK));
                bytes.extend_from_slice(&block.bytes);
                self.bytes += bytes.capacity() + OVERHEAD;
                self.parts.push_back(Part { begins, block: Block { bytes, before: block.before, last: block.last } });
            }
        }
        while self.bytes > self.most && self.parts.len() > 1 {
            let Some(part) = self.parts.pop_front() else { return };
            self.bytes -= part.block.bytes.capacity() + OVERHEAD;
        }
    }

    /// Finds the record after a position.
    pub(super) fn find(&self, origin: Incarnation, index: u64) -> Found {
        let Some(head) = self.head else { return Found::Ahead };
        // Index 0 is the same place in all histories.
        let is_same = |at: &Place| at.index == 0 || at.origin == origin;
        if index > head.index {
            let behind = head.origin == origin || origin.number > head.origin.number;
            return if behind { Found::Ahead } else { Found::OtherHistory };
        }
        let other = || if origin.number > head.origin.number { Found::Ahead } else { Found::OtherHistory };
        if index == head.index {
            return if is_same(&head) { Found::At(self.end, head) } else { other() };
        }
        if index < self.first() {
            return if index == 0 || head.origin == origin { Found::Before } else { other() };
        }
        let at = self.parts.partition_point(|part| part.block.last.index <= index);
        let found = self.parts.get(at).and_then(|part| part.find(index));
        match found {
            Some((begins, place)) if is_same(&place) => Found::At(begins, place),
            _ => other(),
        }
    }

    /// Returns up to `most` bytes of the stream from an offset, or an empty slice at the end of the stream. Returns
    /// `None` if the offset is no longer kept.
    pub(super) fn read(&self, from: u64, most: usize) -> Option<&[u8]> {
        if from == self.end {
            return Some(&[]);
        }
        let at = self.parts.partition_point(|part| part.begins <= from).checked_sub(1)?;
        let part = &self.parts[at];
        let rest = part.block.bytes.get((from - part.begins) as usize..)?;
        Some(&rest[..rest.len().min(most)]).filter(|bytes| !bytes.is_empty())
    }
}

impl Part {
    /// Returns the end of the record with this index, as an offset in the stream, and the place of the record. Returns
    /// the beginning of the block if all its records have a larger index.
    fn find(&self, index: u64) -> Option<(u64, Place)> {
        let (mut place, mut at) = (self.block.before, 0);
        while place.index < index {
            let (record, bytes) = read(&self.block.bytes[at..], usize::MAX).ok()??;
            match record {
                Record::Origin { origin, .. } => place.origin = origin,
                Record::Step(step) | Record::Command(step, _) => {
                    (place.index, place.timestamp) = (step.index, step.timestamp);
                }
            }
            at += bytes;
        }
        Some((self.begins + at as u64, place))
    }
}

#[cfg(test)]
mod tests {
    use stentor_multicast::Timestamp;

    use super::*;
    use crate::observer::record::Step;

    fn origin(number: u32) -> Incarnation {
        Incarnation { number, tag: 7 * number }
    }

    /// Returns the place with this index. The first five belong to one history, and the following ones to another.
    fn place(index: u64) -> Place {
        let number = if index == 0 { 0 } else { 1 + u32::from(index > 5) };
        Place { origin: origin(number), index, timestamp: Timestamp { time: index, group: 0 } }
    }

    fn block(indexes: std::ops::RangeInclusive<u64>) -> Block {
        let (before, last) = (place(indexes.start() - 1), place(*indexes.end()));
        let mut bytes = Vec::new();
        for index in indexes {
            let (now, then) = (place(index), place(index - 1));
            if now.origin != then.origin {
                Record::Origin { origin: now.origin, kept: index - 1 }.write(&mut bytes);
            }
            Record::Step(Step { index, timestamp: now.timestamp }).write(&mut bytes);
        }
        Block { before, last, bytes }
    }

    /// Returns the indexes of the records that begin at an offset or after it.
    fn indexes(kept: &Kept, mut from: u64) -> Vec<u64> {
        let (mut bytes, mut all) = (Vec::new(), Vec::new());
        loop {
            match kept.read(from, 10).expect("the records at the offset are kept") {
                [] => break,
                part => {
                    bytes.extend_from_slice(part);
                    from += part.len() as u64;
                }
            }
        }
        let mut at = 0;
        while let Some((record, length)) = read(&bytes[at..], 100).expect("the bytes are records") {
            at += length;
            if let Record::Step(step) = record {
                all.push(step.index);
            }
        }
        assert_eq!(at, bytes.len());
        all
    }

    #[test]
    fn a_position_is_found_only_in_its_own_history() {
        let mut kept = Kept::new(1 << 20);
        assert_eq!(kept.find(origin(1), 3), Found::Ahead, "nothing is known");
        kept.mark(place(0));
        [1..=2, 3..=7, 8..=9].into_iter().for_each(|indexes| kept.push(&block(indexes)));
        for index in 0..=9 {
            let Found::At(from, at) = kept.find(place(index).origin, index) else { panic!("{index}") };
            assert_eq!(at, place(index));
            assert!(indexes(&kept, from).into_iter().eq(index + 1..=9), "{index}");
        }
        assert_eq!(kept.find(origin(1), 6), Found::OtherHistory, "the history was left before");
        assert_eq!(kept.find(origin(2), 5), Found::OtherHistory, "it began later");
        assert_eq!(kept.find(origin(2), 10), Found::Ahead);
        assert_eq!(
            (kept.find(origin(3), 4), kept.find(origin(3), 12)),
            (Found::Ahead, Found::Ahead),
            "a later history"
        );
        assert_eq!(kept.find(origin(1), 12), Found::OtherHistory);
    }

    #[test]
    fn the_oldest_blocks_are_dropped_at_the_bound_and_all_blocks_at_a_gap() {
        let mut kept = Kept::new(200 << 10);
        kept.mark(place(0));
        let each = 1000;
        for n in 0..40 {
            kept.push(&block(n * each + 1..=(n + 1) * each));
            assert!(kept.bytes <= 200 << 10, "{}", kept.bytes);
        }
        let first = kept.first();
        assert!(first > 10 * each && first < 39 * each, "{first}");
        assert_eq!(kept.find(origin(2), first - 1), Found::Before);
        assert_eq!(
            kept.find(origin(1), 3),
            Found::OtherHistory,
            "the journal no longer knows whether its history contains the position"
        );
        let Found::At(from, _) = kept.find(origin(2), first) else { panic!("it is kept") };
        assert_eq!(indexes(&kept, from).len() as u64, 40 * each - first);
        assert_eq!(kept.read(from - 1, 10), None);
        let end = kept.end();
        assert_eq!(kept.read(end, 10), Some(&[][..]));
        kept.push(&block(50_000..=50_001));
        assert_eq!(kept.read(end, 10), None, "a record would be omitted");
        assert_eq!((kept.first(), kept.find(origin(2), 40_000)), (49_999, Found::Before));
        assert_eq!(kept.read(from, 10), None, "no offset is used twice");
        kept.mark(place(50_001));
        assert_eq!(kept.first(), 49_999, "the mark changes nothing");
        let end = kept.end();
        kept.mark(place(60_000));
        assert_eq!(kept.read(end, 10), None, "a record would be omitted");
        assert_eq!((kept.first(), kept.find(origin(2), 60_000)), (60_000, Found::At(kept.end(), place(60_000))));
    }
}
