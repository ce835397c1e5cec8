//! What a member and its clients say to each other besides messages: the member's replies, and clients' queries.

use stentor_fabric::Fabric;
use stentor_fabric::seal::Seal;

use super::Member;
use crate::node::NodeError;
use crate::node::counts::Step;
use crate::node::hello::Start;
use crate::node::open::{Body, Opener};
use crate::node::peer_link::PeerLink;
use crate::node::poll_gate::PollGate;
use crate::node::records_in::{RecordsIn, Taken};
use crate::node::records_out::RecordsOut;
use crate::{ClientId, RecordSent};

/// A client's query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query<'a> {
    /// The client.
    pub client: ClientId,
    /// The bytes of the query.
    pub bytes: &'a [u8],
}

/// The rings of replies, and which clients connected.
#[derive(Debug)]
pub(super) struct Replies {
    /// By client; none if there are no replies.
    rings: RecordsOut,
    /// By client: the life of the process that greeted last.
    lives: Vec<Option<u64>>,
    /// Clients that connected since somebody looked.
    met: Vec<ClientId>,
    /// By client: whether it is in `met`.
    is_listed: Vec<bool>,
}

impl Replies {
    /// Registers what `limits` of the opener ask for: the rings of replies, and those of queries.
    pub(super) fn open<F: Fabric>(opener: &mut Opener<'_, F>, bodies: &[Body]) -> Result<(Self, RecordsIn), NodeError> {
        let has_replies = opener.limits.has_replies();
        let clients = if has_replies { bodies.len() } else { 0 };
        let (mut replies, mut queries) = (Vec::with_capacity(clients), Vec::with_capacity(clients));
        for (client, body) in (0..clients as u16).map(ClientId).zip(bodies) {
            replies.push(opener.replies_to(client, body.ring.credit.link)?);
            queries.push(opener.queries_of(client, body.ring.credit.link)?);
        }
        let (geometry, longest) = (opener.limits.reply_ring(), opener.limits.reply_bytes);
        let replies = Replies {
            rings: RecordsOut::new(replies, &geometry, longest, opener.mutant),
            lives: vec![None; clients],
            met: Vec::with_capacity(clients),
            is_listed: vec![false; clients],
        };
        Ok((replies, RecordsIn::new(queries)))
    }

    /// A connection with a client began. Returns where its ring goes on.
    pub(super) fn start(&mut self, client: ClientId, links: &[PeerLink]) -> Start {
        self.rings.start(usize::from(client.0), links)
    }

    /// Returns where the ring of the present connection with a client began.
    pub(super) fn started(&self, client: ClientId) -> Start {
        self.rings.started(usize::from(client.0))
    }

    /// All that was written goes out now.
    #[inline]
    pub(super) fn flushed(&mut self) {
        self.rings.flushed();
    }

    /// A connection with a client ended.
    pub(super) fn stop(&mut self, client: ClientId) {
        self.rings.stop(usize::from(client.0));
    }

    /// A process in a client's place greeted, whose writes have this seal.
    pub(super) fn greeted(&mut self, client: ClientId, life: u64, seal: Seal) {
        let Some(known) = self.lives.get_mut(usize::from(client.0)) else { return };
        if known.replace(life) != Some(life) {
            self.rings.hear_credits(usize::from(client.0), seal);
        }
    }

    /// A client can be replied to from now on: the connection is up, and it has greeted. Either may be first.
    pub(super) fn met(&mut self, client: ClientId) {
        let Some(is_listed) = self.is_listed.get_mut(usize::from(client.0)) else { return };
        if !std::mem::replace(is_listed, true) {
            self.met.push(client);
        }
    }

    /// Looks whether clients for which a reply waits have made room. Returns whether any has.
    #[inline]
    pub(super) fn hear_room<F: Fabric>(&mut self, fabric: &F, gate: &PollGate) -> bool {
        self.rings.hear_room(fabric, gate)
    }
}

impl<F: Fabric> Member<F> {
    /// Sends a record to a client: the bytes of all parts, one after the other. It goes out with the next
    /// [`step`](Member::step). The client gets the records of one member in order, and each once. Those that are under way
    /// when the connection ends are lost: see [`take_met_client`](Member::take_met_client). Copies, and allocates nothing.
    ///
    /// After [`RecordSent::Full`], a later [`step`](Member::step) returns true when there may be room again.
    pub fn reply(&mut self, client: ClientId, parts: &[&[u8]]) -> RecordSent {
        let (sent, writes) = self.replies.rings.send(&mut self.fabric, &mut self.links, usize::from(client.0), parts);
        if sent == RecordSent::Sent {
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
        self.replies.rings.is_unflushed()
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
        self.replies.lives.get(usize::from(client.0)).copied()?
    }

    /// Returns a client that connected since this was asked last, each once. What was sent to it before may be lost, so this is
    /// when to send it again. Always `None` if the cluster has no replies.
    pub fn take_met_client(&mut self) -> Option<ClientId> {
        let client = self.replies.met.pop()?;
        self.replies.is_listed[usize::from(client.0)] = false;
        Some(client)
    }

    /// Takes the next query; the clients have turns. The queries of one client come in order, each once. A query that was under way when
    /// its connection ended is lost. [`step`](Member::step) finds queries, and this takes them: call it after every step until it returns
    /// `None`, also before a wait. A client whose ring is full sends nothing more until its queries are taken. Copies, and allocates
    /// nothing.
    pub fn next_query(&mut self) -> Option<Query<'_>> {
        let taken = self.queries.take(&mut self.fabric, &mut self.links);
        if self.queries.owes() || taken.is_some_and(|taken| taken.credits > 0) {
            // The credit is to go out with the next step.
            self.gate.resume();
        }
        let taken = taken?;
        let Taken { ring: client, credits, .. } = taken;
        self.outputs.counts.write(Step::Credit, credits);
        Some(Query { client: ClientId(client as u16), bytes: self.queries.bytes(taken) })
    }

    /// Looks for queries. Returns whether there are any that were not there before.
    #[inline]
    pub(super) fn look_for_queries(&mut self) -> bool {
        let (any, credits) = self.queries.look(&mut self.fabric, &mut self.links, &self.gate);
        self.outputs.counts.write(Step::Credit, credits);
        any
    }
}
