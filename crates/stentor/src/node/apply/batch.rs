//! Commands that go to the apply thread together, and the replies that come back.

use std::ops::Range;

use stentor_multicast::{ClientId, Delivered, DestinationGroups, GroupId, Incarnation, MessageId, Timestamp};
use stentor_session::Answer;

/// A command as it travels through the queue.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) struct Record<'a> {
    pub(super) id: MessageId,
    pub(super) timestamp: Timestamp,
    /// Number of the delivery in the group, from 1.
    pub(super) number: u64,
    /// Where the history of the group began that it is part of.
    pub(super) origin: Incarnation,
    /// Whether it came in an envelope of a session.
    pub(super) enveloped: bool,
    pub(super) groups: RecordGroups<'a>,
    pub(super) command: &'a [u8],
}

/// The destination groups of a command.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) enum RecordGroups<'a> {
    /// As the member delivers them.
    Delivered(DestinationGroups<'a>),
    /// As they travel: two bytes each, little endian.
    Queued(&'a [u8]),
}

impl RecordGroups<'_> {
    fn len(&self) -> usize {
        match self {
            RecordGroups::Delivered(groups) => groups.len(),
            RecordGroups::Queued(bytes) => bytes.len() / 2,
        }
    }

    /// Puts the groups in place of those in `out`.
    pub(super) fn copy_to(&self, out: &mut Vec<GroupId>) {
        out.clear();
        match self {
            RecordGroups::Delivered(groups) => out.extend(groups.iter()),
            RecordGroups::Queued(bytes) => {
                out.extend(bytes.chunks_exact(2).map(|bytes| GroupId(u16::from_le_bytes(array(bytes)))));
            }
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            RecordGroups::Delivered(groups) => groups.iter().for_each(|group| out.extend(group.0.to_le_bytes())),
            RecordGroups::Queued(bytes) => out.extend_from_slice(bytes),
        }
    }
}

/// The flag of a command that came in an envelope of a session.
const ENVELOPED: u8 = 1;

/// Bytes before the groups: client, flags, number of groups, length; sequence, time, number; origin; group of the time, 0.
const HEAD: usize = 48;

/// The parts of a head.
const CLIENT: Range<usize> = 0..2;
const FLAGS: usize = 2;
const GROUPS: usize = 3;
const LENGTH: Range<usize> = 4..8;
const SEQUENCE: Range<usize> = 8..16;
const TIME: Range<usize> = 16..24;
const NUMBER: Range<usize> = 24..32;
const ORIGIN: Range<usize> = 32..40;
const TIME_GROUP: Range<usize> = 40..42;

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

impl<'a> Record<'a> {
    /// Of a delivery.
    #[inline]
    pub(in crate::node) fn of(delivered: &Delivered<'a>) -> Self {
        Record {
            id: delivered.id,
            timestamp: delivered.timestamp,
            number: delivered.number,
            origin: delivered.origin,
            enveloped: delivered.enveloped,
            groups: RecordGroups::Delivered(delivered.groups),
            command: delivered.payload,
        }
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        let mut head = [0; HEAD];
        head[CLIENT].copy_from_slice(&self.id.client.0.to_le_bytes());
        head[FLAGS] = if self.enveloped { ENVELOPED } else { 0 };
        head[GROUPS] = self.groups.len() as u8;
        head[LENGTH].copy_from_slice(&(self.command.len() as u32).to_le_bytes());
        head[SEQUENCE].copy_from_slice(&self.id.sequence.to_le_bytes());
        head[TIME].copy_from_slice(&self.timestamp.time.to_le_bytes());
        head[NUMBER].copy_from_slice(&self.number.to_le_bytes());
        head[ORIGIN].copy_from_slice(&self.origin.to_word().to_le_bytes());
        head[TIME_GROUP].copy_from_slice(&self.timestamp.group.to_le_bytes());
        out.extend_from_slice(&head);
        self.groups.write(out);
        out.extend_from_slice(self.command);
    }

    /// The first record of these bytes, and what is behind it.
    #[inline]
    fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let (groups, rest) = rest.split_at_checked(2 * usize::from(head[GROUPS]))?;
        let (command, rest) = rest.split_at_checked(u32::from_le_bytes(array(&head[LENGTH])) as usize)?;
        let word = |range: Range<usize>| u64::from_le_bytes(array(&head[range]));
        let short = |range: Range<usize>| u16::from_le_bytes(array(&head[range]));
        let record = Record {
            id: MessageId { client: ClientId(short(CLIENT)), sequence: word(SEQUENCE) },
            timestamp: Timestamp { time: word(TIME), group: short(TIME_GROUP) },
            number: word(NUMBER),
            origin: Incarnation::from_word(word(ORIGIN)),
            enveloped: head[FLAGS] & ENVELOPED != 0,
            groups: RecordGroups::Queued(groups),
            command,
        };
        Some((record, rest))
    }
}

/// Commands of one round, or of several if the apply thread is slow.
#[derive(Debug, Default)]
pub(super) struct Batch {
    records: Vec<u8>,
    count: usize,
    /// Clients to which replies are said again, behind the commands.
    pub(super) again: Vec<ClientId>,
    /// What came of them, for clients.
    pub(super) replies: Vec<u8>,
}

impl Batch {
    /// Bytes up to which commands are added to a batch.
    const FULL: usize = 256 << 10;
    /// Bytes that a batch keeps when it is used again.
    const KEPT: usize = 2 * Self::FULL;

    #[inline]
    pub(super) fn push(&mut self, record: &Record<'_>) {
        record.write(&mut self.records);
        self.count += 1;
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.records.len() >= Self::FULL
    }

    /// Returns the number of commands.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the bytes of the commands.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.records.len()
    }

    /// Makes the batch empty, so that it can be used again.
    pub(super) fn clear(&mut self) {
        self.count = 0;
        self.again.clear();
        for part in [&mut self.records, &mut self.replies] {
            part.clear();
            part.shrink_to(Self::KEPT);
        }
    }

    /// Takes out the commands, so that replies can be added meanwhile. They are put back with [`put_back`](Batch::put_back).
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.records)
    }

    pub(super) fn put_back(&mut self, records: Vec<u8>) {
        self.records = records;
    }
}

/// The commands of a batch.
#[derive(Debug)]
pub(super) struct Records<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        let (record, rest) = Record::read(self.0)?;
        self.0 = rest;
        Some(record)
    }
}

/// Bytes before those of a record: client, who sends it, 0, length.
const ANSWER_HEAD: usize = 8;

/// Appends what is to be said to a client.
pub(super) fn write_answer(answer: &Answer<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&answer.client.0.to_le_bytes());
    out.extend_from_slice(&[u8::from(answer.by_all), 0]);
    out.extend_from_slice(&(answer.record.len() as u32).to_le_bytes());
    out.extend_from_slice(answer.record);
}

fn read_answer(bytes: &[u8]) -> Option<(Answer<'_>, &[u8])> {
    let (head, rest) = bytes.split_at_checked(ANSWER_HEAD)?;
    let (record, rest) = rest.split_at_checked(u32::from_le_bytes(array(&head[4..8])) as usize)?;
    let client = ClientId(u16::from_le_bytes(array(&head[..2])));
    Some((Answer { client, by_all: head[2] != 0, record }, rest))
}

/// What came of the commands of a batch, in their order.
#[derive(Debug)]
pub(in crate::node) struct Replies<'a>(pub(in crate::node) &'a [u8]);

impl<'a> Iterator for Replies<'a> {
    type Item = Answer<'a>;

    fn next(&mut self) -> Option<Answer<'a>> {
        let (record, rest) = read_answer(self.0)?;
        self.0 = rest;
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_answers_come_out_as_they_went_in() {
        let mut batch = Batch::default();
        let words = [[7, 1 << 20 | 300].as_slice(), &[2]];
        let record = |number: u64, command| Record {
            id: MessageId { client: ClientId(300), sequence: number << 40 },
            timestamp: Timestamp { time: u64::MAX - number, group: 255 },
            number,
            origin: Incarnation { number: 7, tag: 70_000 },
            enveloped: number == 2,
            groups: RecordGroups::Delivered(DestinationGroups::from_words(words[number as usize - 1])),
            command,
        };
        let sent = [record(1, &[][..]), record(2, &[9; 300][..])];
        sent.iter().for_each(|record| batch.push(record));
        assert_eq!((batch.count(), batch.bytes()), (2, 2 * HEAD + 306));
        let records = batch.take();
        let (mut groups, mut expected) = (Vec::new(), Vec::new());
        for (come, sent) in Records(&records).zip(sent) {
            come.groups.copy_to(&mut groups);
            sent.groups.copy_to(&mut expected);
            assert_eq!(groups, expected);
            let blank = |record| format!("{:?}", Record { groups: RecordGroups::Queued(&[]), ..record });
            assert_eq!(blank(come), blank(sent));
        }
        assert_eq!(Records(&records).count(), 2);
        let answers = [(1, false, &b"yes"[..]), (2, true, &[])].map(|(client, by_all, record)| {
            let answer = Answer { client: ClientId(client), by_all, record };
            write_answer(&answer, &mut batch.replies);
            answer
        });
        assert_eq!(Replies(&batch.replies).collect::<Vec<_>>(), answers);
        batch.put_back(records);
        batch.clear();
        assert_eq!((batch.count(), batch.bytes(), batch.replies.len()), (0, 0, 0));
    }
}
