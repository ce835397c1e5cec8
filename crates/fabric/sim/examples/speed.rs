//! Measures the real time that the simulator takes for a post: `cargo run --release -p stentor-fabric-sim --example
//! speed`.
#![allow(missing_docs, reason = "an example")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/common/chatter.rs"]
mod chatter;

use std::time::Instant;

use chatter::Chatter;
use stentor_fabric::ProcessId;
use stentor_fabric_sim::{NetworkModel, SimConfig, World};

const PROCESSES: u16 = 10;
const WRITES: u64 = 8_000;

fn main() {
    for (name, model) in [
        ("uniform", NetworkModel::uniform(1_000)),
        ("adversarial", NetworkModel::adversarial()),
        ("unordered", NetworkModel::unordered()),
    ] {
        let begin = Instant::now();
        let runs = 20;
        let (mut posts, mut steps) = (0, 0);
        for seed in 0..runs {
            let world = World::new(SimConfig::new(usize::from(PROCESSES), seed, model.clone()));
            let mut chatters: Vec<_> =
                (0..PROCESSES).map(|p| Some(Chatter::new(world.fabric(ProcessId(p)), PROCESSES, 0))).collect();
            let mut until = 10_000;
            let count = || (0..PROCESSES).map(|p| world.process_counts(ProcessId(p)).total().posts()).sum::<u64>();
            while count() < WRITES {
                world.run(&mut chatters, until, |_, _| false);
                until += 10_000;
            }
            posts += count();
            steps += (0..PROCESSES).map(|p| world.process_counts(ProcessId(p)).steps).sum::<u64>();
        }
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "{name}: {runs} runs of {} posts and {} steps, {:.1} ms each, {:.2} µs per post",
            posts / runs,
            steps / runs,
            seconds * 1e3 / runs as f64,
            seconds * 1e6 / posts as f64
        );
    }
}
