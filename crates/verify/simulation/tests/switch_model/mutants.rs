//! The searches find mutants by the names of the properties that they break.

use stateright::{Checker, HasDiscoveries, Model};
use stentor_simulation::switch::Op;
use stentor_switch::{Aggregation, Mutant};

use crate::model::{Budget, Search, link, link_at, send, write};

fn found(search: Search, property: &'static str) -> Result<(), String> {
    let (mutant, name) = (search.mutant, search.name);
    let checker = search.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let states = checker.unique_state_count();
    let discoveries = checker.discoveries();
    let failed: Vec<_> = discoveries.keys().filter(|found| **found != "everything done").collect();
    let Some(path) = checker.discovery(property) else {
        return Err(format!("{mutant:?}, {name}: {property} holds in {states} states; found: {failed:?}"));
    };
    println!("{mutant:?}, {name}: breaks {property} in {} steps, {states} states", path.into_actions().len());
    Ok(())
}

/// A search finds each of these mutants of the switch, with programs and faults that reveal it.
#[test]
fn hazards_are_found() {
    let two = || vec![vec![link(&[1, 2]), write(1), send(), send()], vec![], vec![]];
    let loss = Budget { losses: 1, ..Budget::default() };
    let cases = [
        (Mutant::NakExpected, "S1", two(), loss),
        (Mutant::ControlOverwrites, "S2", two(), Budget { repeats: 1, delays: 1, ..Budget::default() }),
        (Mutant::NoReAck, "SL1", two(), loss),
        (Mutant::NoBarrier, "S1", vec![vec![link(&[1]), write(1), link_at(&[1], 8), write(1)], vec![]], loss),
        (
            Mutant::DoneForgotten,
            "SL1",
            vec![vec![link(&[2]), write(1), Op::Release], vec![link(&[2]), write(1)], vec![]],
            loss,
        ),
        (
            Mutant::NakOwnPsn,
            "S1",
            vec![vec![link(&[2]), write(1)], vec![link(&[2]), write(1), Op::Release], vec![]],
            loss,
        ),
        (Mutant::FirstAck, "S1", two(), Budget::default()),
        (Mutant::MsnOfTrigger, "S9", two(), Budget { losses: 2, ..Budget::default() }),
        (
            Mutant::OldAddress,
            "S7",
            vec![vec![link(&[1]), write(1), link_at(&[1], 8), write(1)], vec![]],
            Budget::default(),
        ),
        (
            Mutant::UncleanSteal,
            "SL1",
            vec![vec![link(&[1, 2]), write(1)], vec![link(&[2]), write(1)], vec![]],
            Budget { leases: 1, ..loss },
        ),
    ];
    let cases =
        cases.into_iter().chain([(Mutant::LinkingNotGuarded, "S2", two(), Budget { repeats: 1, ..Budget::default() })]);
    let mut missed = Vec::new();
    for (mutant, property, programs, budget) in cases {
        let eager = matches!(mutant, Mutant::NoBarrier | Mutant::NakOwnPsn | Mutant::LinkingNotGuarded);
        missed.extend(found(Search { mutant, budget, eager, ..Search::new(property, programs) }, property).err());
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Aggregation by round bitmap is a variant, not a mutant. A search shows its weakness: it needs timeouts without a
/// loss.
#[test]
fn rounds_need_timeouts_without_a_loss() {
    let programs = vec![vec![link(&[1, 2]), write(1), send(), send()], vec![], vec![]];
    let search = Search { timers: false, aggregation: Aggregation::RoundBitmap, ..Search::new("rounds", programs) };
    found(search, "SL2").unwrap();
}
