//! Batches of commands for the apply thread, which return with the replies.

use std::time::Duration;

use stentor_multicast::ClientId;
use stentor_session::AnswerBuffer;

use super::commands::Commands;
use super::queries::Queries;

/// Commands and queries that are handed to the apply thread together. They are from one round, or from several rounds
/// if the apply thread is slow.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) commands: Commands,
    /// Queries, which are answered after all commands.
    pub(super) queries: Queries,
    /// Clients whose unacknowledged replies are repeated, after the commands and queries.
    pub(super) again: Vec<ClientId>,
    /// The replies to the commands and the queries, followed by the repeated replies.
    pub(super) replies: AnswerBuffer,
    /// Time for which the apply thread processed the batch.
    pub(super) took: Duration,
}

impl Batch {
    /// Size at which a batch is full, in bytes.
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

    /// Returns the memory that the commands and queries occupy, in bytes.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.commands.bytes() + self.queries.bytes()
    }

    /// Empties the batch for reuse.
    pub(super) fn clear(&mut self) {
        self.commands.clear();
        self.queries.clear();
        self.again.clear();
        self.replies.clear();
        self.took = Duration::ZERO;
    }
}
