//! Mutants that show only under failures, found by their names.
#![cfg(feature = "plants")]

use stentor_simulation::{Mutant, Profile, Record, Sets, SimulationRun};

/// The seeds are those that show it first; a simulation run from 0 finds it there. No seed is known that shows
/// `state-unnoted`, since new clients begin with majorities, or `held-of-another-life`, since delivered bodies are kept that
/// came through another member.
#[test]
fn what_is_planted_in_the_rings_of_clients_is_found() {
    for (name, seed, profile) in [
        ("era-not-closed", 40, Profile::All),
        ("void-of-the-living", 6, Profile::All),
        ("held-bodies-uncredited", 1, Profile::Rings),
        ("nobody-expelled", 0, Profile::Stops),
        ("ended-assigned", 4, Profile::Forgets),
    ] {
        find(name, seed, profile, Sets::Never);
    }
}

#[test]
fn what_is_planted_where_members_come_back_under_load_is_found() {
    find("state-set-back", 344, Profile::Rejoins, Sets::Drawn);
}

#[test]
fn what_is_planted_in_transfers_of_large_states_is_found() {
    find("applied-again", 0, Profile::States, Sets::Drawn);
    find("pieces-mixed", 87, Profile::States, Sets::Drawn);
}

fn find(name: &str, seed: u64, profile: Profile, sets: Sets) {
    let mutant = Mutant::named(name).expect("a planted bug");
    let seeds = u64::saturating_sub(seed, 3)..seed + 1;
    let run = SimulationRun { seeds, until: Some(mutant.breaks()), record: Record::Nothing, threads: 1 };
    let report = run.multicast(profile, sets, mutant, |_| ()).expect("drawn scenarios are possible");
    assert!(report.violations > 0 && report.first.is_some(), "{name}: {report:?}");
}
