//! The destination groups of a command.

use stentor_multicast::GroupId;

use crate::Group;

/// Number of groups that are stored without an allocation.
const INLINE: usize = 6;

/// A set of groups, made from one group, an array or a slice, in any order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Groups(Set);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Set {
    /// The number of groups, and an array that begins with them, in rising order.
    Few(u8, [GroupId; INLINE]),
    /// More than [`INLINE`] groups, in rising order.
    Many(Box<[GroupId]>),
}

impl Groups {
    /// Returns the groups as the protocol requires them: in rising order, without duplicates.
    #[inline]
    pub(crate) fn ids(&self) -> &[GroupId] {
        match &self.0 {
            Set::Few(count, all) => &all[..usize::from(*count)],
            Set::Many(all) => all,
        }
    }

    pub(crate) fn none() -> Self {
        Groups(Set::Few(0, [GroupId(0); INLINE]))
    }

    /// Returns the groups, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = Group> + '_ {
        self.ids().iter().copied().map(Group)
    }
}

impl From<Group> for Groups {
    #[inline]
    fn from(group: Group) -> Self {
        let mut all = [GroupId(0); INLINE];
        all[0] = group.0;
        Groups(Set::Few(1, all))
    }
}

impl<const N: usize> From<[Group; N]> for Groups {
    fn from(groups: [Group; N]) -> Self {
        Groups::from(&groups[..])
    }
}

impl From<&[Group]> for Groups {
    fn from(groups: &[Group]) -> Self {
        if groups.len() > INLINE {
            let mut all: Vec<GroupId> = groups.iter().map(|group| group.0).collect();
            all.sort_unstable();
            all.dedup();
            return Groups(Set::Many(all.into()));
        }
        let (mut all, mut count) = ([GroupId(0); INLINE], 0);
        for Group(group) in groups {
            let at = all[..count].partition_point(|known| known < group);
            if at == count || all[at] != *group {
                all.copy_within(at..count, at + 1);
                (all[at], count) = (*group, count + 1);
            }
        }
        Groups(Set::Few(count as u8, all))
    }
}

/// Returns the first group, for errors that name only one group of a command.
pub(super) fn first(to: &[GroupId]) -> Group {
    Group(to.first().copied().unwrap_or(GroupId(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_sorted_and_unique_for_any_input() {
        let all = |groups: &[u16]| groups.iter().map(|group| Group(GroupId(*group))).collect::<Vec<_>>();
        let ids = |groups: Groups| groups.ids().iter().map(|group| group.0).collect::<Vec<_>>();
        assert_eq!(ids(Group(GroupId(4)).into()), [4]);
        assert!(ids(Groups::from(&all(&[])[..])).is_empty());
        assert_eq!(ids(Groups::from(&all(&[3, 1, 3, 2, 1, 9])[..])), [1, 2, 3, 9]);
        assert_eq!(ids(Groups::from(&all(&[7, 3, 1, 3, 2, 1, 9, 9, 0])[..])), [0, 1, 2, 3, 7, 9]);
        assert_eq!(ids([Group(GroupId(2)), Group(GroupId(1))].into()), [1, 2]);
    }
}
