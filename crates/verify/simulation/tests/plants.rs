//! Mutants that show only under failures. Each is found by the property that it breaks.
#![cfg(feature = "plants")]

use stentor_simulation::{Mutant, Profile, Record, Sets, SimulationRun};

/// Each seed is the first that shows its mutant, so a simulation run from seed 0 finds the mutant there. No seed is
/// known that shows `state-unnoted`, because new clients begin with majorities. No seed is known that shows
/// `held-of-another-life`, because members keep delivered bodies that arrived through another member.
#[test]
fn mutants_in_rings_of_clients_are_found() {
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
fn mutants_in_rejoins_under_load_are_found() {
    find("state-set-back", 344, Profile::Rejoins, Sets::Drawn);
}

#[test]
fn mutants_in_transfers_of_large_states_are_found() {
    find("applied-again", 0, Profile::States, Sets::Drawn);
    find("pieces-mixed", 87, Profile::States, Sets::Drawn);
}

fn find(name: &str, seed: u64, profile: Profile, sets: Sets) {
    let mutant = Mutant::named(name).expect("a mutant");
    let seeds = u64::saturating_sub(seed, 3)..seed + 1;
    let run = SimulationRun { seeds, until: Some(mutant.breaks()), record: Record::Nothing, threads: 1 };
    let report = run.multicast(profile, sets, mutant, |_| ()).expect("drawn scenarios are possible");
    assert!(report.violations > 0 && report.first.is_some(), "{name}: {report:?}");
}
