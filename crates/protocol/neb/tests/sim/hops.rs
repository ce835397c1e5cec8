//! Latencies in one-way hops: every message takes exactly 1 µs, and processing takes no time.

use stentor_fabric_sim::{NetworkModel, SimConfig, World};
use stentor_neb::{BroadcastError, Config, FaultModel, Mode};

use crate::bed::{Told, processes};

const HOP_NS: u64 = 1_000;

/// Returns the number of hops from the broadcast of process 0 to the delivery at each process.
fn hops(config: Config) -> Vec<u64> {
    let world = World::new(SimConfig::new(config.processes, 0, NetworkModel::uniform(HOP_NS)));
    let mut actors = processes(&world, &config, 0, 8);
    // Connections and grants are established before the broadcast.
    world.run(&mut actors, 1_000_000, |_, _| false);
    if let Some(Some(sender)) = actors.first_mut() {
        assert!(sender.node.is_connected());
        sender.left = 1;
    }
    world.wake_at(stentor_fabric::ProcessId(0), 2_000_000);
    world.run(&mut actors, 3_000_000, |_, _| false);
    let sent = actors[0].as_ref().unwrap().sent_at[0];
    let at = |process: &Option<crate::bed::Process>| {
        let told = &process.as_ref().unwrap().told;
        assert!(matches!(told[..], [(_, Told::Deliver(0, 0, ..))]), "{told:?}");
        assert_eq!((told[0].0 - sent) % HOP_NS, 0);
        (told[0].0 - sent) / HOP_NS
    };
    actors.iter().map(at).collect()
}

#[test]
fn all_delivers_in_three_hops() {
    // One hop to the receiver, two for the READ of the others' replays.
    assert_eq!(hops(Config::new(3, Mode::All, 0)), [2, 3, 3]);
    assert_eq!(hops(Config::new(5, Mode::All, 0)), [2, 3, 3, 3, 3]);
    assert_eq!(hops(Config::new(2, Mode::All, 0)), [2, 1]);
}

#[test]
fn quorum_delivers_in_five_hops_without_the_fast_path() {
    // One hop to the receiver, two to publish, two to read.
    for (mode, n) in [(FaultModel::LyingHosts, 4), (FaultModel::LyingSender, 4), (FaultModel::LyingSender, 3)] {
        let config = Config { fast_path: false, ..Config::new(n, Mode::Quorum(mode), usize::from(n == 4)) };
        let hops = hops(config);
        assert_eq!(hops[0], 2, "the sender's own, after a majority of write completions");
        assert!(hops[1..].iter().all(|hops| *hops == 5), "{mode:?}, {n}: {hops:?}");
    }
}

#[test]
fn the_fast_path_delivers_in_two_hops() {
    // One hop to the receiver, one for the replays of all processes.
    for (mode, n) in [(FaultModel::LyingHosts, 4), (FaultModel::LyingSender, 4), (FaultModel::LyingHosts, 7)] {
        let faults = if n == 7 { 2 } else { 1 };
        assert_eq!(hops(Config::new(n, Mode::Quorum(mode), faults))[1..], vec![2; n - 1], "{mode:?}, {n}");
    }
}

#[test]
fn enqueued_broadcasts_are_sent_in_order_with_the_next_step() {
    let config = Config { window: 8, ..Config::new(3, Mode::All, 0) };
    let world = World::new(SimConfig::new(config.processes, 0, NetworkModel::uniform(HOP_NS)));
    let mut actors = processes(&world, &config, 0, 8);
    world.run(&mut actors, 1_000_000, |_, _| false);
    let node = &mut actors[0].as_mut().expect("the process is up").node;
    for n in 0..8 {
        assert_eq!(node.enqueue(0, n, &[n as u8]), Ok(n));
    }
    assert_eq!(node.enqueue(0, 8, &[8]), Err(BroadcastError::Full));
    assert_eq!((node.counts().broadcasts, node.counts().broadcast_writes), (8, 0));
    node.step(&mut |_| {});
    assert_eq!(node.counts().broadcast_writes, 2 * 8);
    world.wake_at(stentor_fabric::ProcessId(0), 2_000_000);
    world.run(&mut actors, 3_000_000, |_, _| false);
    for process in actors.iter().flatten() {
        let expected: Vec<_> = (0..8).map(|n| Told::Deliver(0, n, n, vec![n as u8])).collect();
        assert_eq!(process.told.iter().map(|(_, told)| told.clone()).collect::<Vec<_>>(), expected);
    }
}
