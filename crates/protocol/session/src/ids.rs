//! Identifiers: sessions, pairs of a group and its incarnation, positions.

use std::fmt;

use stentor_fabric::SplitMix64;
use stentor_multicast::{GroupId, Incarnation, Timestamp};

/// Identifier of a session: the random word that its caller drew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SessionId(pub u128);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A group in one incarnation. A session uses pairs, so a group that was reset is not the group that the session used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pair {
    /// Group of the pair.
    pub group: GroupId,
    /// Incarnation in which the group's history began (its origin).
    pub incarnation: Incarnation,
}

/// Position at which a command was applied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Position {
    /// Final timestamp, which is equal in all destination groups.
    pub timestamp: Timestamp,
    /// Index in the order of the answering group, from 1.
    pub index: u64,
    /// Incarnation in which the answering group's history began (its origin).
    pub incarnation: Incarnation,
}

/// Returns the tag of these pairs in a generation that began with this random word: a hash over the word, the groups
/// and the incarnations. The order of the pairs matters; callers and tables order them by ascending group.
///
/// The hash includes the word because two generations can have the same number: two processes may take a session up in
/// groups that no longer have anything in common.
#[must_use]
pub fn pairs_tag(word: u64, pairs: impl IntoIterator<Item = Pair>) -> u64 {
    pairs.into_iter().fold(SplitMix64::finish(word ^ 0x5365_7373_696f_6e73), |hash, pair| {
        let hash = SplitMix64::finish(hash ^ u64::from(pair.group.0));
        SplitMix64::finish(hash.rotate_left(17) ^ pair.incarnation.to_word())
    })
}

/// Returns the tag of those `pairs` whose group is in `groups`. Returns `None` if a group has no pair or is named
/// twice.
pub(crate) fn tag_of(word: u64, pairs: &[Pair], groups: &[GroupId]) -> Option<u64> {
    let chosen = || pairs.iter().filter(|pair| groups.contains(&pair.group)).copied();
    (chosen().count() == groups.len()).then(|| pairs_tag(word, chosen()))
}

/// Returns whether the pairs are in ascending order of their groups, each group once.
pub(crate) fn rises(pairs: &[Pair]) -> bool {
    pairs.windows(2).all(|pair| pair[0].group < pair[1].group)
}
