//! The broadcast: some seeds without planted bugs hold every property, and lies and faults really happen.

use stentor_campaign::NebCampaign;
use stentor_campaign::neb::Severity;

fn seeds_hold_every_property(severity: Severity) {
    let seeds = std::env::var("NEB_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    let campaign = NebCampaign { seeds: 0..seeds, severity, plant: stentor_neb::Plant::None, until: None, threads: 0 };
    let report = campaign.run(|_| ()).expect("drawn scenarios are possible");
    println!("{report:#?}");
    assert_eq!(report.first, None);
    assert!(report.messages > seeds * 20 && report.more.iter().all(|(_, count)| *count > 0), "{:?}", report.more);
}

#[test]
fn the_first_seeds_hold_every_property() {
    seeds_hold_every_property(Severity::Usual);
}

#[test]
fn the_first_harsh_seeds_hold_every_property() {
    seeds_hold_every_property(Severity::Harsh);
}
