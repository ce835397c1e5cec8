//! The members that a node has expelled, and the selection of members to expel; see [`pace`](super::pace).

use std::cmp::Reverse;

use stentor_fabric::ProcessId;

use super::pace::Patience;
use crate::Topology;

/// A connected member of a group, as a candidate for expulsion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Progress of the member, comparable within its group.
    pub(super) progress: u64,
    /// `true` if the member is stalled.
    pub(super) stands: bool,
    /// Number by which the caller identifies the member.
    pub(super) member: usize,
}

/// The members that a node has expelled.
#[derive(Debug, Default)]
pub(super) struct Expelling {
    pub(super) patience: Patience,
    /// Members that have not reconnected.
    members: Vec<ProcessId>,
    count: u64,
}

impl Expelling {
    /// Returns the members that were expelled and have not reconnected.
    pub(super) fn members(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.members.iter().copied()
    }

    /// Returns the number of expulsions.
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

    /// Forgets the members that have reconnected.
    pub(super) fn forget(&mut self, is_back: impl Fn(ProcessId) -> bool) {
        self.members.retain(|member| !is_back(*member));
    }
}

/// The counting members of one group. They are in an array, because the selection runs often and must not allocate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidates([Option<Candidate>; Topology::MAX_MEMBERS]);

impl FromIterator<Candidate> for Candidates {
    fn from_iter<I: IntoIterator<Item = Candidate>>(candidates: I) -> Self {
        let mut group = [None; Topology::MAX_MEMBERS];
        group.iter_mut().zip(candidates).for_each(|(place, candidate)| *place = Some(candidate));
        Candidates(group)
    }
}

/// Selects the members of one group to expel: those that are stalled and have made less progress than each of
/// `majority` others.
pub(super) fn expelled(Candidates(mut group): Candidates, majority: usize) -> impl Iterator<Item = usize> {
    // Empty entries come last.
    group.sort_unstable_by_key(|place| Reverse(place.map(|candidate| candidate.progress)));
    let last = majority.checked_sub(1).and_then(|last| group.get(last).copied().flatten());
    let ahead = last.map_or(0, |candidate| candidate.progress);
    let rest = group.into_iter().skip(majority).flatten();
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
        assert_eq!(pick(&[(9, false), (3, true), (2, true)], 2), [2], "the slower one of two");
        assert_eq!(pick(&[(3, true), (3, true), (3, true)], 2), nobody);
        assert_eq!(pick(&[(9, false), (3, false)], 2), nobody, "only a majority counts");
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
