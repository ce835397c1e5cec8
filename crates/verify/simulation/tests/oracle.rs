//! The recorded hashes: every profile is recorded, its first seeds still produce the recorded hashes, and a mutant
//! changes the hashes. `cargo xtask oracle` runs all recorded seeds.

use std::collections::BTreeMap;
use std::ops::Range;

use stentor_simulation::neb::Severity;
use stentor_simulation::{Mutant, Profile, Record, Sets, SimulationReport, SimulationRun};

/// Number of seeds of each profile that these tests run.
const FEW: u64 = 4;

/// The hashes in the files, by profile and seed.
type Hashes = BTreeMap<(String, u64), Vec<String>>;

fn recorded(text: &str) -> Hashes {
    let rows = text.lines().filter(|line| !line.starts_with('#')).skip(1).map(|line| {
        let mut words = line.split(' ').map(str::to_owned);
        let (profile, seed) = (words.next().expect("a profile"), words.next().expect("a seed"));
        ((profile, seed.parse().expect("a number")), words.collect())
    });
    rows.collect()
}

fn multicast() -> Hashes {
    recorded(include_str!("../oracle/multicast.txt"))
}

fn neb() -> Hashes {
    recorded(include_str!("../oracle/neb.txt"))
}

fn channel() -> Hashes {
    recorded(include_str!("../oracle/channel.txt"))
}

fn switch() -> Hashes {
    recorded(include_str!("../oracle/switch.txt"))
}

fn run(seeds: Range<u64>) -> SimulationRun {
    SimulationRun { seeds, until: None, record: Record::Hashes, threads: 0 }
}

fn run_multicast(seeds: Range<u64>, profile: Profile, mutant: Mutant) -> SimulationReport {
    run(seeds).multicast(profile, Sets::Drawn, mutant, |_| ()).expect("drawn scenarios are possible")
}

fn run_neb(seeds: Range<u64>, severity: Severity, mutant: stentor_neb::Mutant) -> SimulationReport {
    run(seeds).neb(severity, Sets::Drawn, mutant, |_| ()).expect("drawn scenarios are possible")
}

fn run_channel(seeds: Range<u64>, mutant: stentor_channel::Mutant) -> SimulationReport {
    run(seeds).channel(mutant, |_| ()).expect("drawn scenarios are possible")
}

fn run_switch(seeds: Range<u64>, mutant: stentor_switch::Mutant) -> SimulationReport {
    run(seeds).switch(mutant, |_| ()).expect("drawn scenarios are possible")
}

/// Returns the seeds of a report whose hashes differ from the recorded ones.
fn others(recorded: &Hashes, profile: &str, report: &SimulationReport) -> Vec<u64> {
    assert_eq!(report.hashes.len() as u64, report.seeds);
    let differ = report.hashes.iter().filter(|(seed, hashes)| {
        let now: Vec<String> = hashes.iter().map(|(_, hash)| format!("{hash:016x}")).collect();
        recorded[&(profile.to_owned(), **seed)] != now
    });
    differ.map(|(seed, _)| *seed).collect()
}

#[test]
fn first_seeds_of_the_multicast_match_the_recorded_hashes() {
    for profile in Profile::ALL {
        let report = run_multicast(0..FEW, profile, Mutant::None);
        let name = profile.name();
        assert_eq!(others(&multicast(), name, &report), [0; 0], "profile {name}: see docs/oracle.md");
    }
}

#[test]
fn first_seeds_of_the_broadcast_match_the_recorded_hashes() {
    for severity in Severity::ALL {
        let report = run_neb(0..FEW, severity, stentor_neb::Mutant::None);
        let name = severity.name();
        assert_eq!(others(&neb(), name, &report), [0; 0], "profile {name}: see docs/oracle.md");
    }
}

#[test]
fn first_seeds_of_channels_match_the_recorded_hashes() {
    let report = run_channel(0..FEW, stentor_channel::Mutant::None);
    assert_eq!(others(&channel(), "-", &report), [0; 0], "see docs/oracle.md");
}

#[test]
fn first_seeds_of_the_switch_match_the_recorded_hashes() {
    let report = run_switch(0..FEW, stentor_switch::Mutant::None);
    assert_eq!(others(&switch(), "-", &report), [0; 0], "see docs/oracle.md");
}

#[test]
fn every_profile_is_recorded() {
    let seeds = |hashes: &Hashes, name: &str| hashes.keys().filter(|(profile, _)| profile == name).count();
    for profile in Profile::ALL {
        let least = if profile == Profile::All { 300 } else { 100 };
        assert!(seeds(&multicast(), profile.name()) >= least, "{profile}");
    }
    for severity in Severity::ALL {
        assert!(seeds(&neb(), severity.name()) >= 100, "{severity}");
    }
    for hashes in [multicast(), neb(), channel(), switch()] {
        assert!(hashes.len() >= 300);
        // A seed in which no fault of a profile occurs may produce the same transcript under another profile.
        let distinct: std::collections::BTreeSet<_> =
            hashes.iter().flat_map(|((profile, _), both)| both.iter().map(move |hash| (profile, hash))).collect();
        assert_eq!(distinct.len(), 2 * hashes.len(), "no two transcripts of a profile are the same");
    }
}

/// The hashes also reveal a mutant that a simulation run finds by a violated property.
#[cfg(feature = "plants")]
#[test]
fn mutants_change_the_hashes() {
    let mutant = Mutant::named("era-not-closed").expect("a mutant");
    let report = run_multicast(40..41, Profile::All, mutant);
    assert_eq!(others(&multicast(), "all", &report), [40]);
    for mutant in Mutant::ALL.iter().filter(|mutant| mutant.shows_in_calm()).take(3) {
        let report = run_multicast(0..20, Profile::Calm, *mutant);
        assert_ne!(others(&multicast(), "calm", &report), [0; 0], "{}", mutant.name());
    }
    for mutant in stentor_neb::Mutant::ALL.iter().filter(|mutant| mutant.is_for_campaigns()).take(3) {
        let report = run_neb(0..100, Severity::Usual, *mutant);
        assert_ne!(others(&neb(), "usual", &report), [0; 0], "{}", mutant.name());
    }
    for mutant in stentor_channel::Mutant::ALL.iter().filter(|mutant| mutant.is_for_campaigns()).take(3) {
        let report = run_channel(0..100, *mutant);
        assert_ne!(others(&channel(), "-", &report), [0; 0], "{}", mutant.name());
    }
    for mutant in stentor_switch::Mutant::ALL.iter().filter(|mutant| mutant.is_for_simulation()).take(3) {
        let report = run_switch(0..100, *mutant);
        assert_ne!(others(&switch(), "-", &report), [0; 0], "{}", mutant.name());
    }
}
