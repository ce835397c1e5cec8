//! What lies in memory when everything has come to rest.

use stentor_fabric::ProcessId;
use stentor_fabric::memory::WORD;
use stentor_fabric::seal::HEADER_WORDS;
use stentor_fabric_sim::{Actor, Delay, NetworkModel, SimConfig, SimFabric, World};

use super::{Node, Notice};
use crate::{Config, FaultModel, Mode};

const SALT: u64 = 7;
/// Fills the lines of a slot, so that neighbours go in one write.
const PAYLOAD: usize = 64;

struct Process {
    node: Node<SimFabric>,
    left: u64,
    /// By sender: outcomes.
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
        // The sender's patience is a matter of time.
        worked || self.left > 0
    }
}

/// Four processes on a network that orders no writes, and on which so many of a million take as long as many others; the
/// first process broadcasts.
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

fn config(window: u32) -> Config {
    let config = Config::new(4, Mode::Quorum(FaultModel::LyingSender), 1);
    Config { window, payload_bytes: PAYLOAD, patience_ns: 1, ..config }
}

/// The index of what lies whole in the register of `replayer` at `host` where `index` belongs.
fn kept(host: &Process, replayer: ProcessId, index: u64) -> Option<u64> {
    let end = &host.node.end;
    let slot = &end.register_words(replayer)[end.layout.register_offset(ProcessId(0), index) as usize / WORD..];
    let mut record = vec![0; end.layout.slot_bytes() as usize / WORD];
    let seal = crate::layout::register_seal(&end.config, replayer, ProcessId(0), SALT);
    seal.open_newer(0, &slot[..record.len()], &mut record).map(|_| record[HEADER_WORDS])
}

#[test]
fn a_register_that_is_complete_at_a_host_is_not_written_over_by_an_older_one() {
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
fn a_broadcast_is_not_written_over_by_an_older_one() {
    for (window, seed) in [1, 3].into_iter().flat_map(|window| (0..300).map(move |seed| (window, seed))) {
        let each = u64::from(2 * window) + 2 + seed % 20;
        let processes = stragglers(&config(window), (30_000, 600_000), seed, each);
        for process in &processes[1..] {
            assert_eq!(process.outcomes[0], each, "{}, window {window}, seed {seed}", process.node.me());
        }
    }
}
