//! Tests that the exhaustive search detects these mutants, each of which drops a rule of the protocol.

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

/// Requires that the search finds the property violated. Without the mutant the property is not violated: `exhaustive`
/// searches the same scenarios, or similar ones.
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

/// Returns a scenario in which the groups' clocks differ. Group 1 is one ahead when the message to `BOTH` arrives.
/// Group 0 receives a message of its own at any time.
fn clocks_apart(sizes: &[usize]) -> Scenario {
    Scenario::new(sizes, &[(0, ONE), (1, BOTH), (2, ZERO)]).late(2)
}

/// Without the clock raise, the leader gives a later message a time below the final one of a message that has its
/// vector, and members of its group deliver the two in either order. Real-time order breaks, too.
#[test]
fn without_the_clock_raise() {
    finds(Mutant::NoClockRaise, clocks_apart(&[1, 1]), REAL_TIME);
    finds(Mutant::NoClockRaise, clocks_apart(&[3, 1]), PREFIX);
}

/// The clock is raised in one step and the entry posted in another (`docs/hazards.md`).
#[test]
fn with_the_clock_raised_after_the_entry() {
    finds(Mutant::ClockAfterEntry, clocks_apart(&[1, 1]), REAL_TIME);
    finds(Mutant::ClockAfterEntry, clocks_apart(&[3, 1]), PREFIX);
}

/// Timestamps are read in another order than the leader wrote them (`docs/hazards.md`): without density, a follower
/// delivers m2 on acknowledgements although it has not seen that m1 precedes it. Two messages and groups of 1 and 3 are
/// enough.
#[test]
fn without_density() {
    finds(Mutant::NoDensity, Scenario::new(&[1, 3], &[(0, BOTH), (1, ONE)]).late(1), PREFIX);
}

/// The leader of a one-process group has no follower whose vote implies its own. Another group delivers before this
/// leader has raised its clock, and a message multicast after that delivery precedes it.
#[test]
fn without_the_vote_of_a_one_process_group() {
    finds(Mutant::SoloLeaderSilent, clocks_apart(&[1, 1]), REAL_TIME);
    finds(Mutant::SoloLeaderSilent, clocks_apart(&[1, 2]), REAL_TIME);
}

/// Pipelined messages of one client to different destination sets (`docs/hazards.md`): a goes to both groups, b to one.
/// The other group's clock is ahead, and b overtakes a.
#[test]
fn without_the_fifo_rule() {
    finds(Mutant::NoFifo, Scenario::new(&[1, 1], &[(0, ONE), (1, BOTH), (1, ZERO)]).late(1), FIFO);
    finds(Mutant::NoFifo, Scenario::new(&[1, 2], &[(0, ONE), (1, BOTH), (1, ZERO)]).late(1), FIFO);
}

/// A session's second message precedes its first one in the order, through two messages of other clients.
#[test]
fn without_the_time_that_a_message_comes_after() {
    finds(Mutant::NotBeforeIgnored, super::exhaustive::sessions(&[1, 1, 1]), SESSION);
}

/// A message to both groups waits at each group for a message that the other group blocks.
#[test]
fn with_a_share_for_messages_to_several_groups() {
    finds(Mutant::ShareOfAll, super::exhaustive::shares(&[1, 1]), COMPLETE);
}
