//! Several processes in one simulated world.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Actor, NetworkModel, SimConfig, SimFabric, World};
use stentor_neb::{Authority, Config, Node, Notice};

pub(crate) const SALT: u64 = 0x5eed;

/// A notice of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    Deliver(u16, u64, u64, Vec<u8>),
    Equivocation(u16, u64, bool),
    Skip(u16, u64),
    Refused(u16, String),
    Removed(u16, u64),
}

pub(crate) struct Process {
    pub(crate) node: Node<SimFabric>,
    /// `true` once this process was connected to all others.
    pub(crate) begun: bool,
    pub(crate) told: Vec<(u64, Told)>,
    /// Number of broadcasts that are left to send.
    pub(crate) left: u64,
    pub(crate) sent: u64,
    pub(crate) sent_at: Vec<u64>,
    pub(crate) world: World,
    pub(crate) bytes: usize,
}

/// Returns the payload of a sender's broadcast.
pub(crate) fn payload(sender: u16, index: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (u64::from(sender) * 31 + index * 7 + n as u64) as u8).collect()
}

impl Actor for Process {
    fn step(&mut self, now_ns: u64) -> bool {
        let Process { node, told, .. } = self;
        let mut worked = node.housekeep();
        worked |= node.step(&mut |notice| {
            told.push((
                now_ns,
                match notice {
                    Notice::Deliver(sender, value) => {
                        Told::Deliver(sender.0, value.index(), value.key(), value.payload().to_vec())
                    }
                    Notice::Equivocation(evidence) => {
                        Told::Equivocation(evidence.sender.0, evidence.index, evidence.proven)
                    }
                    Notice::Skip(sender, index) => Told::Skip(sender.0, index),
                    Notice::Refused(sender, refused) => Told::Refused(sender.0, refused.to_string()),
                    Notice::Removed(sender, upto) => Told::Removed(sender.0, upto),
                },
            ));
        });
        self.begun |= self.node.is_connected();
        if !self.begun {
            return worked;
        }
        while self.left > 0 {
            let payload = payload(self.node.me().0, self.sent, self.bytes);
            if self.node.broadcast(now_ns, 1000 + self.sent, &payload).is_err() {
                self.world.wake_at(self.node.me(), now_ns + 10_000);
                break;
            }
            self.sent_at.push(now_ns);
            self.sent += 1;
            self.left -= 1;
            worked = true;
        }
        worked
    }
}

pub(crate) fn authority(config: &Config, me: u16) -> Option<Authority> {
    let secret = |n: u16| [n as u8 + 1; 32];
    let public: Vec<_> = (0..config.processes as u16).map(|n| Authority::public_of(&secret(n))).collect();
    config.signed.then(|| Authority::new(SALT, ProcessId(me), &secret(me), &public).unwrap())
}

pub(crate) fn process(world: &World, config: &Config, me: u16, each: u64, bytes: usize) -> Process {
    let node = Node::new(world.fabric(ProcessId(me)), *config, SALT, authority(config, me)).unwrap();
    let world = world.clone();
    Process { node, begun: false, told: Vec::new(), left: each, sent: 0, sent_at: Vec::new(), world, bytes }
}

pub(crate) fn processes(world: &World, config: &Config, each: u64, bytes: usize) -> Vec<Option<Process>> {
    (0..config.processes as u16).map(|me| Some(process(world, config, me, each, bytes))).collect()
}

/// Runs until every process has reported as many notices as there are broadcasts, or until the time is over. Returns
/// the processes with their notices.
pub(crate) fn run(config: &Config, seed: u64, network: NetworkModel, each: u64, bytes: usize) -> Vec<Process> {
    let world = World::new(SimConfig::new(config.processes, seed, network));
    let mut actors = processes(&world, config, each, bytes);
    let outcomes = each as usize * config.processes;
    let mut full = vec![false; config.processes];
    world.run(&mut actors, 1_000_000_000, |me, process| {
        full[me.index()] = process.told.len() >= outcomes;
        full.iter().all(|full| *full)
    });
    actors.into_iter().flatten().collect()
}
