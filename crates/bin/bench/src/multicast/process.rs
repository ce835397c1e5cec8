//! What a member or a client does in each phase.

use std::io;
use std::path::{Path, PathBuf};

use stentor::config::{ClusterConfig, Ground, Limits, Template};
use stentor::runtime::{
    Client, ClientId, ClusterFabric, ClusterRuntime, Delivered, FabricDiagnostics, GroupId, Housekeeper, Member,
    MessageId, RoceFabric, Role, RunError, StartError, Stop, SubmitError, Variant, client_round, run_member, stateless,
};
use stentor_fabric::memory::{Ordering, Word};
use stentor_fabric::{Backoff, ProcessId};
use stentor_multicast::Step;
use stentor_support::Failure;
use stentor_support::live::bind_config;

use super::super::clock::now;
use super::super::datagrams::{self, Datagrams, Ring, Sockets};
use super::super::pause::mode;
use super::super::plain;
use super::super::shared_area::{Command, SharedArea};
use super::super::way::Lines;
use super::super::worker_spec::{Cluster, WorkerSpec, broken, serve};
use super::super::workers::KEY;
use super::chain::{Chain, steps};
use super::{DONE, FIRST, Kind, LAST};
use crate::args::Protocol;

/// Messages between two looks at the fabric, when many may go.
const BURST: u64 = 16;

enum Node<F: FabricDiagnostics> {
    Member(Box<Member<F>>),
    Client(Box<Client<F>>),
}

struct Process<'a, F: FabricDiagnostics> {
    area: &'a SharedArea,
    cluster: &'a Cluster,
    me: usize,
    node: Node<F>,
    /// For the floors on a network.
    sockets: Option<Sockets>,
    payload: Vec<u8>,
}

pub(in super::super) fn run(spec: &WorkerSpec, area: &SharedArea, cluster: &Cluster) -> Result<(), Failure> {
    let plan = plan(cluster)?;
    let me = ProcessId(spec.process as u16);
    let Some(network) = cluster.network else {
        let fabric = plan.shm(me, spec.directory.clone()).map_err(unstarted)?;
        return play(spec, area, cluster, &plan, fabric, None);
    };
    let bind = bind_config(Path::new(""), PathBuf::new(), None, &spec.traffic);
    let fabric = RoceFabric::start_in(&plan, Role::Groups, me, &bind).map_err(unstarted)?;
    let ring = Ring { network, processes: cluster.processes(), steps: steps(cluster), mode: mode(cluster.wait) };
    let sockets = Sockets::open(ring, spec.process)?;
    play(spec, area, cluster, &plan, fabric, Some(sockets))
}

/// A process's part, on any fabric.
fn play<F: FabricDiagnostics>(
    spec: &WorkerSpec,
    area: &SharedArea,
    cluster: &Cluster,
    plan: &ClusterRuntime,
    fabric: F,
    sockets: Option<Sockets>,
) -> Result<(), Failure> {
    let me = spec.process;
    let node = if me < cluster.members() {
        Node::Member(Box::new(plan.member_on(fabric, ProcessId(me as u16)).map_err(unstarted)?))
    } else {
        let client = ClientId((me - cluster.members()) as u16);
        Node::Client(Box::new(plan.client_on(fabric, client).map_err(unstarted)?))
    };
    let mut process = Process { area, cluster, me, node, sockets, payload: vec![0; cluster.bytes as usize] };
    serve(spec, area, |command, phase| process.perform(&command, phase))
}

fn unstarted(error: StartError) -> Failure {
    Failure::run(error, "bench multicast", "run `stentor doctor`")
}

fn ended(error: RunError) -> Failure {
    Failure::run(error, "bench multicast", "run `stentor doctor`")
}

/// Everybody works out the same cluster.
fn plan(cluster: &Cluster) -> Result<ClusterRuntime, Failure> {
    let window = cluster.window.next_power_of_two().max(16);
    let body_ring = u64::from(window) * (u64::from(cluster.bytes) + 256);
    let limits = Limits {
        message_bytes: cluster.bytes.max(64),
        window,
        clients: cluster.clients,
        body_ring_kib: (body_ring >> 10).clamp(64, 1 << 20) as u32,
        ..Limits::default()
    };
    let (groups, replicas) = (usize::from(cluster.groups), usize::from(cluster.replicas));
    let on_roce = |network| Ground::Roce { network, key: format!("env:{KEY}") };
    let ground = cluster.network.map_or(Ground::Shm, on_roce);
    let text = Template { cluster: "bench".to_owned(), groups, replicas, limits, ground }.render();
    let config = ClusterConfig::parse(Path::new("bench"), &text)?;
    let variant = match cluster.variant {
        Protocol::V1 => Variant::V1,
        Protocol::V2 => Variant::V2,
    };
    Ok(ClusterRuntime::new(config).map_err(unstarted)?.with_variant(variant))
}

/// Where the times of a message are, at the client and at the members.
pub(super) fn sample(cluster: &Cluster, samples: usize, client: usize, sequence: u64) -> usize {
    ((sequence * u64::from(cluster.clients) + client as u64) % samples as u64) as usize
}

impl<F: FabricDiagnostics> Process<'_, F> {
    fn perform(&mut self, command: &Command, phase: u64) -> Result<(), Failure> {
        match Kind::of(command.kind) {
            Kind::Chain => self.chain(command, phase).map_err(broken("wait")),
            kind @ (Kind::HandOver | Kind::Lines | Kind::Bulk | Kind::Datagrams) => self.lines(kind, command, phase),
            kind => self.multicast(kind, command, phase),
        }
    }

    fn chain(&mut self, command: &Command, phase: u64) -> io::Result<()> {
        let Process { area, cluster, me, sockets, .. } = self;
        match sockets {
            None => {
                let shape = (cluster.members() + 1, steps(cluster));
                Chain::new(area, cluster, *me, phase, Lines::new(area, shape, *me, mode(cluster.wait))).run(command)
            }
            Some(sockets) => Chain::new(area, cluster, *me, phase, Datagrams::new(sockets)).run(command),
        }
    }

    fn lines(&mut self, kind: Kind, command: &Command, phase: u64) -> Result<(), Failure> {
        let Process { area, me, sockets, .. } = self;
        plain::on_processors(area, *me, command, || match (kind, sockets) {
            (Kind::Datagrams, Some(sockets)) => {
                sockets.stream(area, command, phase, datagrams::LENGTH).map_err(broken("use sockets"))
            }
            (Kind::HandOver, _) => plain::hand_over(area, *me, command, phase),
            (kind, _) => Ok(plain::stream(area, *me == 0, command, phase, kind == Kind::Lines)),
        })
    }

    fn multicast(&mut self, kind: Kind, command: &Command, phase: u64) -> Result<(), Failure> {
        let Process { area, cluster, me, node, payload, .. } = self;
        let results = area.results(*me);
        let counts = match node {
            Node::Member(node) => {
                member(node, area, cluster, *me, phase)?;
                node.counts()
            }
            Node::Client(node) => {
                let mut driver = Driver::new(node, area, cluster, *me, phase);
                match kind {
                    Kind::Connect => driver.connect()?,
                    Kind::One if driver.place == 0 => driver.multicast(command, payload, 1)?,
                    Kind::Window => driver.multicast(command, payload, command.window)?,
                    _ => {}
                }
                if driver.place == 0 {
                    driver.finish(kind == Kind::Window)?;
                }
                node.counts()
            }
        };
        for (word, step) in results.iter().zip(Step::ALL) {
            word.store(counts.writes(step), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// A member's loop, until the first client ends the phase.
fn member<F: FabricDiagnostics>(
    member: &mut Member<F>,
    area: &SharedArea,
    cluster: &Cluster,
    me: usize,
    phase: u64,
) -> Result<(), Failure> {
    let stop = Stop::default();
    let samples = area.samples(me);
    let deliver = |delivered: &Delivered<'_>| {
        let MessageId { client, sequence } = delivered.id;
        let at = sample(cluster, samples.len(), usize::from(client.0), sequence);
        samples[at].store(now(), Ordering::Relaxed);
    };
    let round = |member: &mut Member<F>, _, worked: bool| {
        if area.is_over(phase) {
            stop.stop();
        } else if !worked && !area.is_ready(me) && member.is_connected() {
            area.set_ready(me);
        }
    };
    run_member(member, mode(cluster.wait), &stop, &mut stateless(deliver), round).map_err(ended)
}

/// A client's loops.
struct Driver<'a, F: FabricDiagnostics> {
    client: &'a mut Client<F>,
    area: &'a SharedArea,
    cluster: &'a Cluster,
    to: Vec<GroupId>,
    phase: u64,
    me: usize,
    /// Which client.
    place: usize,
    backoff: Backoff,
    housekeeper: Housekeeper,
}

impl<'a, F: FabricDiagnostics> Driver<'a, F> {
    fn new(client: &'a mut Client<F>, area: &'a SharedArea, cluster: &'a Cluster, me: usize, phase: u64) -> Self {
        Driver {
            client,
            area,
            cluster,
            to: (0..cluster.dest).map(GroupId).collect(),
            phase,
            me,
            place: me - cluster.members(),
            backoff: Backoff::new(mode(cluster.wait)),
            housekeeper: Housekeeper::default(),
        }
    }

    fn result(&self, word: usize) -> &Word {
        &self.area.results(self.me)[word]
    }

    fn round(&mut self, submitted: bool) -> Result<(), Failure> {
        client_round(self.client, &mut self.backoff, &mut self.housekeeper, submitted).map_err(ended)?;
        Ok(())
    }

    fn connect(&mut self) -> Result<(), Failure> {
        while !self.client.is_connected(&self.to) {
            self.round(false)?;
        }
        self.area.set_ready(self.me);
        while !self.area.all_are_ready() {
            self.round(false)?;
        }
        Ok(())
    }

    /// Multicasts, with at most `window` messages outstanding, and waits until all are delivered.
    fn multicast(&mut self, command: &Command, payload: &mut [u8], window: u64) -> Result<(), Failure> {
        let total = command.warmup + command.iterations;
        let base = self.client.delivered_up_to();
        let samples = self.area.samples(self.me);
        let (mut sent, mut done, mut last) = (0, 0, (0, 0));
        while done < total {
            let mut burst = 0;
            while sent < total && sent - done < window && burst < BURST {
                payload.fill(sent as u8);
                let start = now();
                match self.client.submit(&self.to, payload, window == 1 || sent + 1 == total) {
                    Ok(submitted) => {
                        let at = sample(self.cluster, samples.len(), self.place, submitted.id.sequence);
                        samples[at].store(start, Ordering::Relaxed);
                        last = (at, start);
                    }
                    Err(SubmitError::Busy { .. }) => break,
                    Err(error) => return Err(Failure::run(error, "bench multicast", "report this as a bug")),
                }
                (sent, burst) = (sent + 1, burst + 1);
            }
            self.round(burst > 0)?;
            done = self.client.delivered_up_to().saturating_sub(base);
            // The client hears of a majority. One message at a time means that nobody works on the one before.
            while window == 1 && done == sent && !self.is_everywhere(last) {
                self.round(false)?;
            }
        }
        self.result(FIRST).store(base + command.warmup + 1, Ordering::Relaxed);
        self.result(LAST).store(base + total, Ordering::Relaxed);
        self.result(DONE).store(self.phase, Ordering::Release);
        Ok(())
    }

    /// Whether the message with this sample, multicast at `start`, was delivered by all members of its groups.
    fn is_everywhere(&self, (at, start): (usize, u64)) -> bool {
        (0..self.cluster.destinations()).all(|member| self.area.samples(member)[at].load(Ordering::Relaxed) >= start)
    }

    /// The first client ends the phase, after the others if they have a part in it.
    fn finish(&mut self, is_shared: bool) -> Result<(), Failure> {
        let (area, phase) = (self.area, self.phase);
        let others = self.cluster.members() + 1..area.shape().processes;
        let is_done = |client: usize| area.results(client)[DONE].load(Ordering::Acquire) == phase;
        while is_shared && !others.clone().all(is_done) {
            self.round(false)?;
        }
        area.end(self.phase);
        Ok(())
    }
}
