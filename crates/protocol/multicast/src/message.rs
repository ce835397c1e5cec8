//! What a client writes into its rings: the message with its destinations.
//!
//! | word | content |
//! |---|---|
//! | 0 | sequence |
//! | 1 | payload length in bytes (32 bits), destination groups (8), flags (8), format version (16) |
//! | 2… | per destination group in rising order: group (16 bits), slot (48) |
//! | then | the payload |
//!
//! A slot is the client's dense number for this message at that group, from 0; its lower 48 bits go over the wire.

use thiserror::Error;

use crate::item::VERSION;
use crate::{GroupId, Topology};

/// Most destination groups of one message.
pub(crate) const MAX_DESTINATIONS: usize = 255;

/// The client wants to hear of the delivery at once.
const NOTIFY: u64 = 1 << 40;
/// The client wants to hear at once when it is read.
const SYNC: u64 = 1 << 41;
/// The payload begins with a session's envelope.
const ENVELOPE: u64 = 1 << 42;
/// Flags that mean something.
const FLAGS: u8 = ((NOTIFY | SYNC | ENVELOPE) >> 40) as u8;

/// One destination group of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Destination {
    /// The group.
    pub group: GroupId,
    /// The client's dense number for this message at that group, from 0: its slot, the same at all its replicas. Of a
    /// message that was received, the lower 48 bits.
    pub slot: u64,
}

impl Destination {
    /// Bits of a slot that go over the wire.
    pub(crate) const SLOT_BITS: u32 = 48;

    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.group.0) | self.slot << 16
    }

    pub(crate) fn from_word(word: u64) -> Self {
        Destination { group: GroupId(word as u16), slot: word >> 16 }
    }
}

/// Why a record is not a message. It was sealed, so this is a client of another version or a bug.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum MessageError {
    /// Shorter than its header says.
    #[error("a message of {has} bytes whose header says {needs}")]
    Truncated {
        /// Bytes its header asks for.
        needs: usize,
        /// Bytes there.
        has: usize,
    },
    /// Another format version.
    #[error("message of format version {0}; this process speaks {VERSION}")]
    Version(u16),
    /// Sequences count from 1.
    #[error("sequence 0")]
    Sequence,
    /// Flags that this version does not know.
    #[error("flags {0:#x} mean nothing in format version {VERSION}")]
    Flags(u8),
    /// Groups not rising, unknown, or without the receiver's.
    #[error("destination groups are not known groups in rising order with the receiver's among them")]
    Destinations,
}

/// A message's header, as it lies in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<'a> {
    /// The client's number for it, from 1.
    pub sequence: u64,
    /// Bytes of payload.
    pub payload_bytes: usize,
    /// The client wants to hear of the delivery at once.
    pub notify: bool,
    /// The client wants to hear at once when it is read.
    pub sync: bool,
    /// The payload begins with a session's envelope.
    pub enveloped: bool,
    destinations: &'a [u64],
}

impl<'a> Header<'a> {
    /// Words of a header for this many destination groups.
    #[inline]
    #[must_use]
    pub const fn words(groups: usize) -> usize {
        2 + groups
    }

    /// Writes a header to the beginning of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than the header, or there are more than 255 destinations.
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

    /// Marks an encoded header: members tell at once when they have read the message.
    ///
    /// # Panics
    /// If `out` is shorter than a header.
    pub fn ask_sync(out: &mut [u64]) {
        out[1] |= SYNC;
    }

    /// Marks an encoded header: the payload begins with a session's envelope.
    ///
    /// # Panics
    /// If `out` is shorter than a header.
    pub fn mark_enveloped(out: &mut [u64]) {
        out[1] |= ENVELOPE;
    }

    /// Whether an encoded header is [marked](Header::mark_enveloped). False if there is none.
    #[inline]
    pub(crate) fn is_enveloped(words: &[u64]) -> bool {
        words.get(1).is_some_and(|sizes| sizes & ENVELOPE != 0)
    }

    /// Reads the header of a record's payload of `bytes`.
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
        Ok(Header {
            sequence: *sequence,
            payload_bytes,
            notify: sizes & NOTIFY != 0,
            sync: sizes & SYNC != 0,
            enveloped: sizes & ENVELOPE != 0,
            destinations,
        })
    }

    /// Number of destination groups.
    #[inline]
    #[must_use]
    pub fn groups(&self) -> usize {
        self.destinations.len()
    }

    /// The destinations, in rising order of group.
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
        let topology = Topology::new(&[1], 1).expect("possible");
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
        for bit in 43..48 {
            let mut other = words;
            other[1] |= 1 << bit;
            assert_eq!(flags(&other), Err(MessageError::Flags(6 | 1 << (bit - 40))));
        }
        assert!(!Header::is_enveloped(&[u64::MAX]), "no header");
    }
}
