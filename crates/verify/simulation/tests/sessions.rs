//! Sessions: seeds without mutants satisfy every property, and every claimed event occurs.

use stentor_simulation::sessions::{Mutant, run_seed, run_seed_with_timers, run_seed_without_reads};
use stentor_simulation::{Record, SimulationRun};

/// Returns a number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn the_first_seeds_hold_every_property() {
    let (first, count) = (number("SESSION_FIRST", 0), number("SESSION_SEEDS", 200));
    let run = SimulationRun { seeds: first..first + count, until: None, record: Record::Nothing, threads: 0 };
    let report = run.sessions(Mutant::None, |_| ()).expect("drawn scenarios are possible");
    println!("{report:#?}");
    assert_eq!(report.first, None);
    assert_eq!(report.unseen_session_claims(), [""; 0]);
    assert!(report.messages > count * 20);
}

/// In this seed a client is cut off until the end that its command names. A new leader refuses the command before it is
/// connected to the client, so the refusal is lost, and no table keeps it. The client never asked for its fate.
#[test]
fn a_lost_refusal_is_asked_for() {
    let run = run_seed(1543, Mutant::None).expect("drawn scenarios are possible");
    assert_eq!(run.violated().collect::<Vec<_>>(), [""; 0], "{:?}", run.report.counter_example);
}

/// Drawn seeds have either reads or timers. Here most seeds have both.
#[test]
fn seeds_with_timers_upgrades_and_reads_hold_every_property() {
    let (mut fired, mut entries, mut reads) = (0, 0, 0);
    let (first, count) = (number("SESSION_FIRST", 0), number("SESSION_SEEDS", 60));
    for seed in first..first + count {
        let run = run_seed_with_timers(seed, Mutant::None).expect("drawn scenarios are possible");
        assert_eq!(run.violated().collect::<Vec<_>>(), [""; 0], "seed {seed}: {:?}", run.report.counter_example);
        (fired, entries) = (fired + run.counts.timers_fired, entries + run.counts.version_entries);
        reads += run.counts.reads_answered;
    }
    println!("timers fired at {fired} positions, {entries} version entries, {reads} reads were answered");
    assert!(fired > 20 * count && entries > 3 * count && reads > 20 * count);
}

/// Runs seeds without reads in which members once sent a reply too few times. In the first three seeds, a client's
/// hello arrived before its connection was up at the member. The member counted the client as connected although it
/// could not send to it yet. In the other two seeds, a session expired together with the reply.
#[test]
fn seeds_that_once_lacked_a_reply_complete() {
    for seed in [1172, 2150, 3411, 4506, 5591] {
        let run = run_seed_without_reads(seed, Mutant::None).expect("drawn scenarios are possible");
        assert_eq!(run.violated().collect::<Vec<_>>(), [""; 0], "seed {seed}: {:?}", run.report.counter_example);
    }
}

/// Each mutant is found by the property that it breaks.
#[cfg(feature = "plants")]
#[test]
fn every_mutant_is_found_by_name() {
    let mut missed = Vec::new();
    for mutant in Mutant::ALL.iter().filter(|mutant| mutant.is_hunted()) {
        let until = Some(mutant.breaks());
        let run = SimulationRun { seeds: 0..1000, until, record: Record::Nothing, threads: 0 };
        let report = run.sessions(*mutant, |_| ()).expect("drawn scenarios are possible");
        match report.first.filter(|first| first.properties.contains(&mutant.breaks())) {
            Some(first) => println!("{} breaks {} at seed {}", mutant.name(), mutant.breaks(), first.seed),
            None => missed.push(mutant.name()),
        }
    }
    assert_eq!(missed, [""; 0], "not found");
}
