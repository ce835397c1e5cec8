//! The record by which a client asks one member, outside the order. The crate's header has its layout.

use stentor_multicast::{Incarnation, Timestamp};
use thiserror::Error;

use crate::bytes::{put, u64_at};

/// Commands that the answer of a read must reflect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReadGuarantee {
    /// The leader answers. The answer reflects all commands whose effects this group had reported to any client before
    /// the question arrived, and all commands up to a time.
    Leader {
        /// Time up to which the answer reflects all commands.
        not_before: u64,
    },
    /// Any member answers that has applied the command with this index.
    After {
        /// Index of the command.
        index: u64,
        /// Incarnation in which the history of this command began.
        incarnation: Incarnation,
    },
    /// Any member answers that has applied a command with this or a later timestamp.
    Past {
        /// Smallest timestamp that suffices.
        timestamp: Timestamp,
    },
    /// Any member answers at once.
    Local,
}

/// A query to one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRequest<'a> {
    /// Name of the read, which the answer repeats. The client chooses it.
    pub name: u64,
    /// `true` if the client has sent the read before. A member at which the read still waits then keeps its progress.
    pub again: bool,
    /// Commands that the answer must reflect.
    pub guarantee: ReadGuarantee,
    /// Query for the application.
    pub query: &'a [u8],
}

/// Reason why bytes are not a valid read request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ReadRequestError {
    /// There are fewer bytes than the head has.
    #[error("{0} bytes are shorter than the {head} of a read request", head = ReadRequest::HEAD_BYTES)]
    Short(usize),
    /// The request has another version.
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
    /// Number of bytes before the query.
    pub const HEAD_BYTES: usize = 32;
    /// Version that is written and accepted.
    pub const VERSION: u8 = 1;

    /// Returns the bytes that precede the query.
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

    /// Parses a request.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a valid request of this version.
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
