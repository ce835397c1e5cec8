//! What members write to each other: timestamps, stream entries, acknowledgements, several to a sealed record.
//!
//! All items are words of 8 bytes, little endian:
//!
//! | word | content |
//! |---|---|
//! | 0 | kind (4 bits), format version (4), destination groups (8), position (8), client (16), slot (24) |
//! | 1 | the message's sequence |
//! | 2… | by kind |
//!
//! A *position* is an index into the message's destination groups in rising order. The slot is the message's at the
//! *receiver's* group, its lower 24 bits. Every item but `Begin`, `RemoteBallot` and `Word` names its message, and every item
//! carries the values that it is about (hazard "acknowledgement without identity"). With the three words of its seal,
//! an item about a message to two groups fills one cache line: five words are all that any kind needs then.

use thiserror::Error;

use crate::{Ballot, ClientId, Incarnation, ids};

/// The bit of an origin's word that says whether the word of it is in force: an incarnation's number has 16.
const IN_FORCE: u32 = 31;

/// Version of this format and of the message's header; a peer of another one is refused.
pub(crate) const VERSION: u8 = 7;
const HEAD: usize = 2;
/// Instead of a kind: the record is a piece of a peer message (`node/message_assembler.rs`), not items.
pub(crate) const CHUNK: u64 = 15;

/// The kind of an item, and the step of the protocol it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ItemKind {
    /// 2A to a follower: counter, ballot and time of the own group.
    Assign = 1,
    /// 2A to another leader: ballot and time of the sender's group, which is at `position`.
    Timestamp = 2,
    /// The whole vector to a follower (V2): counter, a time per destination group. The ballot is the stream's.
    Vector = 3,
    /// One other group's timestamp to a follower (V1): counter, ballot and time of the group at `position`.
    Remote = 4,
    /// 2B: the sender's group is at `position`; its ballot, and a time per destination group.
    Ack = 5,
    /// To a follower: counter, and 1 if a majority of the group is known to have processed such an entry. What is in the
    /// slot will never be delivered, nor anything that the same process of the client multicast after it.
    NoOp = 9,
    /// To a follower: counter, and by which process a client's place was taken over: its life, the sequence after which what
    /// earlier ones multicast is void, and up to which generation nobody asks for that any more (63 bits) with 1 if a majority
    /// of the group is known to have processed such an entry. The head has the beginning of the process's generation, and its
    /// first slot. Names no message.
    Succeed = 6,
    /// To a follower: counter, another group's ballot and its incarnation. No smaller ballot of that group counts any more.
    /// Names no message.
    RemoteBallot = 11,
    /// To a follower: counter, another group's ballot, its incarnation, and where the history of that began, with 1 in bit 31 if a
    /// majority of the own group is known to have processed such an entry. Names no message.
    Word = 12,
    /// To a follower: a ballot. What follows in the stream is of this ballot. Names no message.
    Begin = 10,
}

const KINDS: [ItemKind; 10] = {
    use ItemKind::{Ack, Assign, Begin, NoOp, Remote, RemoteBallot, Succeed, Timestamp, Vector, Word};
    [Assign, Timestamp, Vector, Remote, Ack, Succeed, NoOp, RemoteBallot, Word, Begin]
};

/// Why words are not an item. The record was sealed, so this is a peer of another version or a bug, not a torn write.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ItemError {
    /// Fewer words than the item needs.
    #[error("item at word {at} needs {needs} words, the record has {has}")]
    Truncated {
        /// Word offset in the record.
        at: usize,
        /// Words needed.
        needs: usize,
        /// Words there.
        has: usize,
    },
    /// Not a kind.
    #[error("item kind {0} is unknown")]
    Kind(u8),
    /// Another format version.
    #[error("item of format version {0}; this process speaks {VERSION}")]
    Version(u8),
    /// A position beyond the destination groups, or no groups.
    #[error("position {position} of {groups} destination groups")]
    Position {
        /// The position.
        position: u8,
        /// The number of groups.
        groups: u8,
    },
    /// A logical time or a counter of 0, or so large that counting on would overflow: both count from 1.
    #[error("a time or counter of 0, or beyond 2^63")]
    Count,
    /// Bits that this version keeps 0.
    #[error("item at word {at} has bits set that mean nothing in format version {VERSION}")]
    Reserved {
        /// Word offset in the record.
        at: usize,
    },
}

/// A vector of times, one word per destination group; 0 is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Times<'a>(&'a [u64]);

impl<'a> Times<'a> {
    /// Over words, one per group.
    #[inline]
    #[must_use]
    pub fn new(words: &'a [u64]) -> Self {
        Times(words)
    }

    /// Appends the words, behind others.
    #[inline]
    fn encode(self, [a, b, c]: [u64; 3], out: &mut Vec<u64>) {
        if let [first, second] = *self.0 {
            // The commonest, at once.
            return out.extend_from_slice(&[a, b, c, first, second]);
        }
        out.extend_from_slice(&[a, b, c]);
        out.extend_from_slice(self.0);
    }

    /// The words.
    #[inline]
    #[must_use]
    pub fn words(self) -> &'a [u64] {
        self.0
    }

    /// Number of groups.
    #[inline]
    #[must_use]
    pub fn groups(self) -> usize {
        self.0.len()
    }

    /// Time of the group at `position`.
    ///
    /// # Panics
    /// If there is no such position.
    #[inline]
    #[must_use]
    pub fn time(self, position: usize) -> u64 {
        self.0[position]
    }

    /// The largest time.
    #[inline]
    #[must_use]
    pub fn max(self) -> u64 {
        self.0.iter().copied().max().unwrap_or(0)
    }

    /// Whether every group has given its time.
    #[inline]
    #[must_use]
    pub fn complete(self) -> bool {
        self.0.iter().all(|&time| time != 0)
    }
}

/// The lower 24 bits of a slot. A window holds at most 2^16 slots, so they name one slot of it, or none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ShortSlot(u32);

impl ShortSlot {
    /// Slots that they tell apart.
    pub(crate) const SPAN: u64 = 1 << 24;

    /// Of a slot.
    #[inline]
    #[must_use]
    pub const fn of(slot: u64) -> Self {
        ShortSlot((slot % Self::SPAN) as u32)
    }

    /// The first slot from `base` on that has these bits.
    #[inline]
    #[must_use]
    pub fn from(self, base: u64) -> u64 {
        base.saturating_add(u64::from(self.0).wrapping_sub(base) % Self::SPAN)
    }
}

/// The head of every item: which message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Head {
    /// Who multicast it.
    pub client: ClientId,
    /// The client's number for it.
    pub sequence: u64,
    /// Its slot at the receiver's group.
    pub slot: ShortSlot,
    /// Number of its destination groups.
    pub groups: u8,
}

impl Head {
    /// Of an item that is about no message.
    pub(crate) const NONE: Head = Head { client: ClientId(0), sequence: 0, slot: ShortSlot(0), groups: 1 };
}

/// Another leader's timestamp (2A).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemoteTimestamp {
    /// The message.
    pub head: Head,
    /// Position of the sender's group.
    pub position: u8,
    /// The ballot the sender leads.
    pub ballot: Ballot,
    /// The time it gave.
    pub time: u64,
}

/// An entry of the leader's dense stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StreamItem<'a> {
    /// The message.
    pub head: Head,
    /// 1, 2, 3 … per (group, ballot).
    pub counter: u64,
    /// What it says.
    pub entry: StreamEntry<'a>,
}

/// The content of a stream entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StreamEntry<'a> {
    /// The own group's timestamp (2A).
    Assign {
        /// Position of the own group.
        position: u8,
        /// The leader's ballot.
        ballot: Ballot,
        /// The time.
        time: u64,
    },
    /// All times (V2).
    Vector(Times<'a>),
    /// One other group's timestamp (V1).
    Remote {
        /// Position of that group.
        position: u8,
        /// Its ballot.
        ballot: Ballot,
        /// Its time.
        time: u64,
    },
    /// Never to be delivered.
    NoOp {
        /// A majority of the group has processed such an entry.
        settled: bool,
    },
    /// Another group is led under this ballot; nothing of a smaller one of that group counts any more.
    RemoteBallot {
        /// The ballot.
        ballot: Ballot,
        /// The group's incarnation.
        incarnation: Incarnation,
    },
    /// The history of another group's incarnation began there; nothing of it counts before this.
    Word {
        /// The group's ballot.
        ballot: Ballot,
        /// Its incarnation.
        incarnation: Incarnation,
        /// The incarnation in which the history of that began.
        origin: Incarnation,
        /// A majority of the group has processed such an entry.
        in_force: bool,
    },
    /// A process took a client's place; see [`Succession`](crate::Succession). The head names its generation and first slot.
    Succeed {
        /// Its life.
        life: u64,
        /// What earlier processes multicast after this sequence is void.
        after: u64,
        /// Nobody asks for what processes with generations up to this one left; plus 1, so that 0 says nothing.
        retired: u64,
        /// A majority of the group has processed such an entry.
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
    /// The sender's group's ballot, in which it acknowledges.
    pub ballot: Ballot,
    /// What is acknowledged: all times.
    pub times: Times<'a>,
}

/// One item.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Item<'a> {
    /// For the stream of the own group.
    Stream(StreamItem<'a>),
    /// From another leader.
    Timestamp(RemoteTimestamp),
    /// From any destination process.
    Ack(Ack<'a>),
    /// For the stream of the own group: what follows is of this ballot.
    Begin(Ballot),
}

impl<'a> Item<'a> {
    /// The kind.
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

    /// The message; `None` of an item that is about none.
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

    /// Words that [`encode`](Item::encode) appends.
    #[inline]
    #[must_use]
    pub fn words(&self) -> usize {
        words_of(self.kind(), self.head().map_or(1, |head| usize::from(head.groups)))
    }

    /// Appends the item.
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

    /// Reads the item at word `at` of a record. Returns it and the word after it.
    ///
    /// # Errors
    /// See [`ItemError`].
    // Always: an item that is returned by way of memory costs more than reading it.
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

/// The first word of an item.
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
    /// Appends the item.
    #[inline]
    pub(crate) fn encode(&self, out: &mut Vec<u64>) {
        let word = first_word(ItemKind::Timestamp, &self.head, self.position);
        out.extend_from_slice(&[word, self.head.sequence, self.ballot.to_word(), self.time]);
    }
}

impl Ack<'_> {
    /// Appends the item.
    #[inline]
    pub(crate) fn encode(&self, out: &mut Vec<u64>) {
        let word = first_word(ItemKind::Ack, &self.head, self.position);
        self.times.encode([word, self.head.sequence, self.ballot.to_word()], out);
    }
}

impl StreamItem<'_> {
    /// The kind.
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

    /// The message; `None` of an entry that is about none.
    #[inline]
    pub(crate) fn message(&self) -> Option<&Head> {
        (!matches!(self.entry, StreamEntry::RemoteBallot { .. } | StreamEntry::Word { .. })).then_some(&self.head)
    }

    /// Appends the item.
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

/// ItemKind and length in words of the item whose first word this is, as this process encoded it.
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

/// A time or counter that can be, and that can be counted on from: nobody gets to the other half by counting.
#[inline]
fn is_count(count: u64) -> bool {
    count.wrapping_sub(1) < 1 << 63
}

#[inline]
fn are_counts(times: Times<'_>) -> bool {
    times.words().iter().all(|&time| is_count(time))
}

#[cfg(test)]
mod tests {
    use stentor_fabric::seal::record_cells;

    use super::*;

    /// What a lone message to two groups costs in memory traffic: one line per write.
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
