//! Exhaustive search over every order of arrivals, completions and reads.
//!
//! The windows allow up to four lengths and four pieces in flight in each direction. The larger cases take minutes and
//! run optimised, by `cargo xtask test --only model`.

use std::hash::{Hash, Hasher};

use stateright::{Checker, Model, Property};
use stentor_channel::{Config, Scheme};

use crate::pair::{Action, Pair};

#[derive(Clone)]
struct World(Pair);

/// A state of the search. Items that may happen in any order are sorted, so equivalent states are equal
/// ([`Pair::canonical`]).
#[derive(Clone, PartialEq, Debug)]
struct State(Pair);

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State(self.0.clone())]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.0.wrong.is_none() {
            actions.extend(state.0.actions());
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.0.clone();
        next.act(action);
        next.canonical();
        Some(State(next))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("C1 to C4", |_, state: &State| state.0.wrong.is_none()),
            Property::always("every run ends", |_, state: &State| {
                state.0.wrong.is_some() || !state.0.actions().is_empty() || state.0.unfinished().is_none()
            }),
            Property::sometimes("both ends close", |_, state: &State| state.0.ends.iter().all(|end| end.closed)),
        ]
    }
}

/// Explores every state. Returns the number of states, or a description of the first violation.
pub(crate) fn explore(pair: Pair) -> Result<usize, String> {
    let checker = World(pair).checker().threads(2).spawn_dfs().join();
    for (property, path) in checker.discoveries() {
        if property != "both ends close" {
            let State(last) = path.last_state();
            return Err(last.wrong.clone().or_else(|| last.unfinished()).unwrap_or_else(|| property.to_owned()));
        }
    }
    assert!(checker.discovery("both ends close").is_some());
    Ok(checker.unique_state_count())
}

pub(crate) fn config(scheme: Scheme, lengths: u32, pieces: u32) -> Config {
    Config { lengths, pieces, piece_bytes: 64, eager_bytes: 8, ..Config::with(scheme) }.normal()
}

/// Explores every state, with ordered and with unordered arrivals, and prints their number.
fn search(scheme: Scheme, (lengths, pieces): (u32, u32), messages: [&[u64]; 2], change: impl Fn(&mut Pair)) {
    for ordered in [true, false] {
        let mut pair = Pair::new(&config(scheme, lengths, pieces), messages, ordered);
        change(&mut pair);
        let what = format!("{}, {lengths} lengths, {pieces} pieces, {messages:?}, ordered {ordered}", scheme.name());
        let begin = std::time::Instant::now();
        let states = explore(pair).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
        println!("{what}: {states} states, {:.1} s", begin.elapsed().as_secs_f64());
    }
}

/// Explores a pair whose arrivals are reported at once ([`Pair::merged`]). Arrivals and completions happen in every
/// order.
fn search_merged(scheme: Scheme, (lengths, pieces): (u32, u32), messages: [&[u64]; 2], change: impl Fn(&mut Pair)) {
    let mut pair = Pair::new(&config(scheme, lengths, pieces), messages, false);
    change(&mut pair);
    let what = format!("{}, {lengths} lengths, {pieces} pieces, {messages:?}, merged arrivals", scheme.name());
    let begin = std::time::Instant::now();
    let states = explore(pair.merged()).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
    println!("{what}: {states} states, {:.1} s", begin.elapsed().as_secs_f64());
}

fn prompt(pair: &mut Pair) {
    pair.prompt_controls = true;
}

fn prompt_and_eager(pair: &mut Pair) {
    pair.prompt_controls = true;
    pair.eager_readers = true;
}

#[test]
fn two_in_flight_in_every_order() {
    search(Scheme::Eager, (2, 1), [&[0, 8], &[]], prompt);
    search(Scheme::LengthPayload, (1, 1), [&[8], &[0]], prompt);
    search(Scheme::Eager, (1, 1), [&[65], &[1]], prompt_and_eager);
    // The second message is one piece without a length in front.
    search(Scheme::Eager, (2, 1), [&[9, 10], &[]], prompt);
}

/// Explores hellos and closing notices in any order.
#[test]
fn control_messages_in_every_order() {
    search(Scheme::Eager, (1, 1), [&[], &[]], |_| ());
}

#[test]
fn four_in_flight_that_take_minutes() {
    let Ok(how) = std::env::var("STENTOR_MODEL") else {
        println!("skipped: set STENTOR_MODEL=minutes, and run an optimised build");
        return;
    };
    search(Scheme::Eager, (1, 1), [&[0], &[]], |pair| pair.eager_readers = true);
    search(Scheme::Eager, (4, 1), [&[0, 1, 2, 3], &[]], prompt);
    search(Scheme::Eager, (4, 1), [&[0, 1, 2, 3, 4], &[]], prompt_and_eager);
    search(Scheme::Eager, (2, 2), [&[65, 1], &[]], prompt);
    search(Scheme::Eager, (2, 2), [&[9, 10, 1, 11], &[]], prompt);
    search(Scheme::Eager, (4, 2), [&[9, 10, 11], &[1]], prompt_and_eager);
    search(Scheme::Eager, (4, 4), [&[9, 10, 11, 12, 13], &[]], prompt_and_eager);
    search(Scheme::LengthPayload, (2, 2), [&[65, 1], &[]], prompt);
    search(Scheme::LengthPayload, (2, 2), [&[8, 0], &[1]], prompt_and_eager);
    search(Scheme::Eager, (2, 1), [&[0, 1], &[1, 2]], prompt_and_eager);
    if how == "large" {
        search(Scheme::Eager, (4, 1), [&[0, 1, 2, 3, 4, 5], &[]], prompt_and_eager);
        search(Scheme::Eager, (4, 2), [&[9, 10, 11, 1], &[1]], prompt_and_eager);
    }
}

/// Explores merged pairs with up to four lengths in flight in each direction.
#[test]
fn four_and_four_in_flight_that_take_minutes() {
    let Ok(how) = std::env::var("STENTOR_MODEL") else {
        println!("skipped: set STENTOR_MODEL=minutes, and run an optimised build");
        return;
    };
    search_merged(Scheme::Eager, (2, 1), [&[0, 1], &[1, 2]], prompt_and_eager);
    search_merged(Scheme::Eager, (4, 1), [&[0, 1, 2, 3], &[]], prompt);
    search_merged(Scheme::Eager, (4, 1), [&[0, 1, 2, 3], &[1, 2]], prompt_and_eager);
    search_merged(Scheme::Eager, (2, 2), [&[9, 10, 1, 11], &[]], prompt);
    search_merged(Scheme::Eager, (2, 2), [&[9, 10, 1], &[9]], prompt_and_eager);
    search_merged(Scheme::LengthPayload, (2, 2), [&[8, 0], &[8]], prompt_and_eager);
    if how == "large" {
        search_merged(Scheme::LengthPayload, (2, 2), [&[8, 0], &[0, 8]], prompt_and_eager);
        search_merged(Scheme::Eager, (2, 2), [&[9, 10, 1], &[9, 1, 10]], prompt_and_eager);
        search_merged(Scheme::Eager, (4, 1), [&[0, 1, 2, 3], &[3, 2, 1, 0]], prompt_and_eager);
    }
}

/// Runs short searches of merged pairs, which also check that every message in flight has a receive.
#[test]
fn merged_search_with_two_in_flight() {
    search_merged(Scheme::Eager, (2, 1), [&[0, 8], &[1]], prompt);
    search_merged(Scheme::Eager, (2, 1), [&[9, 10], &[11]], prompt_and_eager);
    search_merged(Scheme::LengthPayload, (1, 1), [&[8], &[0]], prompt);
}
