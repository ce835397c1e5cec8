//! Some seeds without planted bugs: everything holds, everything that is claimed to go wrong goes wrong.

use std::ops::Range;

use stentor_campaign::{Campaign, CampaignReport, Plant, Profile, RECOVERY_STEPS};

fn hold(seeds: Range<u64>, profile: Profile) -> CampaignReport {
    let campaign = Campaign { seeds, profile, plant: Plant::None, until: None, threads: 0 };
    let report = campaign.run(|_| ()).expect("drawn scenarios are possible");
    println!("{report:?}");
    assert_eq!(report.first, None, "{profile}");
    report
}

#[test]
fn the_first_seeds_hold_every_property() {
    assert!(hold(0..20, Profile::Calm).messages >= 20 * 200);
}

#[test]
fn they_hold_under_every_profile_of_failures() {
    for profile in [Profile::Failover, Profile::Partition, Profile::Clients, Profile::All] {
        let report = hold(0..12, profile);
        assert!(report.nemesis.named().iter().any(|(_, count)| *count > 0), "{profile}: nothing failed");
        assert!(report.most_recovery_steps > 0 && report.most_recovery_steps < RECOVERY_STEPS, "{profile}");
    }
}
