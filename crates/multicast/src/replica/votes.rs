//! Who acknowledged which vector of one message.

use crate::item::Times;
use crate::message::Destination;
use crate::{Ballot, Topology};

/// The acknowledgements of one message, by the exact vector of times that they name. The latest of each process counts.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Votes {
    /// Candidate vectors, one behind the other.
    vectors: Vec<u64>,
    /// Per candidate and destination group, who acknowledged it.
    tallies: Vec<Tally>,
}

/// The members of one group that acknowledged one vector in one ballot of their group: the largest that was heard of. Who
/// acknowledged in an older one does so again under the newer leader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Tally {
    /// The ballot's word.
    ballot: u64,
    /// Bits of the members.
    voters: u64,
}

/// One acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vote<'a> {
    /// Position of the voter's group.
    pub(super) position: usize,
    /// The voter's bit in its group.
    pub(super) voter: u64,
    /// The bit of its leader, who has acknowledged by appending the vector.
    pub(super) implied: u64,
    /// The voter's group's ballot.
    pub(super) ballot: Ballot,
    /// What it acknowledges.
    pub(super) times: Times<'a>,
}

impl Votes {
    pub(super) fn clear(&mut self) {
        self.vectors.clear();
        self.tallies.clear();
    }

    /// Counts a vote; `any_vector` is for a planted bug.
    pub(super) fn record(&mut self, vote: &Vote<'_>, any_vector: bool) {
        let Vote { position, voter, implied, ballot, times } = *vote;
        let (groups, words, ballot) = (times.groups(), times.words(), ballot.to_word());
        let mut found = false;
        for (k, known) in self.vectors.chunks_exact(groups).enumerate() {
            let tally = &mut self.tallies[k * groups + position];
            if known != words && !any_vector {
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

    /// The vector that a majority of every destination group acknowledged, each in one ballot of its own. `own`: position
    /// of the own group and the ballot whose state is installed; what was acknowledged in a larger one does not count yet,
    /// because that ballot may have put something before. Besides, the own group's ballot.
    pub(super) fn quorum(
        &self,
        destinations: &[Destination],
        own: (usize, Ballot),
        topology: &Topology,
    ) -> Option<(Times<'_>, Ballot)> {
        let groups = destinations.len();
        let majority = |tallies: &[Tally]| {
            let mut tallies = tallies.iter().zip(destinations);
            tallies.all(|(tally, to)| tally.voters.count_ones() >= topology.majority(to.group))
        };
        let installed = |tallies: &[Tally]| Ballot::from_word(tallies[own.0].ballot) <= own.1;
        self.tallies
            .chunks_exact(groups)
            .zip(self.vectors.chunks_exact(groups))
            .find(|(tallies, _)| majority(tallies) && installed(tallies))
            .map(|(tallies, vector)| (Times::new(vector), Ballot::from_word(tallies[own.0].ballot)))
    }
}
