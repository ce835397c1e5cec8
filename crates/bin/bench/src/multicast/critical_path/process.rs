//! The work of a member or a client while one of them is measured.

use std::rc::Rc;

use stentor::runtime::{Client, ClientId, ClusterRuntime, Member, ShmFabric, Stop, run_member, stateless};
use stentor_fabric::memory::Ordering;
use stentor_fabric::{Backoff, ProcessId, WaitMode};
use stentor_support::Failure;

use super::super::super::worker_spec::{Cluster, Task, Worker, broken, pin};
use super::super::process::{Driver, failed, member, plan};
use super::log::{Log, Mark};
use super::stamped::Stamped;
use super::turns::Turns;
use super::{COUNT, DELIVERED, ENTRY_WORDS, Kind};

/// Number of sweeps between the last delivery of a message and the next message. Credits are returned meanwhile.
const SETTLING_SWEEPS: u64 = 3;

type Fabric = Stamped<ShmFabric>;

enum Node {
    Member(Box<Member<Fabric>>),
    Client(Box<Client<Fabric>>),
}

/// One process, which is measured in one of the phases.
struct Process<'a> {
    cluster: &'a Cluster,
    /// The processor of the measured process, and that of all others.
    ends: [usize; 2],
    log: Rc<Log>,
    node: Node,
    payload: Vec<u8>,
    /// Number of messages that this process delivered or submitted, in all phases.
    messages: u64,
}

pub(in super::super::super) fn run(worker: Worker<'_>, cluster: &Cluster, ends: [usize; 2]) -> Result<(), Failure> {
    let (plan, me) = (plan(cluster)?, worker.spec.process);
    let log = Rc::new(Log::new(worker.spec.shape.samples / ENTRY_WORDS));
    let fabric = plan.shm(worker.id(), worker.spec.directory.clone()).map_err(failed)?;
    let node = node(&plan, cluster, me, Stamped::new(fabric, Rc::clone(&log)))?;
    let payload = vec![0; cluster.setting.bytes as usize];
    let mut process = Process { cluster, ends, log, node, payload, messages: 0 };
    worker.serve(|task| process.perform(task))
}

fn node(plan: &ClusterRuntime, cluster: &Cluster, me: usize, fabric: Fabric) -> Result<Node, Failure> {
    Ok(match me.checked_sub(cluster.members()) {
        None => Node::Member(Box::new(plan.member_on(fabric, ProcessId(me as u16)).map_err(failed)?)),
        Some(client) => Node::Client(Box::new(plan.client_on(fabric, ClientId(client as u16)).map_err(failed)?)),
    })
}

impl Process<'_> {
    fn perform(&mut self, task: &Task<'_>) -> Result<(), Failure> {
        match (Kind::of(task.command.kind), &mut self.node) {
            (Kind::Connect, Node::Member(node)) => member(node, self.cluster, task)?,
            (Kind::Connect, Node::Client(node)) => {
                Driver::new(node, self.cluster, task).connect()?;
                task.area.end(task.phase);
            }
            (Kind::Measure, _) => self.measure(task)?,
        }
        Ok(())
    }

    fn measure(&mut self, task: &Task<'_>) -> Result<(), Failure> {
        let measured = task.command.extra as usize;
        pin(&[self.ends[usize::from(task.me != measured)]]).map_err(broken("stay on one processor"))?;
        self.log.clear();
        let turns = Turns::new(task, self.cluster, measured);
        match &mut self.node {
            Node::Member(node) => step_member(node, (task, &turns), &self.log, &mut self.messages)?,
            Node::Client(_) => self.multicast(task, &turns)?,
        }
        let results = task.area.results(task.me);
        self.log.store(task.area.samples(task.me));
        results[COUNT].store(self.log.len() as u64, Ordering::Relaxed);
        if self.log.is_full() {
            let what = format!("process {} makes more writes for each message than the bench has room for", task.me);
            return Err(Failure::run(what, "bench multicast --critical-path", "report this as a bug"));
        }
        Ok(())
    }

    /// Runs the client: it sends one message after the other, each when all processes are done with the previous one.
    fn multicast(&mut self, task: &Task<'_>, turns: &Turns<'_>) -> Result<(), Failure> {
        let Node::Client(client) = &mut self.node else { return Ok(()) };
        let mut driver = Driver::new(client, self.cluster, task);
        driver.backoff = Backoff::new(WaitMode::POLL);
        for n in 0..task.total() {
            turns.wait();
            let mut before = self.log.len();
            self.log.mark([Mark::Submitted]);
            self.payload.fill(n as u8);
            driver.client.submit(&driver.to, &self.payload, true).map_err(failed)?;
            self.messages += 1;
            let (mut submitted, mut everywhere) = (true, None);
            loop {
                driver.round(std::mem::take(&mut submitted))?;
                turns.pass(self.log.len() > before);
                turns.wait();
                before = self.log.len();
                let is_there = |member| task.area.results(member)[DELIVERED].load(Ordering::Relaxed) >= self.messages;
                if driver.client.outstanding() == 0 && (0..self.cluster.destinations()).all(is_there) {
                    let since = *everywhere.get_or_insert(turns.sweeps());
                    if turns.sweeps() >= since + SETTLING_SWEEPS {
                        break;
                    }
                }
            }
        }
        task.area.end(task.phase);
        Ok(())
    }
}

/// Runs a member's loop until the client ends the phase.
fn step_member(
    member: &mut Member<Fabric>,
    (task, turns): (&Task<'_>, &Turns<'_>),
    log: &Log,
    delivered: &mut u64,
) -> Result<(), Failure> {
    let Task { area, me, phase, .. } = *task;
    let (stop, count) = (Stop::default(), &area.results(me)[DELIVERED]);
    let mut deliver = stateless(|_| {
        log.mark([Mark::Delivered]);
        *delivered += 1;
        count.store(*delivered, Ordering::Relaxed);
    });
    let mut before = 0;
    let round = |_: &mut Member<Fabric>, _, _| {
        if area.is_over(phase) {
            stop.stop();
        }
        turns.pass(log.len() > before);
        turns.wait();
        before = log.len();
    };
    turns.wait();
    run_member(member, WaitMode::POLL, &stop, &mut deliver, round).map_err(failed)
}
