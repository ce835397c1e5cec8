//! The union of all delivery orders, as a graph of messages. It is sorted topologically if it has no cycle; otherwise
//! `Paths` searches for a small cycle. The order properties (M4 and others) use it.

use crate::chain::Chain;
use crate::log::Log;
use crate::sort::{left_over, on_a_cycle, sorted};

/// A missing message or index.
const NONE: u32 = u32::MAX;
/// Maximum number of steps of the search for a smallest cycle. After them, the smallest cycle found so far is used.
const SEARCH_STEPS: u64 = 30_000_000;

/// Edges between messages that some process delivered in immediate succession.
#[derive(Debug)]
pub(crate) struct Order {
    /// The index in `edges` of the first edge of each message.
    first_edge: Vec<u32>,
    edges: Vec<u32>,
    /// Messages in an order that agrees with all edges. Messages on cycles or after them are missing.
    pub(crate) sorted: Vec<u32>,
}

/// Returns the messages of a chain with their deliveries. Only the first delivery of each message counts.
pub(crate) fn first_deliveries<'a>(
    chain: &'a Chain,
    mark: u32,
    marks: &'a mut [u32],
    log: &'a Log,
) -> impl Iterator<Item = (u32, u32)> + 'a {
    let with_message = chain.deliveries.iter().map(|delivery| (log.deliveries[*delivery as usize].message, *delivery));
    with_message.filter(move |(message, _)| std::mem::replace(&mut marks[*message as usize], mark) != mark)
}

impl Order {
    pub(crate) fn new(chains: &[Chain], log: &Log) -> Self {
        let count = log.messages.len();
        let mut first_edge = vec![0_u32; count + 1];
        each_edge(chains, log, |from, _| first_edge[from as usize + 1] += 1);
        for index in 0..count {
            first_edge[index + 1] += first_edge[index];
        }
        let mut edges = vec![NONE; first_edge[count] as usize];
        let mut next = first_edge.clone();
        each_edge(chains, log, |from, to| {
            edges[next[from as usize] as usize] = to;
            next[from as usize] += 1;
        });
        let mut order = Order { first_edge, edges, sorted: Vec::new() };
        order.sorted = order.sort();
        order
    }

    /// Returns the messages that some process delivered immediately after this one.
    pub(crate) fn after(&self, message: u32) -> &[u32] {
        let range = self.first_edge[message as usize] as usize..self.first_edge[message as usize + 1] as usize;
        &self.edges[range]
    }

    /// Returns whether the graph has no cycle.
    pub(crate) fn is_acyclic(&self) -> bool {
        self.sorted.len() == self.first_edge.len() - 1
    }

    fn sort(&self) -> Vec<u32> {
        let mut before = vec![0_u32; self.first_edge.len() - 1];
        self.edges.iter().for_each(|to| before[*to as usize] += 1);
        sorted(before, |message| self.after(message).iter().copied())
    }
}

fn each_edge(chains: &[Chain], log: &Log, mut edge: impl FnMut(u32, u32)) {
    let mut marks = vec![NONE; log.messages.len()];
    for (mark, chain) in chains.iter().enumerate() {
        let mut last = NONE;
        for (message, _) in first_deliveries(chain, mark as u32, &mut marks, log) {
            if last != NONE {
                edge(last, message);
            }
            last = message;
        }
    }
}

/// Two deliveries of one process that show that it delivers the message of `earlier` before that of `later`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Precedes {
    pub(crate) earlier: u32,
    pub(crate) later: u32,
}

/// Finds shortest paths. One step is "some process delivers this message before that one", at any distance.
pub(crate) struct Paths<'a> {
    log: &'a Log,
    /// The first deliveries of the messages of each chain.
    chains: Vec<Vec<u32>>,
    /// The index in `places` of the first occurrence of each message.
    first_place: Vec<u32>,
    /// Occurrences of messages: chain, and index in the chain.
    places: Vec<(u32, u32)>,
    /// For each chain, the smallest index such that all deliveries at or after it were reached in the current search.
    reached_from: Vec<u32>,
    touched: Vec<u32>,
    /// The last search that reached each message, and the step by which it did.
    found: Vec<(u32, Option<Precedes>)>,
    search: u32,
    steps: u64,
}

impl<'a> Paths<'a> {
    pub(crate) fn new(chains: &[Chain], log: &'a Log) -> Self {
        let mut marks = vec![NONE; log.messages.len()];
        let distinct = chains.iter().enumerate();
        let chains: Vec<Vec<u32>> = distinct
            .map(|(mark, chain)| first_deliveries(chain, mark as u32, &mut marks, log).map(|(_, d)| d).collect())
            .collect();
        let mut first_place = vec![0_u32; log.messages.len() + 1];
        let message = |delivery: u32| log.deliveries[delivery as usize].message as usize;
        chains.iter().flatten().for_each(|delivery| first_place[message(*delivery) + 1] += 1);
        for index in 0..log.messages.len() {
            first_place[index + 1] += first_place[index];
        }
        let mut next = first_place.clone();
        let mut places = vec![(NONE, NONE); first_place[log.messages.len()] as usize];
        for (chain, deliveries) in chains.iter().enumerate() {
            for (at, delivery) in deliveries.iter().enumerate() {
                let slot = &mut next[message(*delivery)];
                places[*slot as usize] = (chain as u32, at as u32);
                *slot += 1;
            }
        }
        let reached_from = chains.iter().map(|chain| chain.len() as u32).collect();
        let found = vec![(0, None); log.messages.len()];
        Paths { log, chains, first_place, places, reached_from, touched: Vec::new(), found, search: 0, steps: 0 }
    }

    /// Returns a shortest path of fewer than `below` steps between two messages. If the two are the same, returns a
    /// shortest cycle through the message.
    pub(crate) fn shortest(&mut self, from: u32, to: u32, below: usize) -> Option<Vec<Precedes>> {
        self.search += 1;
        for chain in self.touched.drain(..) {
            self.reached_from[chain as usize] = self.chains[chain as usize].len() as u32;
        }
        let (mut level, mut next, mut depth) = (vec![from], Vec::new(), 0);
        while !level.is_empty() && depth + 1 < below {
            depth += 1;
            for message in level.drain(..) {
                if self.expand(message, to, &mut next) {
                    return Some(self.trace(from, to));
                }
            }
            std::mem::swap(&mut level, &mut next);
        }
        None
    }

    /// Reaches all messages that some process delivers after `message`. Returns `true` if `to` is among them.
    fn expand(&mut self, message: u32, to: u32, next: &mut Vec<u32>) -> bool {
        let places = self.first_place[message as usize] as usize..self.first_place[message as usize + 1] as usize;
        for place in places {
            let (chain, at) = self.places[place];
            let deliveries = &self.chains[chain as usize];
            let end = self.reached_from[chain as usize];
            self.reached_from[chain as usize] = end.min(at + 1);
            self.touched.push(chain);
            for later in (at + 1)..end {
                self.steps += 1;
                let delivery = deliveries[later as usize];
                let reached = self.log.deliveries[delivery as usize].message;
                let found = &mut self.found[reached as usize];
                if found.0 != self.search {
                    *found = (self.search, Some(Precedes { earlier: deliveries[at as usize], later: delivery }));
                    if reached == to {
                        return true;
                    }
                    next.push(reached);
                }
            }
        }
        false
    }

    fn trace(&self, from: u32, to: u32) -> Vec<Precedes> {
        let mut path = Vec::new();
        let mut at = to;
        loop {
            let step = self.found[at as usize].1.expect("every message on a path was reached by a step");
            path.push(step);
            at = self.log.deliveries[step.earlier as usize].message;
            if at == from {
                path.reverse();
                return path;
            }
        }
    }

    /// Returns a smallest cycle of an order that has one, or a small one if the search takes too many steps.
    pub(crate) fn smallest_cycle(&mut self, order: &Order) -> Option<Vec<Precedes>> {
        let left = left_over(&order.sorted, self.log.messages.len());
        let start = on_a_cycle(&left, |message| order.after(message).iter().copied());
        let mut best = start.and_then(|start| self.shortest(start, start, usize::MAX));
        for message in (0..left.len() as u32).filter(|message| left[*message as usize]) {
            let below = best.as_ref().map_or(usize::MAX, Vec::len);
            if below <= 2 || (best.is_some() && self.steps > SEARCH_STEPS) {
                break;
            }
            best = self.shortest(message, message, below).or(best);
        }
        best
    }
}
