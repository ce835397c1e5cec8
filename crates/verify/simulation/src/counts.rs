//! Counts the remote writes for one message on a quiet network.

use std::sync::Arc;
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{NetworkModel, SimConfig, SimFabric, World};
use stentor_multicast::{
    Client, ClientId, Counts, GroupId, Limits, Member, NodeError, ProcessRole, ReplicaConfig, Step, Topology, Variant,
    stateless,
};

/// The remote writes of one process for one message.
#[derive(Clone, Debug)]
pub struct RoleCounts {
    /// The index of the process's group, or `None` for the client.
    pub group: Option<usize>,
    /// `true` if the process leads its group.
    pub is_leader: bool,
    /// The remote writes, by protocol step.
    pub counts: Counts,
    /// Number of work requests posted to the NIC since the message was multicast.
    pub posts: u64,
    /// Number of credit writes among `posts`.
    pub credits: u64,
}

enum Node {
    Member(Box<Member<SimFabric>>),
    Client(Box<Client<SimFabric>>),
}

/// Multicasts one message to the first `destinations` of the groups, and counts the remote writes of every process.
/// Every operation on the network takes the same time.
///
/// # Errors
/// Returns a [`NodeError`] if a node cannot start.
///
/// # Panics
/// Panics if the groups are not a valid cluster, or if some destination process does not deliver the message.
pub fn count_writes(groups: &[usize], destinations: usize, variant: Variant) -> Result<Vec<RoleCounts>, NodeError> {
    let topology = Arc::new(Topology::new(groups, 1).expect("a possible cluster"));
    let world = World::new(SimConfig::new(topology.processes(), 0, NetworkModel::uniform(1_000)));
    let mut nodes = nodes(&topology, &world, variant)?;
    // Connections and the first credits precede the message, so they are not counted.
    let mut delivered = settle(&world, &mut nodes);
    assert_eq!(delivered, 0);
    let before: Vec<u64> = (0..nodes.len()).map(|p| posts(&world, p)).collect();
    let to: Vec<GroupId> = (0..destinations as u16).map(GroupId).collect();
    let client = topology.client_process(ClientId(0));
    let counted: Vec<Counts> = nodes.iter().map(counts).collect();
    assert!(counted.iter().all(|counts| counts.protocol_writes() == 0));
    if let Node::Client(client) = &mut nodes[client.index()] {
        client.submit(&to, b"one message", false).expect("a quiet cluster takes a message");
    }
    world.wake_at(client, world.now_ns());
    delivered += settle(&world, &mut nodes);
    let receivers: usize = to.iter().map(|group| topology.size(*group)).sum();
    assert_eq!(delivered, receivers as u64, "deliveries");
    let roles = nodes.iter().enumerate().map(|(p, node)| RoleCounts {
        posts: posts(&world, p) - before[p],
        credits: counts(node).writes(Step::Credit) - counted[p].writes(Step::Credit),
        ..role(&topology, p, node)
    });
    Ok(roles.collect())
}

fn nodes(topology: &Arc<Topology>, world: &World, variant: Variant) -> Result<Vec<Node>, NodeError> {
    let limits = Limits {
        message_bytes: 64,
        window: 64,
        body_ring_bytes: 16384,
        control_ring_bytes: 65536,
        ..Limits::default()
    };
    let node = |me: ProcessId| match topology.role(me) {
        Some(ProcessRole::Client(client)) => {
            let client = Client::new(world.fabric(me), topology.clone(), client, limits, 7, 1)?;
            Ok(Node::Client(Box::new(client)))
        }
        _ => {
            let topology = topology.clone();
            let config = ReplicaConfig { variant, ..ReplicaConfig::new(topology, me, limits.window) };
            Ok(Node::Member(Box::new(Member::new(world.fabric(me), config, limits, 7, 1)?)))
        }
    };
    (0..topology.processes() as u16).map(ProcessId).map(node).collect()
}

/// Runs until no event is left. Returns the number of deliveries.
fn settle(world: &World, nodes: &mut [Node]) -> u64 {
    let mut delivered = 0;
    let until = world.now_ns() + 1_000_000_000;
    while let Some(due) = world.next(until) {
        let stentor_fabric_sim::Due::Step { process, now_ns } = due else { continue };
        let worked = match &mut nodes[process.index()] {
            Node::Member(member) => {
                let housekept = member.housekeep();
                housekept | member.step(Duration::from_nanos(now_ns), &mut stateless(|_| delivered += 1))
            }
            Node::Client(client) => client.housekeep() | client.step(),
        };
        world.stepped(process, worked);
    }
    delivered
}

fn posts(world: &World, process: usize) -> u64 {
    world.process_counts(ProcessId(process as u16)).total().posts()
}

fn counts(node: &Node) -> Counts {
    match node {
        Node::Member(member) => *member.counts(),
        Node::Client(client) => *client.counts(),
    }
}

fn role(topology: &Topology, process: usize, node: &Node) -> RoleCounts {
    let group = match topology.role(ProcessId(process as u16)) {
        Some(ProcessRole::Member { group, .. }) => Some(usize::from(group.0)),
        _ => None,
    };
    let is_leader = matches!(node, Node::Member(member) if member.replica().is_leader());
    RoleCounts { group, is_leader, counts: counts(node), posts: 0, credits: 0 }
}
