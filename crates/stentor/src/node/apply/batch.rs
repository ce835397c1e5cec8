//! Commands that go to the apply thread together, and the replies that come back.

use std::time::Duration;

use stentor_multicast::ClientId;
use stentor_session::AnswerBuffer;

use super::commands::Commands;
use super::queries::Queries;

/// Commands of one round, or of several if the apply thread is slow.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) commands: Commands,
    /// Queries that are answered behind all commands.
    pub(super) queries: Queries,
    /// Clients to which replies are said again, behind the commands.
    pub(super) again: Vec<ClientId>,
    /// The answers to the commands and to the queries, then those that are said again.
    pub(super) replies: AnswerBuffer,
    /// How long the apply thread took for it.
    pub(super) took: Duration,
}

impl Batch {
    /// Bytes up to which commands are added to a batch.
    const FULL: usize = 256 << 10;

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.bytes() >= Self::FULL
    }

    /// Returns the number of commands and queries.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.commands.len() + self.queries.len()
    }

    /// Returns the bytes of memory that they take.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.commands.bytes() + self.queries.bytes()
    }

    /// Makes the batch empty, so that it can be used again.
    pub(super) fn clear(&mut self) {
        self.commands.clear();
        self.queries.clear();
        self.again.clear();
        self.replies.clear();
        self.took = Duration::ZERO;
    }
}
