//! Processes, groups, messages, ballots and incarnations, with small numbers for names.

/// Maximum number of groups in a history.
pub const MAX_GROUPS: usize = 256;

/// A process: its index in the cluster's process table. Members come first, in the order of the groups; clients follow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Process(pub u32);

/// A group: its index in the cluster line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Group(pub u16);

/// A word that occurs in events, such as the kind of a remote operation. It is interned in the
/// [`Cluster`](crate::Cluster).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Label(pub u32);

/// A message, identified by its client and a sequence number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageId {
    /// The client that multicast the message.
    pub client: Process,
    /// The sequence number at the client.
    pub sequence: u64,
}

/// A timestamp. Timestamps are compared by time, then by the position of the group in the cluster line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timestamp {
    /// The logical time.
    pub time: u64,
    /// The group whose clock assigned the time.
    pub group: Group,
}

/// A ballot: the pair (number, process), compared lexicographically.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ballot {
    /// The number.
    pub number: u64,
    /// The process that created the ballot.
    pub by: Process,
}

/// An incarnation of a group: a rising number, and a tag that distinguishes incarnations with the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Incarnation {
    /// The number.
    pub number: u32,
    /// The tag.
    pub tag: u32,
}

/// A set of groups, such as the destinations of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GroupSet([u64; MAX_GROUPS / 64]);

impl Process {
    /// Returns the index into tables by process.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Group {
    /// Returns the index into tables by group.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl std::fmt::Display for Incarnation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{:08x}", self.number, self.tag)
    }
}

impl std::str::FromStr for Incarnation {
    type Err = ();

    /// Parses the form that [`Display`](std::fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (number, tag) = text.split_once('-').filter(|(_, tag)| tag.len() == 8).ok_or(())?;
        let (number, tag) = (number.parse().map_err(drop)?, u32::from_str_radix(tag, 16).map_err(drop)?);
        Some(Incarnation { number, tag }).filter(|incarnation| incarnation.to_string() == text).ok_or(())
    }
}

impl GroupSet {
    /// The empty set.
    pub const EMPTY: GroupSet = GroupSet([0; MAX_GROUPS / 64]);

    /// Adds a group below [`MAX_GROUPS`]. Other groups are ignored.
    pub fn insert(&mut self, group: Group) {
        if let Some(word) = self.0.get_mut(group.index() / 64) {
            *word |= 1 << (group.0 % 64);
        }
    }

    /// Returns whether the group is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, group: Group) -> bool {
        self.0.get(group.index() / 64).is_some_and(|word| word >> (group.0 % 64) & 1 == 1)
    }

    /// Returns the number of groups in the set.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == GroupSet::EMPTY
    }

    /// Returns the number of groups in the set that come before this one.
    #[inline]
    pub(crate) fn rank(&self, group: Group) -> usize {
        let word = group.index() / 64;
        let before: u32 = self.0[..word].iter().map(|word| word.count_ones()).sum();
        let mask = (1_u64 << (group.0 % 64)) - 1;
        (before + (self.0[word] & mask).count_ones()) as usize
    }

    /// Returns the groups, in the order of the cluster line.
    pub fn iter(&self) -> impl Iterator<Item = Group> + '_ {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                (left != 0).then(|| {
                    left &= left - 1;
                    Group((index * 64) as u16 + bit as u16)
                })
            })
        })
    }
}

impl FromIterator<Group> for GroupSet {
    fn from_iter<I: IntoIterator<Item = Group>>(groups: I) -> Self {
        let mut set = GroupSet::EMPTY;
        groups.into_iter().for_each(|group| set.insert(group));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_counts_ranks_and_lists_its_groups() {
        let groups = [Group(0), Group(63), Group(64), Group(255)];
        let set: GroupSet = groups.into_iter().collect();
        assert_eq!(set.len(), 4);
        assert_eq!(set.iter().collect::<Vec<_>>(), groups);
        assert!(set.contains(Group(64)) && !set.contains(Group(65)) && !set.contains(Group(300)));
        assert_eq!(groups.map(|group| set.rank(group)), [0, 1, 2, 3]);
        assert!(GroupSet::EMPTY.is_empty() && !set.is_empty());
    }
}
