//! Searches of the failing cluster.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use super::depth_first::Search;
use super::machine::{Budget, Machine};
use super::member::Context;
use crate::scenario::{Request, Scenario};
use crate::{asked, say};

/// Returns the limit of a search that need not be complete, which is given in millions.
fn millions(millions: usize) -> Option<usize> {
    Some(millions * 1_000_000)
}

/// Searches all states. No property may fail, and every state that must be possible must have been seen. There must be
/// `at_least` this many states, so that a search that has become trivial is detected.
fn verify(scenario: Scenario, budget: Budget, at_least: usize) {
    search(scenario, budget, None, at_least);
}

/// Searches like [`verify`], but stops after `limit` steps, and then prints that the search was partial.
fn search(scenario: Scenario, budget: Budget, limit: Option<usize>, at_least: usize) {
    let begin = Instant::now();
    let mut builder = Machine::new(scenario, budget).checker().threads(1).finish_when(HasDiscoveries::AnyFailures);
    if let Some(limit) = limit {
        builder = builder.target_state_count(limit);
    }
    let checker = builder.spawn_dfs().join();
    let complete = limit.is_none_or(|limit| checker.state_count() < limit);
    let (machine, states) = (checker.model(), checker.unique_state_count());
    let name = format!("{} with {budget}", machine.context.scenario.name);
    say(&format!(
        "{name}: {states} states, {} steps, depth {}, {} member states, {:.1} s, {}",
        checker.state_count(),
        checker.max_depth(),
        machine.lock().members(),
        begin.elapsed().as_secs_f64(),
        if complete { "complete" } else { "PARTIAL: not everything was searched" },
    ));
    let discoveries = checker.discoveries();
    let (failures, seen): (Vec<_>, Vec<_>) =
        machine.properties().into_iter().partition(|property| property.expectation.discovery_is_failure());
    if let Some((property, path)) = failures.iter().find_map(|p| discoveries.get_key_value(p.name)) {
        panic!("{name}: {property} is violated by\n{}", machine.explain(&path.clone().into_vec()));
    }
    if !complete {
        return;
    }
    for seen in seen {
        assert!(discoveries.contains_key(seen.name), "{name}: never seen: {}", seen.name);
    }
    assert!(checker.is_done(), "{name}: the search did not end");
    assert!(states >= at_least, "{name}: only {states} states, there were {at_least}");
}

/// Searches by leaps, completely or up to a number of states.
fn leap(scenario: Scenario, budget: Budget, limit: Option<usize>, at_least: usize) {
    let begin = Instant::now();
    let context = Context::new(scenario);
    let found = Search::new(&context, budget).run(limit);
    let name = format!("{} with {budget}, by leaps", context.scenario.name);
    say(&format!(
        "{name}: {} states, {} steps, {} ends, depth {}, {} member states, {} sites, {:.1} s, {}",
        found.states,
        found.steps,
        found.ends,
        found.depth,
        found.members,
        found.sites,
        begin.elapsed().as_secs_f64(),
        if found.complete { "complete" } else { "PARTIAL: not everything was searched" },
    ));
    if let Some((property, run)) = found.violations.first() {
        panic!("{name}: {property} is violated by\n{run}");
    }
    if found.complete {
        assert!(found.unseen.is_empty(), "{name}: never seen: {:?}", found.unseen);
        assert!(found.states >= at_least, "{name}: only {} states, there were {at_least}", found.states);
    }
}

/// Returns a scenario with one message per client, to these groups.
fn messages(sizes: &[usize], sets: &[&[u16]]) -> Scenario {
    let messages: Vec<(u16, &[u16])> = (0..).zip(sets.iter().copied()).collect();
    Scenario::new(sizes, &messages)
}

const NONE: Budget = Budget { campaigns: 0, crashes: 0, restarts: 0, cuts: 0, ticks: 0 };
const CHANGE: Budget = Budget { campaigns: 1, ..NONE };
const TWO_CHANGES: Budget = Budget { campaigns: 2, ..NONE };
const CHANGE_AND_CRASH: Budget = Budget { crashes: 1, ..CHANGE };
const ZERO: &[u16] = &[0];
const ONE: &[u16] = &[1];
const BOTH: &[u16] = &[0, 1];

#[test]
fn one_group_of_2_with_two_messages_and_three_changes() {
    verify(messages(&[2], &[ZERO, ZERO]), Budget { campaigns: 3, ..NONE }, 50_000);
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn one_group_of_3_with_one_message_a_change_and_a_lost_connection() {
    verify(messages(&[3], &[ZERO]), Budget { cuts: 1, ..CHANGE }, 400_000);
}

#[test]
fn groups_of_1_and_2_and_of_2_and_1_with_a_change() {
    verify(messages(&[1, 1], &[BOTH, ONE]), CHANGE, 300);
    verify(messages(&[1, 2], &[BOTH, ONE]), CHANGE, 35_000);
    verify(messages(&[2, 1], &[BOTH, ZERO]), CHANGE, 1000);
}

/// Returns a group of three with messages of as many clients. The first leader and the next member are asked for a time
/// entry, so two leaders may use the same slot.
pub(super) fn times(clients: usize) -> Scenario {
    messages(&[3], &vec![ZERO; clients]).request(0, &[0, 1], Request::Time(5), 2)
}

/// Returns a group of three with messages of as many clients. All members learn the goal of version 2.
pub(super) fn versions(clients: usize) -> Scenario {
    messages(&[3], &vec![ZERO; clients]).request(0, &[0, 1, 2], Request::Version(2), 1)
}

/// Returns groups of 1 and 2 with a message to both. Both members of the second group are asked for a time entry, and
/// learn the goal of version 2.
fn both_entries() -> Scenario {
    messages(&[1, 2], &[BOTH]).request(1, &[1, 2], Request::Time(5), 2).request(1, &[1, 2], Request::Version(2), 1)
}

#[test]
fn entries_of_one_group_of_3_with_a_change_and_a_crash() {
    leap(times(1), CHANGE_AND_CRASH, None, 12_000);
    leap(versions(1), CHANGE_AND_CRASH, None, 10_000);
}

#[test]
fn entries_of_groups_of_1_and_2_with_a_change() {
    leap(both_entries(), CHANGE, None, 20_000);
}

#[test]
fn entries_that_take_minutes() {
    if asked(true) {
        verify(both_entries(), CHANGE, 650_000);
        verify(times(1), CHANGE, 750_000);
        verify(versions(1), CHANGE, 1_400_000);
        leap(times(2), CHANGE_AND_CRASH, None, 330_000);
        leap(versions(2), CHANGE_AND_CRASH, None, 300_000);
    }
}

#[test]
fn large_configurations_with_entries() {
    if asked(false) {
        leap(versions(1), Budget { crashes: 1, ..TWO_CHANGES }, None, 3_800_000);
        leap(times(1), Budget { crashes: 1, ..TWO_CHANGES }, None, 4_900_000);
    }
}

/// Configurations that end in a few minutes. They run only with `STENTOR_MODEL=minutes` or `large` in the environment;
/// the test prints that otherwise.
#[test]
fn configurations_with_failures_that_take_minutes() {
    if asked(true) {
        leap(messages(&[3], &[ZERO]), Budget { crashes: 1, ..TWO_CHANGES }, None, 280_000);
        verify(messages(&[3], &[ZERO, ZERO]), CHANGE_AND_CRASH, 1_000_000);
        leap(messages(&[1, 3], &[BOTH, ONE]), CHANGE_AND_CRASH, None, 600_000);
        leap(messages(&[3], &[ZERO, ZERO, ZERO]), CHANGE_AND_CRASH, None, 800_000);
    }
}

/// Configurations that take longer. They run with `STENTOR_MODEL=large`.
#[test]
fn large_configurations_with_failures() {
    if asked(false) {
        leap(messages(&[3], &[ZERO, ZERO]), Budget { crashes: 1, ..TWO_CHANGES }, None, 12_000_000);
        leap(messages(&[2, 3], &[BOTH, ONE]), CHANGE_AND_CRASH, None, 1_000_000);
        leap(messages(&[3], &[ZERO]), Budget { campaigns: 3, ..CHANGE_AND_CRASH }, None, 30_000_000);
        verify(messages(&[3], &[ZERO]), Budget { crashes: 1, ..TWO_CHANGES }, 5_000_000);
        verify(messages(&[3], &[ZERO]), Budget { ticks: 1, ..CHANGE }, 1_000_000);
        verify(messages(&[3], &[ZERO]), Budget { restarts: 1, ..CHANGE_AND_CRASH }, 9_800_000);
    }
}

/// For experiments: `STENTOR_MODEL_TRY=sizes/sets/campaigns,crashes,restarts,cuts,ticks/millions of steps`, for example
/// `1,3/01,1/1,0,0,0,0/5`. With `STENTOR_MODEL_LEAPS=1` the search uses leaps, and the limit is in millions of states.
#[test]
fn configuration_from_the_environment() {
    let Ok(given) = std::env::var("STENTOR_MODEL_TRY") else { return };
    let parts: Vec<&str> = given.split('/').collect();
    let [sizes, sets, budget, limit] = parts[..] else { panic!("{given}: four parts") };
    let numbers = |text: &str| -> Vec<u16> { text.split(',').map(|n| n.parse().expect("a number")).collect() };
    let sets: Vec<Vec<u16>> =
        sets.split(',').map(|set| set.bytes().map(|group| u16::from(group - b'0')).collect()).collect();
    let sets: Vec<&[u16]> = sets.iter().map(Vec::as_slice).collect();
    let budget: Vec<u8> = numbers(budget).into_iter().map(|n| n as u8).collect();
    let [campaigns, crashes, restarts, cuts, ticks] = budget[..] else { panic!("{given}: five kinds of failures") };
    let sizes: Vec<usize> = numbers(sizes).into_iter().map(usize::from).collect();
    let limit = millions(limit.parse().expect("millions of steps"));
    let budget = Budget { campaigns, crashes, restarts, cuts, ticks };
    if std::env::var_os("STENTOR_MODEL_LEAPS").is_some() {
        return leap(messages(&sizes, &sets), budget, limit, 0);
    }
    search(messages(&sizes, &sets), budget, limit, 0);
}
