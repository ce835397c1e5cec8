//! The work of a process in each phase.

use std::time::Duration;

use stentor::runtime::{FabricDiagnostics, ShmFabric};
use stentor_fabric::memory::Ordering;
use stentor_fabric::{Backoff, ProcessId};
use stentor_fabric_shm::ShmConfig;
use stentor_neb::{Authority, BroadcastError, Node, Notice};
use stentor_support::Failure;

use super::super::clock::now;
use super::super::datagrams::{Datagrams, Ring, Sockets};
use super::super::packets::Packets;
use super::super::pause::{LONGEST, mode};
use super::super::rings::{Rings, Shape};
use super::super::roce;
use super::super::schedule::Schedule;

use super::super::way::Lines;
use super::super::worker_spec::{Neb, Task, Worker, broken};
use super::Kind;
use super::chain::{Chain, steps};
use super::config::config;
use super::stream::{self, Stream};

/// Number of rounds between two checks of the connections.
const HOUSEKEEPING: u64 = 4096;

fn failed(what: impl std::fmt::Display) -> Failure {
    Failure::run(what, "bench neb", "run `stentor doctor`")
}

pub(in super::super) fn run(worker: Worker<'_>, neb: &Neb) -> Result<(), Failure> {
    let (spec, me) = (worker.spec, worker.id());
    let shm = ShmConfig {
        directory: spec.directory.clone(),
        max_bytes: 4 << 30,
        ..ShmConfig::new("bench-neb", me, &me.to_string(), neb.processes() as u16)
    };
    let Some(network) = neb.setting.network else {
        return play(worker, neb, ShmFabric::start(shm).map_err(failed)?, None);
    };
    let fabric = roce::start(network, me, neb.processes(), config(neb).slot_bytes() as usize, &spec.traffic)?;
    let ring = Ring::loopback(network, neb.processes(), steps(neb), mode(neb.setting.wait));
    play(worker, neb, fabric, Some(Sockets::open(ring, spec.process)?))
}

/// Runs the work of a process on any fabric.
fn play<F: FabricDiagnostics>(
    worker: Worker<'_>,
    neb: &Neb,
    fabric: F,
    sockets: Option<Sockets>,
) -> Result<(), Failure> {
    let me = worker.id();
    let secret = |process: u16| [process as u8 + 1; 32];
    let public: Vec<_> = (0..neb.processes() as u16).map(|process| Authority::public_of(&secret(process))).collect();
    let authority = neb.signed.then(|| Authority::new(1, me, &secret(me.0), &public)).transpose().map_err(failed)?;
    let node = Node::new(fabric, config(neb), 1, authority).map_err(failed)?;
    let mut process = Process { neb, node, sockets, payload: vec![0; neb.setting.bytes as usize], sent: 0 };
    worker.serve(|task| process.perform(task))
}

struct Process<'a, F: FabricDiagnostics> {
    neb: &'a Neb,
    node: Node<F>,
    /// Sockets for the bounds on a network.
    sockets: Option<Sockets>,
    payload: Vec<u8>,
    sent: u64,
}

impl<F: FabricDiagnostics> Process<'_, F> {
    fn perform(&mut self, task: &Task<'_>) -> Result<(), Failure> {
        match Kind::of(task.command.kind) {
            Kind::Connect => self.connect(task),
            Kind::Chain => self.chain(*task).map_err(broken("wait")),
            Kind::Stream => self.stream(*task).map_err(broken("wait")),
            Kind::Broadcast => {
                if task.me == 0 {
                    self.send(task)
                } else {
                    self.receive(task)
                }
            }
        }
    }

    fn chain(&mut self, task: Task<'_>) -> std::io::Result<()> {
        let Process { neb, sockets, .. } = self;
        match sockets {
            None => {
                let way = Lines::new(task.area, (neb.processes(), steps(neb)), task.me, mode(neb.setting.wait));
                Chain { task, neb, way }.run()
            }
            Some(sockets) => Chain { task, neb, way: Datagrams::new(sockets) }.run(),
        }
    }

    fn stream(&mut self, task: Task<'_>) -> std::io::Result<()> {
        let Process { neb, sockets, .. } = self;
        let (mode, end) = (mode(neb.setting.wait), (task.me, task.base()));
        let (processes, steps, clients) = (neb.processes(), stream::steps(neb), 1);
        match sockets {
            None => {
                let shape = Shape { specs: &stream::rings(neb), processes, steps, clients };
                Stream { task, neb, lane: Rings::new(task.area, shape, end, mode) }.run()
            }
            Some(sockets) => {
                let lane = Packets::new(task.area, sockets, end, (steps, clients), mode);
                Stream { task, neb, lane }.run()
            }
        }
    }

    fn connect(&mut self, task: &Task<'_>) -> Result<(), Failure> {
        let mut backoff = Backoff::new(mode(self.neb.setting.wait));
        while !task.area.all_are_ready() {
            let worked = self.node.housekeep() | self.node.step(&mut |_| {});
            if self.node.is_connected() {
                task.area.set_ready(task.me);
            }
            backoff.pause(self.node.fabric_mut(), worked, Duration::from_millis(1)).map_err(failed)?;
        }
        Ok(())
    }

    /// Broadcasts with at most a window outstanding, and waits until every receiver has freed all slots.
    fn send(&mut self, task: &Task<'_>) -> Result<(), Failure> {
        let Process { neb, node, payload, sent, .. } = self;
        let (total, window) = (task.total(), task.command.window);
        let samples = task.area.samples(task.me);
        let mut backoff = Backoff::new(mode(neb.setting.wait));
        let (base, mut round) = (*sent, 0_u64);
        let schedule = Schedule::new(task.command.extra);
        let others: Vec<ProcessId> = (1..neb.processes() as u16).map(ProcessId).collect();
        loop {
            round += 1;
            let freed = others.iter().map(|other| node.own_stream().freed_by(*other)).min().unwrap_or(0);
            let mut worked = false;
            // All broadcasts that are sent together share one reading of the clock, taken before the first of them.
            let at = now();
            while *sent < base + total && *sent - freed < window {
                let Some(start) = schedule.due(*sent - base, at) else { break };
                payload.fill(*sent as u8);
                samples[(*sent - base) as usize].store(start, Ordering::Relaxed);
                let taken =
                    if window > 1 { node.enqueue(at, *sent, payload) } else { node.broadcast(at, *sent, payload) };
                match taken {
                    Ok(_) => (*sent, worked) = (*sent + 1, true),
                    Err(BroadcastError::Full) => break,
                    Err(error) => return Err(failed(error)),
                }
            }
            worked |= node.step(&mut |_| {});
            if freed == base + total {
                break;
            }
            if round.is_multiple_of(HOUSEKEEPING) {
                node.housekeep();
            }
            let longest =
                if *sent - freed < window { schedule.longest_sleep(*sent - base, total, now()) } else { LONGEST };
            backoff.pause(node.fabric_mut(), worked, longest).map_err(failed)?;
        }
        task.area.end(task.phase);
        Ok(())
    }

    fn receive(&mut self, task: &Task<'_>) -> Result<(), Failure> {
        let Process { neb, node, sent, .. } = self;
        let (samples, window) = (task.area.samples(task.me), task.command.window);
        let mut backoff = Backoff::new(mode(neb.setting.wait));
        let (base, mut round) = (*sent, 0_u64);
        while !task.area.is_over(task.phase) {
            round += 1;
            let before = *sent;
            let worked = node.step(&mut |notice| {
                if let Notice::Deliver(ProcessId(0), value) = notice {
                    *sent = value.index() + 1;
                    if window == 1 {
                        samples[(value.index() - base) as usize].store(now(), Ordering::Relaxed);
                    }
                }
            });
            if window > 1 && before < *sent {
                // All broadcasts that were delivered together share one reading of the clock, taken after the last.
                let at = now();
                samples[(before - base) as usize..(*sent - base) as usize].iter().for_each(|sample| {
                    sample.store(at, Ordering::Relaxed);
                });
            }
            if round.is_multiple_of(HOUSEKEEPING) {
                node.housekeep();
            }
            backoff.pause(node.fabric_mut(), worked, LONGEST).map_err(failed)?;
        }
        Ok(())
    }
}
