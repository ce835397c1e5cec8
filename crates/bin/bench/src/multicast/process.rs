//! The work of a member or a client in each phase.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stentor::config::{ClusterConfig, Ground, Limits, Template};
use stentor::runtime::{
    Client, ClientId, ClusterFabric, ClusterRuntime, Delivered, FabricDiagnostics, GroupId, Housekeeper, Member,
    MessageId, RoceFabric, Role, Stop, SubmitError, Variant, client_round_within, run_member, stateless,
};
use stentor_fabric::memory::{Ordering, Word};
use stentor_fabric::{Backoff, Fabric, ProcessId};
use stentor_multicast::Step;
use stentor_support::Failure;
use stentor_support::live::bind_config;

use super::super::clock::now;
use super::super::datagrams::{Datagrams, Ring, Sockets};
use super::super::packets::Packets;
use super::super::pause::{LONGEST, mode};
use super::super::plain;
use super::super::rings::{Rings, Shape};
use super::super::schedule::Schedule;

use super::super::way::Lines;
use super::super::worker_spec::{Cluster, Task, Worker, broken};
use super::super::workers::KEY;
use super::chain::{Chain, Until, steps};
use super::stream::{self, Stream};
use super::{DONE, FIRST, Kind, LAST};
use crate::args::Protocol;

/// Largest number of messages that are sent before the fabric is polled again.
const BURST: u64 = 16;

enum Node<F: FabricDiagnostics> {
    Member(Box<Member<F>>),
    Client(Box<Client<F>>),
}

struct Process<'a, F: FabricDiagnostics> {
    cluster: &'a Cluster,
    node: Node<F>,
    /// Sockets for the bounds on a network.
    sockets: Option<Sockets>,
    payload: Vec<u8>,
}

pub(in super::super) fn run(worker: Worker<'_>, cluster: &Cluster) -> Result<(), Failure> {
    let plan = plan(cluster)?;
    let (spec, me) = (worker.spec, worker.id());
    let Some(network) = cluster.setting.network else {
        let fabric = plan.shm(me, spec.directory.clone()).map_err(failed)?;
        return play(worker, cluster, &plan, fabric, None);
    };
    let bind = bind_config(Path::new(""), PathBuf::new(), None, &spec.traffic);
    let fabric = RoceFabric::start_in(&plan, Role::Groups, me, &bind).map_err(failed)?;
    let ring = Ring::loopback(network, cluster.processes(), steps(cluster), mode(cluster.setting.wait));
    let sockets = Sockets::open(ring, spec.process)?;
    play(worker, cluster, &plan, fabric, Some(sockets))
}

/// Runs the work of a process on any fabric.
fn play<F: FabricDiagnostics>(
    worker: Worker<'_>,
    cluster: &Cluster,
    plan: &ClusterRuntime,
    fabric: F,
    sockets: Option<Sockets>,
) -> Result<(), Failure> {
    let me = worker.spec.process;
    let node = if me < cluster.members() {
        Node::Member(Box::new(plan.member_on(fabric, ProcessId(me as u16)).map_err(failed)?))
    } else {
        let client = ClientId((me - cluster.members()) as u16);
        Node::Client(Box::new(plan.client_on(fabric, client).map_err(failed)?))
    };
    let mut process = Process { cluster, node, sockets, payload: vec![0; cluster.setting.bytes as usize] };
    worker.serve(|task| process.perform(task))
}

pub(super) fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::run(error, "bench multicast", "run `stentor doctor`")
}

/// Returns the cluster. Every process computes the same one.
pub(super) fn plan(cluster: &Cluster) -> Result<ClusterRuntime, Failure> {
    let window = cluster.setting.window.next_power_of_two().max(16);
    let body_ring = u64::from(window) * (u64::from(cluster.setting.bytes) + 256);
    let limits = Limits {
        message_bytes: cluster.setting.bytes.max(64),
        window,
        clients: cluster.clients,
        body_ring_kib: (body_ring >> 10).clamp(64, 1 << 20) as u32,
        ..Limits::default()
    };
    let (groups, replicas) = (usize::from(cluster.groups), usize::from(cluster.replicas));
    let on_roce = |network| Ground::Roce { network, key: format!("env:{KEY}") };
    let ground = cluster.setting.network.map_or(Ground::Shm, on_roce);
    let text = Template { cluster: "bench".to_owned(), groups, replicas, limits, ground }.render();
    let config = ClusterConfig::parse(Path::new("bench"), &text)?;
    let variant = match cluster.variant {
        Protocol::V1 => Variant::V1,
        Protocol::V2 => Variant::V2,
    };
    Ok(ClusterRuntime::new(config).map_err(failed)?.with_variant(variant))
}

/// Returns the index of a message's samples, at the client and at the members.
pub(super) fn sample(cluster: &Cluster, samples: usize, client: usize, sequence: u64) -> usize {
    ((sequence * u64::from(cluster.clients) + client as u64) % samples as u64) as usize
}

impl<F: FabricDiagnostics> Process<'_, F> {
    fn perform(&mut self, task: &Task<'_>) -> Result<(), Failure> {
        match Kind::of(task.command.kind) {
            Kind::Chain => self.chain(*task).map_err(broken("wait")),
            Kind::Stream => self.stream(*task).map_err(broken("wait")),
            Kind::HandOver => plain::on_processors(task, || plain::hand_over(task)),
            kind => self.multicast(kind, task),
        }
    }

    fn chain(&mut self, task: Task<'_>) -> io::Result<()> {
        let Process { cluster, sockets, .. } = self;
        match sockets {
            None => {
                let shape = (cluster.members() + 1, steps(cluster));
                let way = Lines::new(task.area, shape, task.me, mode(cluster.setting.wait));
                Chain { task, cluster, until: Until::Everywhere, way }.run()
            }
            Some(sockets) => Chain { task, cluster, until: Until::Everywhere, way: Datagrams::new(sockets) }.run(),
        }
    }

    fn stream(&mut self, task: Task<'_>) -> io::Result<()> {
        let Process { cluster, sockets, .. } = self;
        let (mode, end) = (mode(cluster.setting.wait), (task.me, task.base()));
        let (processes, steps, clients) = (cluster.processes(), steps(cluster), cluster.clients.into());
        match sockets {
            None => {
                let shape = Shape { specs: &stream::rings(cluster), processes, steps, clients };
                let lane = Rings::new(task.area, shape, end, mode);
                Stream { task, cluster, until: Until::Everywhere, lane }.run()
            }
            Some(sockets) => {
                let lane = Packets::new(task.area, sockets, end, (steps, clients), mode);
                Stream { task, cluster, until: Until::Everywhere, lane }.run()
            }
        }
    }

    fn multicast(&mut self, kind: Kind, task: &Task<'_>) -> Result<(), Failure> {
        let Process { cluster, node, payload, .. } = self;
        let results = task.area.results(task.me);
        let counts = match node {
            Node::Member(node) => {
                member(node, cluster, task)?;
                node.counts()
            }
            Node::Client(node) => {
                let mut driver = Driver::new(node, cluster, task);
                if kind == Kind::Rested {
                    driver.rest_ns = task.command.extra;
                }
                match kind {
                    Kind::Connect => driver.connect()?,
                    Kind::One | Kind::Rested if driver.place == 0 => driver.multicast(payload, 1)?,
                    Kind::Window | Kind::Rate => driver.multicast(payload, task.command.window)?,
                    _ => {}
                }
                if driver.place == 0 {
                    driver.finish(matches!(kind, Kind::Window | Kind::Rate))?;
                } else {
                    driver.stand_by()?;
                }
                node.counts()
            }
        };
        for (word, step) in results.iter().zip(Step::ALL).take(super::COUNTED) {
            word.store(counts.writes(step), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Runs a member's loop until the first client ends the phase.
pub(super) fn member<F: Fabric>(member: &mut Member<F>, cluster: &Cluster, task: &Task<'_>) -> Result<(), Failure> {
    let Task { area, me, phase, .. } = *task;
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
    run_member(member, mode(cluster.setting.wait), &stop, &mut stateless(deliver), round).map_err(failed)
}

/// The loops of a client.
pub(super) struct Driver<'a, F: Fabric> {
    pub(super) client: &'a mut Client<F>,
    task: &'a Task<'a>,
    cluster: &'a Cluster,
    pub(super) to: Vec<GroupId>,
    /// Index of the client.
    place: usize,
    /// Rest before each message in a run with one message at a time, in nanoseconds.
    rest_ns: u64,
    pub(super) backoff: Backoff,
    housekeeper: Housekeeper,
}

impl<'a, F: Fabric> Driver<'a, F> {
    pub(super) fn new(client: &'a mut Client<F>, cluster: &'a Cluster, task: &'a Task<'a>) -> Self {
        Driver {
            client,
            task,
            cluster,
            to: (0..cluster.dest).map(GroupId).collect(),
            place: task.me - cluster.members(),
            rest_ns: 0,
            backoff: Backoff::new(mode(cluster.setting.wait)),
            housekeeper: Housekeeper::default(),
        }
    }

    fn result(&self, word: usize) -> &Word {
        &self.task.area.results(self.task.me)[word]
    }

    pub(super) fn round(&mut self, submitted: bool) -> Result<(), Failure> {
        self.round_within(submitted, LONGEST)
    }

    fn round_within(&mut self, submitted: bool, longest: Duration) -> Result<(), Failure> {
        let Driver { client, backoff, housekeeper, .. } = self;
        client_round_within(client, backoff, housekeeper, submitted, longest).map_err(failed)?;
        Ok(())
    }

    pub(super) fn connect(&mut self) -> Result<(), Failure> {
        while !self.client.reaches_all(&self.to) {
            self.round(false)?;
        }
        self.task.area.set_ready(self.task.me);
        while !self.task.area.all_are_ready() {
            self.round(false)?;
        }
        Ok(())
    }

    /// Multicasts with at most `window` messages outstanding, and waits until all are delivered.
    fn multicast(&mut self, payload: &mut [u8], window: u64) -> Result<(), Failure> {
        let total = self.task.total();
        let base = self.client.delivered_up_to();
        let samples = self.task.area.samples(self.task.me);
        let schedule = Schedule::new(if self.rest_ns > 0 { 0 } else { self.task.command.extra });
        let (mut sent, mut done, mut last) = (0, 0, (0, 0));
        while done < total {
            let mut burst = 0;
            while sent < total && sent - done < window && burst < BURST {
                let Some(start) = schedule.due(sent, now()) else { break };
                payload.fill(sent as u8);
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
            let longest = if sent - done < window { schedule.longest_sleep(sent, total, now()) } else { LONGEST };
            self.round_within(burst > 0, longest)?;
            done = self.client.delivered_up_to().saturating_sub(base);
            // The client learns only that a majority has delivered. With one message at a time, no member may still
            // work on the previous message.
            while window == 1 && done == sent && !self.is_everywhere(last) {
                self.round(false)?;
            }
            self.rest()?;
        }
        self.result(FIRST).store(base + self.task.command.warmup + 1, Ordering::Relaxed);
        self.result(LAST).store(base + total, Ordering::Relaxed);
        self.result(DONE).store(self.task.phase, Ordering::Release);
        Ok(())
    }

    /// Polls for the time of rest, so that the next message finds all processes idle.
    fn rest(&mut self) -> Result<(), Failure> {
        if self.rest_ns == 0 {
            return Ok(());
        }
        let until = now() + self.rest_ns;
        while now() < until {
            self.round(false)?;
        }
        Ok(())
    }

    /// Returns whether all members of the destination groups have delivered the message with this sample, which was
    /// multicast at `start`.
    fn is_everywhere(&self, (at, start): (usize, u64)) -> bool {
        (0..self.cluster.destinations())
            .all(|member| self.task.area.samples(member)[at].load(Ordering::Relaxed) >= start)
    }

    /// Polls until the phase ends. On a network, a process that does not poll answers no peer and loses its
    /// connections.
    fn stand_by(&mut self) -> Result<(), Failure> {
        while !self.task.area.is_over(self.task.phase) {
            self.round(false)?;
        }
        Ok(())
    }

    /// Ends the phase; only the first client calls this. If `is_shared`, the other clients send in this phase, too, and
    /// the first client waits until they have finished.
    fn finish(&mut self, is_shared: bool) -> Result<(), Failure> {
        let Task { area, phase, .. } = *self.task;
        let others = self.cluster.members() + 1..area.shape().processes;
        let is_done = |client: usize| area.results(client)[DONE].load(Ordering::Acquire) == phase;
        while is_shared && !others.clone().all(is_done) {
            self.round(false)?;
        }
        area.end(phase);
        Ok(())
    }
}
