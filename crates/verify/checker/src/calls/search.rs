//! Looks for an order of the calls: the search of Wing and Gong (1993) with the memory of Lowe (2017).
//!
//! The calls are placed one after the other, of the minimal ones of the [`Graph`] the first in the order of the hint. A reply that the
//! model does not give, or a configuration that is known to lead nowhere, ends an attempt. Two things keep the search small:
//!
//! - A read that may come next and whose reply is right is placed at once. It changes nothing, so it can only be in the way later.
//! - A command of unknown outcome is placed only where the calls right after it need it; elsewhere it could come later as well. One
//!   that changes nothing is left out. The latest ones are tried first.
//!
//! Commands of unknown outcome that stand in a row are a *row*. Where a row of one does not lead on, longer ones are tried, up to a
//! limit, because a long one rarely explains anything.

use std::collections::{BTreeSet, HashMap};

use super::call::Call;
use super::graph::Graph;
use super::memo::Memo;
use super::model::Model;
use super::placement::Placement;
use super::ranks::Ranks;
use crate::ids::Group;

/// How a search ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// An order of all calls that must have one.
    Order(Vec<u32>),
    /// There is none.
    Nothing,
    /// There is none with so few commands of unknown outcome in a row.
    NothingSoFar,
    /// Too many steps.
    TooHard,
}

/// A command that was placed, with what is needed to take it back.
struct Frame<S> {
    rank: u32,
    placed: usize,
    saved: Vec<(usize, S)>,
    row: Vec<u32>,
    allowed: u32,
    is_cut: bool,
}

/// One search.
pub(super) struct Search<'a, M: Model> {
    model: &'a M,
    calls: &'a [Call],
    ranks: &'a Ranks,
    placement: Placement<'a>,
    /// The place of a group in `states`.
    places: HashMap<Group, usize>,
    states: Vec<M::State>,
    frames: Vec<Frame<M::State>>,
    memo: Memo<M::State>,
    /// Commands of unknown outcome since the last other call.
    row: Vec<u32>,
    /// How many may stand in this row.
    allowed: u32,
    /// Whether a longer row was not tried from here, or from where this row began.
    is_cut: bool,
    /// How many may stand in any row.
    limit: u32,
    limited: bool,
    steps: u64,
}

impl<'a, M: Model> Search<'a, M> {
    /// `limit`: how many commands of unknown outcome may stand in a row.
    pub(super) fn new(model: &'a M, calls: &'a [Call], graph: &'a Graph, ranks: &'a Ranks, limit: u32) -> Self {
        let groups: BTreeSet<Group> =
            calls.iter().filter(|call| call.takes_part()).flat_map(|call| call.groups.iter()).collect();
        let states = groups.iter().map(|group| model.initial(*group)).collect();
        let places = groups.into_iter().zip(0..).collect();
        Search {
            model,
            calls,
            ranks,
            placement: Placement::new(calls, graph, ranks),
            places,
            states,
            frames: Vec::new(),
            memo: Memo::new(),
            row: Vec::new(),
            allowed: limit.min(1),
            is_cut: false,
            limit,
            limited: false,
            steps: 0,
        }
    }

    /// Searches for at most so many steps, and takes those that were needed off.
    pub(super) fn run(mut self, budget: &mut u64) -> Found {
        self.place_reads();
        let mut from = 0;
        let found = loop {
            if self.placement.is_complete() {
                break Found::Order(std::mem::take(&mut self.placement.order));
            }
            if self.steps >= *budget {
                break Found::TooHard;
            }
            match self.placement.candidate(from) {
                Some(rank) => from = if self.attempt(rank) { 0 } else { rank + 1 },
                None if self.row.is_empty() && self.is_cut && self.allowed < self.limit => {
                    (self.allowed, self.is_cut, from) = (self.allowed + 1, false, 0);
                }
                None => {
                    self.limited |= self.row.is_empty() && self.is_cut;
                    let key = self.key();
                    self.memo.insert(key, &self.states);
                    match self.frames.pop() {
                        Some(frame) => {
                            from = frame.rank + 1;
                            self.take_back(frame);
                        }
                        None => break if self.limited { Found::NothingSoFar } else { Found::Nothing },
                    }
                }
            }
        };
        *budget = budget.saturating_sub(self.steps);
        found
    }

    /// What tells this configuration from others, but for the states. Within a row, what may follow depends on the row.
    fn key(&mut self) -> Vec<u32> {
        let mut row = Vec::with_capacity(self.row.len() + 2);
        if let Some(last) = self.row.last() {
            row.extend_from_slice(&self.row);
            row.sort_unstable();
            row.extend([*last, self.allowed]);
        }
        self.placement.key(row)
    }

    /// Places the call of a rank if it may come next and leads anywhere new.
    fn attempt(&mut self, rank: u32) -> bool {
        let node = self.ranks.node(rank);
        let optional = self.ranks.is_optional(rank);
        if optional && self.row.len() >= self.allowed as usize {
            self.is_cut = true;
            return false;
        }
        if self.row.last().is_some_and(|last| self.passes(*last, node, optional)) {
            return false;
        }
        self.steps += 1;
        let Some(saved) = self.apply(node, optional) else { return false };
        if !optional && self.has_spare(self.row.len(), &saved, &[node]) {
            saved.into_iter().for_each(|(place, state)| self.states[place] = state);
            return false;
        }
        let placed = self.placement.order.len();
        let row = self.row.clone();
        let frame = Frame { rank, placed, saved, row, allowed: self.allowed, is_cut: self.is_cut };
        self.placement.place(node);
        if optional {
            self.row.push(node);
        } else {
            self.end_row();
        }
        self.is_cut = false;
        if self.place_reads() {
            let framed = self.row.len().saturating_sub(1);
            if self.has_spare(framed, &frame.saved, &self.placement.order[placed + 1..]) {
                self.take_back(frame);
                return false;
            }
            self.end_row();
        }
        if !self.memo.is_empty() {
            let key = self.key();
            if self.memo.contains(&key, &self.states) {
                self.take_back(frame);
                return false;
            }
        }
        self.frames.push(frame);
        true
    }

    fn end_row(&mut self) {
        self.row.clear();
        self.allowed = self.limit.min(1);
    }

    /// Whether the last call, of unknown outcome, could as well come after this one, and that is tried elsewhere.
    fn passes(&self, last: u32, next: u32, optional: bool) -> bool {
        let meet = self.calls[last as usize].meets(&self.calls[next as usize]);
        !meet && (!optional || self.ranks.rank(next) < self.ranks.rank(last))
    }

    /// Whether one of the first `framed` commands of the row could as well come after `next`, which were placed right after the row: then
    /// that is tried elsewhere. `saved` is what the only call without a frame changed.
    fn has_spare(&self, framed: usize, saved: &[(usize, M::State)], next: &[u32]) -> bool {
        if framed == 0 {
            return false;
        }
        // The states where the row began.
        let mut base = self.states.clone();
        let frames = self.frames.iter().rev().take(framed).flat_map(|frame| &frame.saved);
        saved.iter().chain(frames).for_each(|(place, state)| base[*place] = state.clone());
        (0..framed).any(|spare| {
            let mut states = base.clone();
            for (_, other) in self.row.iter().enumerate().filter(|(at, _)| *at != spare) {
                self.replay(*other, &mut states);
            }
            next.iter().all(|next| self.replay(*next, &mut states)) && {
                self.replay(self.row[spare], &mut states);
                states == self.states
            }
        })
    }

    /// Applies a call to other states, and returns whether all replies are right.
    fn replay(&self, node: u32, states: &mut [M::State]) -> bool {
        let call = &self.calls[node as usize];
        call.groups.iter().all(|group| call.replay(self.model, group, &mut states[self.places[&group]]))
    }

    /// Applies a command in all its groups; `None`, and nothing is changed, if a reply is another than the answer's.
    fn apply(&mut self, node: u32, optional: bool) -> Option<Vec<(usize, M::State)>> {
        let call = &self.calls[node as usize];
        let mut saved = Vec::with_capacity(call.groups.len());
        let mut right = true;
        for group in call.groups.iter() {
            let place = self.places[&group];
            saved.push((place, self.states[place].clone()));
            if !call.replay(self.model, group, &mut self.states[place]) {
                right = false;
                break;
            }
        }
        if right && (!optional || saved.iter().any(|(place, state)| self.states[*place] != *state)) {
            return Some(saved);
        }
        saved.into_iter().for_each(|(place, state)| self.states[place] = state);
        None
    }

    /// Places all reads that may come next and whose replies are right, until there are no more. Returns whether there were any.
    fn place_reads(&mut self) -> bool {
        let mut any = false;
        loop {
            let (model, places, states) = (self.model, &self.places, &self.states);
            let answer = |group: Group, operation: &[u8]| model.read(&states[places[&group]], group, operation);
            let right = self.placement.right_reads(answer);
            if right.is_empty() {
                return any;
            }
            any = true;
            right.into_iter().for_each(|read| self.placement.place(read));
        }
    }

    fn take_back(&mut self, frame: Frame<M::State>) {
        self.placement.truncate(frame.placed);
        frame.saved.into_iter().for_each(|(place, state)| self.states[place] = state);
        self.is_cut = frame.is_cut || !self.row.is_empty() && self.is_cut;
        (self.row, self.allowed) = (frame.row, frame.allowed);
    }
}
