//! One group in which some members cannot reach each other, with its own heartbeat election.
//!
//! A run has five parts. The whole group settles; a chosen member takes over the leadership; links are cut according to
//! the graph; the group has [`SETTLES_NS`] to find a leader, and then runs for [`QUIET_NS`]; the links are restored. A
//! client that reaches every member multicasts all the time. [`run`] judges:
//! - If some member is connected to a majority, exactly one member considers itself the leader after the settling time.
//!   It is connected to a majority and is ready to lead in the protocol, and this does not change until the links are
//!   restored.
//! - The leader and the members that it reaches deliver the multicast messages.
//! - A leader that was connected to a majority all the time was not deposed.
//! - If no member is connected to a majority, none considers itself the leader.
//! - After the links are restored, everything is delivered by all members, and every property of the multicast holds.
//!
//! [`run_changing`] changes the graph at given times before the last graph is judged. [`run_told`] cuts nothing:
//! members receive false reports of deaths, and after the last report the group is judged as above. In both cases the
//! first leader may be deposed.
//!
//! Packet loss in one direction disables both directions, because the answers to requests do not return. A one-way cut
//! therefore removes an edge, too, although data that is written before the queue pair breaks may arrive.

mod member;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Actor, NetworkModel, SimConfig, World};
use stentor_multicast::{Client, ClientId, GroupId, Limits, MessageId, NodeError, Topology};

use crate::history::History;
use crate::progress::Progress;
use crate::record::Record;
use member::Follower;

/// Interval at which members read each other's heartbeats, in nanoseconds.
pub const INTERVAL_NS: u64 = 20_000;
/// Minimum election timeout, in nanoseconds.
pub const TIMEOUT_MIN_NS: u64 = 400_000;
/// Maximum election timeout, in nanoseconds.
pub const TIMEOUT_MAX_NS: u64 = 800_000;
/// Time from the cut until one leader must lead, in nanoseconds.
pub const SETTLES_NS: u64 = 12 * TIMEOUT_MAX_NS;
/// Time for which the leader may not change after [`SETTLES_NS`], in nanoseconds.
pub const QUIET_NS: u64 = 24 * TIMEOUT_MAX_NS;
/// Time within which a message must be delivered while links are cut, in nanoseconds. Messages that are multicast less
/// than this time before the links are restored are not judged by it.
const DELIVERED_NS: u64 = 4 * TIMEOUT_MAX_NS;
/// Time within which a whole group has a leader, and within which all messages are delivered at the end, in
/// nanoseconds.
const WHOLE_NS: u64 = 40 * TIMEOUT_MAX_NS;
/// Time between two multicasts of the client, in nanoseconds.
const PACE_NS: u64 = 40_000;
const STREAM_OF_SALT: u64 = 0x6772_6170_6873;

/// A graph of the members of a group, with an edge between each two that reach each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Graph {
    members: usize,
    /// Pairs (from, to) of members. All packets from the first to the second are lost.
    cut: Vec<(u16, u16)>,
}

impl Graph {
    /// Creates a graph of `members` members with these edges only.
    #[must_use]
    pub fn of_edges(members: usize, edges: &[(u16, u16)]) -> Self {
        let linked = |a: u16, b: u16| edges.contains(&(a, b)) || edges.contains(&(b, a));
        let all = members as u16;
        let cut = (0..all).flat_map(|a| (0..all).filter(move |b| *b != a).map(move |b| (a, b)));
        Graph { members, cut: cut.filter(|(a, b)| !linked(*a, *b)).collect() }
    }

    /// Creates a graph of `members` members in which all packets from the first to the second of these pairs are lost.
    #[must_use]
    pub fn without(members: usize, cut: &[(u16, u16)]) -> Self {
        Graph { members, cut: cut.to_vec() }
    }

    /// Creates a star: every member reaches only the member `hub`.
    #[must_use]
    pub fn hub(members: usize, hub: u16) -> Self {
        let edges: Vec<_> = (0..members as u16).filter(|n| *n != hub).map(|n| (hub, n)).collect();
        Graph::of_edges(members, &edges)
    }

    /// Creates a chain: every member reaches only the previous and the next one.
    #[must_use]
    pub fn chain(members: usize) -> Self {
        let edges: Vec<_> = (1..members as u16).map(|n| (n - 1, n)).collect();
        Graph::of_edges(members, &edges)
    }

    /// Creates a chain whose two ends reach each other.
    #[must_use]
    pub fn ring(members: usize) -> Self {
        let members_ = members as u16;
        let edges: Vec<_> = (0..members_).map(|n| (n, (n + 1) % members_)).collect();
        Graph::of_edges(members, &edges)
    }

    /// Returns whether packets pass in both directions between two members.
    #[must_use]
    pub fn reaches(&self, a: usize, b: usize) -> bool {
        let (a, b) = (a as u16, b as u16);
        !self.cut.contains(&(a, b)) && !self.cut.contains(&(b, a))
    }

    /// Returns whether a member reaches a majority of the group, including itself.
    #[must_use]
    pub fn is_connected_to_majority(&self, member: usize) -> bool {
        (0..self.members).filter(|other| self.reaches(member, *other)).count() > self.members / 2
    }
}

/// The outcome of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GraphRun {
    /// The member that leads after the cut.
    pub leader: Option<usize>,
    /// Number of leaders that resigned after the last cut, because they reached no majority.
    pub resigned: u64,
    /// Number of campaigns that began after the last cut and before the links were restored.
    pub campaigns: u64,
    /// Time from the last cut until the last change of any member's view of the leader, in nanoseconds.
    pub settled_ns: u64,
    /// Number of messages multicast after the settling time, while the links were cut.
    pub messages: u64,
    /// Number of times that a member stood aside because it was cut off from the leader, in the whole run.
    pub aside: u64,
    /// Number of times that a member installed another member's state, in the whole run.
    pub caught_up: u64,
    /// Descriptions of the violations.
    pub broken: Vec<String>,
}

/// The state that all processes of a run share.
struct Shared {
    world: World,
    history: RefCell<History>,
    progress: RefCell<Progress>,
    seen: RefCell<Seen>,
}

/// Observations of the members, for the judge.
#[derive(Default)]
struct Seen {
    /// For each member: `true` if it considers itself the leader.
    leads: Vec<bool>,
    /// Time at which a member's view of the leader changed last, in nanoseconds.
    changed_ns: u64,
    resigned: u64,
    campaigns: u64,
    aside: u64,
    caught_up: u64,
    /// The last message that each member delivered.
    delivered: Vec<u64>,
    /// Time and sequence number of every multicast.
    multicast: Vec<(u64, u64)>,
    broken: Vec<String>,
}

enum Process {
    Member(Box<Follower>),
    Client(Box<Caller>),
}

struct Caller {
    client: Client<stentor_fabric_sim::SimFabric>,
    me: ProcessId,
    due_ns: u64,
    /// `true` if the client must not multicast any more.
    stopped: Rc<std::cell::Cell<bool>>,
    shared: Rc<Shared>,
}

impl Actor for Process {
    fn step(&mut self, now_ns: u64) -> bool {
        match self {
            Process::Member(member) => member.step(now_ns),
            Process::Client(client) => client.step(now_ns),
        }
    }
}

impl Caller {
    fn step(&mut self, now_ns: u64) -> bool {
        let mut worked = self.client.housekeep();
        worked |= self.client.step();
        let to = [GroupId(0)];
        let payload = now_ns.to_le_bytes();
        if !self.stopped.get()
            && now_ns >= self.due_ns
            && let Ok(submitted) = self.client.submit(&to, &payload, true)
        {
            worked = true;
            self.due_ns = now_ns + PACE_NS;
            let id: MessageId = submitted.id;
            self.shared.history.borrow_mut().multicast(now_ns, self.me, id, &to, &payload);
            self.shared.progress.borrow_mut().multicast(id, &to);
            self.shared.seen.borrow_mut().multicast.push((now_ns, id.sequence));
        }
        self.shared.world.wake_at(self.me, self.due_ns.max(now_ns + PACE_NS / 4));
        worked
    }
}

/// Runs a graph. `leader` leads when the links are cut.
///
/// # Errors
/// Returns a [`NodeError`] if a node cannot start.
///
/// # Panics
/// Panics if the members of the graph are not a valid group.
pub fn run(seed: u64, graph: &Graph, leader: usize, mutant: stentor_election::Mutant) -> Result<GraphRun, NodeError> {
    run_changing(seed, &[(0, graph.clone())], leader, mutant)
}

/// Runs a sequence of graphs. `leader` leads when the links of the first graph are cut. Each graph is given with its
/// time in nanoseconds after the first cut, in ascending order. Only the period of the last graph is judged.
///
/// # Errors
/// Returns a [`NodeError`] if a node cannot start.
///
/// # Panics
/// Panics if there is no graph, if the graphs have different members, or if the members are not a valid group.
pub fn run_changing(
    seed: u64,
    graphs: &[(u64, Graph)],
    leader: usize,
    mutant: stentor_election::Mutant,
) -> Result<GraphRun, NodeError> {
    run_with(seed, graphs, &[], leader, mutant)
}

/// A false report that a member has died.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FalseDeath {
    /// Time of the report, in nanoseconds after the chosen member leads.
    pub at_ns: u64,
    /// The member that receives the report.
    pub to: u16,
    /// The member that is reported as dead but is up.
    pub of: u16,
}

/// Runs a group of `members` that all reach each other. `leader` leads, and then members receive the false reports in
/// `told`.
///
/// # Errors
/// Returns a [`NodeError`] if a node cannot start.
///
/// # Panics
/// Panics if `members` is not a valid size of a group, or if a report is not about two of its members.
pub fn run_told(seed: u64, members: usize, leader: usize, told: &[FalseDeath]) -> Result<GraphRun, NodeError> {
    let known = |death: &FalseDeath| usize::from(death.to.max(death.of)) < members && death.to != death.of;
    assert!(told.iter().all(known), "each report is about another member");
    let whole = Graph::without(members, &[]);
    let last = told.iter().map(|death| death.at_ns).max().unwrap_or(0);
    run_with(seed, &[(0, whole.clone()), (last, whole)], told, leader, stentor_election::Mutant::None)
}

fn run_with(
    seed: u64,
    graphs: &[(u64, Graph)],
    told: &[FalseDeath],
    leader: usize,
    mutant: stentor_election::Mutant,
) -> Result<GraphRun, NodeError> {
    let ((_, graph), before) = graphs.split_last().expect("a graph");
    assert!(before.iter().all(|(_, other)| other.members == graph.members), "the graphs have the same members");
    let topology = Arc::new(Topology::new(&[graph.members], 1).expect("a possible group"));
    let network = NetworkModel { retry_ns: 200_000, ..NetworkModel::adversarial() };
    let world = World::new(SimConfig::new(topology.processes(), seed, network));
    let seen = Seen { leads: vec![false; graph.members], delivered: vec![0; graph.members], ..Seen::default() };
    let shared = Rc::new(Shared {
        history: RefCell::new(History::new(&topology, Record::Nothing)),
        progress: RefCell::new(Progress::new(&topology)),
        seen: RefCell::new(seen),
        world,
    });
    let limits = Limits {
        message_bytes: 64,
        window: 64,
        body_ring_bytes: 16 << 10,
        control_ring_bytes: 16 << 10,
        ..Limits::default()
    };
    let salt = seed ^ STREAM_OF_SALT;
    let mut actors = Vec::new();
    for me in topology.members(GroupId(0)) {
        let follower = Follower::new(&shared, &topology, me, (limits, salt), mutant)?;
        actors.push(Some(Process::Member(Box::new(follower))));
    }
    let stopped = Rc::new(std::cell::Cell::new(false));
    let me = topology.client_process(ClientId(0));
    let fabric = shared.world.fabric(me);
    let client = Client::new(fabric, Arc::clone(&topology), ClientId(0), limits, salt, 1)?;
    let caller = Caller { client, me, due_ns: 0, stopped: Rc::clone(&stopped), shared: Rc::clone(&shared) };
    actors.push(Some(Process::Client(Box::new(caller))));
    let mut judge = Judge { shared, topology, graphs, told, graph, actors, came: GraphRun::default() };
    judge.go(leader, &stopped);
    Ok(judge.finish())
}

struct Judge<'a> {
    shared: Rc<Shared>,
    topology: Arc<Topology>,
    /// The graphs, each with its time in nanoseconds after the first cut.
    graphs: &'a [(u64, Graph)],
    told: &'a [FalseDeath],
    /// The last graph, which is judged.
    graph: &'a Graph,
    actors: Vec<Option<Process>>,
    came: GraphRun,
}

impl Judge<'_> {
    fn broken(&mut self, what: String) {
        self.came.broken.push(what);
    }

    fn for_ns(&mut self, ns: u64) {
        let until = self.shared.world.now_ns() + ns;
        self.shared.world.run(&mut self.actors, until, |_, _| false);
    }

    /// Returns the members that consider themselves the leader.
    fn leaders(&self) -> Vec<usize> {
        let seen = self.shared.seen.borrow();
        (0..self.graph.members).filter(|n| seen.leads[*n]).collect()
    }

    fn member(&mut self, n: usize) -> &mut Follower {
        match &mut self.actors[n] {
            Some(Process::Member(member)) => member,
            _ => unreachable!("members come first, and nobody crashes"),
        }
    }

    fn go(&mut self, leader: usize, stopped: &std::cell::Cell<bool>) {
        if !self.take_over(leader) {
            return;
        }
        self.tell_deaths();
        self.change_graphs();
        let cut_at = self.shared.world.now_ns();
        let before = self.counts();
        self.for_ns(SETTLES_NS);
        let settled_at = self.shared.world.now_ns();
        self.for_ns(QUIET_NS);
        let changed = self.shared.seen.borrow().changed_ns;
        self.came.settled_ns = changed.saturating_sub(cut_at);
        if changed > settled_at {
            self.broken(format!("a view of the leader changed {} ns after the cut", changed - cut_at));
        }
        let after = self.counts();
        (self.came.resigned, self.came.campaigns) = (after.0 - before.0, after.1 - before.1);
        self.judge_leader(leader);
        self.judge_deliveries(settled_at);
        self.heal(self.graph);
        self.for_ns(SETTLES_NS);
        stopped.set(true);
        self.end();
    }

    fn tell_deaths(&mut self) {
        let began = self.shared.world.now_ns();
        for death in self.told {
            self.member(usize::from(death.to)).will_be_told(began + death.at_ns, ProcessId(death.of));
        }
    }

    /// Cuts and restores links until those of the last graph are cut.
    fn change_graphs(&mut self) {
        let began = self.shared.world.now_ns();
        let mut last: Option<&Graph> = None;
        for (at, graph) in self.graphs {
            self.for_ns((began + at).saturating_sub(self.shared.world.now_ns()));
            if let Some(last) = last.replace(graph) {
                self.heal(last);
            }
            for &(from, to) in &graph.cut {
                self.shared.world.cut_one_way(ProcessId(from), ProcessId(to));
            }
        }
    }

    fn heal(&self, graph: &Graph) {
        for &(from, to) in &graph.cut {
            self.shared.world.heal_one_way(ProcessId(from), ProcessId(to));
        }
    }

    fn counts(&self) -> (u64, u64) {
        let seen = self.shared.seen.borrow();
        (seen.resigned, seen.campaigns)
    }

    /// Runs until the chosen member leads the whole group. Returns whether it does.
    fn take_over(&mut self, leader: usize) -> bool {
        let end = self.shared.world.now_ns() + WHOLE_NS;
        while self.shared.world.now_ns() < end {
            self.for_ns(TIMEOUT_MIN_NS);
            let leads = self.leaders();
            let ready = |judge: &mut Self, n: usize| judge.member(n).leads_in_protocol();
            match leads[..] {
                [one] if one == leader && ready(self, one) => return true,
                [one] if one != leader && ready(self, one) => self.member(one).hand_over(ProcessId(leader as u16)),
                _ => {}
            }
        }
        let leads = self.leaders();
        self.broken(format!("{leads:?} lead the whole group, not {leader}"));
        false
    }

    fn judge_leader(&mut self, first: usize) {
        let able: Vec<usize> = (0..self.graph.members).filter(|n| self.graph.is_connected_to_majority(*n)).collect();
        let leads = self.leaders();
        self.came.leader = leads.first().copied();
        match leads[..] {
            [] if able.is_empty() => {}
            [one] if able.contains(&one) => {
                if !self.member(one).leads_in_protocol() {
                    self.broken(format!("member {one} is elected, but does not lead in the protocol"));
                }
                // After an earlier graph has cut off a leader, another one may have succeeded it.
                if self.graphs.len() == 1 && able.contains(&first) && one != first {
                    self.broken(format!("member {first} was followed by a majority, and {one} leads"));
                }
            }
            _ => self.broken(format!("members {leads:?} lead; {able:?} are connected to a majority")),
        }
    }

    /// Checks that all members that the leader reaches deliver the multicast messages.
    fn judge_deliveries(&mut self, since: u64) {
        let Some(leader) = self.came.leader.filter(|leader| self.graph.is_connected_to_majority(*leader)) else {
            return;
        };
        let now = self.shared.world.now_ns();
        let (mut messages, mut due) = (0, 0);
        for (at, sequence) in &self.shared.seen.borrow().multicast {
            messages += u64::from(*at > since);
            due = if *at + DELIVERED_NS <= now { *sequence } else { due };
        }
        self.came.messages = messages;
        if messages < QUIET_NS / PACE_NS / 2 {
            self.broken(format!("the client multicast {messages} messages in {QUIET_NS} ns"));
        }
        for n in (0..self.graph.members).filter(|n| self.graph.reaches(leader, *n)) {
            let delivered = self.shared.seen.borrow().delivered[n];
            if delivered < due {
                self.broken(format!("member {n}, which reaches leader {leader}, delivered up to {delivered} of {due}"));
            }
        }
    }

    /// Checks that all messages are delivered by all members.
    fn end(&mut self) {
        let end = self.shared.world.now_ns() + WHOLE_NS;
        while self.shared.world.now_ns() < end {
            self.for_ns(TIMEOUT_MIN_NS);
            if self.shared.progress.borrow().is_through(&self.topology) {
                return;
            }
        }
        if let Some(missing) = self.shared.progress.borrow().missing(&self.topology) {
            self.came.broken.push(format!("after the links were restored: {missing}"));
        }
    }

    fn finish(self) -> GraphRun {
        let Judge { shared, mut came, actors, .. } = self;
        drop(actors);
        let shared = Rc::into_inner(shared).expect("the actors are dropped");
        let seen = shared.seen.into_inner();
        (came.aside, came.caught_up) = (seen.aside, seen.caught_up);
        came.broken.extend(seen.broken);
        let through = came.broken.is_empty();
        let history = shared.history.into_inner();
        if history.wrong_states > 0 {
            came.broken.push(format!("{} states of applications differ", history.wrong_states));
        }
        let (report, _) = history.finish();
        let violated = report.violated().map(|property| format!("{property} is violated"));
        // Without a leader nothing is delivered, and this is already reported.
        came.broken.extend(violated.filter(|_| through));
        came
    }
}
