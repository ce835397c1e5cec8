//! Who acknowledged which vector of one message.

use crate::Topology;
use crate::item::Stamps;
use crate::message::Destination;

/// The acknowledgements of one message, by the exact vector that they name. The latest of each process counts.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Votes {
    /// Candidate vectors, one behind the other.
    vectors: Vec<u64>,
    /// Per candidate and destination group, the members that acknowledged it.
    voters: Vec<u64>,
}

impl Votes {
    pub(super) fn clear(&mut self) {
        self.vectors.clear();
        self.voters.clear();
    }

    /// `voter` (a bit in the group at `position`) acknowledged `vector`, and with it `implied`.
    pub(super) fn record(&mut self, position: usize, voter: u64, implied: u64, vector: Stamps<'_>, any_vector: bool) {
        let groups = vector.groups();
        let words = vector.words();
        let mut found = false;
        for (k, known) in self.vectors.chunks_exact(2 * groups).enumerate() {
            let cell = &mut self.voters[k * groups + position];
            if known == words || any_vector {
                *cell |= voter | implied;
                found = true;
            } else {
                *cell &= !voter;
            }
        }
        if !found {
            self.vectors.extend_from_slice(words);
            let first = self.voters.len();
            self.voters.resize(first + groups, 0);
            self.voters[first + position] = voter | implied;
        }
    }

    /// The vector that a majority of every destination group acknowledged.
    pub(super) fn quorum(&self, destinations: &[Destination], topology: &Topology) -> Option<Stamps<'_>> {
        let groups = destinations.len();
        let majority = |voters: &[u64]| {
            voters.iter().zip(destinations).all(|(voters, to)| voters.count_ones() >= topology.majority(to.group))
        };
        self.voters
            .chunks_exact(groups)
            .zip(self.vectors.chunks_exact(2 * groups))
            .find(|(voters, _)| majority(voters))
            .map(|(_, vector)| Stamps::new(vector))
    }
}
