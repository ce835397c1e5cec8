//! The body that follows the envelope of a session's own commands. The crate's header has its layout.

use stentor_multicast::{GroupId, Incarnation};
use thiserror::Error;

use crate::Pair;
use crate::bytes::{u16_at, u32_at, u64_at};

/// Body of `Open`, `Renew`, `Widen`, `TakeUp`, `End` and `Resolve`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Body {
    /// Time to live of the session, counted from the command's position in the order, in nanoseconds. 0 for `End` and
    /// `Resolve`.
    pub ttl: u64,
    /// `Widen`: the random word that began the generation. Otherwise 0.
    pub word: u64,
    /// `Widen`: number of the widening, from 1. `TakeUp`: number of the last widening. `Resolve`: generation of the
    /// request. Otherwise 0.
    pub number: u32,
    /// `Open` and `Widen`: all pairs of the session, by ascending group. Otherwise empty.
    pub pairs: Vec<Pair>,
}

/// Reason why bytes are not a valid body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The length does not match the number of pairs.
    #[error("{bytes} bytes of body cannot hold {pairs} pairs exactly")]
    Length {
        /// Number of bytes.
        bytes: usize,
        /// Number of pairs according to the body.
        pairs: u32,
    },
    /// The body has more than [`Body::MAX_PAIRS`] pairs.
    #[error("{0} pairs; a session has at most {max}", max = Body::MAX_PAIRS)]
    TooMany(u32),
    /// The groups are not ascending, or one is named twice.
    #[error("pairs are not in rising order of their groups")]
    Order,
    /// Reserved bytes are not 0.
    #[error("reserved bytes of the body are not 0")]
    Reserved,
}

impl Body {
    /// Largest number of pairs of a session.
    pub const MAX_PAIRS: u32 = 256;
    /// Number of bytes before the pairs.
    pub const HEAD_BYTES: usize = 24;
    /// Number of bytes of a pair.
    pub const PAIR_BYTES: usize = 16;

    /// Appends the serialized body.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.ttl.to_le_bytes());
        out.extend(self.word.to_le_bytes());
        out.extend(self.number.to_le_bytes());
        out.extend((self.pairs.len() as u32).to_le_bytes());
        write_pairs(&self.pairs, out);
    }

    /// Parses a body.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a valid body.
    pub fn parse(bytes: &[u8]) -> Result<Body, BodyError> {
        let Some((head, rest)) = bytes.split_at_checked(Body::HEAD_BYTES) else {
            return Err(BodyError::Length { bytes: bytes.len(), pairs: 0 });
        };
        let count = u32_at(head, 20);
        let pairs = parse_pairs(count, rest)?;
        Ok(Body { ttl: u64_at(head, 0), word: u64_at(head, 8), number: u32_at(head, 16), pairs })
    }
}

/// Appends the number and the pairs of a session's last widening. They answer a `TakeUp` that names another widening.
pub(crate) fn write_version(widening: u32, pairs: &[Pair], out: &mut Vec<u8>) {
    out.extend(widening.to_le_bytes());
    out.extend((pairs.len() as u32).to_le_bytes());
    write_pairs(pairs, out);
}

/// Parses what `write_version` wrote.
pub(crate) fn parse_version(bytes: &[u8]) -> Option<(u32, Vec<Pair>)> {
    let (head, rest) = bytes.split_at_checked(8)?;
    let pairs = parse_pairs(u32_at(head, 4), rest).ok().filter(|pairs| !pairs.is_empty())?;
    Some((u32_at(head, 0), pairs))
}

/// Appends 16 bytes for each pair.
pub(crate) fn write_pairs(pairs: &[Pair], out: &mut Vec<u8>) {
    for pair in pairs {
        out.extend(u64::from(pair.group.0).to_le_bytes());
        out.extend(pair.incarnation.to_word().to_le_bytes());
    }
}

/// Parses exactly `count` pairs, which must be in ascending order of groups.
pub(crate) fn parse_pairs(count: u32, bytes: &[u8]) -> Result<Vec<Pair>, BodyError> {
    if count > Body::MAX_PAIRS {
        return Err(BodyError::TooMany(count));
    }
    if bytes.len() != count as usize * Body::PAIR_BYTES {
        return Err(BodyError::Length { bytes: bytes.len(), pairs: count });
    }
    let words = bytes.chunks_exact(Body::PAIR_BYTES);
    if words.clone().any(|pair| pair[2..8] != [0; 6]) {
        return Err(BodyError::Reserved);
    }
    let pair = |pair| Pair { group: GroupId(u16_at(pair, 0)), incarnation: Incarnation::from_word(u64_at(pair, 8)) };
    let pairs: Vec<Pair> = words.map(pair).collect();
    if crate::ids::rises(&pairs) { Ok(pairs) } else { Err(BodyError::Order) }
}
