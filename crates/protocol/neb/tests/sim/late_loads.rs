//! A host's processor sees WRITEs of others long after their completions were reported (rule 3 of the fabric contract),
//! and some links are slow. A process that reads its local replica with loads misses values that a READ through its NIC
//! returns.

use std::collections::HashMap;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Actor, Delay, NetworkModel, SimConfig, SimFabric, SimRng, World};
use stentor_neb::{Config, FaultModel, Liar, Lies, Mode};

use crate::bed::{Process, SALT, Told, process};

enum Member {
    Liar(Box<(Liar<SimFabric>, SimRng)>),
    Correct(Box<Process>),
}

impl Actor for Member {
    fn step(&mut self, now_ns: u64) -> bool {
        match self {
            Member::Liar(both) => {
                let (liar, rng) = &mut **both;
                liar.step(|| rng.word(), &mut |_| {}) || !liar.is_done()
            }
            Member::Correct(process) => process.step(now_ns),
        }
    }
}

/// Runs four processes without the fast path, which reads nothing. The first one has two values for every index.
/// Returns whether two of the others delivered different bytes for an index, and the number of deliveries.
fn run(config: &Config, seed: u64) -> (bool, usize) {
    let network = NetworkModel {
        propagation: Delay::between(200, 1_000).with_tail(300_000, 60_000),
        landing: Delay::exactly(0).with_tail(500_000, 200_000),
        early_completions: true,
        ..NetworkModel::calm()
    };
    let world = World::new(SimConfig::new(config.processes, seed, network));
    let lies = Lies { two_values: true, ..Lies::default() };
    let other_side = [ProcessId(2)].into_iter().collect();
    let liar = Liar::new(world.fabric(ProcessId(0)), *config, SALT, None, lies, 8, other_side).unwrap();
    let mut actors = vec![Some(Member::Liar(Box::new((liar, SimRng::new(seed, 99)))))];
    actors.extend((1..4).map(|me| Some(Member::Correct(Box::new(process(&world, config, me, 0, 8))))));
    world.run(&mut actors, 5_000_000, |_, _| false);
    let (mut first, mut split, mut count) = (HashMap::new(), false, 0);
    for member in actors.into_iter().flatten() {
        let Member::Correct(process) = member else { continue };
        for (_, told) in process.told {
            if let Told::Deliver(0, index, _, payload) = told {
                split |= *first.entry(index).or_insert_with(|| payload.clone()) != payload;
                count += 1;
            }
        }
    }
    (split, count)
}

fn config() -> Config {
    Config { window: 8, payload_bytes: 8, fast_path: false, ..Config::new(4, Mode::Quorum(FaultModel::LyingSender), 1) }
}

#[test]
fn local_replica_read_through_the_nic_keeps_agreement() {
    let runs: Vec<_> = (0..300).map(|seed| run(&config(), seed)).collect();
    assert!(runs.iter().all(|(split, _)| !split));
    assert!(runs.iter().any(|(_, count)| *count > 0), "something is delivered in spite of two values");
}

#[cfg(feature = "plants")]
#[test]
fn local_replica_read_by_loads_breaks_agreement() {
    let config = Config { mutant: stentor_neb::Mutant::OwnReplicaByLoad, ..config() };
    let found = (0..2000).find(|seed| run(&config, *seed).0);
    println!("{:?}: found at seed {found:?}", config.mutant);
    assert!(found.is_some());
}
