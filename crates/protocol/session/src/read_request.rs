//! The record by which a client asks one member, outside the order. See the crate's header for its layout.

use stentor_multicast::{Incarnation, Timestamp};
use thiserror::Error;

use crate::bytes::{put, u64_at};

/// What a read's answer contains of the order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReadGuarantee {
    /// The leader answers: everything that any client was told by this group when the question came, and everything up to a time.
    Leader {
        /// The time.
        not_before: u64,
    },
    /// Any member answers that has applied a command of this number.
    After {
        /// The number.
        index: u64,
        /// Where the history began in which it has that number.
        incarnation: Incarnation,
    },
    /// Any member answers that has applied a command with this timestamp, or with a later one.
    Past {
        /// The timestamp.
        timestamp: Timestamp,
    },
    /// Any member answers, at once.
    Local,
}

/// A question to one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRequest<'a> {
    /// What the answer names: the client's own number.
    pub name: u64,
    /// Whether it was asked before. A member for which it waits goes on with that.
    pub again: bool,
    /// What the answer is to contain.
    pub guarantee: ReadGuarantee,
    /// The question.
    pub query: &'a [u8],
}

/// Why bytes are no read request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ReadRequestError {
    /// There are fewer bytes than its head has.
    #[error("{0} bytes are shorter than the {head} of a read request", head = ReadRequest::HEAD_BYTES)]
    Short(usize),
    /// Another version wrote it.
    #[error("read request of version {0}; this process reads {version}", version = ReadRequest::VERSION)]
    Version(u8),
    /// The guarantee is unknown.
    #[error("no guarantee of a read has the number {0}")]
    Guarantee(u8),
    /// Bytes that are reserved, or that the guarantee does not use, are not 0.
    #[error("reserved bytes of the read request are not 0")]
    Reserved,
}

impl<'a> ReadRequest<'a> {
    /// Bytes in front of the query.
    pub const HEAD_BYTES: usize = 32;
    /// The version that is written and read.
    pub const VERSION: u8 = 1;

    /// Returns the bytes that go in front of the query.
    #[must_use]
    pub fn head(&self) -> [u8; ReadRequest::HEAD_BYTES] {
        let mut head = [0; ReadRequest::HEAD_BYTES];
        let (number, first, second) = match self.guarantee {
            ReadGuarantee::Leader { not_before } => (1, not_before, 0),
            ReadGuarantee::After { index, incarnation } => (2, index, incarnation.to_word()),
            ReadGuarantee::Local => (3, 0, 0),
            ReadGuarantee::Past { timestamp } => (4, timestamp.time, u64::from(timestamp.group)),
        };
        put(&mut head, 0, &self.name.to_le_bytes());
        put(&mut head, 8, &u64::to_le_bytes(first));
        put(&mut head, 16, &u64::to_le_bytes(second));
        head[24] = number;
        head[25] = ReadRequest::VERSION;
        head[26] = self.again.into();
        head
    }

    /// Reads a request.
    ///
    /// # Errors
    /// If the bytes are none of this version.
    pub fn parse(bytes: &'a [u8]) -> Result<ReadRequest<'a>, ReadRequestError> {
        let Some((head, query)) = bytes.split_at_checked(ReadRequest::HEAD_BYTES) else {
            return Err(ReadRequestError::Short(bytes.len()));
        };
        if head[25] != ReadRequest::VERSION {
            return Err(ReadRequestError::Version(head[25]));
        }
        let (first, second) = (u64_at(head, 8), u64_at(head, 16));
        let incarnation = Incarnation::from_word(second);
        let (guarantee, is_used) = match head[24] {
            1 => (ReadGuarantee::Leader { not_before: first }, second == 0),
            2 => (ReadGuarantee::After { index: first, incarnation }, true),
            3 => (ReadGuarantee::Local, first == 0 && second == 0),
            4 => {
                let group = second as u16;
                let timestamp = Timestamp { time: first, group };
                (ReadGuarantee::Past { timestamp }, u64::from(group) == second)
            }
            other => return Err(ReadRequestError::Guarantee(other)),
        };
        if !is_used || head[26] > 1 || head[27..] != [0; 5] {
            return Err(ReadRequestError::Reserved);
        }
        Ok(ReadRequest { name: u64_at(head, 0), again: head[26] == 1, guarantee, query })
    }
}
