//! What a process does in each phase.

use std::time::Duration;

use stentor::runtime::{FabricDiagnostics, ShmFabric};
use stentor_fabric::memory::Ordering;
use stentor_fabric::{Backoff, ProcessId};
use stentor_fabric_shm::ShmConfig;
use stentor_neb::{Authority, BroadcastError, Config, FaultModel, Mode, Node, Notice};
use stentor_support::Failure;

use super::super::clock::now;
use super::super::datagrams::{self, Datagrams, Ring, Sockets};
use super::super::pause::mode;
use super::super::plain;
use super::super::roce;
use super::super::shared_area::{Command, SharedArea};
use super::super::way::Lines;
use super::super::worker_spec::{Neb, WorkerSpec, broken, serve};
use super::Kind;
use super::chain::{Chain, steps};
use crate::args::NebMode;

/// Rounds between two looks at connections.
const HOUSEKEEPING: u64 = 4096;
const LONGEST: Duration = Duration::from_millis(20);

pub(super) fn config(neb: &Neb) -> Config {
    let n = neb.processes();
    let mode = match neb.mode {
        NebMode::All => Mode::All,
        NebMode::LyingSender => Mode::Quorum(FaultModel::LyingSender),
        NebMode::LyingHosts => Mode::Quorum(FaultModel::LyingHosts),
    };
    let faults = match neb.mode {
        NebMode::All => 0,
        NebMode::LyingSender => (n - 2) / 2,
        NebMode::LyingHosts => (n - 1) / 3,
    };
    let sized = Config::new(n, mode, faults);
    Config {
        window: neb.window.max(1),
        payload_bytes: (neb.bytes as usize).max(8),
        fast_path: neb.fast,
        signed: neb.signed,
        ..sized
    }
}

fn failed(what: impl std::fmt::Display) -> Failure {
    Failure::run(what, "bench neb", "run `stentor doctor`")
}

pub(in super::super) fn run(spec: &WorkerSpec, area: &SharedArea, neb: &Neb) -> Result<(), Failure> {
    let me = ProcessId(spec.process as u16);
    let shm = ShmConfig {
        directory: spec.directory.clone(),
        max_bytes: 4 << 30,
        ..ShmConfig::new("bench-neb", me, &me.to_string(), neb.processes() as u16)
    };
    let Some(network) = neb.network else {
        return play(spec, area, neb, ShmFabric::start(shm).map_err(failed)?, None);
    };
    let fabric = roce::start(network, me, neb.processes(), config(neb).slot_bytes() as usize, &spec.traffic)?;
    let ring = Ring { network, processes: neb.processes(), steps: steps(neb), mode: mode(neb.wait) };
    play(spec, area, neb, fabric, Some(Sockets::open(ring, spec.process)?))
}

/// A process's part, on any fabric.
fn play<F: FabricDiagnostics>(
    spec: &WorkerSpec,
    area: &SharedArea,
    neb: &Neb,
    fabric: F,
    sockets: Option<Sockets>,
) -> Result<(), Failure> {
    let me = ProcessId(spec.process as u16);
    let secret = |process: u16| [process as u8 + 1; 32];
    let public: Vec<_> = (0..neb.processes() as u16).map(|process| Authority::public_of(&secret(process))).collect();
    let authority = neb.signed.then(|| Authority::new(1, me, &secret(me.0), &public)).transpose().map_err(failed)?;
    let mut process = Process {
        area,
        neb,
        me: spec.process,
        node: Node::new(fabric, config(neb), 1, authority).map_err(failed)?,
        sockets,
        payload: vec![0; neb.bytes as usize],
        sent: 0,
    };
    serve(spec, area, |command, phase| process.perform(&command, phase))
}

struct Process<'a, F: FabricDiagnostics> {
    area: &'a SharedArea,
    neb: &'a Neb,
    me: usize,
    node: Node<F>,
    /// For the floors on a network.
    sockets: Option<Sockets>,
    payload: Vec<u8>,
    sent: u64,
}

impl<F: FabricDiagnostics> Process<'_, F> {
    fn perform(&mut self, command: &Command, phase: u64) -> Result<(), Failure> {
        match Kind::of(command.kind) {
            Kind::Connect => self.connect(),
            Kind::Chain => self.chain(command, phase).map_err(broken("wait")),
            Kind::Lines => self.lines(command, phase),
            Kind::Broadcast => {
                if self.me == 0 {
                    self.send(command, phase)?;
                } else {
                    self.receive(command, phase)?;
                }
                self.tell_counts();
                Ok(())
            }
        }
    }

    fn chain(&mut self, command: &Command, phase: u64) -> std::io::Result<()> {
        let Process { area, neb, me, sockets, .. } = self;
        match sockets {
            None => {
                let way = Lines::new(area, (neb.processes(), steps(neb)), *me, mode(neb.wait));
                Chain { area, neb, me: *me, phase, way }.run(command)
            }
            Some(sockets) => Chain { area, neb, me: *me, phase, way: Datagrams::new(sockets) }.run(command),
        }
    }

    /// What this process has written and read so far.
    fn tell_counts(&self) {
        let counts = self.node.counts();
        let told = [counts.broadcast_writes + counts.register_writes + counts.credits, counts.reads];
        for (word, count) in self.area.results(self.me).iter().zip(told) {
            word.store(count, Ordering::Relaxed);
        }
    }

    fn lines(&mut self, command: &Command, phase: u64) -> Result<(), Failure> {
        let Process { area, me, sockets, .. } = self;
        plain::on_processors(area, *me, command, || match sockets {
            None => Ok(plain::stream(area, *me == 0, command, phase, true)),
            Some(sockets) => sockets.stream(area, command, phase, datagrams::LENGTH).map_err(broken("use sockets")),
        })
    }

    fn connect(&mut self) -> Result<(), Failure> {
        let mut backoff = Backoff::new(mode(self.neb.wait));
        while !self.area.all_are_ready() {
            let worked = self.node.housekeep() | self.node.step(&mut |_| {});
            if self.node.is_connected() {
                self.area.set_ready(self.me);
            }
            backoff.pause(self.node.fabric_mut(), worked, Duration::from_millis(1)).map_err(failed)?;
        }
        Ok(())
    }

    /// Broadcasts, with at most a window outstanding, and waits until everybody has freed everything.
    fn send(&mut self, command: &Command, phase: u64) -> Result<(), Failure> {
        let Process { area, neb, me, node, payload, sent, .. } = self;
        let total = command.warmup + command.iterations;
        let samples = area.samples(*me);
        let mut backoff = Backoff::new(mode(neb.wait));
        let (base, mut round) = (*sent, 0_u64);
        let others: Vec<ProcessId> = (1..neb.processes() as u16).map(ProcessId).collect();
        loop {
            round += 1;
            let freed = others.iter().map(|other| node.own_stream().freed_by(*other)).min().unwrap_or(0);
            let mut worked = false;
            // The clock is read once for those that go out together, before the first.
            let at = now();
            while *sent < base + total && *sent - freed < command.window {
                payload.fill(*sent as u8);
                samples[(*sent - base) as usize].store(at, Ordering::Relaxed);
                let taken = if command.window > 1 {
                    node.enqueue(at, *sent, payload)
                } else {
                    node.broadcast(at, *sent, payload)
                };
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
            backoff.pause(node.fabric_mut(), worked, LONGEST).map_err(failed)?;
        }
        area.end(phase);
        Ok(())
    }

    fn receive(&mut self, command: &Command, phase: u64) -> Result<(), Failure> {
        let Process { area, neb, me, node, sent, .. } = self;
        let samples = area.samples(*me);
        let mut backoff = Backoff::new(mode(neb.wait));
        let (base, mut round) = (*sent, 0_u64);
        while !area.is_over(phase) {
            round += 1;
            let before = *sent;
            let worked = node.step(&mut |notice| {
                if let Notice::Deliver(ProcessId(0), value) = notice {
                    *sent = value.index() + 1;
                    if command.window == 1 {
                        samples[(value.index() - base) as usize].store(now(), Ordering::Relaxed);
                    }
                }
            });
            if command.window > 1 && before < *sent {
                // The clock is read once for those that were delivered together, after the last.
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
