//! In the uniform model every message takes exactly one hop, and nothing else takes time.

use std::cell::RefCell;
use std::rc::Rc;

use stentor_fabric::memory::Ordering;
use stentor_fabric::{
    Access, Event, Fabric, ProcessId, Purpose, QpConfig, QpId, RegionId, RegionSpec, RemoteRegion, RemoteSpan, Service,
    Source, Verb, WorkRequest,
};
use stentor_fabric_sim::{Actor, NetworkModel, SimConfig, SimFabric, World};

const HOP: u64 = 1_000;
const ROUNDS: u64 = 10;

/// A process that answers every number with the next one, and logs the time.
struct Player {
    fabric: SimFabric,
    qp: QpId,
    board: RegionId,
    peer: ProcessId,
    peers_board: Option<RemoteRegion>,
    serves: bool,
    seen: u64,
    log: Rc<RefCell<Vec<(u64, u64)>>>,
}

fn player(world: &World, me: u16, peer: u16, log: &Rc<RefCell<Vec<(u64, u64)>>>) -> Player {
    let mut fabric = world.fabric(ProcessId(me));
    let peer = ProcessId(peer);
    let board = fabric.register(RegionSpec { purpose: Purpose(1), writer: peer, bytes: 64 }).unwrap();
    fabric.grant(board, peer, Access::Write).unwrap();
    let qp = fabric.connect(peer, Service(0), QpConfig::reliable(64, 0)).unwrap();
    Player { fabric, qp, board, peer, peers_board: None, serves: me == 0, seen: 0, log: Rc::clone(log) }
}

impl Player {
    fn write(&mut self, value: u64, now_ns: u64) {
        let target = RemoteSpan { region: self.peers_board.unwrap(), offset: 0 };
        let verb = Verb::Write { source: Source::Inline(&value.to_ne_bytes()), target };
        self.fabric.post(self.qp, WorkRequest { id: value, verb, signalled: true }).unwrap();
        self.fabric.flush();
        self.log.borrow_mut().push((value, now_ns));
    }
}

impl Actor for Player {
    fn step(&mut self, now_ns: u64) -> bool {
        if let Some(Event::Connected { .. }) = self.fabric.next_event() {
            self.peers_board = self.fabric.resolve(self.peer, Purpose(1));
            if self.serves {
                self.write(1, now_ns);
            }
            return true;
        }
        let value = self.fabric.memory(self.board)[0].load(Ordering::Acquire);
        if value > self.seen && value < ROUNDS && self.peers_board.is_some() {
            self.seen = value;
            self.write(value + 1, now_ns);
            return true;
        }
        false
    }
}

#[test]
fn ping_pong_takes_one_hop_and_one_post_each_way() {
    let log = Rc::new(RefCell::new(Vec::new()));
    let world = World::new(SimConfig::new(2, 1, NetworkModel::uniform(HOP)));
    let mut players = [Some(player(&world, 0, 1, &log)), Some(player(&world, 1, 0, &log))];
    world.run(&mut players, u64::MAX, |_, _| false);
    let log = log.borrow();
    let start = log[0].1;
    let expected: Vec<_> = (0..ROUNDS).map(|n| (n + 1, start + n * HOP)).collect();
    assert_eq!(*log, expected);
    for (me, peer) in [(0, 1), (1, 0)] {
        let counts = world.process_counts(ProcessId(me));
        assert_eq!((counts.total().posts(), counts.to[peer].write), (ROUNDS / 2, ROUNDS / 2));
        assert_eq!(counts.total().bytes, ROUNDS / 2 * 8);
    }
    let faults = world.fault_counts().named();
    assert!(faults.iter().all(|(_, count)| *count == 0), "no fault in the uniform model: {faults:?}");
}

#[test]
fn ping_pong_completes_in_the_adversarial_model() {
    for seed in 0..20 {
        let log = Rc::new(RefCell::new(Vec::new()));
        let world = World::new(SimConfig::new(2, seed, NetworkModel::adversarial()));
        let mut players = [Some(player(&world, 0, 1, &log)), Some(player(&world, 1, 0, &log))];
        world.run(&mut players, u64::MAX, |_, _| false);
        assert_eq!(log.borrow().len() as u64, ROUNDS, "seed {seed}");
    }
}
