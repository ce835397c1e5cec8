//! The complete state of a simulated world.

use std::collections::{BTreeMap, VecDeque};

use stentor_fabric::{Capabilities, Event as FabricEvent, ProcessId, RemoteRegion};

use crate::config::{Due, SimConfig};
use crate::counts::{FaultCounts, ProcessCounts, SetCounts};
use crate::event::{Calendar, Event, Slab};
use crate::fault::Fault;
use crate::membership::{Membership, Set};
use crate::memory::{Delivery, Key, Landings, Region};
use crate::model::NetworkModel;
use crate::qp::{Message, Qp, Queued};
use crate::rng::SimRng;
use crate::trace::Trace;
use crate::transcript::Transcript;

/// A process: its NIC, its memory, and its scheduled steps.
#[derive(Default)]
pub(crate) struct Process {
    pub(crate) up: bool,
    /// Life of the process, counted from 1; every restart begins another one.
    pub(crate) life: u32,
    pub(crate) regions: Vec<Region>,
    pub(crate) qps: Vec<Qp>,
    pub(crate) completions: VecDeque<Queued>,
    pub(crate) events: VecDeque<FabricEvent>,
    pub(crate) resolved: BTreeMap<(u16, u16), RemoteRegion>,
    /// For each peer: `true` if that peer sends new grants to this process. Otherwise this process gets them when the
    /// two connect.
    pub(crate) linked: Vec<bool>,
    /// Messages that were posted and are held until the next flush.
    pub(crate) unflushed: Vec<u32>,
    pub(crate) nic_free_at: u64,
    pub(crate) stalled_until: u64,
    pub(crate) clock_ahead_ns: i64,
    pub(crate) step_at: Option<u64>,
    pub(crate) step_token: u32,
    /// `true` if the process was notified since the last `arm`.
    pub(crate) notified: bool,
    /// Time at which the process asked to be woken, in nanoseconds.
    pub(crate) wake_at: Option<u64>,
    /// Number of posts until a planned crash.
    pub(crate) posts_to_crash: Option<u64>,
    /// Number of landings of which only a part is visible.
    pub(crate) half_landed: u32,
    /// Sets of which the process is a member, by number.
    pub(crate) sets: BTreeMap<u16, Membership>,
}

/// The path from one process to another.
#[derive(Default)]
pub(crate) struct NetworkPath {
    /// Number of partitions that cut the path.
    pub(crate) cuts: u32,
    /// `true` if one of these partitions is a cut that the harness requested, which has no planned end.
    pub(crate) severed: bool,
    pub(crate) held: Vec<Event>,
    pub(crate) free_at: u64,
    pub(crate) last_arrival: u64,
    pub(crate) last_control: u64,
    pub(crate) posted: u64,
    /// Number of the newest message that executed.
    pub(crate) executed: u64,
}

pub(crate) struct State {
    pub(crate) now: u64,
    pub(crate) rng: SimRng,
    pub(crate) model: NetworkModel,
    pub(crate) capabilities: Capabilities,
    pub(crate) calendar: Calendar,
    pub(crate) processes: Vec<Process>,
    pub(crate) process_counts: Vec<ProcessCounts>,
    pub(crate) links: Vec<NetworkPath>,
    pub(crate) keys: Vec<Key>,
    pub(crate) messages: Slab<Message>,
    pub(crate) landings: Landings,
    pub(crate) deliveries: Slab<Delivery>,
    pub(crate) pool: Vec<Vec<u64>>,
    /// Planned faults that have not happened yet.
    pub(crate) plan: Vec<Option<Fault>>,
    /// Paths that each planned partition cuts.
    pub(crate) cuts: BTreeMap<u32, Vec<usize>>,
    pub(crate) due: VecDeque<Due>,
    pub(crate) counts: FaultCounts,
    pub(crate) connections: u64,
    /// The network's state of sets, by number.
    pub(crate) sets: BTreeMap<u16, Set>,
    pub(crate) set_counts: SetCounts,
    /// Copies that the network holds back, in order.
    pub(crate) kept: Vec<u32>,
    pub(crate) flows: u64,
    pub(crate) trace: Option<Trace>,
    pub(crate) transcript: Option<Transcript>,
}

impl State {
    pub(crate) fn new(config: SimConfig) -> Self {
        let processes = config.processes;
        let mut plan = config.faults;
        plan.extend(config.mix.draw(config.seed, processes));
        plan.sort_by_key(|(at, _)| *at);
        let mut state = State {
            now: 0,
            rng: SimRng::new(config.seed, 0),
            capabilities: config.network.capabilities(),
            model: config.network,
            calendar: Calendar::default(),
            processes: Vec::new(),
            process_counts: vec![ProcessCounts::default(); processes],
            links: (0..processes * processes).map(|_| NetworkPath::default()).collect(),
            keys: Vec::new(),
            messages: Slab::default(),
            landings: Slab::default(),
            deliveries: Slab::default(),
            pool: Vec::new(),
            plan: Vec::new(),
            cuts: BTreeMap::new(),
            due: VecDeque::new(),
            counts: FaultCounts::default(),
            connections: 0,
            sets: BTreeMap::new(),
            set_counts: SetCounts::default(),
            kept: Vec::new(),
            flows: 0,
            trace: config.trace.then(|| Trace::new(processes)),
            transcript: config.transcript,
        };
        for counts in &mut state.process_counts {
            counts.to = vec![Default::default(); processes];
            counts.set_copies = vec![0; processes];
        }
        for _ in 0..processes {
            state.processes.push(Process { up: true, life: 1, linked: vec![false; processes], ..Process::default() });
        }
        for process in 0..processes {
            state.wake(ProcessId(process as u16));
        }
        for (at, fault) in plan {
            state.plan_fault(at, fault);
        }
        state
    }

    pub(crate) fn plan_fault(&mut self, at: u64, fault: Fault) {
        let index = self.plan.len() as u32;
        self.plan.push(Some(fault));
        self.calendar.push(at, Event::Fault { index });
    }

    pub(crate) fn link_index(&self, from: ProcessId, to: ProcessId) -> usize {
        from.index() * self.processes.len() + to.index()
    }

    pub(crate) fn link(&mut self, from: ProcessId, to: ProcessId) -> &mut NetworkPath {
        let index = self.link_index(from, to);
        &mut self.links[index]
    }

    pub(crate) fn is_cut(&self, from: ProcessId, to: ProcessId) -> bool {
        self.links[self.link_index(from, to)].cuts > 0
    }

    /// Returns the arrival time of a control message that is sent now. Control messages in one direction stay in order.
    pub(crate) fn control_arrival(&mut self, from: ProcessId, to: ProcessId) -> u64 {
        let at = self.now + self.model.control.sample(&mut self.rng);
        let link = self.link(from, to);
        link.last_control = link.last_control.max(at);
        link.last_control
    }

    pub(crate) fn buffer(&mut self) -> Vec<u64> {
        self.pool.pop().unwrap_or_default()
    }

    pub(crate) fn recycle(&mut self, mut buffer: Vec<u64>) {
        // A few long messages must not make all buffers large.
        if buffer.capacity() <= 1024 && buffer.capacity() > 0 {
            buffer.clear();
            self.pool.push(buffer);
        }
    }

    /// Handles one event.
    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::Step { process, token } => self.on_step(ProcessId(process), token),
            Event::Arrive { message } => self.on_arrive(message),
            Event::Departed { message } => self.on_departed(message),
            Event::Land { landing, part } => self.on_land(landing, part),
            Event::Sample { message } => self.on_sample(message),
            Event::Answer { message } => self.on_answer(message),
            Event::Done { message } => self.on_done(message),
            Event::Received { delivery } => self.on_received(delivery),
            Event::Rnr { end } => self.on_rnr(end),
            Event::Timeout { end, seq } => self.on_timeout(end, seq),
            Event::PeerGone { end, silent } => self.on_peer_gone(end, silent),
            Event::Match { a, b, service } => self.on_match(ProcessId(a), ProcessId(b), service),
            Event::Ready { end } => self.on_ready(end),
            Event::Granted { key } => self.on_granted(key),
            Event::Revoked { key } => self.on_revoked(key),
            Event::RevokedNothing { process, life, region, peer } => {
                self.revoked_nothing(ProcessId(process), life, region, ProcessId(peer));
            }
            Event::Fault { index } => self.on_fault(index),
            Event::Heal { index } => self.on_heal(index),
            Event::SetJoined { number, process, life } => {
                self.on_set_joined(number, ProcessId(process), life);
            }
            Event::CopiesGo { from, to } => self.on_copies_go(ProcessId(from), ProcessId(to)),
            Event::SetForms { number } => self.on_set_forms(number),
            Event::SetLeft { number, who, to, life } => {
                self.on_set_left(number, ProcessId(who), ProcessId(to), life);
            }
        }
    }
}
