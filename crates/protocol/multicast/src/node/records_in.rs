//! Records of the caller that peers write to this node, with one ring per peer: members' replies, clients' queries.
//!
//! # States of a ring
//! *quiet* → *due* (the ring seems to contain a next record) → *quiet* again, when it contains none. Due rings take
//! turns, with one record each.
//!
//! # Invariants
//! - Nothing is read on a connection before the peer's hello named the start of the ring there.
//! - An uncredited quarter of a ring never blocks the writer (`inbound.rs`), so smaller credits are not sent. If a
//!   credit is due and cannot be sent yet, `owed` is set, and no round is skipped until it is sent.

use std::collections::VecDeque;

use stentor_fabric::Fabric;
use stentor_fabric::seal::{HEADER_WORDS, Seal};
use zerocopy::IntoBytes;

use super::hello::Start;
use super::inbound::Inbound;
use super::outbound::scratch;
use super::peer_link::PeerLink;
use super::poll_gate::PollGate;

/// A record that was read from a ring. [`RecordsIn::bytes`] returns its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// Index of the ring through which the record arrived.
    pub(super) ring: usize,
    bytes: usize,
    /// Number of writes that were posted to send a credit to the record's sender.
    pub(super) credits: u64,
}

/// The rings of records from all peers that send any.
#[derive(Debug)]
pub(super) struct RecordsIn {
    /// The ring of each peer that sends records; empty if the cluster has no replies.
    rings: Vec<Inbound>,
    /// Rings that seem to have a record, in the order in which they are read.
    due: VecDeque<usize>,
    /// Indexed by ring: `true` if the ring is in `due`.
    is_due: Vec<bool>,
    /// `true` if a credit is due that could not be sent.
    owed: bool,
    /// The last record that was read.
    record: Vec<u64>,
}

impl RecordsIn {
    pub(super) fn new(rings: Vec<Inbound>) -> Self {
        RecordsIn {
            due: VecDeque::with_capacity(rings.len()),
            is_due: vec![false; rings.len()],
            owed: false,
            record: rings.first().map(|ring| scratch(ring.reader.geometry())).unwrap_or_default(),
            rings,
        }
    }

    /// Restarts a ring at the position that the peer's hello names.
    pub(super) fn restart(&mut self, at: usize, life: u64, start: Start, seal: Seal) {
        let Some(ring) = self.rings.get_mut(at) else { return };
        ring.restart(life, start, seal);
        // Records may have arrived before the hello, and no later poll hint announces them.
        self.put_due(at);
    }

    fn put_due(&mut self, at: usize) {
        if !std::mem::replace(&mut self.is_due[at], true) {
            self.due.push_back(at);
        }
    }

    /// Finds the rings that seem to have a record now, and sends credits that could not be sent before. Returns whether
    /// it found a ring that was not due before, and the number of writes.
    #[inline]
    pub(super) fn look<F: Fabric>(&mut self, fabric: &mut F, links: &mut [PeerLink], gate: &PollGate) -> (bool, u64) {
        let writes = if self.owed { self.send_owed(fabric, links) } else { 0 };
        let RecordsIn { rings, due, is_due, .. } = self;
        let before = due.len();
        for (at, ring) in rings.iter().enumerate() {
            let link = &links[ring.credit.link];
            if !is_due[at]
                && gate.looks_at(link.peer())
                && ring.reader.looks_ready(fabric.memory(ring.region))
                && link.is_met()
            {
                is_due[at] = true;
                due.push_back(at);
            }
        }
        (due.len() > before, writes)
    }

    /// Reads the next record, from the ring whose turn it is. The record's [bytes](RecordsIn::bytes) are valid until
    /// the next record is read.
    pub(super) fn take<F: Fabric>(&mut self, fabric: &mut F, links: &mut [PeerLink]) -> Option<Taken> {
        for _ in 0..self.due.len() {
            let at = self.due.pop_front()?;
            self.is_due[at] = false;
            let ring = &mut self.rings[at];
            if !links[ring.credit.link].is_met() {
                continue;
            }
            let memory = fabric.memory(ring.region);
            let record = ring.reader.peek(memory, &mut self.record);
            if let Some(record) = &record {
                ring.reader.advance(record);
            }
            // A record that has not arrived completely makes the ring due again, too.
            let more = ring.reader.looks_ready(memory);
            let credits = ring.send_credit(fabric, links);
            self.owed |= ring.owes_credit();
            if more {
                self.put_due(at);
            }
            if let Some(record) = record {
                return Some(Taken { ring: at, bytes: record.bytes, credits });
            }
        }
        None
    }

    /// Returns the payload of the record that was read last.
    pub(super) fn bytes(&self, taken: Taken) -> &[u8] {
        &self.record[HEADER_WORDS..].as_bytes()[..taken.bytes]
    }

    /// Sends credits that could not be sent before. Returns the number of writes.
    #[cold]
    fn send_owed<F: Fabric>(&mut self, fabric: &mut F, links: &mut [PeerLink]) -> u64 {
        let mut writes = 0;
        self.owed = false;
        for ring in &mut self.rings {
            writes += ring.send_credit(fabric, links);
            // A credit lost with its connection is not owed on the next one.
            self.owed |= ring.owes_credit() && links[ring.credit.link].is_met();
        }
        writes
    }

    /// Returns whether a due credit could not be sent yet.
    #[inline]
    pub(super) fn owes(&self) -> bool {
        self.owed
    }
}
