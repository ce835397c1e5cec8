//! Traffic between a member and its clients other than messages: the member's replies and the clients' queries.

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

/// A query that a client sent to this member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query<'a> {
    /// The client that sent it.
    pub client: ClientId,
    /// The bytes of the query.
    pub bytes: &'a [u8],
}

/// The reply rings, and the clients that connected recently.
#[derive(Debug)]
pub(super) struct Replies {
    /// The reply ring of each client, indexed by client; empty if the cluster has no replies.
    rings: RecordsOut,
    /// Indexed by client: life of the process that sent the last hello.
    lives: Vec<Option<u64>>,
    /// Clients that connected and that [`take_met_client`](Member::take_met_client) has not returned since.
    met: Vec<ClientId>,
    /// Indexed by client: `true` if the client is in `met`.
    is_listed: Vec<bool>,
}

impl Replies {
    /// Registers the rings for replies and queries that the opener's limits ask for.
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

    /// Starts the ring of a client that connected. Returns the position at which the ring resumes.
    pub(super) fn start(&mut self, client: ClientId, links: &[PeerLink]) -> Start {
        self.rings.start(usize::from(client.0), links)
    }

    /// Returns where the client's ring started on the current connection.
    pub(super) fn started(&self, client: ClientId) -> Start {
        self.rings.started(usize::from(client.0))
    }

    /// Notes that all records written so far were flushed.
    #[inline]
    pub(super) fn flushed(&mut self) {
        self.rings.flushed();
    }

    /// Stops the ring of a client that disconnected.
    pub(super) fn stop(&mut self, client: ClientId) {
        self.rings.stop(usize::from(client.0));
    }

    /// Handles a hello from a process with this client id, whose credits carry this seal.
    pub(super) fn greeted(&mut self, client: ClientId, life: u64, seal: Seal) {
        let Some(known) = self.lives.get_mut(usize::from(client.0)) else { return };
        if known.replace(life) != Some(life) {
            self.rings.hear_credits(usize::from(client.0), seal);
        }
    }

    /// Lists a client that can now receive replies, because its connection is up and its hello arrived, in either
    /// order.
    pub(super) fn met(&mut self, client: ClientId) {
        let Some(is_listed) = self.is_listed.get_mut(usize::from(client.0)) else { return };
        if !std::mem::replace(is_listed, true) {
            self.met.push(client);
        }
    }

    /// Checks whether clients with a postponed reply have freed ring space. Returns whether any has.
    #[inline]
    pub(super) fn hear_room<F: Fabric>(&mut self, fabric: &F, gate: &PollGate) -> bool {
        self.rings.hear_room(fabric, gate)
    }
}

impl<F: Fabric> Member<F> {
    /// Sends a record to a client: the concatenation of `parts`. The next [`step`](Member::step) flushes it. A client
    /// receives the records of one member in order, and each at most once. Records in flight are lost when the
    /// connection ends: see [`take_met_client`](Member::take_met_client). The call copies the bytes.
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

    /// Returns whether replies were sent since the last [`step`](Member::step). The next step flushes them, so the
    /// caller must not sleep before it.
    #[inline]
    #[must_use]
    pub fn has_unflushed(&self) -> bool {
        self.replies.rings.is_unflushed()
    }

    /// Returns whether a client is connected and has sent its hello, so that a [`reply`](Member::reply) may reach it.
    #[must_use]
    pub fn is_connected_to_client(&self, client: ClientId) -> bool {
        let body = self.bodies.get(usize::from(client.0));
        body.is_some_and(|body| self.links[body.ring.credit.link].is_met())
    }

    /// Returns the life of the process that last sent a hello with this client id. Returns `None` before the first
    /// hello, and always if the cluster has no replies.
    #[must_use]
    pub fn life_of_client(&self, client: ClientId) -> Option<u64> {
        self.replies.lives.get(usize::from(client.0)).copied()?
    }

    /// Returns a client that has connected since this function last returned it. Replies that were sent before that
    /// connection may be lost. The caller should repeat them now. Always `None` if the cluster has no replies.
    pub fn take_met_client(&mut self) -> Option<ClientId> {
        let client = self.replies.met.pop()?;
        self.replies.is_listed[usize::from(client.0)] = false;
        Some(client)
    }

    /// Takes the next query; the clients are served in turn. The queries of one client arrive in order, each at most
    /// once. A query in flight is lost when its connection ends.
    ///
    /// [`step`](Member::step) detects queries and this method takes them. Call it after every step until it returns
    /// `None`, also before waiting: a client whose ring is full cannot send until its queries are taken. The call
    /// copies the bytes and allocates nothing.
    pub fn next_query(&mut self) -> Option<Query<'_>> {
        let taken = self.queries.take(&mut self.fabric, &mut self.links);
        if self.queries.owes() || taken.is_some_and(|taken| taken.credits > 0) {
            // The next step must send or flush the credit.
            self.gate.resume();
        }
        let taken = taken?;
        let Taken { ring: client, credits, .. } = taken;
        self.outputs.counts.write(Step::Credit, credits);
        Some(Query { client: ClientId(client as u16), bytes: self.queries.bytes(taken) })
    }

    /// Looks for queries. Returns whether a ring without queries now has one.
    #[inline]
    pub(super) fn look_for_queries(&mut self) -> bool {
        let (any, credits) = self.queries.look(&mut self.fabric, &mut self.links, &self.gate);
        self.outputs.counts.write(Step::Credit, credits);
        any
    }
}
