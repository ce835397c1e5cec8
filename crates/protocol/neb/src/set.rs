//! Sets of processes. The processes that answered are always a set, never a counter. A process that answers twice, or
//! that is counted although it was removed, must not substitute for another.

use std::fmt;

use stentor_fabric::ProcessId;

/// A set of processes with numbers below 64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ProcessSet(u64);

impl ProcessSet {
    /// The empty set.
    pub const EMPTY: ProcessSet = ProcessSet(0);
    /// Upper bound of the number of processes.
    pub const CAPACITY: usize = 64;

    /// Returns the set of processes 0 to `n - 1`, as far as they are below [`ProcessSet::CAPACITY`].
    #[inline]
    #[must_use]
    pub const fn first(n: usize) -> Self {
        if n >= Self::CAPACITY { ProcessSet(u64::MAX) } else { ProcessSet(!u64::MAX.unbounded_shl(n as u32)) }
    }

    /// Adds a process with a number below 64. Others are never members.
    #[inline]
    pub fn insert(&mut self, process: ProcessId) {
        self.0 |= Self::bit(process);
    }

    /// Removes a process.
    #[inline]
    pub fn remove(&mut self, process: ProcessId) {
        self.0 &= !Self::bit(process);
    }

    /// Returns the set without a process.
    #[inline]
    #[must_use]
    pub const fn without(self, process: ProcessId) -> Self {
        ProcessSet(self.0 & !Self::bit(process))
    }

    /// Returns whether the process is in the set.
    #[inline]
    #[must_use]
    pub const fn contains(self, process: ProcessId) -> bool {
        self.0 & Self::bit(process) != 0
    }

    /// Returns whether all processes of `other` are in this set.
    #[inline]
    #[must_use]
    pub const fn covers(self, other: ProcessSet) -> bool {
        other.0 & !self.0 == 0
    }

    /// Returns the intersection.
    #[must_use]
    pub const fn and(self, other: ProcessSet) -> Self {
        ProcessSet(self.0 & other.0)
    }

    /// Returns the union.
    #[must_use]
    pub const fn or(self, other: ProcessSet) -> Self {
        ProcessSet(self.0 | other.0)
    }

    /// Returns the processes of this set that are not in the other.
    #[must_use]
    pub const fn minus(self, other: ProcessSet) -> Self {
        ProcessSet(self.0 & !other.0)
    }

    /// Returns the number of processes.
    #[inline]
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the processes in ascending order.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = ProcessId> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let place = left.trailing_zeros();
            (left != 0).then(|| {
                left &= left - 1;
                ProcessId(place as u16)
            })
        })
    }

    #[inline]
    const fn bit(process: ProcessId) -> u64 {
        1_u64.unbounded_shl(process.0 as u32)
    }
}

impl fmt::Display for ProcessSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, process) in self.iter().enumerate() {
            write!(f, "{}{process}", if n > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

impl Extend<ProcessId> for ProcessSet {
    fn extend<I: IntoIterator<Item = ProcessId>>(&mut self, processes: I) {
        processes.into_iter().for_each(|process| self.insert(process));
    }
}

impl FromIterator<ProcessId> for ProcessSet {
    fn from_iter<I: IntoIterator<Item = ProcessId>>(processes: I) -> Self {
        let mut set = ProcessSet::EMPTY;
        processes.into_iter().for_each(|process| set.insert(process));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_counts_each_process_once() {
        let mut set = ProcessSet::first(3);
        set.insert(ProcessId(1));
        assert_eq!(set.len(), 3);
        assert!(set.covers([ProcessId(0), ProcessId(2)].into_iter().collect()));
        assert_eq!(set.without(ProcessId(0)).iter().collect::<Vec<_>>(), [ProcessId(1), ProcessId(2)]);
        set.insert(ProcessId(64));
        assert!(!set.contains(ProcessId(64)) && set.len() == 3);
        assert_eq!(ProcessSet::first(64).len(), 64);
    }
}
