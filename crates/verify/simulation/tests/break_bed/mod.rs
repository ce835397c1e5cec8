//! A simulated cluster whose clients the test calls directly.
#![allow(dead_code, unreachable_pub, reason = "every test uses its own part")]

use std::sync::Arc;
use std::time::Duration;

use stentor_fabric::{Fabric, ProcessId};
use stentor_fabric_sim::{Due, NetworkModel, SimConfig, SimFabric, World};
use stentor_multicast::{
    Client, ClientId, GroupId, Limits, Member, MessageId, ReplicaConfig, SubmitError, Topology, stateless,
};

pub const SALT: u64 = 7;

pub struct Bed {
    pub world: World,
    pub topology: Arc<Topology>,
    pub limits: Limits,
    pub members: Vec<Member<SimFabric>>,
    pub clients: Vec<Option<Client<SimFabric>>>,
    /// The deliveries of each member, indexed by member.
    pub delivered: Vec<Vec<(MessageId, Vec<u8>)>>,
    /// The life of the process that was started last.
    pub incarnation: u64,
}

impl Bed {
    pub fn new(groups: &[usize], clients: u16, limits: Limits, network: NetworkModel) -> Bed {
        let topology = Arc::new(Topology::new(groups, clients).expect("a possible cluster"));
        let world = World::new(SimConfig::new(topology.processes(), 0, network));
        let members = (0..topology.all_members() as u16)
            .map(ProcessId)
            .map(|me| {
                let (topology, window) = (topology.clone(), limits.window);
                let config = ReplicaConfig::new(topology, me, window);
                Member::new(world.fabric(me), config, limits, SALT, 1).expect("a possible member")
            })
            .collect::<Vec<_>>();
        let delivered = vec![Vec::new(); members.len()];
        let mut bed = Bed { world, topology, limits, members, clients: Vec::new(), delivered, incarnation: 1 };
        for client in 0..clients {
            let fabric = bed.world.fabric(bed.topology.client_process(ClientId(client)));
            let client = bed.client_on(fabric, client, 1);
            bed.clients.push(Some(client));
        }
        bed
    }

    fn client_on(&self, fabric: SimFabric, client: u16, incarnation: u64) -> Client<SimFabric> {
        let topology = self.topology.clone();
        Client::new(fabric, topology, ClientId(client), self.limits, SALT, incarnation).expect("a possible client")
    }

    /// Crashes the process of a client id, and starts another process with the same client id.
    pub fn replace_client(&mut self, client: u16) {
        let process = self.topology.client_process(ClientId(client));
        let fabric = self.world.restart(process);
        self.incarnation += 1;
        self.clients[usize::from(client)] = Some(self.client_on(fabric, client, self.incarnation));
    }

    /// Runs the cluster for `ns` nanoseconds. The clients do not step if `clients` is `false`.
    pub fn run(&mut self, ns: u64, clients: bool) {
        let until = self.world.now_ns() + ns;
        while let Some(due) = self.world.next(until) {
            let Due::Step { process, now_ns } = due else { continue };
            let at = process.index();
            let worked = if let Some(member) = self.members.get_mut(at) {
                let delivered = &mut self.delivered[at];
                let mut app = stateless(|message| delivered.push((message.id, message.payload.to_vec())));
                member.housekeep() | member.step(Duration::from_nanos(now_ns), &mut app)
            } else {
                let client = self.clients[at - self.members.len()].as_mut();
                client.filter(|_| clients).is_some_and(|client| client.housekeep() | client.step())
            };
            self.world.stepped(process, worked);
        }
        // Time passes even if no event is due.
        self.world.advance(until - self.world.now_ns());
    }

    pub fn client(&mut self, client: u16) -> &mut Client<SimFabric> {
        self.clients[usize::from(client)].as_mut().expect("a client that is there")
    }

    pub fn submit(&mut self, client: u16, to: &[u16], payload: &[u8], notify: bool) -> Result<MessageId, SubmitError> {
        let to: Vec<GroupId> = to.iter().map(|group| GroupId(*group)).collect();
        let submitted = self.client(client).submit(&to, payload, notify)?;
        self.client(client).fabric_mut().flush();
        let process = self.topology.client_process(ClientId(client));
        self.world.wake_at(process, self.world.now_ns());
        Ok(submitted.id)
    }

    pub fn delivered_by(&self, member: usize) -> Vec<u64> {
        self.delivered[member].iter().map(|(id, _)| id.sequence).collect()
    }
}

pub fn limits(window: u32, message_bytes: usize, body_ring_bytes: u64) -> Limits {
    Limits { message_bytes, window, body_ring_bytes, control_ring_bytes: 4096, ..Limits::default() }
}
