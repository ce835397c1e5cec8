//! Small clusters, searched exhaustively.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use super::machine::Machine;
use super::scenario::Scenario;
use super::verdict::REAL_TIME_PATH;
use super::{asked, say};

/// Searches all states. No property may fail, every state that must be possible must have been seen, and the longest
/// run must have used exactly the writes of the formulas. There must be `at_least` this many states, so that a search
/// that has become trivial is detected.
fn verify(scenario: Scenario, at_least: usize) {
    let late = scenario.messages.iter().filter(|message| message.late).count();
    let depth = 1 + late + scenario.writes();
    let begin = Instant::now();
    let machine = Machine::new(scenario);
    let checker = machine.checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (machine, states) = (checker.model(), checker.unique_state_count());
    let name = &machine.scenario.name;
    say(&format!(
        "{name}: {states} states, {} steps, depth {}, {} member states, {:.1} s",
        checker.state_count(),
        checker.max_depth(),
        machine.local_states(),
        begin.elapsed().as_secs_f64()
    ));
    let mut discoveries = checker.discoveries();
    discoveries.retain(|property, _| !machine.is_optional(property));
    let seen = machine.properties().into_iter().filter(|property| !property.expectation.discovery_is_failure());
    for seen in seen.filter(|seen| !machine.is_optional(seen.name)) {
        assert!(discoveries.remove(seen.name).is_some(), "{name}: never seen: {}", seen.name);
    }
    if let Some((property, path)) = discoveries.into_iter().next() {
        let logs = machine.logs(path.last_state());
        panic!("{name}: {property} is violated by {:#?}, which delivers {logs:?}", path.into_actions());
    }
    assert!(checker.is_done(), "{name}: the search did not end");
    assert_eq!(checker.max_depth(), depth, "{name}: depth, that is one plus multicasts plus writes of a run");
    assert!(states >= at_least, "{name}: only {states} states, there were {at_least}");
}

/// Two groups and two messages, the second one at any time. The destination sets are {0, 1} and {1}, {0} and {0, 1},
/// and {0, 1} twice; each from two clients and from one.
fn two_groups(sizes: [usize; 2], v1: bool, at_least: [usize; 6]) {
    let sets: [[&[u16]; 2]; 3] = [[&[0, 1], &[1]], [&[0], &[0, 1]], [&[0, 1], &[0, 1]]];
    let both = sets.iter().flat_map(|set| [(set, 1), (set, 0)]);
    for (([first, second], client), at_least) in both.zip(at_least) {
        let mut scenario = Scenario::new(&sizes, &[(0, first), (client, second)]);
        scenario = scenario.late(1);
        if v1 {
            scenario = scenario.v1();
        }
        verify(scenario, at_least);
    }
}

#[test]
fn groups_of_1_and_1() {
    two_groups([1, 1], false, [40, 30, 40, 20, 300, 100]);
    two_groups([1, 1], true, [40, 30, 40, 20, 300, 100]);
}

#[test]
fn groups_of_1_and_2() {
    two_groups([1, 2], false, [500, 250, 180, 100, 5000, 1500]);
    two_groups([1, 2], true, [2000, 800, 450, 250, 25_000, 6000]);
}

#[test]
fn groups_of_2_and_1() {
    two_groups([2, 1], false, [180, 140, 450, 280, 5000, 1500]);
}

#[test]
fn groups_of_1_and_3_and_of_3_and_1_that_take_minutes() {
    if asked(true) {
        two_groups([1, 3], false, [45_000, 18_000, 4000, 2000, 900_000, 250_000]);
        two_groups([3, 1], false, [5000, 4000, 45_000, 35_000, 900_000, 250_000]);
    }
}

/// Three messages in one group of three, from three clients, from one, and from two.
#[test]
fn one_group_of_3_with_three_messages() {
    let to: &[u16] = &[0];
    let three = Scenario::new(&[3], &[(0, to), (1, to), (2, to)]).late(2);
    verify(three, 50_000);
    verify(Scenario::new(&[3], &[(0, to), (0, to), (0, to)]).window(4).late(0), 15_000);
    verify(Scenario::new(&[3], &[(0, to), (1, to), (1, to)]).late(1), 35_000);
}

/// A third client's message at any time, when the clocks of the two groups differ. Here real-time order over two groups
/// needs the clock raise and the vote of a one-process group (see `mutants`).
#[test]
fn real_time_order_over_two_groups() {
    let (zero, one, both): (&[u16], &[u16], &[u16]) = (&[0], &[1], &[0, 1]);
    for (sizes, at_least) in [([1, 1], 150), ([1, 2], 2000), ([2, 1], 2000), ([2, 2], 20_000), ([3, 1], 180_000)] {
        verify(Scenario::new(&sizes, &[(0, one), (1, both), (2, zero)]).late(2), at_least);
    }
}

/// A limit of the protocol, not of this code. With a → {1, 2}, c → {0, 1}, b → {0}: group 2 delivers a, then b is
/// multicast, and still b precedes c at group 0 and c precedes a at group 1. Group 1 holds a back until c is decided;
/// group 2 does not know of c. Real-time order is guaranteed between messages with a common group, and between all
/// messages of a cluster of two groups (the other tests here).
#[test]
fn real_time_order_does_not_reach_over_three_groups() {
    let scenario = Scenario::new(&[1, 1, 1], &[(0, &[1, 2]), (1, &[0, 1]), (2, &[0])]).late(2);
    let checker =
        Machine::new(scenario).checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (machine, name) = (checker.model(), &checker.model().scenario.name);
    let path = checker.discovery(REAL_TIME_PATH.1).expect("the example in the comment is reachable");
    say(&format!("{name}: {:?} after {:?}", machine.logs(path.last_state()), path.into_actions()));
    let failures = machine.properties().into_iter().filter(|property| property.expectation.discovery_is_failure());
    failures.for_each(|property| assert!(checker.discovery(property.name).is_none(), "{name}: {}", property.name));
}

/// Returns a scenario with two messages of one session, and two messages of other clients that could reverse their
/// order: a → {2}, b → {0} after a is delivered, c1 → {0, 1}, c2 → {1, 2}.
pub(crate) fn sessions(sizes: &[usize]) -> Scenario {
    Scenario::new(sizes, &[(0, &[2]), (1, &[0, 1]), (2, &[1, 2]), (0, &[0])]).late(3).after(3, 0)
}

#[test]
fn message_that_names_a_delivered_time_follows_it_over_three_groups() {
    verify(sessions(&[1, 1, 1]), 1000);
    verify(Scenario::new(&[1, 1, 1], &[(0, &[1, 2]), (1, &[0, 1]), (2, &[0])]).late(2).after(2, 0), 100);
}

/// Returns a scenario with shares of one message, and with two clients whose second messages go to both groups. At each
/// group, one client's second message may arrive before the other client's first message, and precede it.
pub(crate) fn shares(sizes: &[usize]) -> Scenario {
    let (zero, one, both): (&[u16], &[u16], &[u16]) = (&[0], &[1], &[0, 1]);
    Scenario::new(sizes, &[(0, zero), (0, both), (1, one), (1, both)]).window(4).share(1)
}

#[test]
fn clients_with_shares_do_not_block_each_other_for_ever() {
    verify(shares(&[1, 1]), 900);
    verify(shares(&[1, 2]), 45_000);
    verify(Scenario::new(&[2], &[(0, &[0]), (0, &[0]), (1, &[0]), (1, &[0])]).window(4).share(1), 550);
}

/// More than two messages: a third client's message at any time, a ring of three groups, FIFO across destination sets.
#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn three_messages_over_several_groups() {
    let (zero, one, both): (&[u16], &[u16], &[u16]) = (&[0], &[1], &[0, 1]);
    verify(Scenario::new(&[1, 1], &[(0, both), (1, both), (2, both)]).late(2), 13_000);
    verify(Scenario::new(&[1, 1, 1], &[(0, both), (1, &[1, 2]), (2, &[0, 2])]).late(2), 12_000);
    verify(Scenario::new(&[1, 1], &[(0, one), (1, both), (1, zero), (1, both)]).window(4).late(0), 400);
    verify(Scenario::new(&[1, 2], &[(0, both), (1, both), (2, one)]).late(2), 65_000);
    verify(Scenario::new(&[1, 2], &[(0, one), (1, both), (1, zero)]).late(1), 1600);
    verify(Scenario::new(&[1, 3], &[(0, both), (1, zero), (2, one)]).late(2), 180_000);
}

/// Both groups have followers.
#[test]
fn groups_of_2_and_2() {
    two_groups([2, 2], false, [2000, 1000, 1800, 1000, 60_000, 18_000]);
}

/// Larger configurations of the kinds above, which run only with `STENTOR_MODEL=minutes` or `large`.
#[test]
fn largest_configurations_that_take_minutes() {
    if asked(true) {
        let (to, both): (&[u16], &[u16]) = (&[0], &[0, 1]);
        verify(Scenario::new(&[3], &[(0, to), (1, to), (2, to)]).late(2).v1(), 700_000);
        verify(Scenario::new(&[1, 2], &[(0, both), (1, both), (2, both)]).late(2), 800_000);
        verify(Scenario::new(&[2, 3], &[(0, both), (1, &[1])]).late(1), 300_000);
    }
}

/// Takes four minutes, so it runs only with `STENTOR_MODEL=large` in the environment, and prints that otherwise.
#[test]
fn large_configurations() {
    if std::env::var("STENTOR_MODEL").as_deref() != Ok("large") {
        return say("NOT RUN: the large configurations; STENTOR_MODEL=large runs them");
    }
    let both: &[u16] = &[0, 1];
    verify(Scenario::new(&[1, 2], &[(0, both), (1, both), (2, both)]).v1(), 5_000_000);
    verify(Scenario::new(&[1, 3], &[(0, both), (1, both)]).v1(), 14_000_000);
    verify(Scenario::new(&[2, 3], &[(0, both), (1, both)]), 20_000_000);
}
