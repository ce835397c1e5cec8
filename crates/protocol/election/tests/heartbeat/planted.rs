//! Every scenario holds; and each planted bug is found by its scenario.

use stentor_election::Plant;

use crate::graphs;
use crate::scenarios::{self, Scenario};

const SCENARIOS: &[(&str, Scenario)] = &[
    ("cold start", scenarios::cold_start),
    ("own stall", scenarios::own_stall),
    ("restarted counters", scenarios::restarted_counters),
    ("returning beats", scenarios::returning_beats),
    ("jitter", scenarios::jitter),
    ("pausing leaders", scenarios::pausing_leaders),
    ("broken link", scenarios::broken_link),
    ("leader restarts", scenarios::leader_restarts),
    ("blind candidate", scenarios::blind_candidate),
    ("lowest returns", scenarios::lowest_returns),
    ("lonely island", scenarios::lonely_island),
    ("nominee", scenarios::nominee_leads_under_its_own_epoch),
    ("wrong suspicion, then death", scenarios::wrong_suspicion_then_death),
    ("hub", graphs::hub),
    ("ring", graphs::ring),
    ("chain", graphs::chain),
    ("end of a chain", graphs::end_of_a_chain),
    ("one way", graphs::one_way),
    ("flapping link", graphs::flapping_link),
    ("broken streams", graphs::broken_streams),
    ("left out", graphs::left_out),
];

#[test]
fn every_scenario_holds() {
    for (name, scenario) in SCENARIOS {
        assert_eq!(scenario(Plant::None), Ok(()), "{name}");
    }
}

#[cfg(feature = "plants")]
#[test]
fn every_planted_bug_is_found_by_its_scenario() {
    let finder = |plant: Plant| match plant {
        Plant::None => unreachable!("it is no bug"),
        Plant::StallSuspects => "own stall",
        Plant::OnlyGrowingCounters => "restarted counters",
        Plant::TrustedAtOnce => "returning beats",
        Plant::MinimumTimeout => "jitter",
        Plant::NeverPatient => "pausing leaders",
        Plant::DoubtAlone => "broken link",
        Plant::EpochOfOthers => "leader restarts",
        Plant::NobodyPassedOver => "blind candidate",
        Plant::LowestTakesBack => "lowest returns",
        Plant::WithoutMajority => "lonely island",
        Plant::ClaimsUnheard => "cold start",
        Plant::DeafAfterMistake => "wrong suspicion, then death",
        Plant::NeverResigns => "end of a chain",
        Plant::DoubtersInSight => "ring",
        Plant::OneWaySight => "one way",
        Plant::NoPrecedence => "flapping link",
        Plant::NoPause => "broken streams",
        Plant::NeverCutOff => "left out",
    };
    for &plant in Plant::ALL {
        let (name, scenario) = SCENARIOS.iter().find(|(name, _)| *name == finder(plant)).expect("a scenario");
        match scenario(plant) {
            Ok(()) => panic!("{name} does not see {plant:?}"),
            Err(what) => println!("{plant:?} is found by '{name}': {what}"),
        }
    }
}
