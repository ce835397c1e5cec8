//! Peer messages are words: reading them one after the other, and what may be wrong with them.

use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::item::VERSION;
use crate::{Ballot, ClientId, GroupId, Incarnation};

/// Why words are not a peer message: a peer of another version, or a bug.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum PeerMessageError {
    /// It ends early.
    #[error("a peer message that ends after {words} words, before it should")]
    Truncated {
        /// Its words.
        words: usize,
    },
    /// It goes on after its end.
    #[error("a peer message with {0} words too many")]
    Trailing(usize),
    /// No such kind.
    #[error("peer message kind {0} is unknown")]
    Kind(u8),
    /// Another version.
    #[error("peer message of format version {0}; this process speaks {VERSION}")]
    Version(u8),
    /// A number that cannot be.
    #[error("a peer message with an impossible {0}")]
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
}

/// What peer messages consist of.
pub(crate) trait Wire: Sized {
    /// Appends the words.
    fn encode(&self, out: &mut Vec<u64>);
    /// Reads them.
    fn decode(words: &mut WordReader<'_>) -> Result<Self, PeerMessageError>;
}

/// What takes one word.
pub(crate) trait Word: Sized {
    /// As a word.
    fn word(&self) -> u64;
    /// From a word.
    fn read(word: u64) -> Result<Self, PeerMessageError>;
}

impl<T: Word> Wire for T {
    fn encode(&self, out: &mut Vec<u64>) {
        out.push(self.word());
    }

    fn decode(words: &mut WordReader<'_>) -> Result<Self, PeerMessageError> {
        T::read(words.next()?)
    }
}

/// Says how a type becomes a word, and how a word becomes one again, or what else it is.
macro_rules! word {
    ($type:ty, $one:ident => $word:expr, $read:expr, $what:literal) => {
        impl Word for $type {
            fn word(&self) -> u64 {
                let $one = *self;
                $word
            }

            fn read(word: u64) -> Result<Self, PeerMessageError> {
                $read(word).ok_or(PeerMessageError::Value($what))
            }
        }
    };
}

fn index(word: u64) -> Option<u16> {
    u16::try_from(word).ok()
}

word!(u64, one => one, Some, "word");
word!(bool, one => u64::from(one), |word| (word <= 1).then_some(word == 1), "flag");
word!(Ballot, one => one.to_word(), |word| Some(Ballot::from_word(word)), "ballot");
word!(
    Incarnation,
    one => one.to_word(),
    |word| Some(Incarnation::from_word(word)).filter(|one| one.is_possible()),
    "incarnation"
);
word!(GroupId, one => u64::from(one.0), |word| index(word).map(GroupId), "group");
word!(ClientId, one => u64::from(one.0), |word| index(word).map(ClientId), "client");
word!(ProcessId, one => u64::from(one.0), |word| index(word).map(ProcessId), "process");

/// A length, then so many of them.
impl<T: Wire> Wire for Vec<T> {
    fn encode(&self, out: &mut Vec<u64>) {
        out.push(self.len() as u64);
        self.iter().for_each(|one| one.encode(out));
    }

    fn decode(words: &mut WordReader<'_>) -> Result<Self, PeerMessageError> {
        (0..words.length()?).map(|_| T::decode(words)).collect()
    }
}
