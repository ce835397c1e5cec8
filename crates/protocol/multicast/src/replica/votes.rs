//! The votes for each vector of one message.

use crate::item::Times;
use crate::message::Destination;
use crate::slot_table::heap_bytes;
use crate::{Ballot, Topology};

/// The acknowledgements of one message, by the exact vector of times that they name. The latest one of each process
/// counts.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Votes {
    /// The words of all candidate vectors, concatenated.
    vectors: Vec<u64>,
    /// The votes for each candidate, by destination group.
    tallies: Vec<Tally>,
}

/// The members of one group that acknowledged one vector in the largest ballot of their group that was seen with it.
///
/// A member that acknowledged in an older ballot does so again under the newer leader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Tally {
    /// The ballot's word.
    ballot: u64,
    /// The members, as a bit mask.
    voters: u64,
}

/// One acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vote<'a> {
    /// Position of the voter's group.
    pub(super) position: usize,
    /// The voter's bit in its group.
    pub(super) voter: u64,
    /// The bit of the voter's leader, which has acknowledged by appending the vector.
    pub(super) implied: u64,
    /// Ballot of the voter's group.
    pub(super) ballot: Ballot,
    /// The acknowledged vector.
    pub(super) times: Times<'a>,
}

/// The number of members of a group that acknowledged a vector (`same`), and the largest number that acknowledged one
/// other vector (`other`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counted {
    pub(super) same: u32,
    pub(super) other: u32,
}

impl Votes {
    /// Returns the heap bytes of one candidate vector of this many groups.
    pub(super) fn heap_bytes(groups: usize) -> u64 {
        heap_bytes::<u64>(groups) + heap_bytes::<Tally>(groups)
    }

    /// Returns the heap bytes in use.
    #[cfg(test)]
    pub(super) fn taken(&self) -> u64 {
        heap_bytes::<u64>(self.vectors.capacity()) + heap_bytes::<Tally>(self.tallies.capacity())
    }

    /// Removes all votes, and keeps the memory of one vector of this many groups.
    pub(super) fn clear(&mut self, groups: usize) {
        let several = self.tallies.len() > groups;
        self.vectors.clear();
        self.tallies.clear();
        if several {
            self.shrink(groups);
        }
    }

    /// Frees the memory of further vectors. After a change of leader, each message in flight may have several, and the
    /// announced memory of a slot has room for one.
    #[cold]
    fn shrink(&mut self, groups: usize) {
        self.vectors.shrink_to(groups);
        self.tallies.shrink_to(groups);
    }

    /// Counts a vote; `any_vector` is for a mutant.
    pub(super) fn record(&mut self, vote: &Vote<'_>, any_vector: bool) {
        let Vote { position, voter, implied, ballot, times } = *vote;
        let (groups, words, ballot) = (times.groups(), times.words(), ballot.to_word());
        let (mut found, mut first) = (false, 0);
        while first < self.vectors.len() {
            let same = self.vectors[first..].iter().zip(words).all(|(known, word)| known == word);
            let tally = &mut self.tallies[first + position];
            first += groups;
            if !same && !any_vector {
                tally.voters &= !voter;
                continue;
            }
            found = true;
            if ballot > tally.ballot && !any_vector {
                *tally = Tally { ballot, voters: 0 };
            }
            if ballot == tally.ballot || any_vector {
                tally.voters |= voter | implied;
            }
        }
        if !found {
            self.vectors.extend_from_slice(words);
            let first = self.tallies.len();
            self.tallies.resize(first + groups, Tally::default());
            self.tallies[first + position] = Tally { ballot, voters: voter | implied };
        }
    }

    /// Returns the vector that a majority of every destination group acknowledged, each in one ballot of its group.
    ///
    /// `own` is the position of this member's group. Acknowledgements of that group in a ballot above `installed` do
    /// not count yet, because that ballot may order another message before this one.
    pub(super) fn quorum(
        &self,
        destinations: &[Destination],
        own: usize,
        installed: Ballot,
        topology: &Topology,
    ) -> Option<Times<'_>> {
        let groups = destinations.len();
        let mut first = 0;
        while first < self.tallies.len() {
            let tallies = &self.tallies[first..first + groups];
            let mut each = tallies.iter().zip(destinations);
            let majority = each.all(|(tally, to)| tally.voters.count_ones() >= topology.majority(to.group));
            if majority && Ballot::from_word(tallies[own].ballot) <= installed {
                return Some(Times::new(&self.vectors[first..first + groups]));
            }
            first += groups;
        }
        None
    }

    /// Counts the members of the group at `position` that acknowledged this vector, and those that acknowledged another
    /// one.
    #[cold]
    pub(super) fn counts(&self, position: usize, times: Times<'_>) -> Counted {
        let groups = times.groups().max(1);
        let mut counted = Counted::default();
        for (vector, tallies) in self.vectors.chunks_exact(groups).zip(self.tallies.chunks_exact(groups)) {
            let voters = tallies.get(position).map_or(0, |tally| tally.voters.count_ones());
            let which = if vector == times.words() { &mut counted.same } else { &mut counted.other };
            *which = (*which).max(voters);
        }
        counted
    }

    /// Returns whether a majority of every destination group acknowledged this vector, each in one ballot of its group.
    /// Other groups than this member's need no acknowledgements if their position is `exempt`.
    ///
    /// `own` and `installed` have the same meaning as in [`quorum`](Votes::quorum).
    #[cold]
    pub(super) fn is_quorum_without(
        &self,
        times: Times<'_>,
        destinations: &[Destination],
        (own, installed): (usize, Ballot),
        topology: &Topology,
        exempt: impl Fn(usize) -> bool,
    ) -> bool {
        let groups = destinations.len();
        let mut vectors = self.vectors.chunks_exact(groups.max(1)).zip(self.tallies.chunks_exact(groups.max(1)));
        let Some((_, tallies)) = vectors.find(|(vector, _)| *vector == times.words()) else { return false };
        let mut each = tallies.iter().zip(destinations).enumerate();
        let enough = |(position, (tally, to)): (usize, (&Tally, &Destination))| {
            position != own && exempt(position) || tally.voters.count_ones() >= topology.majority(to.group)
        };
        each.all(enough) && Ballot::from_word(tallies[own].ballot) <= installed
    }
}
