//! The floor of one broadcast's latency: the same chain of stores and loads without the broadcast.
//!
//! The same processes, the same way to wait and wake; each step is a store of the broadcast's number to a line of its own.
//! What is measured ends when the last receiver has delivered; then it tells the sender, which is not in the figure.

use std::io;

use stentor_fabric::memory::{LINE_WORDS, Ordering, WORD, fence};

use super::super::clock::now;
use super::super::errand::Neb;
use super::super::pause::{Pause, mode};
use super::super::stage::{Command, Stage};
use crate::args::NebMode;

/// The sender's value to a receiver.
const VALUE: usize = 0;
/// What a receiver publishes: at a host, or (mode `all`) for everybody to read.
const REPLAY: usize = 1;
/// Delivered: to the sender.
const DONE: usize = 2;
const STEPS: usize = 3;

/// Lines that a chain takes.
pub(super) fn lines(neb: &Neb) -> usize {
    neb.processes() * neb.processes() * STEPS
}

/// One process of the chain; process 0 sends.
pub(super) struct Chain<'a> {
    pub(super) stage: &'a Stage,
    pub(super) neb: &'a Neb,
    pub(super) me: usize,
    pub(super) phase: u64,
}

impl Chain<'_> {
    fn line(&self, writer: usize, reader: usize, step: usize) -> usize {
        (writer * self.neb.processes() + reader) * STEPS + step
    }

    fn store(&self, reader: usize, step: usize, number: u64, words: usize) {
        let line = self.stage.line(self.line(self.me, reader, step));
        line.iter().take(words).skip(1).for_each(|word| word.store(number, Ordering::Relaxed));
        line[0].store(number, Ordering::Release);
    }

    fn load(&self, writer: usize, at: usize, step: usize) -> u64 {
        self.stage.line(self.line(writer, at, step))[0].load(Ordering::Acquire)
    }

    fn ring(&self, reader: usize) {
        self.stage.memory().ring(self.stage.bell(reader));
    }

    /// One broadcast after the other, each when the last one was delivered everywhere.
    pub(super) fn send(&self, command: &Command) -> io::Result<()> {
        let samples = self.stage.samples(self.me);
        let mut pause = Pause::new(self.stage, self.me, mode(self.neb.wait));
        let words = (command.bytes as usize / WORD + 1).min(LINE_WORDS);
        let receivers = 1..self.neb.processes();
        for n in 0..command.warmup + command.iterations {
            let number = (self.phase << 32) + n + 1;
            samples[n as usize].store(now(), Ordering::Relaxed);
            receivers.clone().for_each(|receiver| self.store(receiver, VALUE, number, words));
            fence(Ordering::SeqCst);
            receivers.clone().for_each(|receiver| self.ring(receiver));
            while !receivers.clone().all(|receiver| self.load(receiver, 0, DONE) == number) {
                pause.after(false)?;
            }
            pause.after(true)?;
        }
        self.stage.end(self.phase);
        Ok(())
    }

    /// A receiver, until the sender ends the phase.
    pub(super) fn receive(&self, command: &Command) -> io::Result<()> {
        let samples = self.stage.samples(self.me);
        let mut pause = Pause::new(self.stage, self.me, mode(self.neb.wait));
        let words = (command.bytes as usize / WORD + 1).min(LINE_WORDS);
        let (mut n, mut published) = (0, false);
        while !self.stage.is_over(self.phase) {
            let number = (self.phase << 32) + n + 1;
            let mut worked = false;
            if !published && self.load(0, self.me, VALUE) == number {
                self.publish(number, words);
                (published, worked) = (true, true);
            }
            if published && self.is_due(number) {
                samples[n as usize].store(now(), Ordering::Relaxed);
                self.store(0, DONE, number, 1);
                fence(Ordering::SeqCst);
                self.ring(0);
                (n, published, worked) = (n + 1, false, true);
            }
            pause.after(worked)?;
        }
        Ok(())
    }

    /// Mode `all`: one store that everybody reads. Mode `quorum`: a store at each host.
    fn publish(&self, number: u64, words: usize) {
        if self.neb.mode == NebMode::All {
            self.store(self.me, REPLAY, number, words);
            fence(Ordering::SeqCst);
            return;
        }
        let hosts = 1..self.neb.processes();
        hosts.clone().for_each(|host| self.store(host, REPLAY, number, words));
        fence(Ordering::SeqCst);
        hosts.filter(|host| *host != self.me).for_each(|host| self.ring(host));
    }

    /// Mode `all`, and `quorum` without its fast path: what the others show is read once and is no conflict, whether it is
    /// there or not. With the fast path everybody's must be there.
    fn is_due(&self, number: u64) -> bool {
        let mut others = (1..self.neb.processes()).filter(|other| *other != self.me);
        match (self.neb.mode, self.neb.fast) {
            (NebMode::All, _) => others.all(|other| self.load(other, other, REPLAY) <= number),
            (_, true) => others.all(|other| self.load(other, self.me, REPLAY) == number),
            (_, false) => {
                others.all(|other| (1..self.neb.processes()).all(|host| self.load(other, host, REPLAY) <= number))
            }
        }
    }
}
