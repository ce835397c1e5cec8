//! Every scenario passes without a mutant, and each mutant fails the scenario that is written for it.

use stentor_election::Mutant;

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
        assert_eq!(scenario(Mutant::None), Ok(()), "{name}");
    }
}

#[cfg(feature = "plants")]
#[test]
fn every_mutant_is_found_by_its_scenario() {
    let finder = |mutant: Mutant| match mutant {
        Mutant::None => unreachable!("`None` is not a mutant"),
        Mutant::StallSuspects => "own stall",
        Mutant::OnlyGrowingCounters => "restarted counters",
        Mutant::TrustedAtOnce => "returning beats",
        Mutant::MinimumTimeout => "jitter",
        Mutant::NeverPatient => "pausing leaders",
        Mutant::DoubtAlone => "broken link",
        Mutant::EpochOfOthers => "leader restarts",
        Mutant::NobodyPassedOver => "blind candidate",
        Mutant::LowestTakesBack => "lowest returns",
        Mutant::WithoutMajority => "lonely island",
        Mutant::ClaimsUnheard => "cold start",
        Mutant::DeafAfterMistake => "wrong suspicion, then death",
        Mutant::NeverResigns => "end of a chain",
        Mutant::DoubtersInSight => "ring",
        Mutant::OneWaySight => "one way",
        Mutant::NoPrecedence => "flapping link",
        Mutant::NoPause => "broken streams",
        Mutant::NeverCutOff => "left out",
    };
    for &mutant in Mutant::ALL {
        let (name, scenario) = SCENARIOS.iter().find(|(name, _)| *name == finder(mutant)).expect("a scenario");
        match scenario(mutant) {
            Ok(()) => panic!("{name} does not find {mutant:?}"),
            Err(what) => println!("{mutant:?} is found by '{name}': {what}"),
        }
    }
}
