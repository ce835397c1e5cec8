//! The broadcast: some seeds without planted bugs hold every property, and lies and faults really happen.

use stentor_campaign::neb::Severity;
use stentor_campaign::{CampaignReport, NebCampaign, Sets};

fn seeds_hold_every_property(severity: Severity, sets: Sets) -> CampaignReport {
    let seeds = std::env::var("NEB_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    let plant = stentor_neb::Plant::None;
    let campaign = NebCampaign { seeds: 0..seeds, severity, sets, plant, until: None, threads: 0 };
    let report = campaign.run(|_| ()).expect("drawn scenarios are possible");
    println!("{report:#?}");
    assert_eq!(report.first, None);
    assert!(report.messages > seeds * 20 && report.more.iter().all(|(_, count)| *count > 0), "{:?}", report.more);
    report
}

#[test]
fn the_first_seeds_hold_every_property() {
    seeds_hold_every_property(Severity::Usual, Sets::Drawn);
}

#[test]
fn the_first_harsh_seeds_hold_every_property() {
    seeds_hold_every_property(Severity::Harsh, Sets::Drawn);
}

#[test]
fn they_hold_where_all_write_by_sets() {
    for severity in Severity::ALL {
        let report = seeds_hold_every_property(severity, Sets::Always);
        let copies = report.more.iter().find(|(name, _)| *name == "set_copies").map_or(0, |(_, count)| *count);
        assert!(copies > report.messages, "{copies} copies of {} broadcasts", report.messages);
    }
}
