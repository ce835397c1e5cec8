//! Planted bugs of Stentor's own are found by what they break.

use stentor::sim::{SimFailure, SimProperty};

use crate::shop::{Plant, reading_shop};

/// Seeds within which a bug must be found.
const SEEDS: u64 = 1000;

fn find(name: &str) -> SimFailure {
    let error = reading_shop(Plant::None).plant(name).run(0..SEEDS).expect_err("a planted bug");
    let failure = error.failure().unwrap_or_else(|| panic!("{name}: {error}")).clone();
    println!("{name} at seed {}: {:?}", failure.seed(), failure.violations().collect::<Vec<_>>());
    assert!(failure.repeats() && !failure.trace().is_empty());
    failure
}

#[test]
fn a_leader_that_answers_before_it_is_confirmed_is_found() {
    assert_eq!(find("read-unconfirmed").property(), SimProperty::Reads);
}

#[test]
fn reads_that_miss_something_are_found() {
    for name in ["read-ignores-vectors", "read-ignores-time", "reads-forget-time"] {
        assert_eq!(find(name).property(), SimProperty::Reads, "{name}");
    }
}

#[test]
fn a_read_that_shows_another_place_is_found() {
    let failure = find("read-misplaced");
    assert_eq!(failure.property(), SimProperty::Reads);
    let mut witnesses = failure.violations().map(|(_, witness)| witness);
    assert!(witnesses.any(|witness| witness.contains("and by the model there by")));
}

#[test]
fn notifications_that_come_twice_are_found() {
    // A lost one that nobody tells of takes a client that waits for it: the simulation of sessions has those.
    for name in ["numbers-twice", "notifies-twice"] {
        assert_eq!(find(name).property(), SimProperty::Notifications, "{name}");
    }
}
