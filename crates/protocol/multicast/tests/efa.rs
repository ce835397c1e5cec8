//! The multicast with the guarantees of EFA: writes and completions in any order, and every request takes an entry in
//! the completion queue. At least single cache lines are inline, as with a fabric that copies them while posting. The
//! multicast refuses a fabric that does not copy them.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use stentor_checker::{self as checker, Checker, Cluster, EventKind};
use stentor_fabric::{Fabric, ProcessId};
use stentor_fabric_conformance::{FaultInjector, Faults};
use stentor_fabric_sim::{Due, NetworkModel, SimConfig, SimFabric, World};
use stentor_multicast::{
    Client, ClientId, Delivered, GroupId, Limits, Member, MessageId, ReplicaConfig, Topology, stateless,
};

type Net = FaultInjector<SimFabric>;

const SALT: u64 = 7;
const GROUPS: [usize; 2] = [3, 1];
const CLIENTS: u16 = 2;
/// Number of messages that each client multicasts.
const MESSAGES: u64 = 60;
/// Virtual time limit, in nanoseconds.
const DEADLINE_NS: u64 = 200_000_000;

fn hash(payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    payload.hash(&mut hasher);
    hasher.finish()
}

/// The history of a run, judged by the checker.
struct History {
    checker: Checker,
    deliveries: u64,
}

impl History {
    fn new() -> History {
        let mut builder = Cluster::builder().global_clock();
        for (group, size) in GROUPS.iter().enumerate() {
            let members = (1..=*size).map(|n| format!("g{}.{n}", group + 1));
            builder = builder.group(format!("g{}", group + 1), members);
        }
        let cluster =
            builder.clients((0..CLIENTS).map(|client| format!("c{client}"))).build().expect("names of its own");
        History { checker: Checker::new(cluster), deliveries: 0 }
    }

    fn message(id: MessageId) -> checker::MessageId {
        let first = GROUPS.iter().sum::<usize>() as u32;
        checker::MessageId { client: checker::Process(first + u32::from(id.client.0)), sequence: id.sequence }
    }

    fn event(&mut self, t: u64, process: ProcessId, kind: EventKind) {
        let process = checker::Process(u32::from(process.0));
        self.checker.event(&checker::Event { t, process, incarnation: 1, kind });
    }

    fn multicast(&mut self, t: u64, me: ProcessId, id: MessageId, to: &[GroupId], payload: &[u8]) {
        let groups = to.iter().map(|group| checker::Group(group.0)).collect();
        let (m, len) = (Self::message(id), payload.len() as u32);
        self.event(t, me, EventKind::Multicast(checker::Multicast { m, to: groups, len, hash: hash(payload) }));
    }

    fn deliver(&mut self, t: u64, me: ProcessId, group: GroupId, delivered: &Delivered<'_>) {
        self.deliveries += 1;
        let ts =
            checker::Timestamp { time: delivered.timestamp.time, group: checker::Group(delivered.timestamp.group) };
        let deliver = checker::Deliver {
            m: Self::message(delivered.id),
            group: checker::Group(group.0),
            number: delivered.number,
            ts,
            hash: hash(delivered.payload),
            len: Some(delivered.payload.len() as u32),
            ballot: None,
        };
        self.event(t, me, EventKind::Deliver(deliver));
    }
}

/// Members, clients and the number of messages that each client has sent.
struct Run {
    world: World,
    members: Vec<Member<Net>>,
    clients: Vec<(Client<Net>, u64)>,
    history: History,
    expected: u64,
}

impl Run {
    fn new(seed: u64, network: NetworkModel, disorders: Faults) -> Run {
        let topology = Arc::new(Topology::new(&GROUPS, CLIENTS).expect("a possible cluster"));
        let world = World::new(SimConfig::new(topology.processes(), seed, network));
        let limits = Limits {
            message_bytes: 256,
            window: 8,
            body_ring_bytes: 4096,
            control_ring_bytes: 4096,
            ..Limits::default()
        };
        let net = |me: ProcessId| {
            FaultInjector::new(world.fabric(me), Faults { seed: seed * 31 + u64::from(me.0), ..disorders })
        };
        let member = |me| {
            let (topology, window, retry_ticks) = (topology.clone(), limits.window, ReplicaConfig::RETRY_TICKS);
            let config = ReplicaConfig { retry_ticks, ..ReplicaConfig::new(topology, me, window) };
            Member::new(net(me), config, limits, SALT, 1).expect("a possible member")
        };
        let members = (0..topology.all_members() as u16).map(ProcessId).map(member).collect();
        let client = |client| {
            let fabric = net(topology.client_process(client));
            Client::new(fabric, topology.clone(), client, limits, SALT, 1).expect("a possible client")
        };
        let clients = (0..CLIENTS).map(|n| (client(ClientId(n)), 0)).collect();
        Run { world, members, clients, history: History::new(), expected: 0 }
    }

    fn step(&mut self, process: ProcessId, now_ns: u64) -> bool {
        let at = process.index();
        if let Some(member) = self.members.get_mut(at) {
            let (history, group) = (&mut self.history, member.replica().group());
            let mut app = stateless(|delivered: &Delivered<'_>| history.deliver(now_ns, process, group, delivered));
            return member.housekeep() | member.step(Duration::from_nanos(now_ns), &mut app);
        }
        let (client, sent) = &mut self.clients[at - self.members.len()];
        let mut worked = client.housekeep() | client.step();
        while *sent < MESSAGES {
            let to: &[GroupId] = [&[GroupId(0)][..], &[GroupId(0), GroupId(1)], &[GroupId(1)]][*sent as usize % 3];
            let payload = vec![(*sent + at as u64) as u8; (*sent * 37 % 257) as usize];
            let Ok(submitted) = client.submit(to, &payload, false) else { break };
            client.fabric_mut().flush();
            *sent += 1;
            self.expected += to.iter().map(|group| GROUPS[usize::from(group.0)] as u64).sum::<u64>();
            self.history.multicast(now_ns, process, submitted.id, to, &payload);
            worked = true;
        }
        worked
    }

    fn is_over(&self) -> bool {
        self.clients.iter().all(|(_, sent)| *sent == MESSAGES) && self.history.deliveries >= self.expected
    }

    /// Runs until all messages are delivered, or until the time limit. Returns the violated properties, and the number
    /// of completions reported before earlier ones.
    fn finish(mut self) -> (Vec<&'static str>, u64) {
        while let Some(due) = self.world.next(DEADLINE_NS) {
            let Due::Step { process, now_ns } = due else { continue };
            let worked = self.step(process, now_ns);
            // Writes that the fault injector delays wake no process.
            self.world.wake_at(process, now_ns + 2_000);
            self.world.stepped(process, worked);
            if self.is_over() {
                break;
            }
        }
        let over = self.is_over();
        let overtaken = self.members.iter().map(|member| member.fabric().overtaken()).sum();
        let report = self.history.checker.finish(true);
        let stuck = (!over).then_some("stuck");
        let overran = self.members.iter().any(|member| member.fabric().has_overrun()).then_some("overrun");
        (report.violated().chain(stuck).chain(overran).collect(), overtaken)
    }
}

/// Runs `seeds` seeds. Returns those with a violated property, and the number of completions reported before earlier
/// ones.
fn violated(seeds: u64, disorders: impl Fn(u64) -> Faults) -> (Vec<(u64, Vec<&'static str>)>, u64) {
    let (mut bad, mut all) = (Vec::new(), 0);
    for seed in 0..seeds {
        let (violated, overtaken) = Run::new(seed, NetworkModel::unordered(), disorders(seed)).finish();
        all += overtaken;
        if !violated.is_empty() {
            bad.push((seed, violated));
        }
    }
    (bad, all)
}

fn efa(seed: u64, inline_bytes: u32, places: u32) -> Faults {
    Faults { inline_bytes, ..Faults::efa(seed, places, false) }
}

#[test]
fn every_property_holds_with_the_guarantees_of_efa() {
    // The first run sends all data inline that may be inline. The second run sends only single cache lines inline.
    for inline_bytes in [u32::MAX, 64] {
        let (bad, overtaken) = violated(12, |seed| efa(seed, inline_bytes, 256));
        assert!(bad.is_empty() && overtaken > 0, "{inline_bytes} bytes inline: {bad:?}, {overtaken} overtaken");
    }
}

#[test]
fn completion_queue_overrun_ends_the_run() {
    // 16 receives for each of five other processes, and two more entries.
    let (bad, _) = violated(2, |seed| efa(seed, u32::MAX, 5 * 16 + 2));
    assert!(bad.len() == 2 && bad.iter().all(|(_, violated)| *violated == ["stuck", "overrun"]), "{bad:?}");
}
