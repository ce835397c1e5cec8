//! The records of a member's journal, which an observer receives as a stream of bytes.
//!
//! ```text
//! length of the rest u32 | kind u8 | the kind's fields
//! 0 a step     index u64 | time u64 | group of the time u16
//! 1 a command  as a step, then: client u16 | session u128 (0: none) | groups u16 | each of them u16 | bytes
//! 2 an origin  origin u64 | kept u64 (number of places that this history shares with the one before)
//! ```

use stentor_multicast::{GroupId, Incarnation, Timestamp};

use super::fields::Fields;

const STEP: u8 = 0;
const COMMAND: u8 = 1;
const ORIGIN: u8 = 2;
/// Size of a command's record without its groups and its content, in bytes.
pub(crate) const COMMAND_BYTES: usize = 4 + 1 + 18 + 2 + 16 + 2;

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Record<'a> {
    /// The history continues from here under another origin.
    Origin { origin: Incarnation, kept: u64 },
    /// A place in the order at which no command was applied.
    Step(Step),
    /// A command that was applied.
    Command(Step, CommandRecord<'a>),
}

/// A place in the present history of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    pub(crate) index: u64,
    pub(crate) timestamp: Timestamp,
}

/// A command and its metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CommandRecord<'a> {
    /// The number of the client that sent the command.
    pub(crate) client: u16,
    /// The session of the command, or 0 if there is none.
    pub(crate) session: u128,
    pub(crate) groups: GroupList<'a>,
    pub(crate) bytes: &'a [u8],
}

/// The destination groups of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GroupList<'a> {
    /// The groups as the apply thread stores them.
    Ids(&'a [GroupId]),
    /// The groups as a stream encodes them.
    Wire(&'a [u8]),
}

impl GroupList<'_> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = GroupId> + '_ {
        let (ids, wire) = match *self {
            GroupList::Ids(ids) => (ids, &[][..]),
            GroupList::Wire(wire) => (&[][..], wire),
        };
        let read = wire.as_chunks::<2>().0.iter().map(|bytes| GroupId(u16::from_be_bytes(*bytes)));
        ids.iter().copied().chain(read)
    }

    fn len(&self) -> usize {
        match self {
            GroupList::Ids(ids) => ids.len(),
            GroupList::Wire(wire) => wire.len() / 2,
        }
    }
}

impl Record<'_> {
    /// Appends the encoded record to `out`.
    #[inline]
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Record::Origin { origin, kept } => {
                out.extend(17_u32.to_be_bytes());
                out.push(ORIGIN);
                out.extend(origin.to_word().to_be_bytes());
                out.extend(kept.to_be_bytes());
            }
            Record::Step(step) => {
                out.extend(19_u32.to_be_bytes());
                out.push(STEP);
                out.extend(step.index.to_be_bytes());
                out.extend(step.timestamp.time.to_be_bytes());
                out.extend(step.timestamp.group.to_be_bytes());
            }
            Record::Command(step, command) => {
                let rest = COMMAND_BYTES - 4 + 2 * command.groups.len() + command.bytes.len();
                // The head is assembled in one array, because the apply thread writes it for each command.
                let mut head = [0; COMMAND_BYTES];
                head[..4].copy_from_slice(&(rest as u32).to_be_bytes());
                head[4] = COMMAND;
                head[5..13].copy_from_slice(&step.index.to_be_bytes());
                head[13..21].copy_from_slice(&step.timestamp.time.to_be_bytes());
                head[21..23].copy_from_slice(&step.timestamp.group.to_be_bytes());
                head[23..25].copy_from_slice(&command.client.to_be_bytes());
                head[25..41].copy_from_slice(&command.session.to_be_bytes());
                head[41..].copy_from_slice(&(command.groups.len() as u16).to_be_bytes());
                out.reserve(4 + rest);
                out.extend_from_slice(&head);
                command.groups.iter().for_each(|group| out.extend(group.0.to_be_bytes()));
                out.extend_from_slice(command.bytes);
            }
        }
    }
}

impl Step {
    fn read(from: &mut Fields<'_>) -> Option<Step> {
        Some(Step { index: from.u64()?, timestamp: Timestamp { time: from.u64()?, group: from.u16()? } })
    }
}

/// The error that the front of a stream is not a valid record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoRecord;

/// Reads the record at the front of a stream. Returns it with its size in bytes, or `None` if the record is incomplete.
///
/// # Errors
/// Returns an error if the bytes are not a record, or if the record is longer than `longest` bytes.
pub(crate) fn read(stream: &[u8], longest: usize) -> Result<Option<(Record<'_>, usize)>, NoRecord> {
    let mut from = Fields(stream);
    let Some(length) = from.u32() else { return Ok(None) };
    let length = length as usize;
    if length > longest {
        return Err(NoRecord);
    }
    let Some(rest) = from.take(length) else { return Ok(None) };
    parse(Fields(rest)).map(|record| Some((record, 4 + length))).ok_or(NoRecord)
}

fn parse(mut from: Fields<'_>) -> Option<Record<'_>> {
    match from.u8()? {
        STEP => {
            let step = Step::read(&mut from)?;
            from.end(Record::Step(step))
        }
        COMMAND => {
            let (step, client, session) = (Step::read(&mut from)?, from.u16()?, from.u128()?);
            let count = usize::from(from.u16()?);
            let groups = GroupList::Wire(from.take(2 * count)?);
            Some(Record::Command(step, CommandRecord { client, session, groups, bytes: from.rest() }))
        }
        ORIGIN => {
            let (origin, kept) = (Incarnation::from_word(from.u64()?), from.u64()?);
            from.end(Record::Origin { origin, kept })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(records: &[Record<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        records.iter().for_each(|record| record.write(&mut out));
        out
    }

    #[test]
    fn records_survive_a_round_trip_wherever_the_stream_is_cut() {
        let step = |index| Step { index, timestamp: Timestamp { time: u64::MAX - index, group: 9 } };
        let ids = [GroupId(1), GroupId(700)];
        let command = CommandRecord { client: 3, session: 1 << 99, groups: GroupList::Ids(&ids), bytes: b"bytes" };
        let origin = Record::Origin { origin: Incarnation { number: 2, tag: 77 }, kept: 41 };
        let stream = written(&[Record::Step(step(41)), origin, Record::Command(step(42), command)]);
        assert_eq!(read(&stream, 100), Ok(Some((Record::Step(step(41)), 23))));
        assert_eq!(read(&stream[23..], 100), Ok(Some((origin, 21))));
        let Ok(Some((Record::Command(at, read_command), bytes))) = read(&stream[44..], 100) else {
            panic!("a command")
        };
        assert_eq!((at, bytes, read_command.bytes), (step(42), stream.len() - 44, command.bytes));
        assert_eq!((read_command.client, read_command.session), (3, 1 << 99));
        assert!(read_command.groups.iter().eq(ids));
        assert_eq!(bytes, COMMAND_BYTES + 4 + 5);
        for end in 44..stream.len() {
            assert_eq!(read(&stream[44..end], 100), Ok(None), "{end}");
        }
        assert_eq!(read(&stream[44..], 30), Err(NoRecord), "longer than the limit");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_a_part_of_one_or_none(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..90),
            kind in 0_u8..4,
            length in 0_u32..90,
        ) {
            if bytes.len() > 5 {
                bytes[..4].copy_from_slice(&length.to_be_bytes());
                bytes[4] = kind;
            }
            if let Ok(Some((record, count))) = read(&bytes, 80) {
                prop_assert!(count <= 84);
                prop_assert_eq!(written(&[record]), &bytes[..count]);
            }
        }
    }
}
