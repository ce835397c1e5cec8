//! Mutants of Stentor's own code are found by the property that they violate.

use stentor::sim::{SimFailure, SimProperty};

use crate::shop::{Plant, reading_shop};

/// Number of seeds within which a mutant must be found.
const SEEDS: u64 = 1000;

fn find(name: &str) -> SimFailure {
    let error = reading_shop(Plant::None).plant(name).run(0..SEEDS).expect_err("a mutant");
    let failure = error.failure().unwrap_or_else(|| panic!("{name}: {error}")).clone();
    println!("{name} at seed {}: {:?}", failure.seed(), failure.violations().collect::<Vec<_>>());
    assert!(failure.repeats() && !failure.trace().is_empty());
    failure
}

#[test]
fn an_unconfirmed_leaders_answer_is_found() {
    assert_eq!(find("read-unconfirmed").property(), SimProperty::Reads);
}

#[test]
fn incomplete_reads_are_found() {
    for name in ["read-ignores-vectors", "read-ignores-time", "reads-forget-time"] {
        assert_eq!(find(name).property(), SimProperty::Reads, "{name}");
    }
}

#[test]
fn a_read_of_another_position_is_found() {
    let failure = find("read-misplaced");
    assert_eq!(failure.property(), SimProperty::Reads);
    let mut witnesses = failure.violations().map(|(_, witness)| witness);
    assert!(witnesses.any(|witness| witness.contains("and by the model there by")));
}

#[test]
fn duplicate_notifications_are_found() {
    // An unreported loss is only visible to a client that waits for the notification. The simulation of sessions covers
    // it.
    for name in ["numbers-twice", "notifies-twice"] {
        assert_eq!(find(name).property(), SimProperty::Notifications, "{name}");
    }
}
