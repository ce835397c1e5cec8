//! Tests that the search with failures finds mutants.

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model};
use stentor_multicast::Mutant;

use super::depth_first::Search;
use super::machine::{Budget, Machine};
use super::member::Context;
use super::search::{times, versions};
use crate::say;
use crate::scenario::Scenario;
use crate::verdict::{COMPLETE, Flaws, PREFIX, READ, REQUESTED, TIMESTAMPS, VERSION};

/// Requires that both searches find the property violated. Without the mutant the property is not violated: `search`
/// has the same scenarios, with budgets that include these.
fn finds(mutant: Mutant, sizes: &[usize], budget: Budget, property: (Flaws, &'static str)) {
    finds_in(Scenario::new(sizes, &[(0, &[0]), (1, &[0])]).mutant(mutant), budget, property);
}

fn finds_in(scenario: Scenario, budget: Budget, property: (Flaws, &'static str)) {
    let until = HasDiscoveries::AnyOf(BTreeSet::from([property.1]));
    let checker = Machine::new(scenario.clone(), budget).checker().threads(1).finish_when(until).spawn_dfs().join();
    let (machine, states) = (checker.model(), checker.unique_state_count());
    let name = format!("{} with {budget}", machine.context.scenario.name);
    let Some(path) = checker.discovery(property.1) else {
        panic!("{name}: {states} states, and {} is not violated in any", property.1)
    };
    let steps = path.into_actions().len();
    say(&format!("{name}: found after {states} states, in {steps} steps: {}", property.1));
    leaps_find(scenario, budget, property.1);
}

fn leaps_find(scenario: Scenario, budget: Budget, property: &'static str) {
    let context = Context::new(scenario);
    let found = Search::new(&context, budget).until(property).run(None);
    let (name, states) = (&context.scenario.name, found.states);
    let violated = found.violations.iter().any(|(violated, _)| *violated == property);
    assert!(violated, "{name}: {states} states by leaps, and {property} is not violated in any");
    say(&format!("{name}: found by leaps after {states} states, within {} leaps: {property}", found.depth));
}

const NONE: Budget = Budget { campaigns: 0, crashes: 0, restarts: 0, cuts: 0, ticks: 0 };
const CHANGE: Budget = Budget { campaigns: 1, ..NONE };

/// The old leader is not fenced: a member that has promised votes for messages that its promise does not contain.
#[test]
fn a_promise_that_fences_nothing() {
    finds(Mutant::NotFenced, &[3], CHANGE, PREFIX);
}

/// The quorum consists of the members that are still connected: a candidate asks nobody.
#[test]
fn quorum_of_connected_members() {
    finds(Mutant::QuorumOfConnected, &[3], CHANGE, PREFIX);
}

/// Recovery uses only the first reply.
#[test]
fn a_leader_that_takes_only_its_own_state() {
    finds(Mutant::FirstPromiseOnly, &[3], CHANGE, PREFIX);
}

/// A new leader waits for all members: with one of three dead it never leads.
#[test]
fn a_leader_that_waits_for_all() {
    finds(Mutant::WaitsForAll, &[3], Budget { crashes: 1, ..CHANGE }, COMPLETE);
}

/// Recovery carries entries without bodies.
#[test]
fn a_state_without_bodies() {
    finds(Mutant::StateWithoutBodies, &[3], CHANGE, COMPLETE);
}

/// A follower delivers before the leader, which answers a read.
#[test]
fn a_read_that_waits_for_nothing() {
    finds(Mutant::ReadIgnoresVectors, &[3], CHANGE, READ);
}

/// Recovery adopts the highest accepted ballot of each message. That takes two changes of the leader, which only the
/// search by leaps reaches. With a crash, the search finds a violation early.
#[test]
fn a_leader_that_adopts_the_highest_ballot_of_each_message() {
    let scenario = Scenario::new(&[3], &[(0, &[0]), (1, &[0])]).mutant(Mutant::HighestBallotPerMessage);
    leaps_find(scenario, Budget { campaigns: 2, crashes: 1, ..CHANGE }, PREFIX.1);
}

/// A leader assigns a time entry its next time, which may be before the requested one.
#[test]
fn a_time_entry_before_the_requested_time() {
    finds_in(times(1).mutant(Mutant::NotBeforeIgnored), NONE, REQUESTED);
}

/// A member that adopts a state waits for the body of a time entry or a version entry, which nobody has.
#[test]
fn an_entry_whose_body_is_awaited() {
    finds_in(times(1).mutant(Mutant::TimeEntryAwaited), CHANGE, COMPLETE);
    finds_in(versions(1).mutant(Mutant::TimeEntryAwaited), CHANGE, COMPLETE);
}

/// A leader delivers an entry that no other member knows. The next leader orders it at another time, or after a message
/// that the first leader delivers later.
#[test]
fn an_entry_that_counts_when_it_is_assigned() {
    finds_in(times(1).mutant(Mutant::EntryAtOnce), CHANGE, TIMESTAMPS);
    finds_in(versions(1).mutant(Mutant::EntryAtOnce), CHANGE, PREFIX);
    finds_in(versions(1).mutant(Mutant::EntryAtOnce), CHANGE, VERSION);
}

/// A new leader orders a message that it holds before the version entry, although all programs have the version.
#[test]
fn a_version_entry_after_the_messages_of_a_new_leader() {
    finds_in(versions(1).mutant(Mutant::VersionAfterMessages), CHANGE, VERSION);
}

/// A member forgets the goal that it learns before it leads, and no version entry is ordered.
#[test]
fn a_version_goal_that_is_forgotten() {
    finds_in(versions(1).mutant(Mutant::GoalForgotten), CHANGE, COMPLETE);
}
