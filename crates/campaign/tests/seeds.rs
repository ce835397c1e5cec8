//! Some seeds without planted bugs: everything holds, everything that is claimed to go wrong goes wrong.

use stentor_campaign::{Campaign, Plant};

#[test]
fn the_first_seeds_hold_every_property() {
    let campaign = Campaign { seeds: 0..20, profile: None, plant: Plant::None, until: None, threads: 0 };
    let report = campaign.run(|_| ()).expect("drawn scenarios are possible");
    println!("{report:?}");
    assert_eq!(report.first, None);
    assert!(report.messages >= 20 * 200);
}
