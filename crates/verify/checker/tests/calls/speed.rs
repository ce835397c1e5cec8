//! The time of a decision. The limit is wide enough for slow machines and unoptimised builds.

use std::time::{Duration, Instant};

use stentor_checker::calls::{History, Verdict, decide, verify};

use crate::service::Service;
use crate::simulator::{Config, Fault, Simulator};

#[test]
fn ten_thousand_calls_are_decided_in_seconds() {
    (1..=3).for_each(|seed| decide_in_time(10_000, true, seed));
}

#[test]
fn calls_of_which_most_have_no_positions_are_decided_in_seconds() {
    (1..=3).for_each(|seed| decide_in_time(500, false, seed));
}

fn decide_in_time(calls: usize, positions: bool, seed: u64) {
    let config =
        Config { calls, groups: 3, sessions: 8, keys: 6, several: 10, unknown: 10, positions, fault: Fault::None };
    let history = History::try_from(Simulator::new(config, seed).run().0).unwrap();
    let began = Instant::now();
    let order = match decide(&history, &Service) {
        Verdict::Kept(order) => order,
        other => panic!("seed {seed} is right: {other:?}"),
    };
    let took = began.elapsed();
    verify(&history, &Service, &order).unwrap();
    println!("{calls} calls, positions {positions}, seed {seed}: {took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}
