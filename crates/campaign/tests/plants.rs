//! Every planted bug is found, under the name of the property that it is known to break.
#![cfg(feature = "plants")]

use stentor_campaign::{Campaign, Plant};

#[test]
fn every_planted_bug_is_found_by_name_within_a_thousand_seeds() {
    let mut missed = Vec::new();
    for plant in Plant::ALL.iter().copied() {
        let campaign = Campaign { seeds: 0..1000, plant, until: Some(plant.breaks()), threads: 0 };
        let report = campaign.run(|_| ()).expect("drawn scenarios are possible");
        match report.first {
            Some(first) => println!("{}: {} at seed {}", plant.name(), plant.breaks(), first.seed),
            None => missed.push(plant.name()),
        }
    }
    assert!(Plant::ALL.len() >= 8);
    assert!(missed.is_empty(), "not found: {missed:?}");
}
