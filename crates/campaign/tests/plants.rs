//! Planted bugs that show only when clients die or are cut off, found by their names under a profile of failures.
#![cfg(feature = "plants")]

use stentor_campaign::{Campaign, Plant, Profile, Sets};

/// The seeds are those that show it first; a campaign from 0 finds it there.
#[test]
fn what_is_planted_in_the_rings_of_clients_is_found() {
    let planted = [
        ("era-not-closed", 141, Profile::All),
        ("void-of-the-living", 6, Profile::All),
        ("held-bodies-uncredited", 0, Profile::Rings),
    ];
    for (name, seed, profile) in planted {
        let plant = Plant::named(name).expect("a planted bug");
        let seeds = u64::saturating_sub(seed, 3)..seed + 1;
        let campaign = Campaign { seeds, profile, sets: Sets::Never, plant, until: Some(plant.breaks()), threads: 1 };
        let report = campaign.run(|_| ()).expect("drawn scenarios are possible");
        assert!(report.violations > 0 && report.first.is_some(), "{name}: {report:?}");
    }
}
