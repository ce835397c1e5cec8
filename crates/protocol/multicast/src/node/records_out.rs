//! Records of the caller's that this node writes to peers, each peer in a ring of its own: a member's replies, a client's queries.
//!
//! # Invariants
//! - A ring starts anew with each connection: the greeting of that connection says where. A process that takes a peer's
//!   place therefore reads nothing that was written for an earlier one, and nothing is read twice.
//! - Nothing is written before the peer has greeted on the present connection.
//! - What was under way when a connection ended is lost. The caller sends it again, if it matters.

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

/// What became of a record: a reply, or a query.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "only a record that was sent is on its way"]
pub enum RecordSent {
    /// It is written, and arrives unless the connection ends before that.
    Sent,
    /// There is no room now: the receiver has not read what was sent before.
    Full,
    /// The receiver is not connected, or the cluster has no replies.
    Away,
    /// It is longer than the limit: [`reply_bytes`](crate::Limits::reply_bytes), of a query
    /// [`message_bytes`](crate::Limits::message_bytes).
    TooLong,
}

/// The ring of records to one peer.
#[derive(Debug)]
struct RecordRing {
    outbound: Outbound,
    /// Where the ring began on the present connection.
    start: Start,
    /// A record found no room since credits came last.
    waits: bool,
}

/// The rings of records to all peers that get any.
#[derive(Debug)]
pub(super) struct RecordsOut {
    rings: Vec<RecordRing>,
    /// The record in work.
    record: Vec<u64>,
    longest: usize,
    /// Something was written since the last flush.
    unflushed: bool,
    /// Whether a ring may wait for room: if not, a step looks at none of them.
    any_waits: bool,
    mutant: Mutant,
}

impl RecordsOut {
    /// Of rings of this geometry; of none, if there are no replies.
    pub(super) fn new(rings: Vec<Outbound>, geometry: &Geometry, longest: usize, mutant: Mutant) -> Self {
        let record = if rings.is_empty() { Vec::new() } else { scratch(geometry) };
        let ring = |outbound| RecordRing { outbound, start: Start::NONE, waits: false };
        let rings = rings.into_iter().map(ring).collect();
        RecordsOut { rings, record, longest, unflushed: false, any_waits: false, mutant }
    }

    /// The peer is greeted: once for a connection, or several times. Returns where its ring goes on, which a connection changes once.
    pub(super) fn greet(&mut self, at: usize, links: &[PeerLink]) -> Start {
        match self.rings.get(at) {
            Some(ring) if ring.outbound.targets[0].is_started() => ring.start,
            _ => self.start(at, links),
        }
    }

    /// A connection with a peer began. Returns where its ring goes on.
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

    /// Returns where the ring of the present connection with a peer began.
    pub(super) fn started(&self, at: usize) -> Start {
        self.rings.get(at).map_or(Start::NONE, |ring| ring.start)
    }

    /// A connection with a peer ended.
    pub(super) fn stop(&mut self, at: usize) {
        if let Some(ring) = self.rings.get_mut(at) {
            ring.outbound.stop(0);
        }
    }

    /// A process greeted in a peer's place, whose writes have this seal.
    pub(super) fn hear_credits(&mut self, at: usize, seal: Seal) {
        if let Some(ring) = self.rings.get_mut(at) {
            ring.outbound.hear_credits(0, seal);
        }
    }

    /// Whether something was written since the last flush.
    #[inline]
    pub(super) fn is_unflushed(&self) -> bool {
        self.unflushed
    }

    /// All that was written goes out now.
    #[inline]
    pub(super) fn flushed(&mut self) {
        self.unflushed = false;
    }

    /// Looks whether peers for which a record waits have made room. Returns whether any has.
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

    /// Writes a record. Returns what became of it, and the number of writes.
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
            // What is behind the last byte is sealed, too.
            *last = 0;
        }
        copy_parts(parts, payload.as_mut_bytes());
        self.unflushed = true;
        (RecordSent::Sent, ring.outbound.send(fabric, links, bytes, &mut self.record, Way::default()))
    }
}
