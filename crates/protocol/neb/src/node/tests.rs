//! Contents of memory after all activity has ended.

use stentor_fabric::ProcessId;
use stentor_fabric::memory::WORD;
use stentor_fabric::seal::HEADER_WORDS;
use stentor_fabric_sim::{Actor, Delay, Fault, FaultPlan, NetworkModel, SimConfig, SimFabric, World};

use super::{Node, Notice};
use crate::{Config, FaultModel, Mode};

const SALT: u64 = 7;
/// Size of a payload, in bytes. A record of this size reaches into the last cache line of its slot. One write may
/// therefore carry several adjacent records.
const PAYLOAD: usize = 64;

struct Process {
    node: Node<SimFabric>,
    left: u64,
    /// Number of outcomes of each sender.
    outcomes: Vec<u64>,
}

impl Actor for Process {
    fn step(&mut self, now_ns: u64) -> bool {
        let Process { node, outcomes, .. } = self;
        let mut worked = node.housekeep();
        worked |= node.step(&mut |notice| match notice {
            Notice::Deliver(sender, _) | Notice::Skip(sender, _) => outcomes[sender.index()] += 1,
            other => panic!("{other:?}"),
        });
        while node.is_connected() && self.left > 0 && node.enqueue(now_ns, 0, &[7; PAYLOAD]).is_ok() {
            self.left -= 1;
            worked = true;
        }
        // The sender's timeout depends on time, so it must be polled.
        worked || self.left > 0
    }
}

/// Runs four processes on a network without ordered writes, on which `tail_ppm` of a million messages take up to
/// `tail_ns`. The first process broadcasts.
fn stragglers(config: &Config, (tail_ppm, tail_ns): (u32, u64), seed: u64, each: u64) -> Vec<Process> {
    let propagation = Delay::between(500, 1_500).with_tail(tail_ppm, tail_ns);
    let network = NetworkModel { propagation, inline_bytes: 2048, ..NetworkModel::unordered() };
    let world = World::new(SimConfig::new(config.processes, seed, network));
    let process = |me: u16| {
        let node = Node::new(world.fabric(ProcessId(me)), *config, SALT, None).unwrap();
        Some(Process { node, left: if me == 0 { each } else { 0 }, outcomes: vec![0; config.processes] })
    };
    let mut actors: Vec<_> = (0..config.processes as u16).map(process).collect();
    world.run(&mut actors, 50_000_000, |_, _| false);
    actors.into_iter().flatten().collect()
}

/// Runs four processes with fan-out sets that break all the time, on a network with or without ordered writes. Links
/// break now and then, too.
fn fanned(config: &Config, ordered: bool, seed: u64, each: u64) -> (Vec<Process>, World) {
    let propagation = Delay::between(500, 1_500).with_tail(60_000, 300_000);
    let liberties = if ordered { NetworkModel::adversarial() } else { NetworkModel::unordered() };
    let network = NetworkModel {
        propagation,
        inline_bytes: 2048,
        hardware_multicast: true,
        late_copies: 200_000,
        late_copy_ns: 900_000,
        set_settle: Delay::between(1_000, 20_000),
        retry_ns: [40_000, 400_000][seed as usize % 2],
        ..liberties
    };
    let (count, gap) = [(40, 31_000), (10, 120_000), (4, 300_000)][seed as usize / 2 % 3];
    let mut faults: FaultPlan = (1..count).map(|n| (60_000 + n * (gap + seed % 13_000), Fault::SetsBreak)).collect();
    for n in 0..10 {
        let (sender, peer) = (ProcessId(0), ProcessId(1 + ((seed + n) % 3) as u16));
        let (from, to) = if (seed / 3 + n).is_multiple_of(2) { (sender, peer) } else { (peer, sender) };
        let for_ns = 20_000 + (seed * 7_919 + n * 104_729) % 120_000;
        faults.push((80_000 + n * 110_000 + seed % 50_000, Fault::Cut { from, to, for_ns }));
    }
    let world = World::new(SimConfig { faults, ..SimConfig::new(config.processes, seed, network) });
    let process = |me: u16| {
        let node = Node::new(world.fabric(ProcessId(me)), *config, SALT, None).unwrap();
        Some(Process { node, left: if me == 0 { each } else { 0 }, outcomes: vec![0; config.processes] })
    };
    let mut actors: Vec<_> = (0..config.processes as u16).map(process).collect();
    world.run(&mut actors, 50_000_000, |_, _| false);
    (actors.into_iter().flatten().collect(), world)
}

#[test]
fn older_broadcast_never_overwrites_a_newer_one_on_any_path() {
    let seeds = std::env::var("NEB_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let mut copies = 0;
    let mut lost = Vec::new();
    for (window, ordered, seed) in [(1, true), (1, false), (3, true), (3, false)]
        .into_iter()
        .flat_map(|(window, ordered)| (0..seeds).map(move |seed| (window, ordered, seed)))
        // In this run a process asks to join a set in which it already is; the simulator once left it in a stale
        // connection for ever.
        .chain([(1, true, 3093)])
    {
        let set_rounds = [2, 20, 200, 1 << 16][seed as usize % 4];
        let patience_ns = [1, 1_000_000_000][seed as usize / 4 % 2];
        let config = Config { set_rounds, patience_ns, ..config(window) };
        let each = u64::from(2 * window) + 2 + seed % 20;
        let (processes, world) = fanned(&config, ordered, seed, each);
        copies += world.set_counts().late_copies;
        for process in &processes {
            if process.outcomes[0] != each {
                lost.push((process.node.me(), window, ordered, seed, process.outcomes[0], each));
            }
        }
    }
    assert!(lost.is_empty(), "{} of {}: {:?}", lost.len(), 4 * seeds, &lost[..lost.len().min(4)]);
    assert!(copies > seeds, "{copies} copies were late");
}

fn config(window: u32) -> Config {
    let config = Config::new(4, Mode::Quorum(FaultModel::LyingSender), 1);
    Config { window, payload_bytes: PAYLOAD, patience_ns: 1, ..config }
}

/// Returns the index of the whole record in the register of `replayer` at `host` in the slot of `index`.
fn kept(host: &Process, replayer: ProcessId, index: u64) -> Option<u64> {
    let end = &host.node.end;
    let slot = &end.register_words(replayer)[end.layout.register_offset(ProcessId(0), index) as usize / WORD..];
    let mut record = vec![0; end.layout.slot_bytes() as usize / WORD];
    let seal = crate::layout::register_seal(&end.config, replayer, ProcessId(0), SALT);
    seal.open_newer(0, &slot[..record.len()], &mut record).map(|_| record[HEADER_WORDS])
}

#[test]
fn older_register_never_overwrites_a_complete_one() {
    for (window, seed) in [3, 8].into_iter().flat_map(|window| (0..300).map(move |seed| (window, seed))) {
        let processes = stragglers(&config(window), (100_000, 150_000), seed, u64::from(2 * window) + 2 + seed % 20);
        for replayer in &processes[1..] {
            let me = replayer.node.me();
            let replay = &replayer.node.streams[0].as_ref().unwrap().replay;
            for host in replay.hosts().iter() {
                let published = replay.published_at(host);
                let newest = published.saturating_sub(u64::from(window))..published;
                for index in newest.filter(|index| replay.has_register(*index)) {
                    let kept = kept(&processes[host.index()], me, index);
                    assert_eq!(kept, Some(index), "of {me} at {host}, window {window}, seed {seed}");
                }
            }
        }
    }
}

#[test]
fn older_broadcast_never_overwrites_a_newer_one() {
    for (window, seed) in [1, 3].into_iter().flat_map(|window| (0..300).map(move |seed| (window, seed))) {
        let each = u64::from(2 * window) + 2 + seed % 20;
        let processes = stragglers(&config(window), (30_000, 600_000), seed, each);
        for process in &processes[1..] {
            assert_eq!(process.outcomes[0], each, "{}, window {window}, seed {seed}", process.node.me());
        }
    }
}
