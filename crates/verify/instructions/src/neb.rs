//! The hot path of a broadcast to three processes in mode `quorum`, on the protocol's fast path. One broadcast is
//! outstanding at a time.

use stentor::runtime::ShmFabric;
use stentor_fabric::ProcessId;
use stentor_fabric_shm::ShmConfig;
use stentor_neb::{Config, FaultModel, Mode, Node, Notice};
use stentor_testutil::TempDir;

use crate::{WARM_UP, counted_if};

/// The process whose steps are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The sender. The call that broadcasts and the following steps are counted.
    Sender,
    /// A process that only receives. All its steps are counted.
    Receiver,
}

const PROCESSES: u16 = 3;
const PAYLOAD: [u8; 64] = [7; 64];
/// Size of the window, as in `stentor bench neb`. One slot of it is in use at a time.
const WINDOW: u32 = 64;
/// Maximum number of rounds until a broadcast is delivered by all processes.
const MOST_ROUNDS: u32 = 100;

/// Three processes in one thread. The first one broadcasts.
pub struct Set {
    nodes: Vec<Node<ShmFabric>>,
    delivered: u64,
    broadcasts: u64,
    _directory: TempDir,
}

impl Set {
    /// Connects the processes and broadcasts the warm-up messages.
    ///
    /// # Panics
    /// Panics if shared memory is not available on this machine.
    #[must_use]
    pub fn ready() -> Self {
        let directory = TempDir::new();
        let sized = Config::new(usize::from(PROCESSES), Mode::Quorum(FaultModel::LyingSender), 0);
        let config = Config { window: WINDOW, payload_bytes: PAYLOAD.len(), fast_path: true, ..sized };
        let node = |process: u16| {
            let shm = ShmConfig::new("instructions", ProcessId(process), &format!("p{process}"), PROCESSES);
            let shm = ShmConfig { directory: directory.to_path_buf(), janitor: false, ..shm };
            Node::new(ShmFabric::start(shm).expect("the fabric starts"), config, 1, None).expect("a possible process")
        };
        let nodes = (0..PROCESSES).map(node).collect();
        let mut set = Set { nodes, delivered: 0, broadcasts: 0, _directory: directory };
        while !set.nodes.iter().all(Node::is_connected) {
            set.nodes.iter_mut().for_each(|node| {
                node.housekeep();
            });
            set.round(None);
        }
        set.pass(None, WARM_UP);
        set
    }

    /// Broadcasts `messages`, one after the other. Counts the instructions of `role` until each is delivered by all
    /// processes.
    ///
    /// # Panics
    /// Panics if a broadcast is not delivered.
    pub fn run(&mut self, role: Role, messages: u64) {
        self.pass(Some(role), messages);
    }

    fn pass(&mut self, role: Option<Role>, messages: u64) {
        for _ in 0..messages {
            let due = self.delivered + u64::from(PROCESSES);
            let (sender, id) = (&mut self.nodes[0], self.broadcasts);
            counted_if(role == Some(Role::Sender), || sender.enqueue(0, id, &PAYLOAD))
                .expect("the window has room for a message");
            self.broadcasts += 1;
            let mut rounds = 0;
            while self.delivered < due {
                self.round(role);
                rounds += 1;
                assert!(rounds < MOST_ROUNDS, "a broadcast is not delivered");
            }
        }
    }

    fn round(&mut self, role: Option<Role>) {
        let delivered = &mut self.delivered;
        for (n, node) in self.nodes.iter_mut().enumerate() {
            let measured = match role {
                Some(Role::Sender) => n == 0,
                Some(Role::Receiver) => n == 1,
                None => false,
            };
            let mut notify = |notice: Notice<'_>| *delivered += u64::from(matches!(notice, Notice::Deliver(..)));
            counted_if(measured, || node.step(&mut notify));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_broadcast_is_delivered() {
        let mut set = Set::ready();
        for role in [Role::Sender, Role::Receiver] {
            set.run(role, 10);
        }
    }
}
