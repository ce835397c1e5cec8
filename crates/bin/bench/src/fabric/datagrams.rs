//! The bounds on a network: ping-pongs and streams of plain datagrams with the same payload.

use stentor_fabric::WaitMode;
use stentor_fabric::memory::Ordering;
use stentor_support::Failure;

use super::super::datagrams::{ACKNOWLEDGEMENT, MTU, REQUEST, Ring, Sockets, packets_of};
use super::super::plain::{Exchange, ping_pong, repeat};
use super::super::shared_area::Command;
use super::super::worker_spec::{Task, broken};
use super::Kind;

/// Number of the step that carries a payload, in either direction.
const PAYLOAD: usize = 0;
/// Number of the step that requests a payload.
const ASK: usize = 1;
/// Number of the step that acknowledges a payload.
const GOT: usize = 2;
const STEPS: usize = 3;

/// Opens the sockets of process `me`, 0 or 1. Both processes spin while they wait.
pub(super) fn open(network: u8, me: usize) -> Result<Sockets, Failure> {
    Sockets::open(Ring::loopback(network, 2, STEPS, WaitMode::POLL), me)
}

/// Runs this process's part of a phase of one of the bounds.
pub(super) fn perform(kind: Kind, task: &Task<'_>, sockets: &mut Sockets) -> Result<(), Failure> {
    let (me, mut tag) = (task.me, task.base());
    let mut pings = Pings { sockets, peer: 1 - me, bytes: task.command.bytes as usize };
    match kind {
        Kind::DatagramAsk if me == 1 => pings.answer(task, ASK, |pings, tag| pings.payload(tag)),
        Kind::DatagramGot if me == 1 => {
            pings.answer(task, PAYLOAD, |pings, tag| pings.short(GOT, tag, ACKNOWLEDGEMENT))
        }
        Kind::DatagramAsk => repeat(task, |_| {
            tag += 1;
            pings.short(ASK, tag, REQUEST);
            pings.await_step(PAYLOAD, tag)
        }),
        Kind::DatagramGot => repeat(task, |_| {
            tag += 1;
            pings.payload(tag);
            pings.await_step(GOT, tag)
        }),
        Kind::DatagramStream => {
            let packets = packets_of(pings.bytes);
            stream(task, pings.sockets, pings.bytes / packets, |count| count * packets as u64)
        }
        Kind::DatagramStreamJoined => {
            let payloads = (MTU / pings.bytes) as u64;
            stream(task, pings.sockets, MTU, |count| count.div_ceil(payloads))
        }
        _ => ping_pong(task, &mut pings),
    }
}

/// Streams datagrams with `bytes` bytes of payload. `packets` returns the number of datagrams for a number of payloads.
/// The receiver measures.
fn stream(task: &Task<'_>, sockets: &mut Sockets, bytes: usize, packets: impl Fn(u64) -> u64) -> Result<(), Failure> {
    let command = task.command;
    let [warmup, iterations] = [command.warmup, command.iterations].map(packets);
    let task = Task { command: Command { warmup, iterations, ..command }, ..*task };
    let ns = sockets.stream(&task, REQUEST + bytes).map_err(broken("use sockets"))?;
    if task.me == 1 {
        task.area.results(0)[0].store(ns, Ordering::Relaxed);
    }
    Ok(())
}

/// Datagrams with a payload, to the other process.
struct Pings<'a> {
    sockets: &'a mut Sockets,
    peer: usize,
    bytes: usize,
}

impl Pings<'_> {
    fn payload(&mut self, tag: u64) {
        self.sockets.push_all(self.peer, PAYLOAD, tag, self.bytes);
        self.sockets.send();
    }

    fn short(&mut self, step: usize, tag: u64, length: usize) {
        self.sockets.push(self.peer, step, tag, length);
        self.sockets.send();
    }

    fn look(&mut self) -> Result<(), Failure> {
        self.sockets.receive().map(drop).map_err(broken("use sockets"))
    }

    fn await_step(&mut self, step: usize, tag: u64) -> Result<(), Failure> {
        while self.sockets.newest(self.peer, step) != tag {
            self.look()?;
        }
        Ok(())
    }

    /// Answers each new number of a step until the phase ends.
    fn answer(&mut self, task: &Task<'_>, step: usize, answer: impl Fn(&mut Self, u64)) -> Result<(), Failure> {
        let mut last = self.sockets.newest(self.peer, step);
        while !task.area.is_over(task.phase) {
            self.look()?;
            let newest = self.sockets.newest(self.peer, step);
            if newest != last {
                answer(self, newest);
                last = newest;
            }
        }
        Ok(())
    }
}

impl Exchange for Pings<'_> {
    #[inline]
    fn send(&mut self, tag: u64) -> Result<(), Failure> {
        self.payload(tag);
        Ok(())
    }

    #[inline]
    fn receive(&mut self, tag: u64) -> Result<(), Failure> {
        self.await_step(PAYLOAD, tag)
    }
}
