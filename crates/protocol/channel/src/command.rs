//! What a connection asks of its fabric, and what the fabric answers.

use stentor_fabric::Status;

use crate::{Kind, Tag};

/// Which way an operation goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Way {
    /// A message of ours.
    Send,
    /// A receive of ours.
    Recv,
}

/// One operation that is lent to the fabric, and the place of memory that goes with it. There is at most one operation
/// of a way, kind and place at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Op {
    /// Which way.
    pub way: Way,
    /// What about.
    pub kind: Kind,
    /// Which place.
    pub place: u16,
}

impl Op {
    /// As a number below 2²⁰.
    #[inline]
    #[must_use]
    pub fn bits(self) -> u32 {
        (self.way as u32) << 18 | (self.kind as u32) << 16 | u32::from(self.place)
    }

    /// The operation of that number.
    #[inline]
    #[must_use]
    pub fn of(bits: u32) -> Op {
        let way = if bits >> 18 & 1 == 0 { Way::Send } else { Way::Recv };
        let kind = Kind::ALL[(bits >> 16 & 3) as usize];
        Op { way, kind, place: bits as u16 }
    }
}

/// What to send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum What {
    /// The length of a message, 8 bytes, little endian; then so many bytes of it. If the sequence has [`Tag::WHOLE`], the message
    /// alone.
    Length {
        /// The length of the message, bytes.
        bytes: u64,
        /// How much of it goes along, bytes: all or nothing.
        inline: u32,
    },
    /// A piece of the message that is being written.
    Payload {
        /// Where it begins, bytes.
        offset: u64,
        /// How long it is.
        bytes: u32,
    },
    /// A control message.
    Control([u64; 8]),
}

/// A message of the fabric to send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Send {
    /// The operation.
    pub op: Op,
    /// Its tag.
    pub tag: Tag,
    /// What is in it.
    pub what: What,
}

/// A receive to post.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Recv {
    /// The operation.
    pub op: Op,
    /// The tag it is for.
    pub tag: Tag,
    /// Bits of the tag that do not count.
    pub ignore: u64,
}

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// It was sent.
    Sent,
    /// It received a message of so many bytes under this sequence. Of a length the first word, if there is one, of a control
    /// message all words.
    Received {
        /// What it is: of the tag. A receive for a length may have taken a control message ([`Tag::OR_CONTROL`]).
        kind: Kind,
        /// The sequence of the tag that it completed with.
        sequence: u32,
        /// How many bytes came.
        bytes: u32,
        /// What is in it.
        words: [u64; 8],
    },
    /// It was given back unused.
    GivenBack,
    /// It failed; it is given back as well.
    Failed(Status),
}

/// What a connection has to tell its owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Notice {
    /// The other end is there and has the same parameters.
    Opened,
    /// The message of this number was sent; said in the order of messages.
    Written(u64),
    /// It failed. Nothing more is written or read; [`Notice::Closed`] follows when everything is given back.
    Failed(crate::ChannelError),
    /// It is over, and the fabric has given everything back.
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_numbers() {
        for way in [Way::Send, Way::Recv] {
            for kind in Kind::ALL {
                for place in [0, 5, u16::MAX] {
                    let op = Op { way, kind, place };
                    assert_eq!(Op::of(op.bits()), op);
                }
            }
        }
    }
}
