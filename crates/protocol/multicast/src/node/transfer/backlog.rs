//! The deliveries that a donor makes while a transfer is in progress.

use std::collections::VecDeque;
use std::slice::from_ref;

use stentor_fabric::memory::WORD;
use zerocopy::IntoBytes;

use super::PIECE_BYTES;
use crate::node::app::Delivered;
use crate::{Ballot, ClientId, DestinationGroups, GroupId, Incarnation, MessageId, Timestamp};

/// Words of an entry before its groups: number; client (16 bits), bytes of payload (32) and number of words for groups
/// (16); sequence; time; group of the time (16), whether the payload is enveloped (1) and groups (47); ballot.
///
/// Group n has bit 17 + n. If a group has no bit, each group has a word after these six instead. With neither bits nor
/// words, the group of the time is the only one. The payload follows.
const HEADER: usize = 6;
const GROUPS_SHIFT: u32 = 48;
/// The bit of [`Delivered::enveloped`].
const ENVELOPED: u64 = 1 << 16;
const BITS_SHIFT: u32 = 17;
/// Number of groups that have a bit.
const BITS: u16 = 47;

/// Deliveries in their order, in blocks that are sent as pieces.
#[derive(Debug)]
pub(in crate::node) struct Backlog {
    /// The blocks, each with deliveries of one history and that history's origin.
    blocks: VecDeque<(Incarnation, Vec<u64>)>,
    bytes: u64,
    limit: u64,
    overflowed: bool,
}

impl Backlog {
    /// Creates an empty backlog of at most `limit` bytes.
    pub(in crate::node) fn new(limit: u64) -> Self {
        Backlog { blocks: VecDeque::new(), bytes: 0, limit, overflowed: false }
    }

    /// Adds a delivery. If there is no room for it, the backlog drops all deliveries and accepts no more.
    pub(in crate::node) fn push(&mut self, message: &Delivered<'_>) {
        if self.overflowed {
            return;
        }
        let implied = message.groups.len() == 1 && message.groups.contains(GroupId(message.timestamp.group));
        let bits = if implied { Some(0) } else { message.groups.to_bits(BITS) };
        let groups = if bits.is_some() { 0 } else { message.groups.len() };
        let words = HEADER + groups + message.payload.len().div_ceil(WORD);
        let fits = |(origin, block): &(Incarnation, Vec<u64>)| {
            *origin == message.origin && block.len() + words <= block.capacity()
        };
        if !self.blocks.back().is_some_and(fits) {
            let block = Vec::with_capacity(words.max(PIECE_BYTES / WORD));
            self.bytes += (block.capacity() * WORD) as u64;
            if self.bytes > self.limit {
                (self.blocks, self.overflowed) = (VecDeque::new(), true);
                self.bytes = 0;
                return;
            }
            self.blocks.push_back((message.origin, block));
        }
        let Some((_, block)) = self.blocks.back_mut() else { return };
        let MessageId { client, sequence } = message.id;
        let Timestamp { time, group } = message.timestamp;
        let sizes = u64::from(client.0) | (message.payload.len() as u64) << 16 | (groups as u64) << GROUPS_SHIFT;
        let enveloped = if message.enveloped { ENVELOPED } else { 0 };
        let group = u64::from(group) | enveloped | bits.unwrap_or(0) << BITS_SHIFT;
        block.extend_from_slice(&[message.number, sizes, sequence, time, group, message.ballot.to_word()]);
        block.extend(message.groups.iter().take(groups).map(|group| u64::from(group.0)));
        let first = block.len();
        block.resize(first + message.payload.len().div_ceil(WORD), 0);
        block[first..].as_mut_bytes()[..message.payload.len()].copy_from_slice(message.payload);
    }

    /// Removes the first block, which is one piece. Returns the origin of its history and its words.
    pub(in crate::node) fn pop(&mut self) -> Option<(Incarnation, Vec<u64>)> {
        let (origin, block) = self.blocks.pop_front()?;
        self.bytes -= (block.capacity() * WORD) as u64;
        Some((origin, block))
    }

    pub(in crate::node) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns whether a delivery found no room.
    pub(in crate::node) fn has_overflowed(&self) -> bool {
        self.overflowed
    }

    /// Returns the bytes in use.
    pub(in crate::node) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of deliveries in the backlog if the last one has the number `last`.
    pub(in crate::node) fn waiting(&self, last: u64) -> u64 {
        let first = self.blocks.front().and_then(|(_, block)| block.first());
        first.map_or(0, |first| (last + 1).saturating_sub(*first))
    }

    /// Returns how full the backlog is, in thousandths.
    pub(in crate::node) fn fill(&self) -> u64 {
        (u128::from(self.bytes) * 1000 / u128::from(self.limit.max(1))) as u64
    }
}

/// A delivery that was read from a piece.
#[derive(Clone, Debug)]
pub(in crate::node) struct Entry<'a>(Delivered<'a>);

impl<'a> Entry<'a> {
    /// Reads the first delivery, whose history has this origin. Returns it and the words after it, or `None` if the
    /// words are not deliveries.
    pub(in crate::node) fn read(words: &'a [u64], origin: Incarnation) -> Option<(Entry<'a>, &'a [u64])> {
        let ([number, sizes, sequence, time, group, ballot], rest) = words.split_first_chunk::<HEADER>()?;
        let (client, bytes) = (ClientId(*sizes as u16), (sizes >> 16) as u32 as usize);
        let (groups, rest) = rest.split_at_checked((sizes >> GROUPS_SHIFT) as usize)?;
        let rises = |pair: &[u64]| pair[0] < pair[1];
        let possible = groups.windows(2).all(rises) && groups.last().is_none_or(|last| *last <= u64::from(u16::MAX));
        let groups = match (group >> BITS_SHIFT, groups) {
            (0, []) => DestinationGroups::from_words(from_ref(group)),
            (0, words) if possible => DestinationGroups::from_words(words),
            (bits, []) => DestinationGroups::from_bits(bits),
            _ => return None,
        };
        let (payload, rest) = rest.split_at_checked(bytes.div_ceil(WORD))?;
        let delivered = Delivered {
            id: MessageId { client, sequence: *sequence },
            timestamp: Timestamp { time: *time, group: *group as u16 },
            number: *number,
            ballot: Ballot::from_word(*ballot),
            origin,
            groups,
            enveloped: group & ENVELOPED != 0,
            payload: &payload.as_bytes()[..bytes],
        };
        Some((Entry(delivered), rest))
    }

    pub(in crate::node) fn delivered(&self) -> &Delivered<'a> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Destination groups, indexed by the delivery's number modulo 4.
    const GROUPS: [&[u64]; 4] = [&[0, 2, 255], &[2], &[1], &[0, 46]];

    fn delivered(number: u64, payload: &[u8]) -> Delivered<'_> {
        let id = MessageId { client: ClientId(3), sequence: 7 + number };
        let timestamp = Timestamp { time: 9 * number, group: 2 };
        let groups = DestinationGroups::from_words(GROUPS[number as usize % 4]);
        let enveloped = number.is_multiple_of(3);
        let origin = Incarnation { number: 1, tag: u32::from(number > 3) };
        Delivered { id, timestamp, number, ballot: Ballot::from_word(5), origin, groups, enveloped, payload }
    }

    #[test]
    fn deliveries_round_trip_through_the_backlog() {
        let mut backlog = Backlog::new(1 << 20);
        let long = vec![7; PIECE_BYTES + 5];
        let payloads: [&[u8]; 4] = [b"", b"nine byte", &long, b"last"];
        for (number, payload) in (1..).zip(payloads) {
            backlog.push(&delivered(number, payload));
        }
        let (mut came, mut blocks) = (Vec::new(), 0);
        while let Some((origin, block)) = backlog.pop() {
            blocks += 1;
            let mut words = &block[..];
            while let Some((entry, rest)) = Entry::read(words, origin) {
                let one = entry.delivered();
                assert_eq!(one.groups, DestinationGroups::from_words(GROUPS[one.number as usize % 4]));
                assert_eq!((one.enveloped, one.timestamp.group), (one.number == 3, 2));
                assert_eq!((one.origin, origin.tag), (origin, u32::from(one.number > 3)));
                came.push((one.number, one.id.sequence, one.timestamp.time, one.payload.to_vec()));
                words = rest;
            }
            assert!(words.is_empty());
        }
        let expected: Vec<_> = (1..).zip(payloads).map(|(n, bytes)| (n, 7 + n, 9 * n, bytes.to_vec())).collect();
        assert_eq!((came, backlog.bytes(), backlog.is_empty()), (expected, 0, true));
        assert_eq!(blocks, 3, "a long delivery and another history start a new piece");
    }

    #[test]
    fn full_backlog_drops_everything_and_reports_overflow() {
        let mut backlog = Backlog::new(2 * PIECE_BYTES as u64);
        let payload = vec![1; PIECE_BYTES / 2];
        for number in 1..=2 {
            backlog.push(&delivered(number, &payload));
        }
        assert!(!backlog.has_overflowed() && backlog.fill() == 1000, "{}", backlog.fill());
        backlog.push(&delivered(3, &payload));
        assert!(backlog.has_overflowed() && backlog.is_empty() && backlog.bytes() == 0);
        backlog.push(&delivered(4, b""));
        assert!(backlog.is_empty(), "a delivery before it is missing");
    }

    #[test]
    fn words_that_are_no_deliveries_are_refused() {
        let mut backlog = Backlog::new(1 << 20);
        backlog.push(&delivered(4, b"four words of payload in 32 byte"));
        let (origin, block) = backlog.pop().expect("the backlog has a block");
        for end in 0..block.len() {
            assert!(Entry::read(&block[..end], origin).is_none(), "{end} words");
        }
        let mut lie = block.clone();
        lie[1] = u64::MAX;
        assert!(Entry::read(&lie, origin).is_none());
        for (word, value) in [(4, 1 << 17 | 2), (6, 2), (6, 3), (8, 1 << 16)] {
            lie.clone_from(&block);
            lie[word] = value;
            assert!(Entry::read(&lie, origin).is_none(), "word {word}");
        }
    }
}
