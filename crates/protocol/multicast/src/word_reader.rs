//! The encoding of peer messages as 64-bit words, the reader that decodes them, and its errors.

use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::item::VERSION;
use crate::{Ballot, ClientId, GroupId, Incarnation};

/// The reason why words are not a valid peer message. The sender has another version or a bug.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum PeerMessageError {
    /// The message ends before its last field.
    #[error("a peer message that ends after {words} words, before its last field")]
    Truncated {
        /// Number of words in the message.
        words: usize,
    },
    /// The message has words after its last field.
    #[error("a peer message with {0} words after its last field")]
    Trailing(usize),
    /// The kind is unknown.
    #[error("peer message kind {0} is unknown")]
    Kind(u8),
    /// The format version differs from that of this process.
    #[error("peer message of format version {0}; this process speaks {VERSION}")]
    Version(u8),
    /// A field has an invalid value.
    #[error("a peer message with an invalid {0}")]
    Value(&'static str),
}

/// A reader of the words of a peer message, in order.
#[derive(Debug)]
pub(crate) struct WordReader<'a> {
    all: &'a [u64],
    at: usize,
}

impl<'a> WordReader<'a> {
    pub(crate) fn new(all: &'a [u64]) -> Self {
        WordReader { all, at: 0 }
    }

    /// Checks that all words have been read.
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

    /// Reads the length of a list whose elements take at least one word each.
    ///
    /// A length larger than the number of remaining words is an error, so an invalid length cannot cause a large
    /// allocation.
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

/// A part of a peer message: a field, or a struct of fields.
pub(crate) trait Wire: Sized {
    /// Appends the words of the value.
    fn encode(&self, out: &mut Vec<u64>);
    /// Reads the value.
    fn decode(words: &mut WordReader<'_>) -> Result<Self, PeerMessageError>;
}

/// A value that is encoded in one word.
pub(crate) trait Word: Sized {
    /// Returns the word that encodes the value.
    fn word(&self) -> u64;
    /// Decodes the value from a word.
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

/// Implements [`Word`] for a type: its encoding, its decoding, and its name in [`PeerMessageError::Value`].
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

/// Encodes a list as its length, followed by the elements.
impl<T: Wire> Wire for Vec<T> {
    fn encode(&self, out: &mut Vec<u64>) {
        out.push(self.len() as u64);
        self.iter().for_each(|one| one.encode(out));
    }

    fn decode(words: &mut WordReader<'_>) -> Result<Self, PeerMessageError> {
        (0..words.length()?).map(|_| T::decode(words)).collect()
    }
}
