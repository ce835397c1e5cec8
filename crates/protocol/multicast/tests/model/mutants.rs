//! The same search finds every rule of the protocol that is dropped.

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model};
use stentor_multicast::Mutant;

use super::machine::Machine;
use super::say;
use super::scenario::Scenario;
use super::verdict::{COMPLETE, FIFO, Flaws, PREFIX, REAL_TIME, SESSION};

const ZERO: &[u16] = &[0];
const ONE: &[u16] = &[1];
const BOTH: &[u16] = &[0, 1];

/// The search finds the property violated; without the bug it is not (`exhaustive`, the same scenarios).
fn finds(mutant: Mutant, scenario: Scenario, property: (Flaws, &'static str)) {
    let machine = Machine::new(scenario.mutant(mutant));
    let until = HasDiscoveries::AnyOf(BTreeSet::from([property.1]));
    let checker = machine.checker().threads(1).finish_when(until).spawn_bfs().join();
    let (name, states) = (&checker.model().scenario.name, checker.unique_state_count());
    let Some(path) = checker.discovery(property.1) else {
        panic!("{name}: {states} states, and {} is not violated in any", property.1)
    };
    let logs = checker.model().logs(path.last_state());
    let steps = path.into_actions().len();
    say(&format!("{name}: found after {states} states, in {steps} steps: {}; {logs:?}", property.1));
}

/// Clocks apart: group 1 is one ahead when `BOTH` comes; group 0 gets its own message at any time.
fn clocks_apart(sizes: &[usize]) -> Scenario {
    Scenario::new(sizes, &[(0, ONE), (1, BOTH), (2, ZERO)]).late(2)
}

/// "Why do we need to write to leader first": the leader gives a later message a time below the final one of a message
/// that has its vector, and members of its group deliver the two in either order. Real time breaks too.
#[test]
fn without_the_clock_raise() {
    finds(Mutant::NoClockRaise, clocks_apart(&[1, 1]), REAL_TIME);
    finds(Mutant::NoClockRaise, clocks_apart(&[3, 1]), PREFIX);
}

/// Hazard "clock raised in one thread, entry posted in another".
#[test]
fn with_the_clock_raised_after_the_entry() {
    finds(Mutant::ClockAfterEntry, clocks_apart(&[1, 1]), REAL_TIME);
    finds(Mutant::ClockAfterEntry, clocks_apart(&[3, 1]), PREFIX);
}

/// Hazard "timestamps read out of the leader's write order": without density, a follower delivers m2 on
/// acknowledgements while it has not seen that m1 comes before it. Two messages and 1+3 are enough.
#[test]
fn without_density() {
    finds(Mutant::NoDensity, Scenario::new(&[1, 3], &[(0, BOTH), (1, ONE)]).late(1), PREFIX);
}

/// "The leader of a one-process group has nobody to imply it": another group delivers before this leader raised its
/// clock, and a message multicast after that delivery comes before it.
#[test]
fn without_the_vote_of_a_one_process_group() {
    finds(Mutant::SoloLeaderSilent, clocks_apart(&[1, 1]), REAL_TIME);
    finds(Mutant::SoloLeaderSilent, clocks_apart(&[1, 2]), REAL_TIME);
}

/// Hazard "pipelined messages of one client to different destination sets": a → both, b → one; the other group's clock
/// is ahead, b overtakes a.
#[test]
fn without_the_fifo_rule() {
    finds(Mutant::NoFifo, Scenario::new(&[1, 1], &[(0, ONE), (1, BOTH), (1, ZERO)]).late(1), FIFO);
    finds(Mutant::NoFifo, Scenario::new(&[1, 2], &[(0, ONE), (1, BOTH), (1, ZERO)]).late(1), FIFO);
}

/// A session's second message comes before its first in the order, through two messages of strangers.
#[test]
fn without_the_time_that_a_message_comes_after() {
    finds(Mutant::NotBeforeIgnored, super::exhaustive::sessions(&[1, 1, 1]), SESSION);
}

/// A message to both groups waits at each of them behind a message that the other one holds up.
#[test]
fn with_a_share_for_messages_to_several_groups() {
    finds(Mutant::ShareOfAll, super::exhaustive::shares(&[1, 1]), COMPLETE);
}
