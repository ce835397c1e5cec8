//! Groups that lose all their memory, with real processes.
//!
//! Each run has a seed, which draws the case, the fabric and what is left open in it. In every `slow` step some runs; with
//! `STENTOR_LOSSES=FIRST..END` those of these seeds, which `cargo xtask nightly --only losses` does. What must be so in each:
//! a group that anybody remembers does not begin, and says who remembers and what to do; an operator's reset releases it, or that who
//! remembers is gone; what was under way is settled; the other groups go on; all members deliver what comes then; and the histories of
//! all lives are good.

mod cases;
mod scene;

use std::time::{Duration, Instant};

use cases::{CASES, Found};

/// What a seed draws.
pub(crate) struct Draw {
    seed: u64,
    state: u64,
}

impl Draw {
    fn new(seed: u64) -> Self {
        Draw { seed, state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d }
    }

    /// A number below this.
    fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }

    fn is(&mut self) -> bool {
        self.below(2) == 0
    }

    fn pause(&mut self, most_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.below(most_ms)));
    }

    /// One run in four is on RoCEv2, each case in turn.
    fn is_roce(&self) -> bool {
        self.seed / CASES.len() as u64 % 4 == 3
    }

    /// Loopback addresses of the run's own.
    fn network(&self) -> String {
        format!("127.{}.{}", 200 + self.seed % 50, std::process::id() % 250 + 1)
    }
}

/// What came of the runs of a case.
#[derive(Default)]
struct Tally {
    released: Vec<Duration>,
    settled: Vec<Duration>,
}

fn median(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let ms = |at: Option<&Duration>| at.map_or_else(|| "-".to_owned(), |at| format!("{} ms", at.as_millis()));
    format!("median {}, at most {}", ms(times.get(times.len() / 2)), ms(times.last()))
}

/// Without a word of somebody: one run each of the cases that tell most in half a minute.
fn seeds() -> Vec<u64> {
    let Ok(given) = std::env::var("STENTOR_LOSSES") else { return vec![0, 1, 2, 4, 6] };
    let bounds = given.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    bounds.expect("STENTOR_LOSSES is FIRST..END").collect()
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn groups_that_lose_their_memory_are_released_and_settled() {
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
    for ((name, _), tally) in CASES.iter().zip(&mut tallies) {
        let (released, settled) = (median(&mut tally.released), median(&mut tally.settled));
        println!("{name}: {} good; released: {released}; settled: {settled}", tally.settled.len());
    }
    println!("{runs} runs, {} failed", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
