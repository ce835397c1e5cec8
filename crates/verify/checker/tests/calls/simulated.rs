//! Simulated histories: correct ones are accepted, and each kind of injected fault is found.

use std::collections::BTreeMap;
use std::ops::Range;
use std::thread;

use stentor_checker::calls::{Call, History, Verdict, decide, verify};

use crate::service::Service;
use crate::simulator::{Config, Fault, Simulator};

/// Number of seeds in which each kind of fault is found several times.
const SEEDS: u64 = 20;
const MANY_SEEDS: u64 = 1000;

/// Returns a history, and whether a fault was injected.
fn simulate(fault: Fault, seed: u64) -> (History, bool) {
    let positions = !seed.is_multiple_of(4);
    let config = Config { calls: 60, groups: 3, sessions: 5, keys: 2, several: 40, unknown: 20, positions, fault };
    let (calls, planted) = Simulator::new(config, seed).run();
    (History::try_from(calls).unwrap(), planted)
}

fn text(history: &History) -> String {
    history.calls().iter().enumerate().map(|(number, call): (usize, &Call)| format!("{number}: {call}\n")).collect()
}

fn keep_right_histories(seeds: Range<u64>) {
    for seed in seeds {
        let (history, _) = simulate(Fault::None, seed);
        match decide(&history, &Service) {
            Verdict::Kept(order) => {
                verify(&history, &Service, &order)
                    .unwrap_or_else(|why| panic!("seed {seed}: {why}\n{}", text(&history)));
            }
            other => panic!("seed {seed}: {other:?}\n{}", text(&history)),
        }
    }
}

#[test]
fn correct_histories_are_kept_and_their_orders_are_valid() {
    keep_right_histories(0..MANY_SEEDS);
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn many_correct_histories_are_kept_and_their_orders_are_valid() {
    keep_right_histories(MANY_SEEDS..50 * MANY_SEEDS);
}

/// Checks that a fault is found in at least `least` percent of the histories in which it was injected.
fn find(fault: Fault, seeds: Range<u64>, least: usize) {
    let (mut planted, mut found, mut calls) = (0, 0, 0);
    let mut rules = BTreeMap::new();
    for seed in seeds.clone() {
        let (history, is_planted) = simulate(fault, seed);
        planted += usize::from(is_planted);
        match decide(&history, &Service) {
            Verdict::Violated(example) => {
                assert!(is_planted, "seed {seed}: {example}");
                *rules.entry(example.rule).or_insert(0) += 1;
                calls += example.calls.len();
                found += 1;
            }
            Verdict::Kept(order) => verify(&history, &Service, &order).unwrap(),
            Verdict::TooHard => {}
        }
    }
    let size = calls as f64 / found.max(1) as f64;
    println!("{fault:?} in {seeds:?}: injected in {planted}, found in {found}, {size:.1} calls shown: {rules:?}");
    assert!(planted * 4 > seeds.count(), "injected in {planted}");
    assert!(found * 100 >= planted * least, "{found} of {planted}");
}

/// Returns the minimum percentage of the histories with an injected fault in which the fault must be found. In the
/// other histories, the fault changes no answer, or concurrent calls explain the change.
fn least(fault: Fault) -> usize {
    match fault {
        Fault::None => 0,
        Fault::Cycle | Fault::Doubled => 30,
        Fault::Session => 55,
        Fault::Prefix | Fault::StaleRead => 65,
        Fault::LostWrite | Fault::Torn => 80,
    }
}

macro_rules! found {
    ($($name:ident: $fault:ident;)*) => {
        $(#[test]
        fn $name() {
            find(Fault::$fault, 0..SEEDS, least(Fault::$fault));
        })*

        const FAULTS: &[Fault] = &[$(Fault::$fault),*];
    };
}

found! {
    a_stale_read_is_found: StaleRead;
    a_lost_write_is_found: LostWrite;
    a_doubled_command_is_found: Doubled;
    an_order_against_a_session_is_found: Session;
    a_cycle_over_groups_is_found: Cycle;
    a_torn_command_is_found: Torn;
    a_read_outside_its_prefix_is_found: Prefix;
}

/// The variable `CHECKER_SEEDS` sets the number of seeds. The step `checker` of `cargo xtask nightly` sets it to 1000.
#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn each_fault_is_found_in_many_histories() {
    let seeds = std::env::var("CHECKER_SEEDS").ok().map_or(MANY_SEEDS / 4, |text| text.parse().expect("a number"));
    thread::scope(|scope| {
        // The search for some faults takes much longer than for others.
        for half in [SEEDS..seeds / 2, seeds / 2..seeds] {
            for &fault in FAULTS {
                let seeds = half.clone();
                scope.spawn(move || find(fault, seeds, least(fault)));
            }
        }
    });
}
