//! Content of a slot: one broadcast with its key, its dense index and, if values are signed, the sender's signature.
//!
//! | word | content |
//! |---|---|
//! | 0 | index: dense, from 0 |
//! | 1 | key: the application's, not interpreted |
//! | 2 | payload length in bytes |
//! | 3 … | payload, padded with zeros to a word |
//! | last 8 | Ed25519 signature, if values are signed |
//!
//! Two values are equal if all their words except the signature are equal.

use stentor_fabric::ProcessId;
use stentor_fabric::memory::WORD;
use thiserror::Error;
use zerocopy::IntoBytes;

use crate::authority::Authority;

/// Number of words before the payload.
pub(crate) const HEAD_WORDS: usize = 3;
/// Number of words of a signature.
pub(crate) const SIGNATURE_WORDS: usize = 8;

/// Reason why a sealed value is refused: its sender violates the protocol.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The slot of one index holds the value of another index.
    #[error("index gap: index {found} lies where {expected} belongs")]
    IndexGap {
        /// Index of the slot.
        expected: u64,
        /// Index in the value.
        found: u64,
    },
    /// The length is wrong.
    #[error("a value of {bytes} bytes whose header states a payload of {payload}; at most {limit} are agreed on")]
    Length {
        /// Length of the value, in bytes.
        bytes: usize,
        /// Length of the payload according to the header, in bytes.
        payload: u64,
        /// Length of the longest payload, in bytes.
        limit: usize,
    },
    /// The sender has not signed the value for this cluster and index.
    #[error("the signature of index {index} is not {sender}'s: another key or another cluster")]
    Signature {
        /// Sender of the stream.
        sender: ProcessId,
        /// Index of the value.
        index: u64,
    },
}

/// A value as it lies in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value<'a> {
    words: &'a [u64],
    signed: bool,
}

impl<'a> Value<'a> {
    /// Parses the value in a sealed record's payload of `bytes`.
    ///
    /// # Errors
    /// Returns [`Refused::Length`] if the lengths do not match.
    pub fn new(words: &'a [u64], bytes: usize, signed: bool, limit: usize) -> Result<Self, Refused> {
        let payload = words.get(2).copied().unwrap_or(u64::MAX);
        let words = words.get(..bytes / WORD).unwrap_or(words);
        let tail = if signed { SIGNATURE_WORDS } else { 0 };
        let needs = payload.div_ceil(WORD as u64).saturating_add((HEAD_WORDS + tail) as u64);
        if payload > limit as u64 || words.len() as u64 != needs || !bytes.is_multiple_of(WORD) {
            return Err(Refused::Length { bytes, payload, limit });
        }
        Ok(Value { words, signed })
    }

    /// Wraps words that this process wrote with [`encode`], or that it has checked before.
    pub(crate) fn trusted(words: &'a [u64], signed: bool) -> Self {
        Value { words, signed }
    }

    /// Returns the dense index.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.words[0]
    }

    /// Returns the application's key.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.words[1]
    }

    /// Returns the payload.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.words[HEAD_WORDS..].as_bytes()[..self.words[2] as usize]
    }

    /// Returns all words.
    #[must_use]
    pub fn words(&self) -> &'a [u64] {
        self.words
    }

    /// Returns the words that are compared between values.
    #[must_use]
    pub fn content(&self) -> &'a [u64] {
        content(self.words, self.signed)
    }

    /// Checks that the value is for this index, and that its sender has signed it if values are signed.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn check(&self, sender: ProcessId, index: u64, authority: Option<&Authority>) -> Result<(), Refused> {
        if self.index() != index {
            return Err(Refused::IndexGap { expected: index, found: self.index() });
        }
        if self.is_authentic(sender, authority) { Ok(()) } else { Err(Refused::Signature { sender, index }) }
    }

    /// Returns whether the sender has signed the value. Always true if values are not signed.
    #[must_use]
    pub fn is_authentic(&self, sender: ProcessId, authority: Option<&Authority>) -> bool {
        authority.is_none_or(|authority| {
            let signature = self.words[self.words.len() - SIGNATURE_WORDS..].as_bytes();
            signature.first_chunk().is_some_and(|signature| authority.verifies(sender, self.content(), signature))
        })
    }
}

/// Returns the words that are compared: all but a signature.
pub(crate) fn content(words: &[u64], signed: bool) -> &[u64] {
    let tail = if signed { SIGNATURE_WORDS } else { 0 };
    &words[..words.len().saturating_sub(tail)]
}

/// Writes a value to the beginning of `out`, which must have room for it. Returns its length in bytes.
pub(crate) fn encode(index: u64, key: u64, payload: &[u8], authority: Option<&Authority>, out: &mut [u64]) -> usize {
    let end = HEAD_WORDS + payload.len().div_ceil(WORD);
    (out[0], out[1], out[2]) = (index, key, payload.len() as u64);
    if end > HEAD_WORDS {
        out[end - 1] = 0;
    }
    out[HEAD_WORDS..end].as_mut_bytes()[..payload.len()].copy_from_slice(payload);
    let Some(authority) = authority else { return end * WORD };
    let signature = authority.sign(&out[..end]);
    out[end..end + SIGNATURE_WORDS].as_mut_bytes().copy_from_slice(&signature);
    (end + SIGNATURE_WORDS) * WORD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_encoding() {
        for length in 0..40 {
            let payload: Vec<u8> = (0..length).collect();
            let mut words = [u64::MAX; 12];
            let bytes = encode(7, 99, &payload, None, &mut words);
            let value = Value::new(&words, bytes, false, 40).unwrap();
            assert_eq!((value.index(), value.key(), value.payload()), (7, 99, &payload[..]));
            assert!(value.check(ProcessId(0), 7, None).is_ok());
        }
    }

    #[test]
    fn wrong_lengths_and_indices_are_refused_by_name() {
        let mut words = [0; 12];
        let bytes = encode(7, 0, &[1; 30], None, &mut words);
        assert_eq!(
            Value::new(&words, bytes, false, 29).unwrap_err().to_string(),
            "a value of 56 bytes whose header states a payload of 30; at most 29 are agreed on"
        );
        assert!(Value::new(&words, bytes - 8, false, 40).is_err());
        assert!(Value::new(&words, bytes + 8, false, 40).is_err());
        assert!(Value::new(&words[..2], 16, false, 40).is_err());
        let gap = Value::new(&words, bytes, false, 40).unwrap().check(ProcessId(0), 8, None).unwrap_err();
        assert_eq!(gap.to_string(), "index gap: index 7 lies where 8 belongs");
    }
}
