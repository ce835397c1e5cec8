//! Layout of the 64 bits of a tag.

use std::fmt;

/// Bit 32: the message is a length.
const LENGTH: u64 = 1 << 32;
/// Bit 33: the message is a piece of a payload.
const PAYLOAD: u64 = 1 << 33;
/// Lowest bit of the connection.
const CONNECTION_SHIFT: u32 = 34;
/// Number of connections that tags can distinguish.
pub const MAX_CONNECTIONS: u32 = 1 << 30;

/// The kind of a fabric message, as its tag encodes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// The length of a message, or the message itself if it is short.
    Length,
    /// A piece of a message.
    Payload,
    /// A control message, which holds the state of its sender. Both kind bits are set.
    Control,
    /// An end's hello, its first message. Neither kind bit is set, and the sequence is the life of the connection's
    /// number.
    Greeting,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 4] = [Kind::Length, Kind::Payload, Kind::Control, Kind::Greeting];

    /// Returns the kind's index, from 0.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    fn bits(self) -> u64 {
        match self {
            Kind::Length => LENGTH,
            Kind::Payload => PAYLOAD,
            Kind::Control => LENGTH | PAYLOAD,
            Kind::Greeting => 0,
        }
    }
}

/// A tag: bits 63–34 connection, 33 payload, 32 length, 31–0 sequence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag {
    /// Number of the connection, below [`MAX_CONNECTIONS`].
    pub connection: u32,
    /// Kind of the message.
    pub kind: Kind,
    /// Number of the message in the stream of its kind plus [`Config::first_sequence`](crate::Config::first_sequence),
    /// modulo 2³². With [`Scheme::LengthPayload`](crate::Scheme::LengthPayload), a length has the number of its
    /// message's first piece. For [`Scheme::Eager`](crate::Scheme::Eager) see [`WHOLE`](Tag::WHOLE) and
    /// [`PIECE_BITS`](Tag::PIECE_BITS). For a hello it is the life of the connection's number.
    pub sequence: u32,
}

impl Tag {
    /// Bit of a sequence with [`Scheme::Eager`](crate::Scheme::Eager). In a [`Kind::Length`] it marks a message that is
    /// sent in place of its length: all bytes that arrive are the message. The other 31 bits hold the number. For a
    /// [`Kind::Payload`] see [`PIECE_BITS`](Tag::PIECE_BITS).
    pub const WHOLE: u32 = 1 << 31;
    /// Number of sequence bits of a [`Kind::Payload`] that number pieces with [`Scheme::Eager`](crate::Scheme::Eager).
    /// If [`WHOLE`](Tag::WHOLE) is set, the piece is a whole message without a length in front, and the 15 bits between
    /// hold the message's number. Otherwise these 15 bits are 0.
    pub const PIECE_BITS: u32 = 16;
    /// Tag bits that a receive for a piece ignores: [`WHOLE`](Tag::WHOLE), and the message number if the piece is a
    /// whole message.
    pub const ANY_MESSAGE: u64 = (u32::MAX << Tag::PIECE_BITS) as u64;
    /// Tag bits that a receive ignores to match any sequence.
    pub const ANY_SEQUENCE: u64 = u32::MAX as u64;

    /// Tag bit that a receive for lengths ignores to match control messages, too.
    pub const OR_CONTROL: u64 = PAYLOAD;

    /// Returns the tag as 64 bits for the fabric.
    #[inline]
    #[must_use]
    pub fn bits(self) -> u64 {
        u64::from(self.connection) << CONNECTION_SHIFT | self.kind.bits() | u64::from(self.sequence)
    }

    /// Returns the tag that these bits encode.
    #[inline]
    #[must_use]
    pub fn of(bits: u64) -> Tag {
        let kind = match bits & (LENGTH | PAYLOAD) {
            LENGTH => Kind::Length,
            PAYLOAD => Kind::Payload,
            0 => Kind::Greeting,
            _ => Kind::Control,
        };
        Tag { connection: (bits >> CONNECTION_SHIFT) as u32, kind, sequence: bits as u32 }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:?}:{}", self.connection, self.kind, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_connection_0_have_only_kind_and_sequence() {
        let tag = |kind| Tag { connection: 0, kind, sequence: 7 }.bits();
        assert_eq!((tag(Kind::Length), tag(Kind::Payload)), (0x1_0000_0007, 0x2_0000_0007));
    }

    #[test]
    fn tags_survive_encoding() {
        for connection in [0, 1, 77, MAX_CONNECTIONS - 1] {
            for kind in Kind::ALL {
                for sequence in [0, 1, u32::MAX] {
                    let tag = Tag { connection, kind, sequence };
                    assert_eq!(Tag::of(tag.bits()), tag);
                }
            }
        }
    }
}
