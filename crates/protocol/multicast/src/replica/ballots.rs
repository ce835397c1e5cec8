//! The ballots that a member has heard of.

use crate::{Ballot, GroupId, Topology};

/// What a member has promised, what it has installed, and what it knows of other groups.
///
/// # Invariants
/// - None of these ballots ever becomes smaller.
/// - `installed` is at most `promised`. The member processes, acknowledges and delivers only while the two are the same.
/// - A member has heard of the ballots of all times in vectors that it has appended or processed, because a leader relays
///   them in the stream before it appends such a vector. So no leader takes a time from a leader that is older than one
///   whose time counted here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Ballots {
    /// The largest ballot of the own group that this member has promised.
    pub(super) promised: Ballot,
    /// The last ballot of the own group whose complete state is installed here.
    pub(super) installed: Ballot,
    /// The ballot of the stream entries that come now.
    pub(super) stream: Ballot,
    /// By group, the largest ballot that was heard of.
    known: Vec<Ballot>,
    /// Of those, what the followers know: with the state, or from the stream.
    relayed: Vec<Ballot>,
}

impl Ballots {
    /// Ballots of a member without memory: every group may be in its first one.
    pub(super) fn new(topology: &Topology) -> Self {
        let known: Vec<Ballot> = topology.group_ids().map(|group| topology.first_ballot(group)).collect();
        let none = Ballot::NONE;
        Ballots { promised: none, installed: none, stream: none, relayed: known.clone(), known }
    }

    /// The group begins its life in this ballot.
    pub(super) fn begin(&mut self, first: Ballot) {
        (self.promised, self.installed, self.stream) = (first, first, first);
    }

    /// Whether nothing larger is promised than what is installed.
    #[inline]
    pub(super) fn is_current(&self) -> bool {
        self.promised == self.installed
    }

    /// The largest ballot of a group that was heard of; the default one if there is no such group.
    #[inline]
    pub(super) fn known(&self, group: GroupId) -> Ballot {
        self.known.get(usize::from(group.0)).copied().unwrap_or_default()
    }

    /// By group, the largest ballot that was heard of.
    pub(super) fn all_known(&self) -> &[Ballot] {
        &self.known
    }

    /// A ballot of a group was heard of.
    #[inline]
    pub(super) fn hear_of(&mut self, group: GroupId, ballot: Ballot) {
        let known = &mut self.known[usize::from(group.0)];
        *known = (*known).max(ballot);
    }

    /// Another member has heard of these, by group.
    pub(super) fn hear_of_all(&mut self, known: &[Ballot]) {
        self.known.iter_mut().zip(known).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
    }

    /// Whether the followers have not been told of this ballot of a group.
    #[inline]
    pub(super) fn is_unrelayed(&self, group: GroupId, ballot: Ballot) -> bool {
        ballot > self.relayed[usize::from(group.0)]
    }

    /// The largest known ballot of a group, if the followers have not been told of it. From now on they have.
    pub(super) fn relay(&mut self, group: GroupId) -> Option<Ballot> {
        let at = usize::from(group.0);
        let ballot = self.known[at];
        (ballot > std::mem::replace(&mut self.relayed[at], ballot)).then_some(ballot)
    }

    /// The followers get all that is known with a state.
    pub(super) fn relay_all(&mut self) {
        self.relayed.clone_from(&self.known);
    }
}

#[cfg(test)]
mod tests {
    use stentor_fabric::ProcessId;

    use super::*;

    #[test]
    fn a_ballot_is_relayed_once_and_never_becomes_smaller() {
        let mut ballots = Ballots::new(&Topology::new(&[1, 2], 1).expect("possible"));
        let (group, later) = (GroupId(1), Ballot::new(2, ProcessId(2)));
        assert_eq!((ballots.relay(group), ballots.known(GroupId(9))), (None, Ballot::NONE));
        ballots.hear_of(group, later);
        ballots.hear_of_all(&[Ballot::NONE, Ballot::new(1, ProcessId(2))]);
        assert!(ballots.is_unrelayed(group, later) && ballots.known(group) == later);
        assert_eq!((ballots.relay(group), ballots.relay(group)), (Some(later), None));
    }
}
