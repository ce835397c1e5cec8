//! Searches for an order of the calls: the search of Wing and Gong (1993) with the memo of Lowe (2017).
//!
//! The search places one call after the other. Among the minimal calls of the [`Graph`], it tries them in the order of
//! their ranks. An attempt ends if the model's reply differs from the recorded one, or if the configuration is known to
//! be dead. Two rules keep the search small:
//!
//! - A read that may come next and whose reply is correct is placed at once. It changes nothing, and placing it later
//!   could only be harder.
//! - A command of unknown outcome is placed only if the calls right after it need it; otherwise it could come later as
//!   well. It is omitted if it changes nothing. The search tries the latest of such commands first.
//!
//! Consecutive commands of unknown outcome form a *row*. A long row rarely explains anything. The search therefore
//! tries rows of one command first, and longer rows, up to a limit, only if these lead to no order.

use std::collections::{BTreeSet, HashMap};

use super::call::Call;
use super::graph::Graph;
use super::memo::Memo;
use super::model::Model;
use super::placement::Placement;
use super::ranks::Ranks;
use crate::ids::Group;

/// The result of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// An order of all calls that must be placed.
    Order(Vec<u32>),
    /// There is no order.
    Nothing,
    /// There is no order within the limit of commands of unknown outcome in a row.
    NothingSoFar,
    /// The search took too many steps.
    TooHard,
}

/// A placed command, with the data for undoing it.
struct Frame<S> {
    rank: u32,
    placed: usize,
    saved: Vec<(usize, S)>,
    row: Vec<u32>,
    allowed: u32,
    is_cut: bool,
}

/// The state of one search.
pub(super) struct Search<'a, M: Model> {
    model: &'a M,
    calls: &'a [Call],
    ranks: &'a Ranks,
    placement: Placement<'a>,
    /// The index of each group in `states`.
    places: HashMap<Group, usize>,
    states: Vec<M::State>,
    frames: Vec<Frame<M::State>>,
    memo: Memo<M::State>,
    /// Commands of unknown outcome that were placed after the last other call.
    row: Vec<u32>,
    /// Maximum length of the current row.
    allowed: u32,
    /// `true` if `allowed` prevented a longer row in this configuration or in one that extends its row.
    is_cut: bool,
    /// Maximum length of any row.
    limit: u32,
    limited: bool,
    steps: u64,
}

impl<'a, M: Model> Search<'a, M> {
    /// Creates a search. `limit` is the maximum number of consecutive commands of unknown outcome.
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

    /// Searches for at most `budget` steps, and subtracts the steps taken from `budget`.
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

    /// Returns the key of this configuration without its states. Within a row, the possible continuations depend on the
    /// row, so the row is part of the key.
    fn key(&mut self) -> Vec<u32> {
        let mut row = Vec::with_capacity(self.row.len() + 2);
        if let Some(last) = self.row.last() {
            row.extend_from_slice(&self.row);
            row.sort_unstable();
            row.extend([*last, self.allowed]);
        }
        self.placement.key(row)
    }

    /// Places the call of this rank if it may come next and leads to a new configuration. Returns whether it did.
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

    /// Returns whether the last call, of unknown outcome, could as well come after `next`. The search tries that order
    /// elsewhere.
    fn passes(&self, last: u32, next: u32, optional: bool) -> bool {
        let meet = self.calls[last as usize].meets(&self.calls[next as usize]);
        !meet && (!optional || self.ranks.rank(next) < self.ranks.rank(last))
    }

    /// Returns whether one of the first `framed` commands of the row could as well come after the calls `next`, which
    /// come right after the row. The search tries that order elsewhere. `saved` has the states that the latest command
    /// replaced, because that command has no frame yet.
    fn has_spare(&self, framed: usize, saved: &[(usize, M::State)], next: &[u32]) -> bool {
        if framed == 0 {
            return false;
        }
        // The states at the beginning of the row.
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

    /// Applies a call to `states` instead of the states of the search. Returns whether all replies are correct.
    fn replay(&self, node: u32, states: &mut [M::State]) -> bool {
        let call = &self.calls[node as usize];
        call.groups.iter().all(|group| call.replay(self.model, group, &mut states[self.places[&group]]))
    }

    /// Applies a command in all its groups. Returns `None`, and changes nothing, if a reply differs from the recorded
    /// one, or if an optional command changes no state.
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

    /// Places all reads that may come next and whose replies are correct, until there are no more. Returns whether any
    /// was placed.
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
