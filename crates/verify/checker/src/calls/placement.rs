//! The state of a search: the calls that are placed, and the candidates for the next position.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::call::Call;
use super::graph::Graph;
use super::ranks::Ranks;
use crate::ids::Group;

/// A separator between the parts of a key.
const END: u32 = u32::MAX;

/// Reads of one group: operation and expected reply, both interned, and the number of the call.
type Waiting = BTreeSet<(u32, u32, u32)>;

/// The placed calls, and the candidates for the next position.
pub(super) struct Placement<'a> {
    calls: &'a [Call],
    graph: &'a Graph,
    ranks: &'a Ranks,
    /// Placed calls, in order.
    pub(super) order: Vec<u32>,
    is_placed: Vec<bool>,
    /// Number of unplaced calls that must precede each call.
    before: Vec<u32>,
    /// Ranks of the commands that may come next.
    commands: BTreeSet<u32>,
    /// Reads of one group that may come next, by group.
    reads: BTreeMap<Group, Waiting>,
    /// Reads of several groups that may come next.
    cuts: BTreeSet<u32>,
    operations: Interned<'a>,
    replies: Interned<'a>,
    /// Interned operation and reply of each read of one group.
    asks: HashMap<u32, (u32, u32)>,
    /// Number of placed calls among those that must be placed.
    needed_placed: usize,
    optional_placed: BTreeSet<u32>,
    /// A rank below which all calls that must be placed are placed.
    low: u32,
    /// Groups in which the replies of waiting reads may have become correct.
    touched: BTreeSet<Group>,
}

/// Byte strings, each with a small number.
#[derive(Default)]
struct Interned<'a> {
    numbers: HashMap<&'a [u8], u32>,
    texts: Vec<&'a [u8]>,
}

impl<'a> Interned<'a> {
    fn number(&mut self, text: &'a [u8]) -> u32 {
        *self.numbers.entry(text).or_insert_with(|| {
            self.texts.push(text);
            self.texts.len() as u32 - 1
        })
    }
}

impl<'a> Placement<'a> {
    pub(super) fn new(calls: &'a [Call], graph: &'a Graph, ranks: &'a Ranks) -> Self {
        let mut placement = Placement {
            calls,
            graph,
            ranks,
            order: Vec::new(),
            is_placed: vec![false; calls.len()],
            before: graph.before(),
            commands: BTreeSet::new(),
            reads: BTreeMap::new(),
            cuts: BTreeSet::new(),
            operations: Interned::default(),
            replies: Interned::default(),
            asks: HashMap::new(),
            needed_placed: 0,
            optional_placed: BTreeSet::new(),
            low: 0,
            touched: BTreeSet::new(),
        };
        for node in ranks.nodes() {
            let call = &calls[*node as usize];
            if let Some(reply) = call.groups.iter().next().and_then(|group| call.reply(group))
                && call.kind.is_read()
            {
                let ask = (placement.operations.number(&call.operation), placement.replies.number(reply));
                placement.asks.insert(*node, ask);
            }
            if placement.before[*node as usize] == 0 {
                placement.offer(*node);
            }
        }
        placement
    }

    /// Returns whether every call that must be placed is placed.
    pub(super) fn is_complete(&self) -> bool {
        self.needed_placed == self.ranks.needed()
    }

    /// Returns the lowest rank, from `from` on, of a command that may come next.
    pub(super) fn candidate(&self, from: u32) -> Option<u32> {
        self.commands.range(from..).next().copied()
    }

    /// Places a call that may come next. Calls that have no unplaced predecessor any more become candidates.
    pub(super) fn place(&mut self, node: u32) {
        self.withdraw(node);
        self.order.push(node);
        self.is_placed[node as usize] = true;
        let rank = self.ranks.rank(node);
        if self.ranks.is_optional(rank) {
            self.optional_placed.insert(rank);
        } else {
            self.needed_placed += 1;
        }
        let call = &self.calls[node as usize];
        if !call.kind.is_read() {
            self.touched.extend(call.groups.iter());
        }
        let graph = self.graph;
        for edge in graph.after(node) {
            self.before[edge.to as usize] -= 1;
            if self.before[edge.to as usize] == 0 {
                self.offer(edge.to);
            }
        }
    }

    /// Removes the last placed calls until `length` calls are left.
    pub(super) fn truncate(&mut self, length: usize) {
        while self.order.len() > length {
            let Some(node) = self.order.pop() else { break };
            let graph = self.graph;
            for edge in graph.after(node).iter().rev() {
                if self.before[edge.to as usize] == 0 {
                    self.withdraw(edge.to);
                }
                self.before[edge.to as usize] += 1;
            }
            self.is_placed[node as usize] = false;
            let rank = self.ranks.rank(node);
            if self.ranks.is_optional(rank) {
                self.optional_placed.remove(&rank);
            } else {
                self.needed_placed -= 1;
                self.low = self.low.min(rank);
            }
            self.offer(node);
        }
        // All reads with correct replies were placed before the last command, so no group must be examined again.
        self.touched.clear();
    }

    fn offer(&mut self, node: u32) {
        let call = &self.calls[node as usize];
        if !call.kind.is_read() {
            self.commands.insert(self.ranks.rank(node));
        } else if call.groups.len() > 1 {
            self.cuts.insert(node);
            self.touched.extend(call.groups.iter().next());
        } else if let (Some(group), Some((operation, reply))) = (call.groups.iter().next(), self.asks.get(&node)) {
            self.reads.entry(group).or_default().insert((*operation, *reply, node));
            self.touched.insert(group);
        }
    }

    fn withdraw(&mut self, node: u32) {
        let call = &self.calls[node as usize];
        if !call.kind.is_read() {
            self.commands.remove(&self.ranks.rank(node));
        } else if call.groups.len() > 1 {
            self.cuts.remove(&node);
        } else if let (Some(group), Some((operation, reply))) = (call.groups.iter().next(), self.asks.get(&node)) {
            self.reads.entry(group).or_default().remove(&(*operation, *reply, node));
        }
    }

    /// Returns the candidate reads whose replies match the model's. Reads of one group are examined if the group was
    /// touched since the last call, and reads of several groups if any group was.
    pub(super) fn right_reads(&mut self, answer: impl Fn(Group, &[u8]) -> Vec<u8>) -> Vec<u32> {
        let mut right = Vec::new();
        let touched = std::mem::take(&mut self.touched);
        for waiting in touched.iter().filter_map(|group| Some((*group, self.reads.get(group)?))) {
            let (group, waiting) = waiting;
            let mut next = waiting.first().copied();
            while let Some((operation, _, _)) = next {
                let reply = answer(group, self.operations.texts[operation as usize]);
                if let Some(reply) = self.replies.numbers.get(reply.as_slice()) {
                    let same = waiting.range((operation, *reply, 0)..=(operation, *reply, u32::MAX));
                    right.extend(same.map(|(_, _, node)| *node));
                }
                next = waiting.range((operation + 1, 0, 0)..).next().copied();
            }
        }
        if !touched.is_empty() {
            let is_right = |node: &&u32| {
                let call = &self.calls[**node as usize];
                call.groups.iter().all(|group| call.reply(group).is_some_and(|r| *r == answer(group, &call.operation)))
            };
            right.extend(self.cuts.iter().filter(is_right));
        }
        right
    }

    /// Appends the parts of the key that identify the set of placed calls.
    pub(super) fn key(&mut self, mut key: Vec<u32>) -> Vec<u32> {
        let needed = self.ranks.needed() as u32;
        let is_placed = |rank: u32| self.is_placed[self.ranks.node(rank) as usize];
        let mut low = self.low;
        while low < needed && is_placed(low) {
            low += 1;
        }
        key.extend([END, low]);
        let mut left = self.needed_placed - low as usize;
        let mut rank = low;
        while left > 0 {
            if is_placed(rank) {
                key.push(rank);
                left -= 1;
            }
            rank += 1;
        }
        key.push(END);
        key.extend(&self.optional_placed);
        self.low = low;
        key
    }
}
