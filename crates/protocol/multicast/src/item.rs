//! The items that members write to each other: timestamps, stream entries and acknowledgements. A sealed record
//! contains one or more of them.
//!
//! All items are words of 8 bytes, little endian:
//!
//! | word | content |
//! |---|---|
//! | 0 | kind (4 bits), format version (4), destination groups (8), position (8), client (16), slot (24) |
//! | 1 | the message's sequence |
//! | 2… | by kind |
//!
//! A *position* is an index into the message's destination groups in rising order. The slot is the message's slot at
//! the *receiver's* group, reduced to its lower 24 bits. Every item names its message, except `Succeed`, `Begin`,
//! `RemoteBallot` and `Word`. Every item carries the values to which it refers (hazard "acknowledgement without
//! identity" in `docs/hazards.md`). With the three words of its seal, an item about a message to two groups fits into
//! one cache line, because it has at most five words. `Succeed` and `Word`, which have six, are not about a message.

use thiserror::Error;

use crate::{Ballot, ClientId, Incarnation, ids};

/// The bit of the origin in a `Word` that is set if the word is in force. It is free because the number of an
/// incarnation has 16 bits.
const IN_FORCE: u32 = 31;

/// Version of this format and of the message's header. A process refuses peers that have another version.
pub(crate) const VERSION: u8 = 7;
const HEAD: usize = 2;
/// The value of the kind that marks a record as a piece of a peer message (`node/message_assembler.rs`).
pub(crate) const CHUNK: u64 = 15;

/// The kind of an item, with the step of the protocol that it belongs to and the content of its words.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ItemKind {
    /// The timestamp of this group, for a follower (2A). Words: counter, ballot, time of this group.
    Assign = 1,
    /// The timestamp of the sender's group, for another group's leader (2A). Words: ballot and time of the sender's
    /// group, which is at `position`.
    Timestamp = 2,
    /// The whole vector, for a follower (V2; in V1 only as a repetition). Words: counter, a time for each destination
    /// group. The ballot is that of the stream.
    Vector = 3,
    /// The timestamp of one other group, for a follower (V1). Words: counter, ballot and time of the group at
    /// `position`.
    Remote = 4,
    /// An acknowledgement from a member of the group at `position` (2B). Words: ballot of that group, a time for each
    /// destination group.
    Ack = 5,
    /// A no-op, for a follower. Words: counter, and 1 if a majority of the group is known to have processed such an
    /// entry.
    ///
    /// Once a majority of the group has processed such an entry, neither the message in the slot nor any later message
    /// of the same client process is delivered.
    NoOp = 9,
    /// A succession, for a follower. Words: counter, life of the new process, the sequence after which messages of
    /// earlier processes are void, and a last word.
    ///
    /// The last word holds a generation (63 bits), and 1 if a majority of the group is known to have processed such an
    /// entry. No other group asks about messages of smaller generations than that one any more. The head holds the
    /// number just below the process's first sequence, and the process's first slot. The item names no message.
    Succeed = 6,
    /// The ballot of another group, for a follower. Words: counter, ballot, incarnation. Smaller ballots of that group
    /// do not count any more. The item names no message.
    RemoteBallot = 11,
    /// The word of another group, for a follower (see [`Word`](crate::Word)). Words of the item: counter, the group's
    /// ballot, its incarnation, and the incarnation in which its history began.
    ///
    /// Bit 31 of the last word is 1 if a majority of the receiving group is known to have processed such an entry. The
    /// item names no message.
    Word = 12,
    /// The start of a ballot's stream, for a follower. Word: the ballot of the entries that follow. The item names no
    /// message.
    Begin = 10,
}

const KINDS: [ItemKind; 10] = {
    use ItemKind::{Ack, Assign, Begin, NoOp, Remote, RemoteBallot, Succeed, Timestamp, Vector, Word};
    [Assign, Timestamp, Vector, Remote, Ack, Succeed, NoOp, RemoteBallot, Word, Begin]
};

/// The reason why words are not a valid item.
///
/// The record was sealed, so this is not a torn write. The peer has another version or a bug.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ItemError {
    /// The record has fewer words than the item needs.
    #[error("item at word {at} needs {needs} words, the record has {has}")]
    Truncated {
        /// Word offset of the item in the record.
        at: usize,
        /// Number of words that the item needs.
        needs: usize,
        /// Number of words in the record.
        has: usize,
    },
    /// The kind is unknown.
    #[error("item kind {0} is unknown")]
    Kind(u8),
    /// The format version differs from that of this process.
    #[error("item of format version {0}; this process speaks {VERSION}")]
    Version(u8),
    /// The position is not below the number of destination groups.
    #[error("an item with position {position} among {groups} destination groups; positions count from 0")]
    Position {
        /// The position.
        position: u8,
        /// The number of groups.
        groups: u8,
    },
    /// A time or counter is 0, although both count from 1, or is so large that counting further could overflow. Or
    /// another word of the item has an invalid value.
    #[error("an item with a time or counter that is 0 or beyond 2^63")]
    Count,
    /// Bits that must be 0 in this version are set.
    #[error("item at word {at} has bits set that mean nothing in format version {VERSION}")]
    Reserved {
        /// Word offset of the item in the record.
        at: usize,
    },
}

/// A vector of times, one word for each destination group; 0 is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Times<'a>(&'a [u64]);

impl<'a> Times<'a> {
    /// Creates a vector over words, one for each group.
    #[inline]
    #[must_use]
    pub fn new(words: &'a [u64]) -> Self {
        Times(words)
    }

    /// Appends three words and those of the vector.
    #[inline]
    fn encode(self, [a, b, c]: [u64; 3], out: &mut Vec<u64>) {
        if let [first, second] = *self.0 {
            // Two groups are the most common case; one copy is faster than two.
            return out.extend_from_slice(&[a, b, c, first, second]);
        }
        out.extend_from_slice(&[a, b, c]);
        out.extend_from_slice(self.0);
    }

    /// Returns the words of the vector.
    #[inline]
    #[must_use]
    pub fn words(self) -> &'a [u64] {
        self.0
    }

    /// Returns the number of groups.
    #[inline]
    #[must_use]
    pub fn groups(self) -> usize {
        self.0.len()
    }

    /// Returns the time of the group at `position`.
    ///
    /// # Panics
    /// Panics if there is no such position.
    #[inline]
    #[must_use]
    pub fn time(self, position: usize) -> u64 {
        self.0[position]
    }

    /// Returns the largest time, or 0 if there is none.
    #[inline]
    #[must_use]
    pub fn max(self) -> u64 {
        self.0.iter().copied().max().unwrap_or(0)
    }

    /// Returns whether the times of all groups are known.
    #[inline]
    #[must_use]
    pub fn complete(self) -> bool {
        self.0.iter().all(|&time| time != 0)
    }
}

/// The lower 24 bits of a slot. A window holds at most 2^16 slots, so these bits name at most one slot of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ShortSlot(u32);

impl ShortSlot {
    /// Number of slots that the bits distinguish.
    pub(crate) const SPAN: u64 = 1 << 24;

    /// Returns the short form of a slot.
    #[inline]
    #[must_use]
    pub const fn of(slot: u64) -> Self {
        ShortSlot((slot % Self::SPAN) as u32)
    }

    /// Returns the first slot at or after `base` that has these bits.
    #[inline]
    #[must_use]
    pub fn from(self, base: u64) -> u64 {
        base.saturating_add(u64::from(self.0).wrapping_sub(base) % Self::SPAN)
    }
}

/// The head of an item. It names the message that the item is about; in a [`StreamEntry::Succeed`] it names a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Head {
    /// The client that multicast the message.
    pub client: ClientId,
    /// The client's number for the message.
    pub sequence: u64,
    /// Slot of the message at the receiver's group.
    pub slot: ShortSlot,
    /// Number of the message's destination groups.
    pub groups: u8,
}

impl Head {
    /// The head of an item that is about no message.
    pub(crate) const NONE: Head = Head { client: ClientId(0), sequence: 0, slot: ShortSlot(0), groups: 1 };
}

/// A timestamp of another group's leader (2A).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemoteTimestamp {
    /// The message.
    pub head: Head,
    /// Position of the sender's group.
    pub position: u8,
    /// The ballot that the sender leads.
    pub ballot: Ballot,
    /// The time that the sender assigned.
    pub time: u64,
}

/// An entry of the leader's dense stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StreamItem<'a> {
    /// The head of the item. It has no meaning for the entries `RemoteBallot` and `Word`.
    pub head: Head,
    /// Number of the entry in the stream, counted from 1 for each group and ballot.
    pub counter: u64,
    /// The content of the entry.
    pub entry: StreamEntry<'a>,
}

/// The content of a stream entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StreamEntry<'a> {
    /// The timestamp of this group (2A).
    Assign {
        /// Position of this group.
        position: u8,
        /// The leader's ballot.
        ballot: Ballot,
        /// The time.
        time: u64,
    },
    /// The times of all destination groups (V2; in V1 only as a repetition).
    Vector(Times<'a>),
    /// The timestamp of one other group (V1).
    Remote {
        /// Position of that group.
        position: u8,
        /// Ballot of that group.
        ballot: Ballot,
        /// Time of that group.
        time: u64,
    },
    /// The slot is a no-op, which is never delivered.
    NoOp {
        /// `true` if a majority of the group has processed such an entry.
        settled: bool,
    },
    /// The ballot in which another group is led. Smaller ballots of that group do not count any more.
    RemoteBallot {
        /// The ballot.
        ballot: Ballot,
        /// The incarnation of the group.
        incarnation: Incarnation,
    },
    /// The word of another group, which names the incarnation in which that group's history began. Nothing of the
    /// group's incarnation counts before this entry.
    Word {
        /// The group's ballot.
        ballot: Ballot,
        /// The incarnation of the group.
        incarnation: Incarnation,
        /// The incarnation in which the group's history began.
        origin: Incarnation,
        /// `true` if a majority of the receiving group has processed such an entry.
        in_force: bool,
    },
    /// The takeover of a client id by a new process; see [`Succession`](crate::Succession). The head names the
    /// process's generation and first slot.
    Succeed {
        /// The life of the process.
        life: u64,
        /// The sequence after which messages of earlier processes are void.
        after: u64,
        /// Generation below which no other group asks about messages any more; 0 if there is none.
        retired: u64,
        /// `true` if a majority of the group has processed such an entry.
        settled: bool,
    },
}

/// An acknowledgement (2B).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ack<'a> {
    /// The message.
    pub head: Head,
    /// Position of the sender's group.
    pub position: u8,
    /// Ballot of the sender's group in which the sender acknowledges.
    pub ballot: Ballot,
    /// The acknowledged vector.
    pub times: Times<'a>,
}

/// One item.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Item<'a> {
    /// An entry of this group's stream.
    Stream(StreamItem<'a>),
    /// A timestamp of another group's leader.
    Timestamp(RemoteTimestamp),
    /// An acknowledgement of any destination process.
    Ack(Ack<'a>),
    /// The start of a ballot in this group's stream: the entries that follow belong to it.
    Begin(Ballot),
}

impl<'a> Item<'a> {
    /// Returns the kind of the item.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> ItemKind {
        match self {
            Item::Stream(item) => item.kind(),
            Item::Timestamp(_) => ItemKind::Timestamp,
            Item::Ack(_) => ItemKind::Ack,
            Item::Begin(_) => ItemKind::Begin,
        }
    }

    /// Returns the head of the item, or `None` for the kinds `Begin`, `RemoteBallot` and `Word`, which have none.
    #[inline]
    #[must_use]
    pub fn head(&self) -> Option<&Head> {
        match self {
            Item::Stream(item) => item.message(),
            Item::Timestamp(item) => Some(&item.head),
            Item::Ack(item) => Some(&item.head),
            Item::Begin(_) => None,
        }
    }

    /// Returns the number of words that [`encode`](Item::encode) appends.
    #[inline]
    #[must_use]
    pub fn words(&self) -> usize {
        words_of(self.kind(), self.head().map_or(1, |head| usize::from(head.groups)))
    }

    /// Appends the words of the item.
    pub fn encode(&self, out: &mut Vec<u64>) {
        match self {
            Item::Stream(item) => item.encode(out),
            Item::Timestamp(item) => item.encode(out),
            Item::Ack(item) => item.encode(out),
            Item::Begin(ballot) => {
                out.extend_from_slice(&[first_word(ItemKind::Begin, &Head::NONE, 0), 0, ballot.to_word()]);
            }
        }
    }

    /// Decodes the item at word `at` of a record. Returns the item and the offset of the word after it.
    ///
    /// # Errors
    /// See [`ItemError`].
    // Inlining is required: returning an item through memory costs more than decoding it.
    #[inline(always)]
    pub fn decode(record: &'a [u64], at: usize) -> Result<(Item<'a>, usize), ItemError> {
        let rest = record.get(at..).unwrap_or(&[]);
        let truncated = |needs| ItemError::Truncated { at, needs, has: record.len() };
        let [word, sequence, body @ ..] = rest else { return Err(truncated(HEAD)) };
        let version = (word >> 4 & 0xf) as u8;
        if version != VERSION {
            return Err(ItemError::Version(version));
        }
        let (groups, position) = ((word >> 8) as u8, (word >> 16) as u8);
        if position >= groups {
            return Err(ItemError::Position { position, groups });
        }
        let slot = ShortSlot((word >> 40) as u32);
        let head = Head { client: ClientId((word >> 24) as u16), sequence: *sequence, slot, groups };
        let kind = kind_of(*word)?;
        let positionless = matches!(
            kind,
            ItemKind::Vector
                | ItemKind::NoOp
                | ItemKind::Succeed
                | ItemKind::RemoteBallot
                | ItemKind::Word
                | ItemKind::Begin
        );
        let names_none = matches!(kind, ItemKind::RemoteBallot | ItemKind::Word | ItemKind::Begin);
        if positionless && position != 0 || names_none && head != Head::NONE {
            return Err(ItemError::Reserved { at });
        }
        let words = words_of(kind, usize::from(groups));
        let body = body.get(..words - HEAD).ok_or_else(|| truncated(words))?;
        let item = decode_body(kind, head, position, body)?;
        Ok((item, at + words))
    }
}

/// Returns the first word of an item.
#[inline]
fn first_word(kind: ItemKind, head: &Head, position: u8) -> u64 {
    kind as u64
        | u64::from(VERSION) << 4
        | u64::from(head.groups) << 8
        | u64::from(position) << 16
        | u64::from(head.client.0) << 24
        | u64::from(head.slot.0) << 40
}

impl RemoteTimestamp {
    /// Appends the words of the item.
    #[inline]
    pub(crate) fn encode(&self, out: &mut Vec<u64>) {
        let word = first_word(ItemKind::Timestamp, &self.head, self.position);
        out.extend_from_slice(&[word, self.head.sequence, self.ballot.to_word(), self.time]);
    }
}

impl Ack<'_> {
    /// Appends the words of the item.
    #[inline]
    pub(crate) fn encode(&self, out: &mut Vec<u64>) {
        let word = first_word(ItemKind::Ack, &self.head, self.position);
        self.times.encode([word, self.head.sequence, self.ballot.to_word()], out);
    }
}

impl StreamItem<'_> {
    /// Returns the kind of the entry.
    #[inline]
    pub(crate) fn kind(&self) -> ItemKind {
        match self.entry {
            StreamEntry::Assign { .. } => ItemKind::Assign,
            StreamEntry::Vector(_) => ItemKind::Vector,
            StreamEntry::Remote { .. } => ItemKind::Remote,
            StreamEntry::RemoteBallot { .. } => ItemKind::RemoteBallot,
            StreamEntry::Word { .. } => ItemKind::Word,
            StreamEntry::NoOp { .. } => ItemKind::NoOp,
            StreamEntry::Succeed { .. } => ItemKind::Succeed,
        }
    }

    /// Returns the head of the entry, or `None` for the kinds `RemoteBallot` and `Word`, which have none.
    #[inline]
    pub(crate) fn message(&self) -> Option<&Head> {
        (!matches!(self.entry, StreamEntry::RemoteBallot { .. } | StreamEntry::Word { .. })).then_some(&self.head)
    }

    /// Appends the words of the item.
    #[inline]
    pub(crate) fn encode(&self, out: &mut Vec<u64>) {
        let StreamItem { head, counter, entry } = self;
        let word = |position| first_word(self.kind(), head, position);
        match entry {
            StreamEntry::Assign { position, ballot, time } | StreamEntry::Remote { position, ballot, time } => {
                out.extend_from_slice(&[word(*position), head.sequence, *counter, ballot.to_word(), *time]);
            }
            StreamEntry::Vector(times) => times.encode([word(0), head.sequence, *counter], out),
            StreamEntry::RemoteBallot { ballot, incarnation } => {
                out.extend_from_slice(&[
                    first_word(ItemKind::RemoteBallot, &Head::NONE, 0),
                    0,
                    *counter,
                    ballot.to_word(),
                    incarnation.to_word(),
                ]);
            }
            StreamEntry::Word { ballot, incarnation, origin, in_force } => {
                let head = first_word(ItemKind::Word, &Head::NONE, 0);
                let origin = origin.to_word() | u64::from(*in_force) << IN_FORCE;
                out.extend_from_slice(&[head, 0, *counter, ballot.to_word(), incarnation.to_word(), origin]);
            }
            StreamEntry::NoOp { settled } => {
                out.extend_from_slice(&[word(0), head.sequence, *counter, u64::from(*settled)]);
            }
            StreamEntry::Succeed { life, after, retired, settled } => {
                let last = retired << 1 | u64::from(*settled);
                out.extend_from_slice(&[word(0), head.sequence, *counter, *life, *after, last]);
            }
        }
    }
}

/// Returns the kind and the length in words of an item that this process encoded, given its first word.
#[inline]
pub(crate) fn own_item(word: u64) -> Option<(ItemKind, usize)> {
    let kind = kind_of(word).ok()?;
    Some((kind, words_of(kind, usize::from((word >> 8) as u8))))
}

fn kind_of(word: u64) -> Result<ItemKind, ItemError> {
    const BY_NUMBER: [Option<ItemKind>; 16] = {
        let (mut table, mut at) = ([None; 16], 0);
        while at < KINDS.len() {
            table[KINDS[at] as usize] = Some(KINDS[at]);
            at += 1;
        }
        table
    };
    let kind = (word & 0xf) as u8;
    BY_NUMBER[usize::from(kind)].ok_or(ItemError::Kind(kind))
}

#[inline]
fn words_of(kind: ItemKind, groups: usize) -> usize {
    HEAD + match kind {
        ItemKind::Assign | ItemKind::Remote | ItemKind::RemoteBallot => 3,
        ItemKind::Timestamp | ItemKind::NoOp => 2,
        ItemKind::Begin => 1,
        ItemKind::Succeed | ItemKind::Word => 4,
        ItemKind::Vector | ItemKind::Ack => 1 + groups,
    }
}

#[inline(always)]
fn decode_body(kind: ItemKind, head: Head, position: u8, body: &[u64]) -> Result<Item<'_>, ItemError> {
    let [first, rest @ ..] = body else { return Err(ItemError::Count) };
    let last = rest.last().copied().unwrap_or(*first);
    let stream = |entry| Item::Stream(StreamItem { head, counter: *first, entry });
    let ballot = || Ballot::from_word(rest.first().copied().unwrap_or(0));
    let times = Times(rest);
    let (item, counts) = match kind {
        ItemKind::Ack => {
            (Item::Ack(Ack { head, position, ballot: Ballot::from_word(*first), times }), are_counts(times))
        }
        ItemKind::Assign => {
            let entry = StreamEntry::Assign { position, ballot: ballot(), time: last };
            (stream(entry), is_count(*first) && is_count(last))
        }
        ItemKind::Vector => (stream(StreamEntry::Vector(times)), is_count(*first) && are_counts(times)),
        ItemKind::Timestamp => {
            let item = RemoteTimestamp { head, position, ballot: Ballot::from_word(*first), time: last };
            (Item::Timestamp(item), is_count(last))
        }
        ItemKind::Remote => {
            let entry = StreamEntry::Remote { position, ballot: ballot(), time: last };
            (stream(entry), is_count(*first) && is_count(last))
        }
        ItemKind::RemoteBallot => {
            let (ballot, incarnation) = (ballot(), Incarnation::from_word(last));
            let same = ballot.incarnation() == incarnation.number && incarnation.is_possible();
            (stream(StreamEntry::RemoteBallot { ballot, incarnation }), is_count(*first) && same)
        }
        ItemKind::Word => {
            let (ballot, incarnation) = (ballot(), Incarnation::from_word(rest.get(1).copied().unwrap_or(0)));
            let (origin, in_force) = (Incarnation::from_word(last & !(1 << IN_FORCE)), last >> IN_FORCE & 1 == 1);
            let sound = ballot.incarnation() == incarnation.number && incarnation.is_possible();
            let begun = origin.is_possible() && !origin.is_none() && origin.number <= incarnation.number;
            (stream(StreamEntry::Word { ballot, incarnation, origin, in_force }), is_count(*first) && sound && begun)
        }
        ItemKind::NoOp => (stream(StreamEntry::NoOp { settled: last == 1 }), is_count(*first) && last <= 1),
        ItemKind::Succeed => {
            let (life, after) = (rest.first().copied().unwrap_or(0), rest.get(1).copied().unwrap_or(0));
            let entry = StreamEntry::Succeed { life, after, retired: last >> 1, settled: last & 1 == 1 };
            let sound = ids::is_nameless(head.sequence) && last >> 1 <= ids::GENERATIONS;
            (stream(entry), is_count(*first) && sound)
        }
        ItemKind::Begin => (Item::Begin(Ballot::from_word(*first)), true),
    };
    if counts { Ok(item) } else { Err(ItemError::Count) }
}

/// Returns whether a time or counter is valid and can be incremented safely. Counting alone never reaches the upper
/// half.
#[inline]
fn is_count(count: u64) -> bool {
    count.wrapping_sub(1) < (1 << 63) - 1
}

#[inline]
fn are_counts(times: Times<'_>) -> bool {
    times.words().iter().all(|&time| is_count(time))
}

#[cfg(test)]
mod tests {
    use stentor_fabric::seal::record_cells;

    use super::*;

    #[test]
    fn times_are_above_zero_and_below_two_to_the_63() {
        let counts = [0, 1, (1 << 63) - 1, 1 << 63, u64::MAX].map(is_count);
        assert_eq!(counts, [false, true, true, false, false]);
    }

    /// The test bounds the memory traffic of a single message to two groups: one cache line for each write.
    #[test]
    fn every_item_about_a_message_to_two_groups_fills_at_most_one_cell() {
        for kind in KINDS.into_iter().filter(|kind| !matches!(kind, ItemKind::Succeed | ItemKind::Word)) {
            assert_eq!(record_cells(words_of(kind, 2) * 8), 1, "{kind:?}");
        }
    }

    #[test]
    fn a_short_slot_names_the_next_slot_with_its_bits() {
        for base in [0, 5, ShortSlot::SPAN - 1, 7 * ShortSlot::SPAN + 3, u64::MAX - ShortSlot::SPAN] {
            for ahead in [0, 1, 1 << 16, ShortSlot::SPAN - 1] {
                assert_eq!(ShortSlot::of(base + ahead).from(base), base + ahead);
            }
        }
    }
}
