//! The bound on the latency of one broadcast: the same chain of steps, without the broadcast.
//!
//! The processes and the ways to wait and to wake are those of the broadcast. Each step consists only of the
//! broadcast's number, sent by a [`Way`], and of a payload where the broadcast transfers its value. The measurement
//! ends when the last receiver has delivered. The receiver then reports to the sender, which the figure does not
//! include.

use std::io;

use stentor_fabric::memory::{Ordering, WORD};

use super::super::clock::now;
use super::super::datagrams::{ACKNOWLEDGEMENT, Datagrams, REQUEST};

use super::super::way::{Lines, Way};
use super::super::worker_spec::{Neb, Task};
use crate::args::NebMode;

/// Step: the sender's value to a receiver.
const VALUE: usize = 0;
/// Step: a receiver's published value, at a host or, in mode `all`, for every process to read.
const REPLAY: usize = 1;
/// Step: the report of a delivery to the sender.
const DONE: usize = 2;
/// First step of reads on a network. There is one step for each process to request what that process published. The
/// steps of the answers follow.
const ASK: usize = 3;

/// Returns the number of steps that one process can take towards another.
pub(super) fn steps(neb: &Neb) -> usize {
    ASK + 2 * neb.processes()
}

/// Returns the number of lines that a chain needs.
pub(super) fn lines(neb: &Neb) -> usize {
    neb.processes() * neb.processes() * steps(neb)
}

/// A way that can also read values at other hosts.
pub(super) trait Reads: Way {
    /// Begins to read what `other` published at `host` up to broadcast `number`.
    fn ask(&mut self, other: usize, host: usize, number: u64);

    /// Returns whether that read is complete.
    fn is_read(&self, other: usize, host: usize, number: u64) -> bool;

    /// Answers reads at this process. `answered` has the newest number that was answered, by asking process and by the
    /// process that published the value.
    fn answer(&mut self, answered: &mut [u64], bytes: usize) -> bool;
}

impl Reads for Lines<'_> {
    #[inline]
    fn ask(&mut self, _: usize, _: usize, _: u64) {}

    #[inline]
    fn is_read(&self, other: usize, host: usize, number: u64) -> bool {
        self.load(other, host, REPLAY) <= number
    }

    #[inline]
    fn answer(&mut self, _: &mut [u64], _: usize) -> bool {
        false
    }
}

impl Reads for Datagrams<'_> {
    fn ask(&mut self, other: usize, host: usize, number: u64) {
        self.sockets.push(host, ASK + 2 * other, number, REQUEST);
    }

    fn is_read(&self, other: usize, host: usize, number: u64) -> bool {
        self.sockets.newest(host, ASK + 2 * other + 1) == number
    }

    fn answer(&mut self, answered: &mut [u64], bytes: usize) -> bool {
        let processes = self.sockets.processes();
        let mut worked = false;
        for (n, last) in answered.iter_mut().enumerate() {
            let (asker, other) = (n / processes, n % processes);
            let newest = self.sockets.newest(asker, ASK + 2 * other);
            if newest != *last {
                *last = newest;
                self.sockets.push(asker, ASK + 2 * other + 1, newest, ACKNOWLEDGEMENT + bytes);
                worked = true;
            }
        }
        worked
    }
}

/// One process of the chain; process 0 sends.
pub(super) struct Chain<'a, W: Reads> {
    pub(super) task: Task<'a>,
    pub(super) neb: &'a Neb,
    pub(super) way: W,
}

impl<W: Reads> Chain<'_, W> {
    /// Runs this process's part.
    pub(super) fn run(self) -> io::Result<()> {
        if self.task.me == 0 { self.send() } else { self.receive() }
    }

    /// Sends one broadcast after the other, each when the previous one was delivered everywhere.
    fn send(mut self) -> io::Result<()> {
        let Task { area, me, command, phase } = self.task;
        let samples = area.samples(me);
        let bytes = command.bytes as usize + WORD;
        let receivers = 1..self.neb.processes();
        for n in 0..self.task.total() {
            let number = self.task.base() + n + 1;
            samples[n as usize].store(now(), Ordering::Relaxed);
            for receiver in receivers.clone() {
                self.way.body(receiver, VALUE, bytes, number);
            }
            self.way.flush();
            while !receivers.clone().all(|receiver| self.way.sees(receiver, DONE, number)) {
                self.way.pause(false)?;
                self.way.look()?;
            }
            self.way.pause(true)?;
        }
        area.end(phase);
        Ok(())
    }

    /// Runs a receiver until the sender ends the phase.
    fn receive(mut self) -> io::Result<()> {
        let Task { area, me, command, phase } = self.task;
        let samples = area.samples(me);
        let bytes = command.bytes as usize + WORD;
        let mut answered = vec![0; self.neb.processes() * self.neb.processes()];
        let (mut n, mut published) = (0, false);
        while !area.is_over(phase) {
            self.way.look()?;
            let number = self.task.base() + n + 1;
            let mut worked = self.way.answer(&mut answered, bytes);
            if !published && self.way.sees(0, VALUE, number) {
                self.publish(number, bytes);
                (published, worked) = (true, true);
            }
            if published && self.is_due(number) {
                samples[n as usize].store(now(), Ordering::Relaxed);
                self.way.tell(0, DONE, number);
                (n, published, worked) = (n + 1, false, true);
            }
            self.way.flush();
            self.way.pause(worked)?;
        }
        Ok(())
    }

    /// Publishes a value, and then requests the values that this process must read. Mode `all` publishes by one store
    /// that every process reads, mode `quorum` by a store at each host.
    fn publish(&mut self, number: u64, bytes: usize) {
        if self.neb.mode == NebMode::All {
            self.way.body(self.task.me, REPLAY, bytes, number);
        } else {
            (1..self.neb.processes()).for_each(|host| self.way.body(host, REPLAY, bytes, number));
        }
        self.way.flush();
        for (other, host) in self.reads() {
            self.way.ask(other, host, number);
        }
    }

    /// Returns the reads at other hosts: for each, the process that published the value, and the host. Mode `all` reads
    /// the value of every process. Mode `quorum` without its fast path reads the value of every process at every host.
    /// Local values need no read.
    fn reads(&self) -> impl Iterator<Item = (usize, usize)> + use<W> {
        let (processes, me, mode, fast) = (self.neb.processes(), self.task.me, self.neb.mode, self.neb.fast);
        let others = (1..processes).filter(move |other| *other != me);
        others.flat_map(move |other| {
            let hosts = match (mode, fast) {
                (NebMode::All, _) => other..other + 1,
                (_, true) => 0..0,
                (_, false) => 1..processes,
            };
            hosts.filter(move |host| *host != me).map(move |host| (other, host))
        })
    }

    /// Returns whether the broadcast can be delivered. Without the fast path, the values of the other processes must
    /// have been read once, whether they were published or not. With the fast path, all of them must have been
    /// published.
    fn is_due(&self, number: u64) -> bool {
        if self.neb.mode != NebMode::All && self.neb.fast {
            let mut others = (1..self.neb.processes()).filter(|other| *other != self.task.me);
            return others.all(|other| self.way.sees(other, REPLAY, number));
        }
        self.reads().all(|(other, host)| self.way.is_read(other, host, number))
    }
}
