//! The channel: seeds without mutants satisfy every property, and every claimed event occurs.

use stentor_simulation::{Record, SimulationRun};

#[test]
fn the_first_seeds_hold_every_property() {
    let seeds = std::env::var("CHANNEL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(120);
    let run = SimulationRun { seeds: 0..seeds, until: None, record: Record::Nothing, threads: 0 };
    let report = run.channel(stentor_channel::Mutant::None, |_| ()).expect("drawn scenarios are possible");
    println!("{report:#?}");
    assert_eq!(report.first, None);
    assert_eq!(report.unseen_channel_claims(), [""; 0]);
    assert!(report.messages > seeds * 20);
}

/// Each mutant is found by the property that it breaks.
#[cfg(feature = "plants")]
#[test]
fn every_mutant_is_found_by_name() {
    use stentor_channel::Mutant;

    let mut missed = Vec::new();
    for mutant in Mutant::ALL.iter().filter(|mutant| mutant.is_for_campaigns()) {
        let until = Some(mutant.breaks());
        let run = SimulationRun { seeds: 0..300, until, record: Record::Nothing, threads: 0 };
        let report = run.channel(*mutant, |_| ()).expect("drawn scenarios are possible");
        match report.first.filter(|first| first.properties.contains(&mutant.breaks())) {
            Some(first) => println!("{} breaks {} at seed {}", mutant.name(), mutant.breaks(), first.seed),
            None => missed.push(mutant.name()),
        }
    }
    assert_eq!(missed, [""; 0], "not found");
}
