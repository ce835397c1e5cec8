//! Operations that a connection asks its fabric for, and the results that the fabric returns.

use stentor_fabric::Status;

use crate::{Kind, Tag};

/// Direction of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Way {
    /// This end sends a message.
    Send,
    /// This end receives a message.
    Recv,
}

/// An operation that the fabric holds, together with the memory slot that it uses. The fabric holds at most one
/// operation per direction, kind and slot at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Op {
    /// Direction of the operation.
    pub way: Way,
    /// Kind of message.
    pub kind: Kind,
    /// Index of the memory slot, among those of this direction and kind.
    pub place: u16,
}

impl Op {
    /// Returns the operation as a number below 2¹⁹.
    #[inline]
    #[must_use]
    pub fn bits(self) -> u32 {
        (self.way as u32) << 18 | (self.kind as u32) << 16 | u32::from(self.place)
    }

    /// Returns the operation that [`bits`](Op::bits) encoded.
    #[inline]
    #[must_use]
    pub fn of(bits: u32) -> Op {
        let way = if bits >> 18 & 1 == 0 { Way::Send } else { Way::Recv };
        let kind = Kind::ALL[(bits >> 16 & 3) as usize];
        Op { way, kind, place: bits as u16 }
    }
}

/// Content of a message of the fabric.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum What {
    /// The length of a message as 8 bytes, little endian, followed by `inline` bytes of the message. If the tag's
    /// sequence has [`Tag::WHOLE`], the content is the message without its length.
    Length {
        /// Length of the message, in bytes.
        bytes: u64,
        /// Number of bytes of the message that are sent with the length: `bytes` or 0.
        inline: u32,
    },
    /// A piece of the message that is being written.
    Payload {
        /// Offset of the piece in the message, in bytes.
        offset: u64,
        /// Length of the piece, in bytes.
        bytes: u32,
    },
    /// A control message.
    Control([u64; 8]),
}

/// A message of the fabric to send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Send {
    /// Operation to report when the send completes.
    pub op: Op,
    /// Tag of the message.
    pub tag: Tag,
    /// Content of the message.
    pub what: What,
}

/// A receive to post.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Recv {
    /// Operation to report when the receive completes.
    pub op: Op,
    /// Tag that the receive matches.
    pub tag: Tag,
    /// Bits of the tag that the match ignores.
    pub ignore: u64,
}

/// Result of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The message was sent.
    Sent,
    /// The receive completed with a message.
    Received {
        /// Kind of the message, from its tag. A receive for a length may have matched a control message
        /// ([`Tag::OR_CONTROL`]).
        kind: Kind,
        /// Sequence of the tag that completed.
        sequence: u32,
        /// Length of the message, in bytes.
        bytes: u32,
        /// Content of the message as words: the first word of a length, or all words of a control message or hello.
        words: [u64; 8],
    },
    /// The operation had no effect: the receive was cancelled before a message arrived in it, or the fabric refused the
    /// post.
    GivenBack,
    /// The operation failed. It is no longer outstanding.
    Failed(Status),
}

/// An event that a connection reports to its owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Notice {
    /// The peer has opened its end, with equal parameters.
    Opened,
    /// The message with this number was sent. Messages are reported in the order of their numbers.
    Written(u64),
    /// The connection failed. Nothing more is written or read. [`Notice::Closed`] follows when no operation is
    /// outstanding.
    Failed(crate::ChannelError),
    /// The connection is over, and no operation is outstanding.
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_survive_encoding() {
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
