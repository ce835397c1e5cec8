//! The order in which a search tries calls.

use std::cmp::Reverse;

use super::call::Call;

/// The order in which a search tries calls: those that must have a place first, by position or by time; then those that may
/// have none.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    nodes: Vec<u32>,
    ranks: Vec<u32>,
    /// Ranks from here on need no place.
    optional_from: u32,
}

impl Ranks {
    pub(super) fn new(calls: &[Call]) -> Self {
        let all = || (0..calls.len() as u32).filter(|index| calls[*index as usize].takes_part());
        let mut nodes: Vec<u32> = all().filter(|index| calls[*index as usize].answered().is_some()).collect();
        nodes.sort_by_key(|index| (calls[*index as usize].answered(), *index));
        // Those with positions share their ranks among each other.
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
        // One that took effect mostly did so soon after it was submitted.
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

    /// How many calls must have a place.
    pub(super) fn needed(&self) -> usize {
        self.optional_from as usize
    }

    /// All calls that take part, by rank.
    pub(super) fn nodes(&self) -> &[u32] {
        &self.nodes
    }
}
