//! The record that a client writes into its rings: a message with its destinations.
//!
//! | word | content |
//! |---|---|
//! | 0 | sequence |
//! | 1 | payload length in bytes (32 bits), number of destination groups (8), flags (8), format version (16) |
//! | 2… | per destination group in rising order: group (16 bits), slot (48) |
//! | then | the payload |
//!
//! If the flag `NOT_BEFORE` is set, the first word of the payload is a time that the message must follow in the order.
//!
//! A slot is the client's dense number for this message at that group, from 0. Its lower 48 bits are sent.

use thiserror::Error;

use crate::item::VERSION;
use crate::{END_OF_TIME, GroupId, Topology};

/// Largest number of destination groups of one message.
pub(crate) const MAX_DESTINATIONS: usize = 255;

/// Flag: the client wants a notification from each member as soon as that member has delivered the message.
const NOTIFY: u64 = 1 << 40;
/// Flag: the client wants a notification from each member as soon as that member has read the message from its ring.
const SYNC: u64 = 1 << 41;
/// Flag: the payload begins with a session's envelope.
const ENVELOPE: u64 = 1 << 42;
/// Flag: the payload begins with the time that the message must follow. That word is not delivered.
const NOT_BEFORE: u64 = 1 << 43;
/// All flags that this format version defines.
const FLAGS: u8 = ((NOTIFY | SYNC | ENVELOPE | NOT_BEFORE) >> 40) as u8;
/// Number of bytes that the payload contains in addition if the message names a time that it must follow.
pub const NOT_BEFORE_BYTES: usize = 8;

/// One destination group of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Destination {
    /// The group.
    pub group: GroupId,
    /// The client's dense number for this message at that group, from 0. It names the same slot at all members of the
    /// group.
    ///
    /// In a received message it is reduced to its lower 48 bits.
    pub slot: u64,
}

impl Destination {
    /// Number of bits of a slot that are sent.
    pub(crate) const SLOT_BITS: u32 = 48;

    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.group.0) | self.slot << 16
    }

    pub(crate) fn from_word(word: u64) -> Self {
        Destination { group: GroupId(word as u16), slot: word >> 16 }
    }
}

/// The reason why a record is not a valid message. The record was sealed, so its client has another version or a bug.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum MessageError {
    /// The record is shorter than its header requires.
    #[error("a message of {has} bytes whose header requires {needs}")]
    Truncated {
        /// Bytes that the header requires.
        needs: usize,
        /// Bytes in the record.
        has: usize,
    },
    /// The format version differs from that of this process.
    #[error("message of format version {0}; this process speaks {VERSION}")]
    Version(u16),
    /// The sequence is 0, but sequences count from 1.
    #[error("a message with sequence 0; sequences count from 1")]
    Sequence,
    /// The record has flags that this version does not define.
    #[error("a message with flags {0:#x}, which format version {VERSION} does not define")]
    Flags(u8),
    /// The message must follow a time that no group can reach.
    #[error("a message that must follow the time {0}, which no group can reach")]
    NotBefore(u64),
    /// There are no destination groups, they are not in rising order, or one does not exist.
    #[error("a message whose destinations are not known groups in rising order")]
    Destinations,
}

/// A message's header, as it is stored in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<'a> {
    /// The client's number for the message, from 1.
    pub sequence: u64,
    /// Bytes of payload. The time that the message must follow is part of it, if there is one.
    pub payload_bytes: usize,
    /// The final time of the message must be later than this one; 0 sets no bound.
    pub not_before: u64,
    /// `true` if the client wants a notification from each member as soon as that member has delivered the message.
    pub notify: bool,
    /// `true` if the client wants a notification from each member as soon as that member has read the message.
    pub sync: bool,
    /// `true` if the payload begins with a session's envelope.
    pub enveloped: bool,
    destinations: &'a [u64],
}

impl<'a> Header<'a> {
    /// Returns the number of words of a header with this many destination groups.
    #[inline]
    #[must_use]
    pub const fn words(groups: usize) -> usize {
        2 + groups
    }

    /// Writes a header to the beginning of `out`.
    ///
    /// # Panics
    /// Panics if `out` is shorter than the header, or there are more than 255 destinations.
    #[inline]
    pub fn encode(sequence: u64, payload_bytes: usize, notify: bool, to: &[Destination], out: &mut [u64]) {
        assert!(to.len() <= MAX_DESTINATIONS, "{} destination groups", to.len());
        out[0] = sequence;
        out[1] = payload_bytes as u64 & 0xffff_ffff
            | (to.len() as u64) << 32
            | if notify { NOTIFY } else { 0 }
            | u64::from(VERSION) << 48;
        for (word, destination) in out[2..Header::words(to.len())].iter_mut().zip(to) {
            *word = destination.to_word();
        }
    }

    /// Marks an encoded header: members notify the client as soon as they have read the message.
    ///
    /// # Panics
    /// Panics if `out` has fewer than two words.
    pub fn ask_sync(out: &mut [u64]) {
        out[1] |= SYNC;
    }

    /// Marks an encoded header: the payload begins with a session's envelope.
    ///
    /// # Panics
    /// Panics if `out` has fewer than two words.
    pub fn mark_enveloped(out: &mut [u64]) {
        out[1] |= ENVELOPE;
    }

    /// Marks an encoded header: the first word of the payload is the time that the message must follow.
    ///
    /// # Panics
    /// Panics if `out` has fewer than two words.
    pub fn mark_not_before(out: &mut [u64]) {
        out[1] |= NOT_BEFORE;
    }

    /// Returns the number of bytes at the beginning of the payload that are not delivered.
    #[inline]
    pub(crate) fn undelivered_bytes(words: &[u64]) -> usize {
        let is_marked = words.get(1).is_some_and(|sizes| sizes & NOT_BEFORE != 0);
        if is_marked { NOT_BEFORE_BYTES } else { 0 }
    }

    /// Returns whether an encoded header is [marked](Header::mark_enveloped) as enveloped; `false` if there is no
    /// header.
    #[inline]
    pub(crate) fn is_enveloped(words: &[u64]) -> bool {
        words.get(1).is_some_and(|sizes| sizes & ENVELOPE != 0)
    }

    /// Reads the header from a record of `bytes` bytes.
    ///
    /// # Errors
    /// See [`MessageError`].
    #[inline]
    pub fn decode(words: &'a [u64], bytes: usize, topology: &Topology) -> Result<Self, MessageError> {
        let truncated = |needs| MessageError::Truncated { needs, has: bytes };
        let [sequence, sizes, rest @ ..] = words else { return Err(truncated(16)) };
        let version = (sizes >> 48) as u16;
        if version != u16::from(VERSION) {
            return Err(MessageError::Version(version));
        }
        if *sequence == 0 {
            return Err(MessageError::Sequence);
        }
        let flags = (sizes >> 40) as u8;
        if flags & !FLAGS != 0 {
            return Err(MessageError::Flags(flags));
        }
        let payload_bytes = *sizes as u32 as usize;
        let groups = usize::from((sizes >> 32) as u8);
        let needs = Header::words(groups) * 8 + payload_bytes;
        let destinations = rest.get(..groups).ok_or_else(|| truncated(needs))?;
        if needs > bytes {
            return Err(truncated(needs));
        }
        let groups_of = || destinations.iter().map(|word| Destination::from_word(*word).group);
        let rising = groups_of().is_sorted_by(|a, b| a < b);
        let known = groups_of().all(|group| topology.has_group(group));
        if groups == 0 || !rising || !known {
            return Err(MessageError::Destinations);
        }
        let not_before = match rest.get(groups) {
            _ if sizes & NOT_BEFORE == 0 => 0,
            Some(time) if payload_bytes >= NOT_BEFORE_BYTES => *time,
            _ => return Err(MessageError::Truncated { needs: needs - payload_bytes + NOT_BEFORE_BYTES, has: bytes }),
        };
        if not_before >= END_OF_TIME {
            return Err(MessageError::NotBefore(not_before));
        }
        Ok(Header {
            sequence: *sequence,
            payload_bytes,
            not_before,
            notify: sizes & NOTIFY != 0,
            sync: sizes & SYNC != 0,
            enveloped: sizes & ENVELOPE != 0,
            destinations,
        })
    }

    /// Returns the number of destination groups.
    #[inline]
    #[must_use]
    pub fn groups(&self) -> usize {
        self.destinations.len()
    }

    /// Returns the destinations, in rising order of group.
    #[inline]
    pub fn destinations(&self) -> impl Iterator<Item = Destination> + use<'a> {
        self.destinations.iter().map(|word| Destination::from_word(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_is_one_bit_and_others_are_refused() {
        let topology = Topology::new(&[1], 1).expect("the topology is possible");
        let mut words = [0; Header::words(1)];
        Header::encode(7, 0, false, &[Destination { group: GroupId(0), slot: 3 }], &mut words);
        let flags = |words: &[u64]| {
            let header = Header::decode(words, 24, &topology)?;
            Ok([header.notify, header.sync, header.enveloped])
        };
        assert_eq!((flags(&words), Header::is_enveloped(&words)), (Ok([false; 3]), false));
        Header::mark_enveloped(&mut words);
        assert_eq!((flags(&words), Header::is_enveloped(&words)), (Ok([false, false, true]), true));
        Header::ask_sync(&mut words);
        assert_eq!(flags(&words), Ok([false, true, true]));
        for bit in 44..48 {
            let mut other = words;
            other[1] |= 1 << bit;
            assert_eq!(flags(&other), Err(MessageError::Flags(6 | 1 << (bit - 40))));
        }
        assert!(!Header::is_enveloped(&[u64::MAX]), "no header");
    }

    #[test]
    fn the_not_before_time_is_read_with_the_header_and_an_absurd_one_is_refused() {
        let topology = Topology::new(&[1], 1).expect("the topology is possible");
        let to = [Destination { group: GroupId(0), slot: 3 }];
        let after = |time, bytes| {
            let mut words = [0, 0, 0, time];
            Header::encode(7, bytes, false, &to, &mut words);
            Header::mark_not_before(&mut words);
            assert_eq!(Header::undelivered_bytes(&words), NOT_BEFORE_BYTES);
            Header::decode(&words, 24 + bytes, &topology).map(|header| header.not_before)
        };
        assert_eq!((after(0, 8), after(END_OF_TIME - 1, 8)), (Ok(0), Ok(END_OF_TIME - 1)));
        assert_eq!(after(END_OF_TIME, 8), Err(MessageError::NotBefore(END_OF_TIME)));
        assert_eq!(after(5, 7), Err(MessageError::Truncated { needs: 32, has: 31 }));
    }
}
