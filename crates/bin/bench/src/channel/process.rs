//! The work of each of the two processes in each phase.

use std::net::IpAddr;

use stentor_fabric::Fabric;
use stentor_fabric::memory::Ordering;
use stentor_fabric_shm::{ShmConfig, ShmFabric};
use stentor_support::Failure;
use stentor_support::live::Captures;

use super::super::clock::now;
use super::super::plain::{Exchange, ping_pong};
use super::super::schedule::Schedule;
use super::super::worker_spec::{Task, Worker};
use super::super::{ofi, roce};
use super::bare::Provider;
use super::line::{self, Messages, tell};
use super::raw::Raw;
use super::talk::{Reading, Talk, refused};
use super::{Kind, LARGE, Subject};

/// Longest message of the fabric, in bytes.
const FABRIC_BYTES: usize = LARGE + 64;
/// Size of the message that answers a stream, in bytes.
const ANSWER_BYTES: usize = 8;

pub(in super::super) fn run(
    worker: Worker<'_>,
    network: Option<u8>,
    provider: Option<&str>,
    every_byte: bool,
) -> Result<(), Failure> {
    let (spec, me) = (worker.spec, worker.id());
    let Some(network) = network else {
        return play(worker, (None, every_byte), |phase| {
            // Each [`Kind::Open`] has its own cluster, so that no process connects to the previous fabric.
            let config = ShmConfig {
                directory: spec.directory.clone(),
                message_bytes: FABRIC_BYTES as u32,
                populate: true,
                ..ShmConfig::new(&format!("bench{phase}"), me, &format!("p{}", me.0), 2)
            };
            ShmFabric::start(config).map_err(refused)
        });
    };
    if let Some(provider) = provider {
        let bound = Bound { provider, ip: ofi::address(network, spec.process) };
        return play(worker, (Some(bound), every_byte), |phase| {
            ofi::start(network, me, 2, FABRIC_BYTES, (provider, &format!("bench{phase}")))
        });
    }
    let (captures, mut life) = (Captures::from(spec.traffic.clone()), 0);
    play(worker, (None, every_byte), |_| {
        life += 1;
        roce::start(network, me, 2, FABRIC_BYTES, &captures.of(&roce::name(spec.process), life))
    })
}

/// One end of the subject.
enum End<F: Fabric> {
    Raw(Box<Raw<F>>),
    Channel(Box<Talk<F>>),
    Bare(Box<Provider>),
}

/// The arguments of the bound on libfabric, which is the provider itself.
#[derive(Clone, Copy)]
struct Bound<'a> {
    provider: &'a str,
    ip: IpAddr,
}

impl<F: Fabric> End<F> {
    fn new(fabric: F, subject: Subject, every_byte: bool) -> Result<Self, Failure> {
        let tagged = fabric.capabilities().tagged;
        Ok(match subject {
            Subject::Raw => End::Raw(Box::new(Raw::new(fabric)?)),
            subject => {
                let reading = match (subject, every_byte) {
                    (Subject::InPlace, false) => Reading::Place,
                    (Subject::InPlace, true) => Reading::EveryByte,
                    _ => Reading::Copy,
                };
                End::Channel(Box::new(Talk::new(fabric, subject.config(tagged), reading)?))
            }
        })
    }

    /// Handles events. Returns whether both ends are connected.
    fn turn(&mut self) -> Result<bool, Failure> {
        match self {
            End::Raw(raw) => raw.turn(),
            End::Channel(talk) => talk.turn(),
            End::Bare(provider) => provider.turn(),
        }
    }
}

/// Runs the work of a process on any fabric. `start` creates the fabric of a phase.
fn play<F: Fabric>(
    worker: Worker<'_>,
    (bound, every_byte): (Option<Bound<'_>>, bool),
    mut start: impl FnMut(u64) -> Result<F, Failure>,
) -> Result<(), Failure> {
    let mut end: Option<End<F>> = None;
    worker.serve(|task| {
        let Task { area, me, phase, .. } = *task;
        let bytes = task.command.bytes as usize;
        match (Kind::of(task.command.kind), &mut end) {
            (Kind::Open, _) => {
                let subject = Subject::of(task.command.extra);
                let made = match bound.filter(|_| subject == Subject::Raw) {
                    Some(Bound { provider, ip }) => End::Bare(Box::new(Provider::new(provider, ip, area, me, phase)?)),
                    None => {
                        let fabric = start(phase)?;
                        area.results(me)[2].store(fabric.capabilities().tagged.into(), Ordering::Release);
                        End::new(fabric, subject, every_byte)?
                    }
                };
                let open = end.insert(made);
                area.connect_two(me, phase, || open.turn())?;
            }
            (Kind::Close, _) => end = None,
            (Kind::PingPong, Some(End::Raw(raw))) => ping_pong(task, &mut Messages { line: &mut **raw, bytes })?,
            (Kind::PingPong, Some(End::Channel(talk))) => ping_pong(task, &mut talk.exchange(bytes))?,
            (Kind::PingPong, Some(End::Bare(bare))) => ping_pong(task, &mut Messages { line: &mut **bare, bytes })?,
            (Kind::Stream, Some(End::Bare(provider))) => line::stream(task, &mut **provider)?,
            (Kind::Stream, Some(End::Raw(raw))) => line::stream(task, &mut **raw)?,
            (Kind::Stream, Some(End::Channel(talk))) => stream(task, talk)?,
            (Kind::Rate, Some(End::Channel(talk))) => paced(task, talk)?,
            (Kind::Rate, Some(_)) => unreachable!("only channels are measured at a rate"),
            (kind, None) => unreachable!("{kind:?} before there is a fabric"),
        }
        // Process 0 ends the phase. Process 1 makes progress until then, because process 0 may need its answers.
        if me == 0 {
            area.end(phase);
        }
        while me != 0 && !area.is_over(phase) {
            if let Some(end) = &mut end {
                end.turn()?;
            }
        }
        Ok(())
    })
}

/// Runs a stream: process 0 sends one message after the other. Process 1 answers the last message of the warm-up and
/// that of the measurement.
fn stream<F: Fabric>(task: &Task<'_>, talk: &mut Talk<F>) -> Result<(), Failure> {
    let (me, bytes) = (task.me, task.command.bytes as usize);
    let (warmup, all) = (task.command.warmup, task.total());
    for part in [0..warmup, warmup..all] {
        let start = now();
        for n in part {
            if me == 0 { talk.exchange(bytes).send(n)? } else { talk.exchange(bytes).receive(n)? }
        }
        if me == 0 {
            talk.exchange(ANSWER_BYTES).receive(all)?;
            tell(task, now() - start);
        } else {
            talk.exchange(ANSWER_BYTES).send(all)?;
        }
    }
    Ok(())
}

/// Process 0 sends messages at their due times and records those times. Process 1 records when it has read each
/// message, and answers the last one.
fn paced<F: Fabric>(task: &Task<'_>, talk: &mut Talk<F>) -> Result<(), Failure> {
    let Task { area, me, command, .. } = *task;
    let (bytes, all) = (command.bytes as usize, task.total());
    let samples = area.samples(me);
    let note = |n: u64, time: u64| {
        if let Some(n) = n.checked_sub(command.warmup) {
            samples[n as usize].store(time, Ordering::Relaxed);
        }
    };
    let schedule = Schedule::new(command.window);
    for n in 0..all {
        if me != 0 {
            talk.exchange(bytes).receive(n)?;
            note(n, now());
            continue;
        }
        let due = loop {
            match schedule.due(n, now()) {
                Some(due) => break due,
                None => talk.turn()?,
            };
        };
        note(n, due);
        talk.exchange(bytes).send(n)?;
    }
    if me != 0 {
        return talk.exchange(ANSWER_BYTES).send(all);
    }
    talk.exchange(ANSWER_BYTES).receive(all)?;
    tell(task, now() - samples[0].load(Ordering::Relaxed));
    Ok(())
}
