//! What is in the 64 bits of a tag.

use std::fmt;

/// Bit 32: the length of a message (`kLength` of the notes).
const LENGTH: u64 = 1 << 32;
/// Bit 33: payload (`kPayload` of the notes).
const PAYLOAD: u64 = 1 << 33;
/// Where the connection begins.
const CONNECTION_SHIFT: u32 = 34;
/// How many connections a tag can tell apart.
pub const MAX_CONNECTIONS: u32 = 1 << 30;

/// What a message of the fabric is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// The length of a message, and the message itself if it is short.
    Length,
    /// A piece of a message.
    Payload,
    /// What the two ends tell each other about themselves. The notes have nothing of the kind; both bits are set.
    Control,
    /// What each end says first. The notes have nothing of the kind; neither bit is set, and the sequence says which life
    /// of the connection's number it is.
    Greeting,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] = [Kind::Length, Kind::Payload, Kind::Control, Kind::Greeting];

    /// Its number, from 0.
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

/// A tag: bits 63–34 connection, 33 payload, 32 length, 31–0 sequence. Connection 0 is the notes' own layout.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag {
    /// The connection, below [`MAX_CONNECTIONS`].
    pub connection: u32,
    /// What it is about.
    pub kind: Kind,
    /// Its place among all of this kind, modulo 2³².
    pub sequence: u32,
}

impl Tag {
    /// In the sequence of [`Kind::Length`] with [`Scheme::Eager`](crate::Scheme::Eager), whose numbers have 31 bits: it is the
    /// message itself, with nothing in front, and as long as what came.
    pub const WHOLE: u32 = 1 << 31;
    /// How many bits of the sequence of a [`Kind::Payload`] number pieces with [`Scheme::Eager`](crate::Scheme::Eager). With
    /// [`WHOLE`](Tag::WHOLE) the piece is a message, which nothing else announces, and the 15 bits between number it among
    /// the messages; without, they are 0.
    pub const PIECE_BITS: u32 = 16;
    /// To be ignored by a receive for a piece that may be a message.
    pub const ANY_MESSAGE: u64 = (u32::MAX << Tag::PIECE_BITS) as u64;
    /// To be ignored by a receive that takes any sequence.
    pub const ANY_SEQUENCE: u64 = u32::MAX as u64;

    /// To be ignored by a receive for lengths that takes control messages, too.
    pub const OR_CONTROL: u64 = PAYLOAD;

    /// As the fabric has it.
    #[inline]
    #[must_use]
    pub fn bits(self) -> u64 {
        u64::from(self.connection) << CONNECTION_SHIFT | self.kind.bits() | u64::from(self.sequence)
    }

    /// The tag of these bits.
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
    fn connection_0_is_the_notes_own_layout() {
        let tag = |kind| Tag { connection: 0, kind, sequence: 7 }.bits();
        assert_eq!((tag(Kind::Length), tag(Kind::Payload)), (0x1_0000_0007, 0x2_0000_0007));
    }

    #[test]
    fn what_goes_in_comes_out() {
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
