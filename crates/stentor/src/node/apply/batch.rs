//! Commands that go to the apply thread together, and the replies that come back.

use std::ops::Range;

use stentor_multicast::{ClientId, Delivered, MessageId, Timestamp};

/// A command as it travels through the queue.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) struct Record<'a> {
    pub(super) id: MessageId,
    pub(super) timestamp: Timestamp,
    /// Number of the delivery in the group, from 1.
    pub(super) number: u64,
    /// The number of the group's incarnation in which it was decided.
    pub(super) incarnation: u32,
    /// See [`ENVELOPED`].
    pub(super) flags: u8,
    /// The destination groups, two bytes each, little endian.
    pub(super) groups: &'a [u8],
    pub(super) command: &'a [u8],
}

/// The flag of a command that came in an envelope of a session.
#[allow(dead_code, reason = "set once deliveries say so")]
pub(super) const ENVELOPED: u8 = 1;

/// Bytes before the groups: client, flags, number of groups, length; sequence, time, number; incarnation, group of the time, 0.
const HEAD: usize = 40;

/// The parts of a head.
const CLIENT: Range<usize> = 0..2;
const FLAGS: usize = 2;
const GROUPS: usize = 3;
const LENGTH: Range<usize> = 4..8;
const SEQUENCE: Range<usize> = 8..16;
const TIME: Range<usize> = 16..24;
const NUMBER: Range<usize> = 24..32;
const INCARNATION: Range<usize> = 32..36;
const TIME_GROUP: Range<usize> = 36..38;

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

impl<'a> Record<'a> {
    /// Of a delivery. It has no envelope and names no groups, because deliveries do not say so yet.
    #[inline]
    pub(in crate::node) fn of(delivered: &Delivered<'a>) -> Self {
        Record {
            id: delivered.id,
            timestamp: delivered.timestamp,
            number: delivered.number,
            incarnation: delivered.ballot.incarnation(),
            flags: 0,
            groups: &[],
            command: delivered.payload,
        }
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        let mut head = [0; HEAD];
        head[CLIENT].copy_from_slice(&self.id.client.0.to_le_bytes());
        head[FLAGS] = self.flags;
        head[GROUPS] = (self.groups.len() / 2) as u8;
        head[LENGTH].copy_from_slice(&(self.command.len() as u32).to_le_bytes());
        head[SEQUENCE].copy_from_slice(&self.id.sequence.to_le_bytes());
        head[TIME].copy_from_slice(&self.timestamp.time.to_le_bytes());
        head[NUMBER].copy_from_slice(&self.number.to_le_bytes());
        head[INCARNATION].copy_from_slice(&self.incarnation.to_le_bytes());
        head[TIME_GROUP].copy_from_slice(&self.timestamp.group.to_le_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(self.groups);
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
            incarnation: u32::from_le_bytes(array(&head[INCARNATION])),
            flags: head[FLAGS],
            groups,
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
    /// What the machine replied to them.
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

/// What a machine replied to one command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node) struct ReplyRecord<'a> {
    /// The command.
    pub(in crate::node) id: MessageId,
    /// Its number in the group.
    pub(in crate::node) number: u64,
    /// Whether the machine wrote more than a reply may have: the bytes are a part then.
    pub(in crate::node) overflowed: bool,
    pub(in crate::node) bytes: &'a [u8],
}

/// Bytes before those of a reply: client, overflow, 0, length; sequence, number.
const REPLY_HEAD: usize = 24;

impl<'a> ReplyRecord<'a> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.client.0.to_le_bytes());
        out.extend_from_slice(&[u8::from(self.overflowed), 0]);
        out.extend_from_slice(&(self.bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.id.sequence.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(self.bytes);
    }

    fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, rest) = bytes.split_at_checked(REPLY_HEAD)?;
        let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(array(&head[4..8])) as usize)?;
        let client = ClientId(u16::from_le_bytes(array(&head[..2])));
        let id = MessageId { client, sequence: u64::from_le_bytes(array(&head[8..16])) };
        let (number, overflowed) = (u64::from_le_bytes(array(&head[16..24])), head[2] != 0);
        Some((ReplyRecord { id, number, overflowed, bytes }, rest))
    }
}

/// The replies to the commands of a batch, in their order.
#[derive(Debug)]
pub(in crate::node) struct Replies<'a>(pub(in crate::node) &'a [u8]);

impl<'a> Iterator for Replies<'a> {
    type Item = ReplyRecord<'a>;

    fn next(&mut self) -> Option<ReplyRecord<'a>> {
        let (record, rest) = ReplyRecord::read(self.0)?;
        self.0 = rest;
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_replies_come_out_as_they_went_in() {
        let mut batch = Batch::default();
        let record = |number: u64, groups, command| Record {
            id: MessageId { client: ClientId(300), sequence: number << 40 },
            timestamp: Timestamp { time: u64::MAX - number, group: 255 },
            number,
            incarnation: 70_000,
            flags: ENVELOPED,
            groups,
            command,
        };
        let sent = [record(1, &[][..], &[][..]), record(2, &[1, 0, 2, 1][..], &[9; 300][..])];
        sent.iter().for_each(|record| batch.push(record));
        assert_eq!((batch.count(), batch.bytes()), (2, 2 * HEAD + 304));
        let records = batch.take();
        let come: Vec<_> = Records(&records).map(|record| format!("{record:?}")).collect();
        assert_eq!(come, sent.map(|record| format!("{record:?}")));
        let replies = [(1, false, &b"yes"[..]), (2, true, &[])].map(|(number, overflowed, bytes)| {
            let reply = ReplyRecord { id: sent[0].id, number, overflowed, bytes };
            reply.write(&mut batch.replies);
            reply
        });
        assert_eq!(Replies(&batch.replies).collect::<Vec<_>>(), replies);
        batch.put_back(records);
        batch.clear();
        assert_eq!((batch.count(), batch.bytes(), batch.replies.len()), (0, 0, 0));
    }
}
