//! The broadcast: some seeds without planted bugs hold every property, and lies and faults really happen.

use stentor_campaign::NebCampaign;

#[test]
fn the_first_seeds_hold_every_property() {
    let seeds = std::env::var("NEB_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    let campaign = NebCampaign { seeds: 0..seeds, plant: stentor_neb::Plant::None, until: None, threads: 0 };
    let report = campaign.run(|_| ()).expect("drawn scenarios are possible");
    println!("{report:#?}");
    assert_eq!(report.first, None);
    assert!(report.messages > seeds * 20 && report.more.iter().all(|(_, count)| *count > 0), "{:?}", report.more);
}
