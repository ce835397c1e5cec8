//! The replies of a session's earlier generations.

use std::collections::VecDeque;

use super::replies::Replies;

/// The kept outcomes of requests of the generations before the current one.
///
/// # Invariants
/// - The generations are consecutive, and the last one is directly before the current one.
/// - At most a window of generations is kept. Together they span at most a window of requests. The oldest are dropped
///   first. The generation before the current one is therefore never cut, because it spans at most a window.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Earlier {
    /// Replies of each earlier generation, oldest first, with the random word that began the generation.
    generations: VecDeque<(u64, Replies)>,
}

impl Earlier {
    /// Adds the generation that ends now. Drops the oldest generations that exceed a window.
    pub(crate) fn push(&mut self, word: u64, replies: Replies, window: u32, spare: &mut Vec<Vec<u8>>) {
        self.generations.push_back((word, replies));
        while self.generations.len() > window as usize {
            self.generations.pop_front();
        }
        let mut beyond = self.span().saturating_sub(window as usize);
        for (_, replies) in &mut self.generations {
            let dropped = beyond.min(replies.span());
            replies.acknowledge(replies.low() + dropped as u64, spare);
            beyond -= dropped;
        }
    }

    /// Returns the word and the replies of an earlier generation. `before` is 1 for the one before the current one.
    pub(crate) fn get_mut(&mut self, before: u32) -> Option<&mut (u64, Replies)> {
        let index = self.generations.len().checked_sub(before as usize)?;
        self.generations.get_mut(index)
    }

    /// Returns the number of generations.
    pub(crate) fn len(&self) -> usize {
        self.generations.len()
    }

    /// Returns the number of requests that the generations span.
    pub(crate) fn span(&self) -> usize {
        self.generations.iter().map(|(_, replies)| replies.span()).sum()
    }

    /// Returns the generations, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(u64, Replies)> {
        self.generations.iter()
    }
}
