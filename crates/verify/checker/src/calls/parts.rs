//! Splits the calls of a history into parts that can be judged independently.
//!
//! Linearizability is local: if no call connects two groups, their orders can be judged separately and merged along
//! real time. Calls to several groups end this independence. With them, the order need not follow real time between
//! different sessions. The orders of two parts could then contradict each other, because some session orders a call of
//! the first part before one of the second, and another session the reverse. A stale read has no position in real time
//! either, and it constrains its session.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::call::Call;
use super::position::Position;
use crate::ids::Group;

/// Calls that must be judged together.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The numbers of the calls.
    pub(super) calls: Vec<u32>,
    /// The first group of the part's cluster. Sessions, calls to several groups and observed positions connect groups
    /// to a cluster.
    cluster: Group,
}

/// Splits the calls into parts. Calls without effect are omitted.
pub(super) fn apart(calls: &[Call]) -> Vec<Part> {
    let taking_part = || calls.iter().enumerate().filter(|(_, call)| call.takes_part());
    let first = |call: &Call| call.groups.iter().next().unwrap_or(Group(0));
    let positions = taking_part().filter(|(_, call)| call.kind.is_multicast());
    let known: HashMap<Position, &Call> =
        positions.filter_map(|(_, call)| call.position().map(|position| (position, call))).collect();
    let mut clusters = Union::default();
    let mut sessions: HashMap<u64, Group> = HashMap::new();
    for (_, call) in taking_part() {
        clusters.join(*sessions.entry(call.session).or_insert(first(call)), first(call));
        let observed = call.observed.iter().filter_map(|position| known.get(position));
        let met = call.groups.iter().chain(observed.flat_map(|earlier| earlier.groups.iter()));
        met.for_each(|group| clusters.join(first(call), group));
    }
    let mut whole: BTreeSet<Group> = BTreeSet::new();
    let mut groups: HashMap<(u64, u64), BTreeSet<Group>> = HashMap::new();
    let mut stale: BTreeSet<(u64, u64)> = BTreeSet::new();
    for (_, call) in taking_part() {
        let process = (call.session, call.generation);
        let of_process = groups.entry(process).or_default();
        of_process.insert(first(call));
        if call.kind.is_stale() {
            stale.insert(process);
        }
        let mut observed = call.observed.iter().filter_map(|position| known.get(position));
        let crosses = of_process.len() > 1 && stale.contains(&process);
        if crosses || call.groups.len() > 1 || observed.any(|earlier| !earlier.is_before(call)) {
            whole.insert(clusters.find(first(call)));
        }
    }
    let mut parts: BTreeMap<Group, Part> = BTreeMap::new();
    for (index, call) in taking_part() {
        let cluster = clusters.find(first(call));
        let name = if whole.contains(&cluster) { cluster } else { first(call) };
        parts.entry(name).or_insert_with(|| Part { calls: Vec::new(), cluster }).calls.push(index as u32);
    }
    parts.into_values().collect()
}

/// Merges the orders of all parts into one order.
pub(super) fn merged(calls: &[Call], orders: Vec<(Part, Vec<u32>)>) -> Vec<usize> {
    let mut all: Vec<(Group, u64, usize, u32)> = Vec::new();
    for (number, (part, order)) in orders.into_iter().enumerate() {
        let mut latest = 0;
        for call in order {
            // The earliest time at which the call can have taken effect after the calls before it.
            if !calls[call as usize].kind.is_stale() {
                latest = latest.max(calls[call as usize].submitted);
            }
            all.push((part.cluster, latest, number, call));
        }
    }
    all.sort_by_key(|(cluster, time, part, _)| (*cluster, *time, *part));
    all.into_iter().map(|(_, _, _, call)| call as usize).collect()
}

/// Disjoint sets of groups, for union and find.
#[derive(Default)]
struct Union {
    parents: HashMap<Group, Group>,
}

impl Union {
    fn find(&self, group: Group) -> Group {
        let mut at = group;
        while let Some(parent) = self.parents.get(&at) {
            at = *parent;
        }
        at
    }

    fn join(&mut self, one: Group, other: Group) {
        let (one, other) = (self.find(one), self.find(other));
        if one != other {
            self.parents.insert(one.max(other), one.min(other));
        }
    }
}
