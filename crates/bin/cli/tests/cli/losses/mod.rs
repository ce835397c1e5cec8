//! Tests of groups that lose all their memory, with real processes.
//!
//! Each run has a seed, which selects the case, the fabric and the free choices of the case. The step `slow` runs a few
//! seeds. `STENTOR_LOSSES=FIRST..END` selects others, as `cargo xtask nightly --only losses` does. Each run checks, as
//! far as its case has such groups, that:
//!
//! - a group that some process remembers does not begin, and its members report which process remembers it and the
//!   remedy;
//! - the group begins when an operator resets it, or when no process remembers it any more;
//! - the other groups continue, and settle the multicasts that were in progress;
//! - all members deliver later multicasts;
//! - the histories of all lives pass the check.

mod cases;
mod scene;

use std::time::{Duration, Instant};

use cases::{CASES, Found};
use stentor_testutil::{SplitMix64, median};

/// The random choices of a seed.
pub(crate) struct Draw {
    seed: u64,
    random: SplitMix64,
}

impl Draw {
    fn new(seed: u64) -> Self {
        Draw { seed, random: SplitMix64(seed.wrapping_mul(SplitMix64::GOLDEN) ^ 0x5851_f42d_4c95_7f2d) }
    }

    /// Draws a number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    fn pause(&mut self, most_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.below(most_ms)));
    }

    /// Returns whether the run is on RoCEv2. One in four consecutive runs of each case is.
    fn is_roce(&self) -> bool {
        self.seed / CASES.len() as u64 % 4 == 3
    }

    /// Returns loopback addresses that only this run uses.
    fn network(&self) -> String {
        format!("127.{}.{}", 200 + self.seed % 50, std::process::id() % 250 + 1)
    }
}

/// The times of the successful runs of a case.
#[derive(Default)]
struct Tally {
    released: Vec<Duration>,
    settled: Vec<Duration>,
}

fn summary(times: &[Duration]) -> String {
    if times.is_empty() {
        return "-".to_owned();
    }
    let ms = || times.iter().map(|time| time.as_secs_f64() * 1e3);
    format!("median {:.0} ms, at most {:.0} ms", median(ms()), ms().fold(0.0, f64::max))
}

/// Returns the seeds to run. Without `STENTOR_LOSSES`, those are six cases that differ most, which take half a minute.
fn seeds() -> Vec<u64> {
    let Ok(given) = std::env::var("STENTOR_LOSSES") else { return vec![0, 1, 2, 3, 4, 6] };
    let bounds = given.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    bounds.expect("STENTOR_LOSSES is FIRST..END").collect()
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn groups_that_lose_their_memory_recover_and_settle() {
    let mut tallies: Vec<Tally> = CASES.iter().map(|_| Tally::default()).collect();
    let (mut failures, mut runs) = (Vec::new(), 0);
    for seed in seeds() {
        let mut draw = Draw::new(seed);
        let (at, since) = (seed as usize % CASES.len(), Instant::now());
        let (name, case) = CASES[at];
        let fabric = if draw.is_roce() { "roce" } else { "shm" };
        runs += 1;
        match case(&mut draw) {
            Ok(Found { released, settled, what }) => {
                let times = [released, settled, since.elapsed()].map(|time| time.as_millis());
                println!(
                    "seed {seed}: {name} on {fabric}: {what}; released {} ms, settled {} ms, {} ms in all",
                    times[0], times[1], times[2]
                );
                tallies[at].released.push(released);
                tallies[at].settled.push(settled);
            }
            Err(why) => {
                println!("seed {seed}: {name} on {fabric}: FAILED: {why}");
                failures.push(format!("seed {seed}, {name} on {fabric}: {why}"));
            }
        }
    }
    for ((name, _), tally) in CASES.iter().zip(&tallies) {
        let (released, settled) = (summary(&tally.released), summary(&tally.settled));
        println!("{name}: {} good; released: {released}; settled: {settled}", tally.settled.len());
    }
    println!("{runs} runs, {} failed", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
