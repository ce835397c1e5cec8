//! The bound of the broadcast's rate: the same slots between the same processes, with as many broadcasts outstanding,
//! without the broadcast.
//!
//! Each slot that a broadcast writes or reads is a record of the same length, with a checksum computed at both ends,
//! and records that are ready at the same time leave together. Processes are not suspected, and values are not
//! compared.

use std::io;

use stentor_fabric::memory::Ordering;
use stentor_fabric::seal::HEADER_BYTES;

use super::super::clock::now;
use super::super::lane::Lane;
use super::super::rings::RingSpec;
use super::super::worker_spec::{Neb, Task};
use super::config::config;
use crate::args::NebMode;

/// Step: the sender's value to a receiver.
const VALUE: usize = 0;
/// Step: the report of a delivery to the sender.
const DONE: usize = 1;
/// First step of a receiver's published values, one step for each host.
const REPLAY: usize = 2;
/// Payload of the record that frees slots, in bytes.
const DONE_BYTES: usize = 8;

/// Returns the number of steps that one process can take towards another.
pub(super) fn steps(neb: &Neb) -> usize {
    REPLAY + neb.processes()
}

/// Returns the payload of a record that is as long as a slot, in bytes.
fn slot_bytes(neb: &Neb) -> usize {
    config(neb).slot_bytes() as usize - HEADER_BYTES
}

/// Returns the hosts where a receiver publishes its value, each with the processes that read the value there. In mode
/// `all` the receiver publishes the value in its own memory, and the other receivers read it. In mode `quorum` the
/// receiver writes the value to each host. With the fast path, only the host reads it there. Without the fast path, the
/// other receivers do.
fn published(neb: &Neb, receiver: usize) -> Vec<(usize, Vec<usize>)> {
    let others: Vec<_> = (1..neb.processes()).filter(|other| *other != receiver).collect();
    let hosts = match neb.mode {
        NebMode::All => return vec![(receiver, others)],
        NebMode::LyingSender => 1,
        NebMode::LyingHosts => 0,
    };
    let hosts = (hosts..neb.processes()).filter(|host| *host != receiver);
    let readers = |host| if neb.fast { vec![host] } else { others.clone() };
    hosts.map(|host| (host, readers(host))).collect()
}

/// Returns the rings that the steps need. Most of them need no count of consumed records: the sender sends a value only
/// after all receivers have delivered the value one window before it, and have thus read everything that belongs to it.
pub(super) fn rings(neb: &Neb) -> Vec<RingSpec> {
    let (slots, bytes) = (neb.setting.window.max(1) as usize, slot_bytes(neb));
    let ring = |writer, readers, step, bytes| RingSpec { writer, readers, step, bytes, slots, counted: false };
    let mut rings = Vec::new();
    for receiver in 1..neb.processes() {
        rings.push(ring(0, vec![receiver], VALUE, bytes));
        rings.push(ring(receiver, vec![0], DONE, DONE_BYTES));
        for (host, readers) in published(neb, receiver).into_iter().filter(|(_, readers)| !readers.is_empty()) {
            // The sender does not wait for the values that it reads, so this ring counts them.
            let counted = readers.contains(&0);
            rings.push(RingSpec { counted, ..ring(receiver, readers, REPLAY + host, bytes) });
        }
    }
    rings
}

/// One process of the stream; process 0 sends.
pub(super) struct Stream<'a, L: Lane> {
    pub(super) task: Task<'a>,
    pub(super) neb: &'a Neb,
    pub(super) lane: L,
}

impl<L: Lane> Stream<'_, L> {
    /// Runs this process's part.
    pub(super) fn run(self) -> io::Result<()> {
        if self.task.me == 0 { self.send() } else { self.receive() }
    }

    /// Runs the sender, which keeps the window full.
    fn send(mut self) -> io::Result<()> {
        let Task { area, me, command, phase } = self.task;
        let (total, samples, bytes) = (self.task.total(), area.samples(me), slot_bytes(self.neb));
        let (mut sent, mut done) = (0, 0);
        while done < total {
            let (first, at) = (sent, now());
            while sent < total && sent - done < command.window {
                samples[sent as usize].store(at, Ordering::Relaxed);
                sent += 1;
                (1..self.neb.processes()).try_for_each(|receiver| self.lane.put(receiver, VALUE, 0, sent, bytes))?;
            }
            self.lane.flush();
            let worked = self.lane.look()? | (sent > first);
            let receivers = 1..self.neb.processes();
            done = receivers.map(|receiver| self.lane.newest(receiver, DONE, 0)).min().unwrap_or(sent);
            self.lane.pause(worked)?;
        }
        area.end(phase);
        Ok(())
    }

    /// Runs a receiver until the sender ends the phase.
    fn receive(mut self) -> io::Result<()> {
        let Task { area, me, phase, .. } = self.task;
        let (samples, bytes) = (area.samples(me), slot_bytes(self.neb));
        let places = published(self.neb, me);
        let quarter = (u64::from(self.neb.setting.window) / 4).max(1);
        // Values that this process reads: the process that publishes each, and the step.
        let looked: Vec<_> = (1..self.neb.processes())
            .filter(|other| *other != me)
            .flat_map(|other| published(self.neb, other).into_iter().map(move |place| (other, place)))
            .filter(|(_, (_, readers))| readers.contains(&me))
            .map(|(other, (host, _))| (other, REPLAY + host))
            .collect();
        let (mut shown, mut delivered, mut told) = (0, 0, 0);
        while !area.is_over(phase) {
            let mut worked = self.lane.look()?;
            let values = self.lane.newest(0, VALUE, 0);
            for n in shown + 1..=values {
                for (host, readers) in &places {
                    self.lane.put_for(readers, REPLAY + host, 0, n, bytes)?;
                }
            }
            shown = values;
            let due = looked.iter().map(|(other, step)| self.lane.newest(*other, *step, 0)).min().unwrap_or(shown);
            let due = due.min(shown);
            if due > delivered {
                let at = now();
                samples[delivered as usize..due as usize].iter().for_each(|sample| sample.store(at, Ordering::Relaxed));
                delivered = due;
                worked = true;
            }
            // Deliveries are reported when there is nothing else to do, or before the sender has to wait.
            if delivered > told && (!worked || delivered - told >= quarter) {
                self.lane.put(0, DONE, 0, delivered, DONE_BYTES)?;
                (told, worked) = (delivered, true);
            }
            self.lane.flush();
            self.lane.pause(worked)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::worker_spec::Setting;
    use super::*;
    use crate::args::{Pinning, Waiting};

    fn neb(mode: NebMode, fast: bool) -> Neb {
        let setting = Setting { window: 4, bytes: 64, wait: Waiting::Poll, pin: Pinning::None, network: None };
        Neb { processes: 4, mode, fast, signed: false, setting }
    }

    #[test]
    fn slots_go_where_the_broadcast_has_them() {
        // Each of the three receivers has two others.
        assert_eq!(published(&neb(NebMode::All, true), 2), [(2, vec![1, 3])]);
        assert_eq!(published(&neb(NebMode::LyingSender, true), 2), [(1, vec![1]), (3, vec![3])]);
        assert_eq!(published(&neb(NebMode::LyingHosts, true), 2), [(0, vec![0]), (1, vec![1]), (3, vec![3])]);
        assert_eq!(published(&neb(NebMode::LyingSender, false), 2), [(1, vec![1, 3]), (3, vec![1, 3])]);
        assert_eq!(rings(&neb(NebMode::LyingSender, true)).len(), 3 * (1 + 1 + 2));
    }
}
