//! Records of the caller that this node writes to peers, with one ring per peer: a member's replies, a client's
//! queries.
//!
//! # Invariants
//! - A ring restarts with each connection, and the hello of that connection names its start. So a process that takes
//!   over a peer's id reads nothing that was written for an earlier process, and nothing is read twice.
//! - Nothing is written before the peer's hello arrived on the present connection.
//! - Records in flight when a connection ends are lost. The caller must send them again if they matter.

use stentor_fabric::Fabric;
use stentor_fabric::memory::WORD;
use stentor_fabric::ring::Geometry;
use stentor_fabric::seal::{HEADER_WORDS, Seal};
use zerocopy::IntoBytes;

use super::hello::Start;
use super::outbound::{Outbound, Way, copy_parts, scratch};
use super::peer_link::PeerLink;
use super::poll_gate::PollGate;
use super::target::PeerProgress;
use crate::Mutant;
use crate::mutant::mutant;

/// The outcome of sending a record, which is a reply or a query.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "only a record that was sent is on its way"]
pub enum RecordSent {
    /// The record is written. It arrives unless the connection ends first.
    Sent,
    /// There is no room now in the ring or in the send queue, because earlier records are not read or not sent yet.
    Full,
    /// The receiver is not connected, or the cluster has no replies.
    Away,
    /// The record is longer than the limit: [`reply_bytes`](crate::Limits::reply_bytes) for a reply,
    /// [`message_bytes`](crate::Limits::message_bytes) for a query.
    TooLong,
}

/// The ring of records to one peer.
#[derive(Debug)]
struct RecordRing {
    outbound: Outbound,
    /// The start of the ring on the present connection.
    start: Start,
    /// `true` if a record found no room since the last credit.
    waits: bool,
}

/// The rings of records to all peers that receive any.
#[derive(Debug)]
pub(super) struct RecordsOut {
    rings: Vec<RecordRing>,
    /// The record that is being written.
    record: Vec<u64>,
    longest: usize,
    /// `true` if any record was written since the last flush.
    unflushed: bool,
    /// `true` if any ring may wait for room. Otherwise a step checks none of them.
    any_waits: bool,
    mutant: Mutant,
}

impl RecordsOut {
    /// Creates the senders for these rings, which all have this geometry. `rings` is empty if there are no replies.
    pub(super) fn new(rings: Vec<Outbound>, geometry: &Geometry, longest: usize, mutant: Mutant) -> Self {
        let record = if rings.is_empty() { Vec::new() } else { scratch(geometry) };
        let ring = |outbound| RecordRing { outbound, start: Start::NONE, waits: false };
        let rings = rings.into_iter().map(ring).collect();
        RecordsOut { rings, record, longest, unflushed: false, any_waits: false, mutant }
    }

    /// Returns where the peer's ring starts, for a hello to it. A connection starts the ring once, even if several
    /// hellos are sent on it.
    pub(super) fn greet(&mut self, at: usize, links: &[PeerLink]) -> Start {
        match self.rings.get(at) {
            Some(ring) if ring.outbound.targets[0].is_started() => ring.start,
            _ => self.start(at, links),
        }
    }

    /// Starts the ring on a new connection with a peer. Returns where it starts.
    pub(super) fn start(&mut self, at: usize, links: &[PeerLink]) -> Start {
        let Some(ring) = self.rings.get_mut(at) else { return Start::NONE };
        if mutant!(self.mutant, ReplyRingKept) && ring.start.generation > 0 {
            ring.outbound.targets[0].progress = PeerProgress::Started;
            return ring.start;
        }
        ring.start = ring.outbound.start(0, links);
        ring.waits = false;
        ring.start
    }

    /// Returns where the peer's ring started on the present connection.
    pub(super) fn started(&self, at: usize) -> Start {
        self.rings.get(at).map_or(Start::NONE, |ring| ring.start)
    }

    /// Stops the ring of a peer whose connection ended.
    pub(super) fn stop(&mut self, at: usize) {
        if let Some(ring) = self.rings.get_mut(at) {
            ring.outbound.stop(0);
        }
    }

    /// Sets the seal that a peer's credits carry, after a hello of a new process.
    pub(super) fn hear_credits(&mut self, at: usize, seal: Seal) {
        if let Some(ring) = self.rings.get_mut(at) {
            ring.outbound.hear_credits(0, seal);
        }
    }

    /// Returns whether any record was written since the last flush.
    #[inline]
    pub(super) fn is_unflushed(&self) -> bool {
        self.unflushed
    }

    /// Notes that all records written so far were flushed.
    #[inline]
    pub(super) fn flushed(&mut self) {
        self.unflushed = false;
    }

    /// Checks whether peers with a postponed record have made room. Returns whether any has.
    #[inline]
    pub(super) fn hear_room<F: Fabric>(&mut self, fabric: &F, gate: &PollGate) -> bool {
        self.any_waits && self.look_for_room(fabric, gate)
    }

    #[cold]
    fn look_for_room<F: Fabric>(&mut self, fabric: &F, gate: &PollGate) -> bool {
        let mut any = false;
        self.any_waits = false;
        for ring in self.rings.iter_mut().filter(|ring| ring.waits) {
            ring.waits = !(gate.looks_at(ring.outbound.targets[0].peer) && ring.outbound.take_news(fabric));
            any |= !ring.waits;
            self.any_waits |= ring.waits;
        }
        any
    }

    /// Writes a record. Returns the outcome, and the number of writes.
    pub(super) fn send<F: Fabric>(
        &mut self,
        fabric: &mut F,
        links: &mut [PeerLink],
        at: usize,
        parts: &[&[u8]],
    ) -> (RecordSent, u64) {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let Some(ring) = self.rings.get_mut(at) else { return (RecordSent::Away, 0) };
        if bytes > self.longest {
            return (RecordSent::TooLong, 0);
        }
        let target = &ring.outbound.targets[0];
        if !(target.is_started() && links[target.link].is_met()) {
            return (RecordSent::Away, 0);
        }
        if !ring.outbound.ready(fabric, links, bytes) {
            (ring.waits, self.any_waits) = (true, true);
            return (RecordSent::Full, 0);
        }
        let words = bytes.div_ceil(WORD);
        let payload = &mut self.record[HEADER_WORDS..HEADER_WORDS + words];
        if let Some(last) = payload.last_mut() {
            // The record's last word is written as a whole, and its unused bytes may be left from another peer's
            // record.
            *last = 0;
        }
        copy_parts(parts, payload.as_mut_bytes());
        self.unflushed = true;
        (RecordSent::Sent, ring.outbound.send(fabric, links, bytes, &mut self.record, Way::default()))
    }
}
