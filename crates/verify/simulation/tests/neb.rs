//! The broadcast: seeds without mutants satisfy every property, and Byzantine behaviour and faults really occur.

use stentor_fabric_sim::Fault;
use stentor_simulation::neb::{Scenario, Severity, run_scenario};
use stentor_simulation::{Record, Sets, SimulationReport, SimulationRun};

fn seeds_hold_every_property(severity: Severity, sets: Sets) -> SimulationReport {
    let seeds = std::env::var("NEB_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    let run = SimulationRun { seeds: 0..seeds, until: None, record: Record::Nothing, threads: 0 };
    let report = run.neb(severity, sets, stentor_neb::Mutant::None, |_| ()).expect("drawn scenarios are possible");
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
fn properties_hold_if_all_write_by_fan_out_sets() {
    for severity in Severity::ALL {
        let report = seeds_hold_every_property(severity, Sets::Always);
        let copies = report.more.iter().find(|(name, _)| *name == "set_copies").map_or(0, |(_, count)| *count);
        assert!(2 * copies > report.messages, "{copies} copies of {} broadcasts", report.messages);
    }
}

/// Combines the smallest windows, little patience, fan-out sets that break all the time, and late copies. Writes by
/// fan-out set and writes to single receivers then meet in the same slots.
#[test]
fn properties_hold_if_fan_out_sets_break_all_the_time() {
    let seeds = std::env::var("NEB_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let (mut late, mut slow, mut violated) = (0, 0, Vec::new());
    for seed in 0..seeds {
        let n = seed as usize;
        let mut scenario =
            Scenario::draw(seed, Severity::ALL[n % 2], stentor_neb::Mutant::None).choose(seed, Sets::Always);
        scenario.network.late_copies = 300_000;
        scenario.config.window = [1, 2, 3][n % 3];
        scenario.config.set_rounds = [1, 8, 64, 1 << 16][n % 4];
        scenario.config.patience_ns = [20_000, 100_000][n % 2];
        scenario.pause_ns = 5_000;
        scenario.plan.extend((1..24).map(|at| (at * 61_000, Fault::SetsBreak)));
        let run = run_scenario(seed, &scenario).expect("drawn scenarios are possible");
        (late, slow) = (late + run.sets.late_copies, slow + run.slow_sets);
        let names: Vec<_> = run.violated().collect();
        if !names.is_empty() {
            violated.push((seed, names, run.report.counter_example.clone()));
        }
    }
    assert!(violated.is_empty(), "{} of {seeds}: {:?}", violated.len(), violated[0]);
    assert!(late > seeds && slow > seeds, "{late} late copies, {slow} slow sets in {seeds} seeds");
}
