//! Time entries under every fault profile. Each property must hold for them as it does for messages.

use stentor_multicast::Variant;
use stentor_simulation::{Mutant, Profile, Scenario, Sets, run_scenario_under};

#[test]
fn every_property_holds_of_time_entries_under_faults() {
    let profiles = [
        Profile::Failover,
        Profile::Partition,
        Profile::Clients,
        Profile::All,
        Profile::Rings,
        Profile::Rejoins,
        Profile::States,
        Profile::Stops,
        Profile::Clocks,
        Profile::Forgets,
    ];
    let seeds = std::env::var("SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    for profile in profiles {
        let (mut messages, mut without) = (0, 0);
        for seed in 0..seeds {
            let drawn = Scenario::draw_under(seed, profile).choose(seed, Sets::Drawn);
            let run = |time_entries| {
                let scenario = Scenario { time_entries, ..drawn.clone() };
                let run = run_scenario_under(seed, &scenario, profile, Mutant::None).expect("a possible scenario");
                let (violated, example) = (run.violated().collect::<Vec<_>>(), &run.report.counter_example);
                assert_eq!(violated, [""; 0], "{profile}, seed {seed}: {example:?}\n{}", run.log.join("\n"));
                run.deliveries
            };
            messages += run(true);
            without += run(false);
        }
        println!("{profile}: {messages} deliveries instead of {without}");
        assert!(messages > without + 10 * seeds, "{profile}: {messages} deliveries instead of {without}");
    }
}

#[test]
fn every_property_holds_of_time_entries_in_the_first_version() {
    for seed in 0..20 {
        let drawn = Scenario::draw_under(seed, Profile::All);
        let scenario = Scenario { time_entries: true, variant: Variant::V1, ..drawn };
        let run = run_scenario_under(seed, &scenario, Profile::All, Mutant::None).expect("a possible scenario");
        assert_eq!(run.violated().collect::<Vec<_>>(), [""; 0], "seed {seed}: {:?}", run.report.counter_example);
    }
}
