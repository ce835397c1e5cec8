//! The destination groups of a delivered message.

use std::fmt;

use crate::GroupId;
use crate::message::Destination;

/// The destination groups of a message, as a view of the words that encode them or as a bit mask.
///
/// # Invariants
/// - The lower 16 bits of each word are a group, and the groups are in rising order. The other bits are ignored. In a
///   header they are the message's slot at that group.
/// - If there are words, no bit of the mask is set.
#[derive(Clone, Copy, Default)]
pub struct DestinationGroups<'a> {
    words: &'a [u64],
    /// The mask, in which bit n represents group n.
    bits: u64,
}

impl<'a> DestinationGroups<'a> {
    /// Creates a view of words whose lower 16 bits are groups in rising order.
    #[inline]
    #[must_use]
    pub const fn from_words(words: &'a [u64]) -> Self {
        DestinationGroups { words, bits: 0 }
    }

    /// Creates the set of groups whose bits are set.
    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        DestinationGroups { words: &[], bits }
    }

    /// Returns the groups as a bit mask if all are smaller than `limit`, which is at most 64.
    pub(crate) fn to_bits(self, limit: u16) -> Option<u64> {
        self.iter().try_fold(0, |bits, group| (group.0 < limit).then(|| bits | 1 << group.0))
    }

    /// Returns the groups, in rising order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = GroupId> + use<'a> {
        let mut bits = self.bits;
        let of_bits = std::iter::from_fn(move || {
            let group = bits.trailing_zeros() as u16;
            bits &= bits.checked_sub(1)?;
            Some(GroupId(group))
        });
        self.words.iter().map(|word| Destination::from_word(*word).group).chain(of_bits)
    }

    /// Returns the number of groups.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len() + self.bits.count_ones() as usize
    }

    /// Returns whether there are no groups. A delivered message has at least one.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty() && self.bits == 0
    }

    /// Returns whether `group` is one of the destinations.
    #[must_use]
    pub fn contains(&self, group: GroupId) -> bool {
        self.iter().any(|destination| destination == group)
    }
}

impl PartialEq for DestinationGroups<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for DestinationGroups<'_> {}

impl fmt::Debug for DestinationGroups<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_from_bits_equal_groups_from_words() {
        let groups = DestinationGroups::from_bits(1 << 2 | 1 << 46 | 1 << 63);
        assert_eq!(groups, DestinationGroups::from_words(&[2, 46, 63]));
        assert_eq!((groups.len(), groups.is_empty(), groups.contains(GroupId(0))), (3, false, false));
        assert_eq!((groups.to_bits(64), groups.to_bits(63)), (Some(1 << 2 | 1 << 46 | 1 << 63), None));
        assert_eq!(DestinationGroups::from_words(&[1 << 20 | 3, 300]).to_bits(64), None);
        assert_eq!(DestinationGroups::default().to_bits(0), Some(0));
    }

    #[test]
    fn groups_are_the_lower_bits_of_words() {
        let slots = [(2, 7), (300, 1 << 40)];
        let words = slots.map(|(group, slot)| Destination { group: GroupId(group), slot }.to_word());
        let groups = DestinationGroups::from_words(&words);
        assert_eq!(groups.iter().collect::<Vec<_>>(), [GroupId(2), GroupId(300)]);
        assert_eq!((groups.len(), groups.is_empty(), DestinationGroups::default().is_empty()), (2, false, true));
        assert!(groups.contains(GroupId(300)) && !groups.contains(GroupId(7)));
        assert_eq!(groups, DestinationGroups::from_words(&[2, 300]), "slots make no difference");
        assert_ne!(groups, DestinationGroups::from_words(&[2]));
    }
}
