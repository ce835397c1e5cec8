//! Senders whose writes the network copies.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Actor, Fault, FaultPlan, NetworkModel, SimConfig, SimFabric, World};
use stentor_neb::{Config, FaultModel, Mode, Node};

use crate::bed::{Process, Told, payload, process, processes};

const HOSTS: Mode = Mode::Quorum(FaultModel::LyingHosts);
const SENDER: Mode = Mode::Quorum(FaultModel::LyingSender);
const BYTES: usize = 24;
const DEAD: ProcessId = ProcessId(3);

fn with_sets(mut network: NetworkModel) -> NetworkModel {
    network.hardware_multicast = true;
    network
}

/// Returns the deliveries of a process from a sender, with their times.
fn delivered(process: &Process, sender: u16) -> Vec<(u64, u64, Vec<u8>)> {
    let of_sender = |(at, told): &(u64, Told)| match told {
        Told::Deliver(from, index, _, bytes) if *from == sender => Some((*at, *index, bytes.clone())),
        Told::Deliver(..) => None,
        other => panic!("{other:?}"),
    };
    process.told.iter().filter_map(of_sender).collect()
}

/// Runs until each process in `alive` has delivered `each` broadcasts of every process in `alive`. Checks these
/// broadcasts.
fn run(
    config: &Config,
    seed: u64,
    network: NetworkModel,
    faults: FaultPlan,
    alive: &[u16],
    each: u64,
) -> (World, Vec<Option<Process>>) {
    let world = World::new(SimConfig { faults, ..SimConfig::new(config.processes, seed, network) });
    let mut actors = processes(&world, config, each, BYTES);
    let wanted = each as usize * alive.len();
    let mut there = vec![false; config.processes];
    world.run(&mut actors, 1_000_000_000, |me, process| {
        there[me.index()] = process
            .told
            .iter()
            .filter(|(_, told)| matches!(told, Told::Deliver(from, ..) if alive.contains(from)))
            .count()
            >= wanted;
        alive.iter().all(|process| there[usize::from(*process)])
    });
    for me in alive {
        let process = actors[usize::from(*me)].as_ref().unwrap();
        for sender in alive {
            let got: Vec<_> = delivered(process, *sender).into_iter().map(|(_, index, bytes)| (index, bytes)).collect();
            let expected: Vec<_> = (0..each).map(|n| (n, payload(*sender, n, BYTES))).collect();
            assert!(
                got == expected,
                "{me} of {sender}: {} of {each}, seed {seed}: {:?}",
                got.len(),
                process.node.counts()
            );
        }
    }
    (world, actors)
}

fn small(config: Config) -> Config {
    Config { window: 8, payload_bytes: 64, patience_ns: 200_000, ..config }
}

/// A process that waits until all fan-out sets are connected, so that no write takes another path.
struct Begun(Process);

impl Actor for Begun {
    fn step(&mut self, now_ns: u64) -> bool {
        if now_ns < 1_000_000 {
            self.0.world.wake_at(self.0.node.me(), 1_000_000);
            return self.0.node.housekeep();
        }
        self.0.step(now_ns)
    }
}

#[test]
fn broadcast_is_one_write_for_any_number_of_receivers() {
    for n in [3, 5, 9] {
        let config = Config { window: 8, ..Config::new(n, Mode::All, 0) };
        let world = World::new(SimConfig::new(n, 1, with_sets(NetworkModel::uniform(1_000))));
        let (each, peers) = (40, n as u64 - 1);
        let begun = |me: u16| Some(Begun(process(&world, &config, me, each, BYTES)));
        let mut actors: Vec<_> = (0..n as u16).map(begun).collect();
        world.run(&mut actors, 100_000_000, |_, _| false);
        for Begun(process) in actors.iter().flatten() {
            let counts = process.node.counts();
            let copied = (counts.broadcast_writes, counts.copies, counts.slow_sets);
            assert_eq!(copied, (each, each * peers, 0), "{n} processes");
            assert_eq!((counts.broadcasts, counts.deliveries), (each, each * n as u64));
        }
        assert_eq!(world.set_counts().copies, each * peers * n as u64);
    }
}

#[test]
fn sets_that_break_again_and_again_lose_nothing() {
    let harsh = |network| NetworkModel { late_copies: 200_000, ..with_sets(network) };
    for (config, seed) in [Config::new(4, SENDER, 1), Config::new(4, HOSTS, 1), Config::new(3, Mode::All, 0)]
        .into_iter()
        .flat_map(|config| (0..12).map(move |seed| (config, seed)))
    {
        let config = Config {
            window: [1, 2, 8][seed as usize % 3],
            set_rounds: [8, 1 << 16][seed as usize % 2],
            patience_ns: 1_000_000_000,
            ..small(config)
        };
        let network = harsh(if seed % 4 < 2 { NetworkModel::adversarial() } else { NetworkModel::unordered() });
        let faults = (1..12).map(|n| (n * 150_000, Fault::SetsBreak)).collect();
        let everybody: Vec<u16> = (0..config.processes as u16).collect();
        let (world, _) = run(&config, seed, network, faults, &everybody, 120);
        let sets = world.set_counts();
        assert!(sets.copies > 100 && sets.breaks > 10, "seed {seed}: {sets:?}");
    }
}

/// For 20 ms no process detects that a member has crashed, and in that time no fan-out write completes. The others
/// deliver each other's broadcasts, and their own, long before, because an index that a peer has freed has reached it.
#[test]
fn crashed_member_delays_no_other_before_its_sets_break() {
    let config = small(Config::new(4, SENDER, 1));
    let network = NetworkModel { retry_ns: NOTICED_NS, ..with_sets(NetworkModel::calm()) };
    let (world, actors) = run_until(&config, network, CRASH_NS, 20_000, NOTICED_NS / 3);
    for me in 0..3_u16 {
        let process = actors[usize::from(me)].as_ref().unwrap();
        assert!(process.node.counts().copies > 1_000, "{:?}", process.node.counts());
        for sender in 0..3 {
            let after = delivered(process, sender).iter().filter(|(at, ..)| *at > 2 * CRASH_NS).count();
            assert!(after > 300, "{me} delivered {after} of {sender}: {:?}", process.node.counts());
        }
    }
    assert_eq!(world.set_counts().breaks, 0);
}

/// A sender, or a process that does nothing while its NIC works. Such a process frees no index.
enum Beside {
    Sender(Process),
    Idle(Node<SimFabric>),
}

impl Actor for Beside {
    fn step(&mut self, now_ns: u64) -> bool {
        match self {
            Beside::Sender(process) => {
                process.world.wake_at(process.node.me(), now_ns + 1_000);
                process.step(now_ns)
            }
            Beside::Idle(node) => node.housekeep(),
        }
    }
}

#[test]
fn slow_set_falls_back_to_queue_pairs() {
    for (set_rounds, delivers) in [(100, true), (1 << 16, false)] {
        let config = Config { set_rounds, ..small(Config::new(4, SENDER, 1)) };
        let network = NetworkModel { retry_ns: NOTICED_NS, ..with_sets(NetworkModel::calm()) };
        let faults = vec![(CRASH_NS, Fault::Crash(DEAD))];
        let world = World::new(SimConfig { faults, ..SimConfig::new(4, 3, network) });
        let idle = |me: u16| Beside::Idle(process(&world, &config, me, 0, BYTES).node);
        let sender = Process { begun: true, ..process(&world, &config, 0, 0, BYTES) };
        let mut actors = vec![Some(Beside::Sender(sender)), Some(idle(1)), Some(idle(2)), Some(idle(3))];
        world.run(&mut actors, 2 * CRASH_NS, |_, _| false);
        if let Some(Beside::Sender(sender)) = &mut actors[0] {
            sender.left = 5;
        }
        world.run(&mut actors, NOTICED_NS / 2, |_, _| false);
        let Some(Beside::Sender(sender)) = &actors[0] else { panic!("it is the sender") };
        let (counts, own) = (sender.node.counts(), delivered(sender, 0).len());
        assert_eq!((counts.broadcasts, counts.copies, world.set_counts().breaks), (5, 15, 0), "{counts:?}");
        let expected = if delivers { (5, 1) } else { (0, 0) };
        assert_eq!((own, counts.slow_sets), expected, "{counts:?}");
    }
}

const CRASH_NS: u64 = 400_000;
/// Time after which the fabric gives up an unanswered request, and thereby detects a crash.
const NOTICED_NS: u64 = 20_000_000;

/// Runs until `until_ns`; one process crashes.
fn run_until(
    config: &Config,
    network: NetworkModel,
    crash_ns: u64,
    each: u64,
    until_ns: u64,
) -> (World, Vec<Option<Process>>) {
    let faults = vec![(crash_ns, Fault::Crash(DEAD))];
    let world = World::new(SimConfig { faults, ..SimConfig::new(config.processes, 3, network) });
    let mut actors = processes(&world, config, each, BYTES);
    world.run(&mut actors, until_ns, |_, _| false);
    (world, actors)
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn survivors_continue_with_a_set_without_the_crashed_member() {
    let config = small(Config::new(4, SENDER, 1));
    for seed in 0..6 {
        let faults = vec![(300_000, Fault::Crash(DEAD))];
        let network = NetworkModel { retry_ns: 100_000, ..with_sets(NetworkModel::adversarial()) };
        let (world, actors) = run(&config, seed, network, faults, &[0, 1, 2], 1_500);
        assert!(world.set_counts().partial_lives > 0);
        for process in actors[..3].iter().flatten() {
            let counts = process.node.counts();
            assert!(counts.copies > 1_000, "seed {seed}: {counts:?}");
        }
    }
}
