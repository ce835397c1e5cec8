//! The order in which the search tries calls.

use std::cmp::Reverse;

use super::call::Call;

/// The order in which the search tries calls. Calls that must be placed come first, sorted by position or by time of
/// the answer. Calls that may be left out follow.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    nodes: Vec<u32>,
    ranks: Vec<u32>,
    /// The first rank of the calls that may be left out.
    optional_from: u32,
}

impl Ranks {
    pub(super) fn new(calls: &[Call]) -> Self {
        let all = || (0..calls.len() as u32).filter(|index| calls[*index as usize].takes_part());
        let mut nodes: Vec<u32> = all().filter(|index| calls[*index as usize].answered().is_some()).collect();
        nodes.sort_by_key(|index| (calls[*index as usize].answered(), *index));
        // Multicast calls with positions are sorted by position among themselves. Together they occupy the same ranks
        // as in the sort by time.
        let positioned = |index: &u32| {
            let call = &calls[*index as usize];
            call.position().filter(|_| call.kind.is_multicast())
        };
        let slots: Vec<usize> = (0..nodes.len()).filter(|slot| positioned(&nodes[*slot]).is_some()).collect();
        let mut sorted: Vec<u32> = slots.iter().map(|slot| nodes[*slot]).collect();
        sorted.sort_by_key(positioned);
        slots.iter().zip(sorted).for_each(|(slot, node)| nodes[*slot] = node);
        let optional_from = nodes.len() as u32;
        let mut optional: Vec<u32> = all().filter(|index| calls[*index as usize].answered().is_none()).collect();
        // A command of unknown outcome that took effect usually did so soon after its submission.
        optional.sort_by_key(|index| Reverse((calls[*index as usize].submitted, *index)));
        nodes.extend(optional);
        let mut ranks = vec![u32::MAX; calls.len()];
        (0..).zip(&nodes).for_each(|(rank, node)| ranks[*node as usize] = rank);
        Ranks { nodes, ranks, optional_from }
    }

    pub(super) fn node(&self, rank: u32) -> u32 {
        self.nodes[rank as usize]
    }

    pub(super) fn rank(&self, node: u32) -> u32 {
        self.ranks[node as usize]
    }

    pub(super) fn is_optional(&self, rank: u32) -> bool {
        rank >= self.optional_from
    }

    /// Returns the number of calls that must be placed.
    pub(super) fn needed(&self) -> usize {
        self.optional_from as usize
    }

    /// Returns all calls that take part, by rank.
    pub(super) fn nodes(&self) -> &[u32] {
        &self.nodes
    }
}
