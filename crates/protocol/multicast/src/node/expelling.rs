//! The members that a node waits for no more, and which of a group those are; see [`pace`](super::pace).

use std::cmp::Reverse;

use stentor_fabric::ProcessId;

use super::pace::Patience;

/// A member that counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// How far it is.
    pub(super) progress: u64,
    /// Whether it stands still.
    pub(super) stands: bool,
    /// Its place in its group.
    pub(super) member: usize,
}

/// The members that a node expelled.
#[derive(Debug, Default)]
pub(super) struct Expelling {
    pub(super) patience: Patience,
    /// Members that have not come back.
    members: Vec<ProcessId>,
    count: u64,
}

impl Expelling {
    /// Returns the members that were expelled and have not come back.
    pub(super) fn members(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.members.iter().copied()
    }

    /// Returns how often a member was expelled.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Records that a member was expelled.
    pub(super) fn note(&mut self, member: ProcessId) {
        self.count += 1;
        if !self.members.contains(&member) {
            self.members.push(member);
        }
    }

    /// Forgets the members that have come back.
    pub(super) fn forget(&mut self, is_back: impl Fn(ProcessId) -> bool) {
        self.members.retain(|member| !is_back(*member));
    }
}

/// Picks the members of one group that are expelled: those that stand still behind `majority` others.
pub(super) fn expelled(mut group: Vec<Candidate>, majority: usize) -> impl Iterator<Item = usize> {
    group.sort_unstable_by_key(|candidate| Reverse(candidate.progress));
    let ahead = majority.checked_sub(1).and_then(|last| group.get(last)).map_or(0, |candidate| candidate.progress);
    let rest = group.into_iter().skip(majority);
    rest.filter(move |candidate| candidate.stands && candidate.progress < ahead).map(|candidate| candidate.member)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_slowest_minority_is_expelled_while_a_majority_is_ahead() {
        let pick = |group: &[(u64, bool)], majority| {
            let candidate = |(member, &(progress, stands))| Candidate { progress, stands, member };
            let mut picked: Vec<usize> =
                expelled(group.iter().enumerate().map(candidate).collect(), majority).collect();
            picked.sort_unstable();
            picked
        };
        let nobody: [usize; 0] = [];
        assert_eq!(pick(&[(9, false), (3, true), (9, false)], 2), [1]);
        assert_eq!(pick(&[(9, false), (3, true), (3, true)], 2), nobody, "a majority is not ahead");
        assert_eq!(pick(&[(9, false), (3, true), (2, true)], 2), [2], "of two the slower one");
        assert_eq!(pick(&[(3, true), (3, true), (3, true)], 2), nobody);
        assert_eq!(pick(&[(9, false), (3, false)], 2), nobody, "no more than a majority counts");
        assert_eq!(pick(&[(0, true), (0, true), (1, false), (1, false), (1, false)], 3), [0, 1]);
        assert_eq!(pick(&[(3, true)], 1), nobody, "a group of one");
    }

    #[test]
    fn a_member_that_is_expelled_again_is_listed_once() {
        let mut expelling = Expelling::default();
        (0..2).for_each(|_| expelling.note(ProcessId(4)));
        expelling.note(ProcessId(5));
        assert_eq!((expelling.count(), expelling.members().collect::<Vec<_>>()), (3, vec![ProcessId(4), ProcessId(5)]));
        expelling.forget(|member| member == ProcessId(4));
        assert_eq!((expelling.count(), expelling.members().collect::<Vec<_>>()), (3, vec![ProcessId(5)]));
    }
}
