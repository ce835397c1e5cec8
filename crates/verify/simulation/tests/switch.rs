//! The switch: some seeds without planted bugs hold every property, and what is claimed really happens.

use stentor_simulation::{Record, SimulationRun};
use stentor_switch::Plant;

#[test]
fn the_first_seeds_hold_every_property() {
    let seeds = std::env::var("SWITCH_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(120);
    let run = SimulationRun { seeds: 0..seeds, until: None, record: Record::Nothing, threads: 0 };
    let report = run.switch(Plant::None, |_| ()).expect("drawn scenarios are possible");
    println!("{report:#?}");
    assert_eq!(report.first, None);
    assert_eq!(report.unseen_switch_claims(), [""; 0]);
    assert!(report.deliveries > seeds * 20);
}

/// Each hazard of the design that can be planted, by the property that it breaks.
#[cfg(feature = "plants")]
#[test]
fn every_planted_bug_is_found_by_name() {
    let mut missed = Vec::new();
    for plant in Plant::ALL.iter().filter(|plant| plant.is_for_campaigns()) {
        let until = Some(plant.breaks());
        let run = SimulationRun { seeds: 0..300, until, record: Record::Nothing, threads: 0 };
        let report = run.switch(*plant, |_| ()).expect("drawn scenarios are possible");
        match report.first.filter(|first| first.properties.contains(&plant.breaks())) {
            Some(first) => println!("{} breaks {} at seed {}", plant.name(), plant.breaks(), first.seed),
            None => missed.push(plant.name()),
        }
    }
    assert_eq!(missed, [""; 0], "not found");
}
