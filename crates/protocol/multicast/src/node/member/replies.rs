//! Records that a member sends to clients: the transport of replies.
//!
//! # Invariants
//! - A ring starts anew with each connection: the greeting of that connection says where. A process that takes a client's
//!   place therefore reads nothing that was written for an earlier one, and nothing is read twice.
//! - Nothing is written before the client has greeted on the present connection.
//! - What was under way when a connection ended is lost. The caller sends it again, if it matters.

use stentor_fabric::Fabric;
use stentor_fabric::memory::WORD;
use stentor_fabric::seal::{HEADER_WORDS, Seal};
use zerocopy::IntoBytes;

use super::Member;
use crate::mutant::mutant;
use crate::node::NodeError;
use crate::node::counts::Step;
use crate::node::hello::Start;
use crate::node::open::{Body, Opener};
use crate::node::outbound::{Outbound, Way, copy_parts, scratch};
use crate::node::peer_link::PeerLink;
use crate::node::poll_gate::PollGate;
use crate::node::target::PeerProgress;
use crate::{ClientId, Mutant};

/// What became of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "only a reply that was sent is on its way"]
pub enum ReplySent {
    /// It is written, and arrives unless the connection ends before that.
    Sent,
    /// There is no room now: the client has not read what was sent before.
    Full,
    /// The client is not connected, or the cluster has no replies.
    Away,
    /// It is longer than [`reply_bytes`](crate::Limits::reply_bytes).
    TooLong,
}

/// The ring of replies to one client.
#[derive(Debug)]
struct ReplyRing {
    outbound: Outbound,
    /// The life of the process that greeted last.
    life: Option<u64>,
    /// Where the ring began on the present connection.
    start: Start,
    /// A reply found no room since credits came last.
    waits: bool,
    /// Whether the client is in [`Replies::met`].
    is_listed: bool,
}

/// The rings of replies, and which clients connected.
#[derive(Debug)]
pub(super) struct Replies {
    /// By client; empty if there are no replies.
    rings: Vec<ReplyRing>,
    /// The record in work.
    record: Vec<u64>,
    longest: usize,
    /// Something was written since the last flush.
    unflushed: bool,
    /// Whether a ring may wait for room: if not, a step looks at none of them.
    any_waits: bool,
    /// Clients that connected since somebody looked.
    met: Vec<ClientId>,
    mutant: Mutant,
}

impl Replies {
    /// Registers what `limits` of the opener ask for.
    pub(super) fn open<F: Fabric>(opener: &mut Opener<'_, F>, bodies: &[Body]) -> Result<Self, NodeError> {
        let mut replies = Replies {
            rings: Vec::new(),
            record: Vec::new(),
            longest: 0,
            unflushed: false,
            any_waits: false,
            met: Vec::new(),
            mutant: opener.mutant,
        };
        if !opener.limits.has_replies() {
            return Ok(replies);
        }
        for (client, body) in (0..bodies.len() as u16).map(ClientId).zip(bodies) {
            let outbound = opener.replies_to(client, body.ring.credit.link)?;
            let start = Start::NONE;
            replies.rings.push(ReplyRing { outbound, life: None, start, waits: false, is_listed: false });
        }
        replies.record = scratch(&opener.limits.reply_ring());
        replies.longest = opener.limits.reply_bytes;
        replies.met.reserve_exact(bodies.len());
        Ok(replies)
    }

    /// A connection with a client began. Returns where its ring goes on.
    pub(super) fn start(&mut self, client: ClientId, links: &[PeerLink]) -> Start {
        let Some(ring) = self.rings.get_mut(usize::from(client.0)) else { return Start::NONE };
        if mutant!(self.mutant, ReplyRingKept) && ring.start.generation > 0 {
            ring.outbound.targets[0].progress = PeerProgress::Started;
            return ring.start;
        }
        ring.start = ring.outbound.start(0, links);
        ring.waits = false;
        ring.start
    }

    /// Returns where the ring of the present connection with a client began.
    pub(super) fn started(&self, client: ClientId) -> Start {
        self.rings.get(usize::from(client.0)).map_or(Start::NONE, |ring| ring.start)
    }

    /// All that was written goes out now.
    #[inline]
    pub(super) fn flushed(&mut self) {
        self.unflushed = false;
    }

    /// A connection with a client ended.
    pub(super) fn stop(&mut self, client: ClientId) {
        if let Some(ring) = self.rings.get_mut(usize::from(client.0)) {
            ring.outbound.stop(0);
        }
    }

    /// A process in a client's place greeted, whose writes have this seal.
    pub(super) fn greeted(&mut self, client: ClientId, life: u64, seal: Seal) {
        let Some(ring) = self.rings.get_mut(usize::from(client.0)) else { return };
        if ring.life.replace(life) != Some(life) {
            ring.outbound.hear_credits(0, seal);
        }
    }

    /// A client can be replied to from now on: the connection is up, and it has greeted. Either may be first.
    pub(super) fn met(&mut self, client: ClientId) {
        let Some(ring) = self.rings.get_mut(usize::from(client.0)) else { return };
        if !std::mem::replace(&mut ring.is_listed, true) {
            self.met.push(client);
        }
    }

    /// Looks whether clients for which a reply waits have made room. Returns whether any has.
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

    /// Writes a reply. Returns what became of it, and the number of writes.
    fn send<F: Fabric>(
        &mut self,
        fabric: &mut F,
        links: &mut [PeerLink],
        client: ClientId,
        parts: &[&[u8]],
    ) -> (ReplySent, u64) {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let Some(ring) = self.rings.get_mut(usize::from(client.0)) else { return (ReplySent::Away, 0) };
        if bytes > self.longest {
            return (ReplySent::TooLong, 0);
        }
        let target = &ring.outbound.targets[0];
        if !(target.is_started() && links[target.link].is_met()) {
            return (ReplySent::Away, 0);
        }
        if !ring.outbound.ready(fabric, links, bytes) {
            (ring.waits, self.any_waits) = (true, true);
            return (ReplySent::Full, 0);
        }
        let words = bytes.div_ceil(WORD);
        let payload = &mut self.record[HEADER_WORDS..HEADER_WORDS + words];
        if let Some(last) = payload.last_mut() {
            // What is behind the last byte is sealed, too.
            *last = 0;
        }
        copy_parts(parts, payload.as_mut_bytes());
        self.unflushed = true;
        (ReplySent::Sent, ring.outbound.send(fabric, links, bytes, &mut self.record, Way::default()))
    }
}

impl<F: Fabric> Member<F> {
    /// Sends a record to a client: the bytes of all parts, one after the other. It goes out with the next
    /// [`step`](Member::step). The client gets the records of one member in order, and each once. Those that are under way
    /// when the connection ends are lost: see [`take_met_client`](Member::take_met_client). Copies, and allocates nothing.
    ///
    /// After [`ReplySent::Full`], a later [`step`](Member::step) returns true when there may be room again.
    pub fn reply(&mut self, client: ClientId, parts: &[&[u8]]) -> ReplySent {
        let (sent, writes) = self.replies.send(&mut self.fabric, &mut self.links, client, parts);
        if sent == ReplySent::Sent {
            self.outputs.counts.write(Step::Reply, writes);
            self.gate.resume();
        }
        sent
    }

    /// Returns whether replies were sent since the last [`step`](Member::step): they go out with the next one, so this is no time
    /// to sleep.
    #[inline]
    #[must_use]
    pub fn has_unflushed(&self) -> bool {
        self.replies.unflushed
    }

    /// Returns whether a client is connected now, and has greeted: a [`reply`](Member::reply) may reach it.
    #[must_use]
    pub fn is_connected_to_client(&self, client: ClientId) -> bool {
        let body = self.bodies.get(usize::from(client.0));
        body.is_some_and(|body| self.links[body.ring.credit.link].is_met())
    }

    /// Returns the life of the process that greeted last in a client's place; `None` before the first. Only where the cluster
    /// has replies.
    #[must_use]
    pub fn life_of_client(&self, client: ClientId) -> Option<u64> {
        self.replies.rings.get(usize::from(client.0))?.life
    }

    /// Returns a client that connected since this was asked last, each once. What was sent to it before may be lost, so this is
    /// when to send it again. Always `None` if the cluster has no replies.
    pub fn take_met_client(&mut self) -> Option<ClientId> {
        let client = self.replies.met.pop()?;
        self.replies.rings[usize::from(client.0)].is_listed = false;
        Some(client)
    }
}
