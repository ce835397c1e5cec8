//! The constraints between calls: a sparse graph whose transitive closure is the order that the service promises.
//!
//! "Answered before the other was submitted" is an interval order. The graph has an edge to a call only from those
//! preceding calls that have no third call in between. The number of these edges into one call is bounded by the number
//! of concurrent calls.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::call::Call;
use super::kind::Kind;
use super::position::Position;
use super::terms::Terms;
use crate::ids::Group;
use crate::sort::{left_over, on_a_cycle, sorted};

/// The reason why a call must come before another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Why {
    RealTime,
    Session,
    Observed,
    Position,
    /// A stale read was answered before the command was submitted.
    Future,
    /// A stale read requests a position that is not below the command's.
    Contains,
    /// No constraint: an edge that only determines which candidate the search tries first.
    Hint,
}

/// The constraint that a call comes before the call `to`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) to: u32,
    pub(super) why: Why,
}

/// Constraints between calls, which are identified by their numbers.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    after: Vec<Vec<Edge>>,
}

impl Graph {
    pub(super) fn new(calls: &[Call], terms: Terms) -> Self {
        let mut graph = Graph { after: vec![Vec::new(); calls.len()] };
        let mut by_group: BTreeMap<Group, Vec<u32>> = BTreeMap::new();
        let mut by_session: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (index, call) in calls.iter().enumerate().filter(|(_, call)| call.takes_part()) {
            call.groups.iter().for_each(|group| by_group.entry(group).or_default().push(index as u32));
            by_session.entry(call.session).or_default().push(index as u32);
        }
        for (group, members) in &by_group {
            graph.group(calls, *group, members, terms);
        }
        for members in by_session.values().filter(|_| terms.session) {
            graph.session(calls, members);
        }
        if terms.observed {
            graph.observed(calls, &by_session);
        }
        graph
    }

    /// Adds edges so that all multicast calls with positions follow each other in the order of the positions.
    pub(super) fn with_hint(mut self, calls: &[Call]) -> Self {
        let all: Vec<u32> = (0..calls.len() as u32).collect();
        self.chain(calls, &all, Why::Hint);
        self
    }

    /// Returns the edges from `call`.
    pub(super) fn after(&self, call: u32) -> &[Edge] {
        &self.after[call as usize]
    }

    fn edge(&mut self, from: u32, to: u32, why: Why) {
        self.after[from as usize].push(Edge { to, why });
    }

    fn group(&mut self, calls: &[Call], group: Group, members: &[u32], terms: Terms) {
        let strict = |call: &Call| !call.kind.is_stale();
        let command = |call: &Call| call.kind == Kind::Command;
        if terms.real_time {
            self.intervals(calls, members, strict, strict, strict, Why::RealTime);
        }
        if terms.prefix {
            self.intervals(calls, members, |call| !strict(call), command, command, Why::Future);
            self.contained(calls, group, members, terms);
        }
        if terms.positions {
            self.chain(calls, members, Why::Position);
            self.applied(calls, members);
        }
    }

    fn session(&mut self, calls: &[Call], members: &[u32]) {
        let strict = |call: &Call| !call.kind.is_stale();
        let command = |call: &Call| call.kind == Kind::Command;
        let mut generations: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for member in members {
            generations.entry(calls[*member as usize].generation).or_default().push(*member);
        }
        for members in generations.values() {
            self.intervals(calls, members, |_| true, strict, strict, Why::Session);
        }
        if generations.len() > 1 {
            self.intervals(calls, members, command, command, strict, Why::Session);
        }
    }

    /// Adds an edge from every source to every target that was submitted after the source's answer, except where a call
    /// of the kind `middle` in between already implies it. Such a call is itself a target, and other edges order it
    /// before the targets that were submitted after its answer.
    fn intervals(
        &mut self,
        calls: &[Call],
        members: &[u32],
        source: impl Fn(&Call) -> bool,
        middle: impl Fn(&Call) -> bool,
        target: impl Fn(&Call) -> bool,
        why: Why,
    ) {
        let call = |index: &u32| &calls[*index as usize];
        let mut sources: Vec<(u64, u32)> = Vec::new();
        let mut middles: Vec<(u64, u64)> = Vec::new();
        for member in members {
            let Some(answered) = call(member).answered() else { continue };
            if source(call(member)) {
                sources.push((answered, *member));
            }
            if middle(call(member)) {
                middles.push((answered, call(member).submitted));
            }
        }
        sources.sort_unstable();
        middles.sort_unstable();
        let mut latest = 0;
        for (_, submitted) in &mut middles {
            latest = latest.max(*submitted);
            *submitted = latest;
        }
        for member in members.iter().filter(|member| target(call(member))) {
            let submitted = call(member).submitted;
            let before = |answered: u64| answered < submitted;
            let covered = middles.partition_point(|(answered, _)| before(*answered)).checked_sub(1);
            let from = covered.map_or(0, |last| middles[last].1);
            let end = sources.partition_point(|(answered, _)| before(*answered));
            let start = sources.partition_point(|(answered, _)| *answered < from);
            for (_, earlier) in &sources[start.min(end)..end] {
                self.after[*earlier as usize].push(Edge { to: *member, why });
            }
        }
    }

    /// Adds edges so that multicast calls follow each other in the order of their positions.
    fn chain(&mut self, calls: &[Call], members: &[u32], why: Why) {
        let sorted = by_position(calls, members, |call| call.kind.is_multicast());
        for pair in sorted.windows(2) {
            self.edge(pair[0].1, pair[1].1, why);
        }
    }

    /// Adds edges so that a read observes exactly the commands up to the position in its answer.
    fn applied(&mut self, calls: &[Call], members: &[u32]) {
        let commands = by_position(calls, members, |call| call.kind == Kind::Command);
        for (position, read) in by_position(calls, members, |call| !call.kind.is_multicast()) {
            let applied = commands.partition_point(|(of_command, _)| *of_command <= position);
            if let Some(last) = applied.checked_sub(1) {
                self.edge(commands[last].1, read, Why::Position);
            }
            if let Some((_, next)) = commands.get(applied) {
                self.edge(read, *next, Why::Position);
            }
        }
    }

    /// Adds edges so that a [`Kind::After`] observes the command at the requested position, and the commands below it.
    fn contained(&mut self, calls: &[Call], group: Group, members: &[u32], terms: Terms) {
        let commands = by_position(calls, members, |call| call.kind == Kind::Command);
        for read in members {
            let Kind::After(asked) = calls[*read as usize].kind else { continue };
            debug_assert!(calls[*read as usize].groups.contains(group));
            let applied = commands.partition_point(|(position, _)| *position <= asked);
            let last = applied.checked_sub(1).map(|last| commands[last]);
            if let Some((_, command)) = last.filter(|(position, _)| terms.positions || *position == asked) {
                self.edge(command, *read, Why::Contains);
            }
        }
    }

    /// Adds edges so that a call comes after the calls whose positions its session had observed.
    fn observed(&mut self, calls: &[Call], by_session: &BTreeMap<u64, Vec<u32>>) {
        let all: Vec<u32> = (0..calls.len() as u32).collect();
        let known: HashMap<Position, u32> =
            by_position(calls, &all, |call| call.kind.is_multicast()).into_iter().collect();
        for members in by_session.values() {
            let mut members = members.clone();
            members.sort_by_key(|member| (calls[*member as usize].generation, calls[*member as usize].submitted));
            let mut generation = None;
            // Observed calls, each with the time at which the observing call was answered. Calls submitted after that
            // time follow the observing call, so they need no edge of their own.
            let mut pending: Vec<(u32, Option<u64>)> = Vec::new();
            for chunk in members.chunk_by(|a, b| {
                let key = |index: &u32| (calls[*index as usize].generation, calls[*index as usize].submitted);
                key(a) == key(b)
            }) {
                let first = &calls[chunk[0] as usize];
                if generation.replace(first.generation) != Some(first.generation) {
                    pending.clear();
                }
                pending.retain(|(_, answered)| answered.is_none_or(|answered| answered >= first.submitted));
                for member in chunk {
                    let call = &calls[*member as usize];
                    let answered = call.answered().filter(|_| !call.kind.is_stale());
                    let observed = call.observed.iter().filter_map(|position| known.get(position));
                    pending.extend(observed.map(|earlier| (*earlier, answered)));
                }
                for member in chunk.iter().filter(|member| !calls[**member as usize].kind.is_stale()) {
                    let earlier = pending.iter().map(|(earlier, _)| *earlier).filter(|earlier| earlier != member);
                    earlier.for_each(|earlier| {
                        self.after[earlier as usize].push(Edge { to: *member, why: Why::Observed });
                    });
                }
            }
        }
    }

    /// Returns the number of edges into each call.
    pub(super) fn before(&self) -> Vec<u32> {
        let mut before = vec![0; self.after.len()];
        self.after.iter().flatten().for_each(|edge| before[edge.to as usize] += 1);
        before
    }

    /// Returns a short cycle as calls, each with the reason why it comes before the next, or `None` if there is no
    /// cycle.
    pub(super) fn cycle(&self) -> Option<Vec<(u32, Why)>> {
        let after = |call: u32| self.after(call).iter().map(|edge| edge.to);
        let left = left_over(&sorted(self.before(), after), self.after.len());
        let mut best = self.cycle_through(on_a_cycle(&left, after)?, &left)?;
        // The number of starts is bounded because every search is linear, and nearly all calls may be left over.
        let starts = (0..left.len() as u32).filter(|call| left[*call as usize]).take(256);
        for start in starts {
            if best.len() == 2 {
                break;
            }
            let cycle = self.cycle_through(start, &left);
            best = cycle.filter(|cycle| cycle.len() < best.len()).unwrap_or(best);
        }
        Some(best)
    }

    /// Returns a shortest cycle through `start` among the calls that the topological sort left over (`left`).
    fn cycle_through(&self, start: u32, left: &[bool]) -> Option<Vec<(u32, Why)>> {
        let mut reached: HashMap<u32, (u32, Why)> = HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(from) = queue.pop_front() {
            for edge in self.after(from).iter().filter(|edge| left[edge.to as usize]) {
                if reached.contains_key(&edge.to) {
                    continue;
                }
                reached.insert(edge.to, (from, edge.why));
                if edge.to == start {
                    return Some(trace(start, &reached));
                }
                queue.push_back(edge.to);
            }
        }
        None
    }
}

fn trace(start: u32, reached: &HashMap<u32, (u32, Why)>) -> Vec<(u32, Why)> {
    let mut cycle = Vec::new();
    let mut at = start;
    loop {
        let (from, why) = reached[&at];
        cycle.push((from, why));
        at = from;
        if at == start {
            cycle.reverse();
            return cycle;
        }
    }
}

/// Returns the calls of a kind with their positions, sorted by position.
fn by_position(calls: &[Call], members: &[u32], kind: impl Fn(&Call) -> bool) -> Vec<(Position, u32)> {
    let of_kind = members.iter().filter(|member| kind(&calls[**member as usize]));
    let mut sorted: Vec<(Position, u32)> =
        of_kind.filter_map(|member| calls[*member as usize].position().map(|position| (position, *member))).collect();
    sorted.sort_unstable();
    sorted
}
