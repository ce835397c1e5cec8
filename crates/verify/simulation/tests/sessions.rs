//! Sessions: some seeds without mutants hold every property, and what is claimed really happens.

use stentor_simulation::sessions::Mutant;
use stentor_simulation::{Record, SimulationRun};

#[test]
fn the_first_seeds_hold_every_property() {
    let number = |name: &str, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (first, count) = (number("SESSION_FIRST", 0), number("SESSION_SEEDS", 200));
    let run = SimulationRun { seeds: first..first + count, until: None, record: Record::Nothing, threads: 0 };
    let report = run.sessions(Mutant::None, |_| ()).expect("drawn scenarios are possible");
    println!("{report:#?}");
    assert_eq!(report.first, None);
    assert_eq!(report.unseen_session_claims(), [""; 0]);
    assert!(report.messages > count * 20);
}

/// Each planted bug is found by the property that it breaks.
#[cfg(feature = "plants")]
#[test]
fn every_planted_bug_is_found_by_name() {
    let mut missed = Vec::new();
    for mutant in Mutant::ALL.iter().filter(|mutant| mutant.is_hunted()) {
        let until = Some(mutant.breaks());
        let run = SimulationRun { seeds: 0..400, until, record: Record::Nothing, threads: 0 };
        let report = run.sessions(*mutant, |_| ()).expect("drawn scenarios are possible");
        match report.first.filter(|first| first.properties.contains(&mutant.breaks())) {
            Some(first) => println!("{} breaks {} at seed {}", mutant.name(), mutant.breaks(), first.seed),
            None => missed.push(mutant.name()),
        }
    }
    assert_eq!(missed, [""; 0], "not found");
}
