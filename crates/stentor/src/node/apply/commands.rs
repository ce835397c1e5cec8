//! Commands in transit to the state machine.

use stentor_multicast::{ClientId, Delivered, GroupId, Incarnation, Timestamp};

use super::KEPT;

/// The metadata of a command, without its groups and its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node) struct Head {
    pub(super) client: ClientId,
    /// `true` if the command has an envelope of a session.
    pub(super) enveloped: bool,
    pub(super) timestamp: Timestamp,
    /// Number of the delivery in the group, from 1.
    pub(super) number: u64,
    /// The origin of the group's history that the command belongs to.
    pub(super) origin: Incarnation,
}

impl Head {
    #[inline]
    pub(in crate::node) fn of(delivered: &Delivered<'_>) -> Self {
        let Delivered { id, enveloped, timestamp, number, origin, .. } = *delivered;
        Head { client: id.client, enveloped, timestamp, number, origin }
    }
}

/// A command to apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node) struct Record<'a> {
    pub(in crate::node) head: Head,
    /// The destination groups.
    pub(in crate::node) groups: &'a [GroupId],
    pub(in crate::node) command: &'a [u8],
}

/// A list of commands, in order. It is reused, so a command usually allocates nothing once the buffers have grown.
#[derive(Debug, Default)]
pub(super) struct Commands {
    entries: Vec<Entry>,
    /// The destination groups of all commands, concatenated.
    groups: Vec<GroupId>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    head: Head,
    /// Number of groups of the command.
    groups: usize,
    /// Length of the command's payload, in bytes.
    bytes: usize,
}

impl Commands {
    #[inline]
    pub(super) fn push(&mut self, delivered: &Delivered<'_>) {
        let (head, groups) = (Head::of(delivered), delivered.groups.len());
        self.entries.push(Entry { head, groups, bytes: delivered.payload.len() });
        self.groups.extend(delivered.groups.iter());
        self.bytes.extend_from_slice(delivered.payload);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        let (mut groups, mut bytes) = (&self.groups[..], &self.bytes[..]);
        self.entries.iter().map(move |entry| {
            // These lengths were recorded by `push`.
            let (own, rest) = groups.split_at(entry.groups);
            let (command, behind) = bytes.split_at(entry.bytes);
            (groups, bytes) = (rest, behind);
            Record { head: entry.head, groups: own, command }
        })
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the memory that the commands occupy, in bytes.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.entries[..]) + size_of_val(&self.groups[..]) + self.bytes.len()
    }

    /// Removes all commands. Up to [`KEPT`] bytes of each buffer are kept for later commands.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.entries.shrink_to(KEPT / size_of::<Entry>());
        self.groups.clear();
        self.groups.shrink_to(KEPT / size_of::<GroupId>());
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use stentor_multicast::{Ballot, DestinationGroups, MessageId};

    use super::*;

    #[test]
    fn commands_come_out_as_they_went_in() {
        let words = [[7, 1 << 20 | 300].as_slice(), &[2], &[9]];
        let delivered = |number: u64, payload| Delivered {
            id: MessageId { client: ClientId(300 + number as u16), sequence: number << 40 },
            timestamp: Timestamp { time: u64::MAX - number, group: 255 },
            number,
            ballot: Ballot::default(),
            origin: Incarnation { number: 7, tag: 70_000 },
            groups: DestinationGroups::from_words(words[number as usize - 1]),
            enveloped: number == 2,
            payload,
        };
        let sent = [delivered(1, &[][..]), delivered(2, &[9; 300][..]), delivered(3, b"c")];
        let mut commands = Commands::default();
        for _ in 0..2 {
            sent.iter().for_each(|delivered| commands.push(delivered));
            assert_eq!((commands.len(), commands.iter().count()), (3, 3));
            assert!(commands.bytes() > 301);
            for (come, sent) in commands.iter().zip(&sent) {
                assert_eq!((come.head, come.command), (Head::of(sent), sent.payload));
                assert!(come.groups.iter().copied().eq(sent.groups.iter()), "{come:?}");
            }
            commands.clear();
            assert_eq!((commands.len(), commands.bytes()), (0, 0));
        }
    }
}
