//! Tests that the search by leaps finds the same ends as one that takes everything at any time.

use std::collections::HashSet;

use stateright::Model;

use super::depth_first::{Search, identity};
use super::machine::{Budget, Machine};
use super::member::Context;
use crate::say;
use crate::scenario::{Request, Scenario};

/// Returns the ends of all runs with individual steps, and the number of states.
fn ends(scenario: Scenario, budget: Budget) -> (HashSet<u64>, usize) {
    let machine = Machine::eager(scenario, budget);
    let mut open = machine.init_states();
    let mut seen: HashSet<_> = open.iter().cloned().collect();
    let (mut ends, mut actions) = (HashSet::new(), Vec::new());
    while let Some(state) = open.pop() {
        if machine.is_end(&mut machine.lock(), &state) {
            ends.insert(identity(&machine.at_rest(&machine.lock(), &state), state.campaigns_left()));
        }
        machine.actions(&state, &mut actions);
        let next = actions.drain(..).filter_map(|action| machine.next_state(&state, action));
        open.extend(next.filter(|next| seen.insert(next.clone())));
    }
    (ends, seen.len())
}

fn same(sizes: &[usize], sets: &[&[u16]], budget: Budget) {
    let messages: Vec<(u16, &[u16])> = (0..).zip(sets.iter().copied()).collect();
    same_of(Scenario::new(sizes, &messages), budget);
}

fn same_of(scenario: Scenario, budget: Budget) {
    let (expected, states) = ends(scenario.clone(), budget);
    let context = Context::new(scenario);
    let found = Search::new(&context, budget).identify().run(None);
    let name = format!("{} with {budget}", context.scenario.name);
    say(&format!("{name}: {} ends, from {states} states and from {} by leaps", expected.len(), found.states));
    assert!(!expected.is_empty() && found.complete && found.violations.is_empty(), "{name}");
    assert_eq!(found.identities.len(), expected.len(), "{name}");
    assert!(found.identities == expected, "{name}: the ends differ");
}

#[test]
fn leaps_find_the_same_ends_as_individual_steps() {
    let change = Budget { campaigns: 1, ..Budget::default() };
    let crash = Budget { crashes: 1, ..change };
    same(&[3], &[&[0]], crash);
    same(&[2], &[&[0], &[0]], Budget { campaigns: 2, ..change });
    same(&[1, 2], &[&[0, 1], &[1]], change);
    same(&[2, 1], &[&[0, 1], &[0]], change);
    let group_of_2 = || Scenario::new(&[2], &[(0, &[0])]);
    same_of(group_of_2().request(0, &[0, 1], Request::Time(5), 2), change);
    same_of(group_of_2().request(0, &[0, 1], Request::Version(2), 1), change);
}
