//! Mutants of a state machine are found, each by the property that it violates.

use stentor::sim::{SimError, SimFailure, SimProperty};

use crate::shop::{Plant, Shop, shop};

/// Number of seeds within which a mutant must be found.
const SEEDS: u64 = 1000;

fn find(plant: Plant) -> SimFailure {
    let found = shop(plant).run(0..SEEDS);
    failure(plant, found)
}

fn failure(plant: Plant, found: Result<stentor::sim::SimReport, SimError>) -> SimFailure {
    let error = found.expect_err("a mutant");
    let failure = error.failure().unwrap_or_else(|| panic!("{plant:?}: {error}")).clone();
    println!("{plant:?} at seed {}:\n{failure}", failure.seed());
    let text = failure.to_string();
    assert!(text.contains(&format!("STENTOR_SIM_SEED={:#x} cargo test", failure.seed())), "{text}");
    assert!(!failure.trace().is_empty() && text.lines().count() < 100);
    failure
}

#[test]
fn differing_members_are_found() {
    let failure = find(Plant::Instance);
    assert!(matches!(failure.property(), SimProperty::States | SimProperty::Replies));
}

#[test]
fn a_read_of_a_stale_copy_is_found() {
    let found = shop(Plant::StaleRead).model(|| Shop::new(Plant::None)).run(0..SEEDS);
    assert_eq!(failure(Plant::StaleRead, found).property(), SimProperty::Calls);
}

/// The model reads its own stale copy, but a restored member renews its copy at other commands.
#[test]
fn a_read_of_a_stale_copy_is_found_by_the_machine_itself() {
    assert!(matches!(find(Plant::StaleRead).property(), SimProperty::Calls | SimProperty::Replies));
}

#[test]
fn an_incomplete_restore_is_found() {
    assert_eq!(find(Plant::ForgetsLocks).property(), SimProperty::States);
}

#[test]
fn a_value_that_is_restored_twice_is_found() {
    assert_eq!(find(Plant::RestoresTwice).property(), SimProperty::States);
}

#[test]
fn a_command_that_is_written_twice_is_found() {
    assert_eq!(find(Plant::WritesTwice).property(), SimProperty::States);
}

/// The replies, or notifications of the count, reveal the faults even if states are not compared.
#[test]
fn faults_of_restored_values_are_found_by_their_replies() {
    for plant in [Plant::ForgetsLocks, Plant::RestoresTwice, Plant::WritesTwice] {
        let found = shop(plant).compare_by(|_| Vec::new()).run(0..SEEDS);
        let property = failure(plant, found).property();
        assert!(matches!(property, SimProperty::Calls | SimProperty::Replies | SimProperty::Notifications));
    }
}

#[test]
fn locks_that_outlive_their_session_are_found_by_a_model() {
    let found = shop(Plant::KeepsLocks).model(|| Shop::new(Plant::None)).run(0..SEEDS);
    let property = failure(Plant::KeepsLocks, found).property();
    assert!(matches!(property, SimProperty::Calls | SimProperty::Notifications));
}

#[test]
fn a_read_that_changes_the_value_is_found() {
    assert_eq!(find(Plant::ReadCounts).property(), SimProperty::ReadChanges);
}

#[test]
fn a_panic_is_found() {
    let failure = find(Plant::Panics);
    assert!(failure.property() == SimProperty::Panic && failure.witness().contains("more than 20"));
}
