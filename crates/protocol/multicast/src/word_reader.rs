//! Letters are words: reading them one after the other, and what may be wrong with them.

use thiserror::Error;

use crate::Ballot;
use crate::item::VERSION;

/// Why words are not a letter: a peer of another version, or a bug.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum PeerMessageError {
    /// It ends early.
    #[error("a letter that ends after {words} words, before it should")]
    Truncated {
        /// Its words.
        words: usize,
    },
    /// It goes on after its end.
    #[error("a letter with {0} words too many")]
    Trailing(usize),
    /// No such kind.
    #[error("letter kind {0} is unknown")]
    Kind(u8),
    /// Another version.
    #[error("letter of format version {0}; this process speaks {VERSION}")]
    Version(u8),
    /// A number that cannot be.
    #[error("a letter with an impossible {0}")]
    Value(&'static str),
}

/// Reads words one after the other.
#[derive(Debug)]
pub(crate) struct WordReader<'a> {
    all: &'a [u64],
    at: usize,
}

impl<'a> WordReader<'a> {
    pub(crate) fn new(all: &'a [u64]) -> Self {
        WordReader { all, at: 0 }
    }

    /// Nothing may be left.
    pub(crate) fn end(&self) -> Result<(), PeerMessageError> {
        match self.all.len() - self.at {
            0 => Ok(()),
            left => Err(PeerMessageError::Trailing(left)),
        }
    }

    pub(crate) fn next(&mut self) -> Result<u64, PeerMessageError> {
        let word = self.all.get(self.at).ok_or(PeerMessageError::Truncated { words: self.all.len() })?;
        self.at += 1;
        Ok(*word)
    }

    /// A length, of things that take at least one word each.
    pub(crate) fn length(&mut self) -> Result<usize, PeerMessageError> {
        let length = self.next()?;
        let left = (self.all.len() - self.at) as u64;
        if length > left {
            return Err(PeerMessageError::Truncated { words: self.all.len() });
        }
        Ok(length as usize)
    }

    pub(crate) fn take(&mut self, words: usize) -> Result<&'a [u64], PeerMessageError> {
        let taken = self.all[self.at..].get(..words).ok_or(PeerMessageError::Truncated { words: self.all.len() })?;
        self.at += words;
        Ok(taken)
    }

    pub(crate) fn ballot(&mut self) -> Result<Ballot, PeerMessageError> {
        Ok(Ballot::from_word(self.next()?))
    }
}
