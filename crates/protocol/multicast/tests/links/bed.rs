//! Members and clients on the simulator. The tests themselves end processes and connections.

use std::sync::Arc;
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Due, Fault, NetworkModel, SimConfig, SimFabric, World};
use stentor_multicast::{
    Application, Client, ClientId, Delivered, GroupId, Limits, Member, MessageId, Mutant, ProcessRole, RecordSent,
    ReplicaConfig, SubmitError, Topology, TransferReport,
};

pub(crate) const SALT: u64 = 11;
/// Time in which all messages in flight arrive.
pub(crate) const SETTLED_NS: u64 = 200_000;
/// Time between two ticks.
const TICK_NS: u64 = 2_000_000;
/// Time in which a broken queue pair is noticed and reconnected.
pub(crate) const RECONNECTED_NS: u64 = 6_000_000;

pub(crate) struct Bed {
    pub(crate) world: World,
    pub(crate) topology: Arc<Topology>,
    pub(crate) limits: Limits,
    pub(crate) members: Vec<Member<SimFabric>>,
    pub(crate) clients: Vec<Client<SimFabric>>,
    /// Deliveries of each member's present process, indexed by member.
    pub(crate) delivered: Vec<Vec<(MessageId, Vec<u8>)>>,
    /// Indexed by member: the groups of each delivery of its present process, and whether it is enveloped.
    pub(crate) described: Vec<Vec<(MessageId, Vec<GroupId>, bool)>>,
    /// Indexed by client: the replies that its present process read, with their senders.
    pub(crate) replies: Vec<Vec<(ProcessId, Vec<u8>)>>,
    /// Life of each client's present process, indexed by client.
    pub(crate) client_lives: Vec<u64>,
    /// `true` if clients take replies.
    pub(crate) takes_replies: bool,
    /// Indexed by member: the queries that its present process took.
    pub(crate) queries: Vec<Vec<(ClientId, Vec<u8>)>>,
    /// `true` if members take queries.
    pub(crate) takes_queries: bool,
    /// Number of deliveries for which each member's application has room, indexed by member.
    pub(crate) room: Vec<u64>,
    /// Bytes of every application's state in addition to the deliveries.
    pub(crate) padding: usize,
    /// History of the application state of each member, indexed by member.
    pub(crate) handed: Vec<Handed>,
    /// Life of the process that was started last.
    pub(crate) incarnation: u64,
    /// Time between two ticks of a member that nothing wakes.
    pub(crate) tick_ns: u64,
    /// A member whose steps all have the given time, as if it had not read the clock again.
    pub(crate) stands_still: Option<(usize, Duration)>,
    /// Time of the next tick of each member, indexed by member.
    ticks: Vec<u64>,
    mutant: Mutant,
    /// `true` if groups order time entries.
    orders_times: bool,
}

impl Bed {
    pub(crate) fn new(groups: &[usize], clients: u16, limits: Limits, network: NetworkModel, seed: u64) -> Bed {
        Bed::planted(groups, clients, limits, network, (seed, Mutant::None))
    }

    /// Creates a bed with a mutant in every process.
    pub(crate) fn planted(
        groups: &[usize],
        clients: u16,
        limits: Limits,
        network: NetworkModel,
        planted: (u64, Mutant),
    ) -> Bed {
        Bed::made(groups, clients, limits, network, planted, false)
    }

    /// Creates a bed whose groups order time entries.
    pub(crate) fn with_time_entries(groups: &[usize], network: NetworkModel, seed: u64) -> Bed {
        Bed::made(groups, 1, limits(), network, (seed, Mutant::None), true)
    }

    fn made(
        groups: &[usize],
        clients: u16,
        limits: Limits,
        network: NetworkModel,
        (seed, mutant): (u64, Mutant),
        orders_times: bool,
    ) -> Bed {
        let topology = Arc::new(Topology::new(groups, clients).expect("a possible cluster"));
        let world = World::new(SimConfig::new(topology.processes(), seed, network));
        let (members, delivered) = (Vec::new(), vec![Vec::new(); topology.all_members()]);
        let ticks = vec![0; topology.all_members()];
        let (clients_, incarnation) = (Vec::new(), 1);
        let mut bed = Bed {
            replies: vec![Vec::new(); usize::from(clients)],
            client_lives: vec![1; usize::from(clients)],
            described: vec![Vec::new(); topology.all_members()],
            takes_replies: true,
            queries: vec![Vec::new(); topology.all_members()],
            takes_queries: true,
            padding: 0,
            room: vec![u64::MAX; topology.all_members()],
            tick_ns: TICK_NS,
            stands_still: None,
            handed: vec![Handed::default(); topology.all_members()],
            world,
            topology,
            limits,
            members,
            clients: clients_,
            delivered,
            incarnation,
            ticks,
            mutant,
            orders_times,
        };
        for process in (0..bed.topology.all_members() as u16).map(ProcessId) {
            let member = bed.member_on(bed.world.fabric(process), process);
            bed.members.push(member);
        }
        for client in (0..clients).map(ClientId) {
            let client = bed.client_on(bed.world.fabric(bed.topology.client_process(client)), client);
            bed.clients.push(client);
        }
        bed
    }

    fn member_on(&self, fabric: SimFabric, me: ProcessId) -> Member<SimFabric> {
        let (topology, window) = (self.topology.clone(), self.limits.window);
        let config = ReplicaConfig::new(topology, me, window);
        let config = ReplicaConfig { mutant: self.mutant, time_entries: self.orders_times, ..config };
        let make = if self.incarnation == 1 { Member::new } else { Member::joining };
        make(fabric, config, self.limits, SALT, self.incarnation).expect("a possible member")
    }

    fn client_on(&self, fabric: SimFabric, client: ClientId) -> Client<SimFabric> {
        Client::with_mutant(fabric, self.topology.clone(), client, self.limits, (SALT, self.incarnation), self.mutant)
            .expect("a possible client")
    }

    /// Replaces the process of a member by one without memory.
    pub(crate) fn restart_member(&mut self, member: usize) {
        self.incarnation += 1;
        let process = ProcessId(member as u16);
        let fabric = self.world.restart(process);
        self.members[member] = self.member_on(fabric, process);
        self.delivered[member].clear();
        self.described[member].clear();
        self.queries[member].clear();
        self.handed[member].reports.clear();
    }

    pub(crate) fn restart_client(&mut self, client: u16) {
        self.incarnation += 1;
        let fabric = self.world.restart(self.topology.client_process(ClientId(client)));
        self.clients[usize::from(client)] = self.client_on(fabric, ClientId(client));
        self.replies[usize::from(client)].clear();
        self.client_lives[usize::from(client)] = self.incarnation;
    }

    /// Partitions two processes from each other for a while, in both directions.
    pub(crate) fn cut(&mut self, a: u16, b: u16, for_ns: u64) {
        for (from, to) in [(a, b), (b, a)] {
            let (from, to) = (ProcessId(from), ProcessId(to));
            self.world.inject(self.world.now_ns(), Fault::Cut { from, to, for_ns });
        }
    }

    pub(crate) fn run(&mut self, ns: u64) {
        let until = self.world.now_ns() + ns;
        while let Some(due) = self.world.next(until) {
            let Due::Step { process, now_ns } = due else { continue };
            let at = process.index();
            let worked = if let Some(member) = self.members.get_mut(at) {
                let (delivered, handed) = (&mut self.delivered[at], &mut self.handed[at]);
                let described = &mut self.described[at];
                let room = &mut self.room[at];
                let mut log = Log { delivered, described, handed, room, padding: self.padding };
                let still = self.stands_still.filter(|(still, _)| *still == at);
                let now = still.map_or(Duration::from_nanos(now_ns), |(_, time)| time);
                let mut worked = member.housekeep() | member.step(now, &mut log);
                while self.takes_queries
                    && let Some(query) = member.next_query()
                {
                    self.queries[at].push((query.client, query.bytes.to_vec()));
                    worked = true;
                }
                self.handed[at].reports.extend(std::iter::from_fn(|| member.take_transfer_report()));
                if now_ns >= self.ticks[at] {
                    self.ticks[at] = now_ns + self.tick_ns;
                }
                worked
            } else {
                let place = at - self.members.len();
                let client = &mut self.clients[place];
                client.tick(Duration::from_nanos(now_ns));
                let mut worked = client.housekeep() | client.step();
                while self.takes_replies
                    && let Some(reply) = client.next_reply()
                {
                    assert_eq!(self.topology.role(reply.member).map(group_of), Some(Some(reply.group)));
                    self.replies[place].push((reply.member, reply.bytes.to_vec()));
                    worked = true;
                }
                worked
            };
            self.world.stepped(process, worked);
            if let Some(tick) = self.ticks.get(at) {
                self.world.wake_at(process, *tick);
            }
        }
        self.world.advance(until - self.world.now_ns());
    }

    pub(crate) fn submit(&mut self, client: u16, to: &[u16], payload: &[u8]) -> Result<MessageId, SubmitError> {
        let to: Vec<GroupId> = to.iter().map(|group| GroupId(*group)).collect();
        let submitted = self.clients[usize::from(client)].submit_synced(&to, payload, true)?;
        self.world.wake_at(self.topology.client_process(ClientId(client)), self.world.now_ns());
        Ok(submitted.id)
    }

    /// Makes a member order a time entry. Returns the entry's id, or `None` if the member orders none.
    pub(crate) fn order_time(&mut self, member: usize, not_before: u64) -> Option<MessageId> {
        let (delivered, handed) = (&mut self.delivered[member], &mut self.handed[member]);
        let (described, room) = (&mut self.described[member], &mut self.room[member]);
        let mut log = Log { delivered, described, handed, room, padding: self.padding };
        let ordered = self.members[member].order_time(not_before, &mut log);
        self.world.wake_at(ProcessId(member as u16), self.world.now_ns());
        ordered
    }

    /// Makes a member send a record to a client.
    pub(crate) fn reply(&mut self, member: u16, client: u16, bytes: &[u8]) -> RecordSent {
        let (first, second) = bytes.split_at(bytes.len() / 3);
        let sent = self.members[usize::from(member)].reply(ClientId(client), &[first, b"", second]);
        self.world.wake_at(ProcessId(member), self.world.now_ns());
        sent
    }

    /// Makes a client send a query to a member.
    pub(crate) fn query(&mut self, client: u16, member: u16, bytes: &[u8]) -> RecordSent {
        let (first, second) = bytes.split_at(bytes.len() / 3);
        let sent = self.clients[usize::from(client)].query(ProcessId(member), &[first, b"", second]);
        self.world.wake_at(self.topology.client_process(ClientId(client)), self.world.now_ns());
        sent
    }

    /// Makes a member send a peer message of its caller. Returns whether the member accepted the message.
    pub(crate) fn letter(&mut self, from: u16, to: u16, words: &[u64], tail: &[u8]) -> bool {
        self.world.wake_at(ProcessId(from), self.world.now_ns());
        self.members[usize::from(from)].send_foreign(ProcessId(to), words, tail)
    }

    pub(crate) fn rejected(&self) -> u64 {
        self.members.iter().map(|member| member.counts().rejected).sum()
    }
}

fn group_of(role: ProcessRole) -> Option<GroupId> {
    match role {
        ProcessRole::Member { group, .. } => Some(group),
        ProcessRole::Client(_) => None,
    }
}

/// The history of a member's application state.
#[derive(Clone, Default, Debug)]
pub(crate) struct Handed {
    /// Number of times that the state was frozen.
    pub(crate) freezes: u32,
    /// The numbers of deliveries after which states were restored.
    pub(crate) restores: Vec<u64>,
    /// Number of states that differed from the frozen one, and of deliveries that were not the next ones.
    pub(crate) torn: u32,
    /// Number of deliveries for which there was no room.
    pub(crate) beyond: u32,
    /// Transfer reports of the present process.
    pub(crate) reports: Vec<TransferReport>,
}

/// An application whose state consists of its deliveries and `padding` more bytes.
struct Log<'a> {
    delivered: &'a mut Vec<(MessageId, Vec<u8>)>,
    described: &'a mut Vec<(MessageId, Vec<GroupId>, bool)>,
    handed: &'a mut Handed,
    room: &'a mut u64,
    padding: usize,
}

impl Log<'_> {
    /// Returns bytes that differ from state to state.
    fn padding(&self, number: usize) -> Vec<u8> {
        (0..self.padding).map(|at| (at / 7 + number * 31) as u8).collect()
    }
}

impl Application for Log<'_> {
    fn deliver(&mut self, message: &Delivered<'_>) {
        self.handed.torn += u32::from(message.number != self.delivered.len() as u64 + 1);
        self.handed.beyond += u32::from(*self.room == 0);
        *self.room -= u64::from(*self.room != u64::MAX && *self.room != 0);
        self.delivered.push((message.id, message.payload.to_vec()));
        self.described.push((message.id, message.groups.iter().collect(), message.enveloped));
    }

    fn has_room(&self) -> bool {
        *self.room > 0
    }

    fn snapshot(&mut self, out: &mut Vec<u8>) {
        self.handed.freezes += 1;
        out.extend_from_slice(&self.padding(self.delivered.len()));
        for (id, payload) in &*self.delivered {
            out.extend_from_slice(&id.client.0.to_le_bytes());
            out.extend_from_slice(&id.sequence.to_le_bytes());
            out.extend_from_slice(&(payload.len() as u64).to_le_bytes());
            out.extend_from_slice(payload);
        }
    }

    fn restore(&mut self, number: u64, mut state: &[u8]) {
        self.handed.restores.push(number);
        self.delivered.clear();
        let padding = self.padding(number as usize);
        // With no deliveries, the state is empty.
        if number != 0 {
            let same = state.len() >= padding.len() && state[..padding.len()] == padding[..];
            self.handed.torn += u32::from(!same);
            state = &state[padding.len().min(state.len())..];
        }
        while let Some((head, rest)) = state.split_at_checked(18) {
            let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
            let client = ClientId(u16::from_le_bytes([head[0], head[1]]));
            let Some((payload, rest)) = rest.split_at_checked(word(10) as usize) else { break };
            self.delivered.push((MessageId { client, sequence: word(2) }, payload.to_vec()));
            state = rest;
        }
        self.handed.torn += u32::from(number != self.delivered.len() as u64);
    }
}

pub(crate) fn limits() -> Limits {
    Limits { message_bytes: 256, window: 16, body_ring_bytes: 8192, control_ring_bytes: 4096, ..Limits::default() }
}
