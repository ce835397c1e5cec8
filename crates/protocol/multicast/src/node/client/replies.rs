//! Records that members send to this client, and queries that this client sends to members.

use stentor_fabric::{Fabric, ProcessId};

use super::Client;
use crate::node::counts::Step;
use crate::node::records_in::Taken;
use crate::{GroupId, RecordSent};

/// A record that a member sent to this client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply<'a> {
    /// The member's group.
    pub group: GroupId,
    /// The member.
    pub member: ProcessId,
    /// The bytes of the reply.
    pub bytes: &'a [u8],
}

impl<F: Fabric> Client<F> {
    /// Takes the next record that a member sent to this client; the members are served in turn. The records of one
    /// member arrive in order, each at most once. Records in flight are lost when a connection ends.
    ///
    /// [`step`](Client::step) detects records and this method takes them. Call it after every step until it returns
    /// `None`, also before waiting: a member whose ring is full cannot send until its records are taken. The call
    /// copies the bytes and allocates nothing.
    pub fn next_reply(&mut self) -> Option<Reply<'_>> {
        let taken = self.replies.take(&mut self.fabric, &mut self.links);
        if self.replies.owes() || taken.is_some_and(|taken| taken.credits > 0) {
            // The next step must send or flush the credit.
            self.gate.resume();
        }
        let taken = taken?;
        let Taken { ring: link, credits, .. } = taken;
        self.counts.write(Step::Credit, credits);
        let (group, member) = (GroupId(self.places[link].0 as u16), self.links[link].peer());
        Some(Reply { group, member, bytes: self.replies.bytes(taken) })
    }

    /// Looks for replies. Returns whether a ring without replies now has one.
    #[inline]
    pub(super) fn look_for_replies(&mut self) -> bool {
        let (any, credits) = self.replies.look(&mut self.fabric, &mut self.links, &self.gate);
        self.counts.write(Step::Credit, credits);
        any
    }

    /// Sends a query to a member: the concatenation of `parts`. The next [`step`](Client::step) flushes it. A member
    /// receives the queries of one client in order, and each at most once. Queries in flight are lost when the
    /// connection ends: see [`query_rounds`](Client::query_rounds). The call copies the bytes.
    ///
    /// After [`RecordSent::Full`], a later [`step`](Client::step) returns true when there may be room again.
    pub fn query(&mut self, member: ProcessId, parts: &[&[u8]]) -> RecordSent {
        let Some(link) = self.link_of(member) else { return RecordSent::Away };
        let (sent, writes) = self.queries.send(&mut self.fabric, &mut self.links, link, parts);
        if sent == RecordSent::Sent {
            self.counts.write(Step::Query, writes);
            self.gate.resume();
        }
        sent
    }

    /// Returns the number of connections on which this client has started to send queries to a member; 0 if there is no
    /// such member, or the cluster has no replies. When the number increases, a query in flight may be lost, and so may
    /// its reply.
    #[must_use]
    pub fn query_rounds(&self, member: ProcessId) -> u64 {
        self.link_of(member).map_or(0, |link| self.queries.started(link).generation)
    }

    /// Returns whether a member is connected and its hello arrived.
    #[must_use]
    pub fn is_connected_to(&self, member: ProcessId) -> bool {
        self.link_of(member).is_some_and(|link| self.links[link].is_met())
    }

    /// Returns the link with a member. Links are opened in the order of the members.
    #[inline]
    fn link_of(&self, member: ProcessId) -> Option<usize> {
        Some(member.index()).filter(|link| self.links.get(*link).is_some_and(|link| link.peer() == member))
    }

    /// Returns whether a due credit for replies could not be sent yet.
    #[inline]
    pub(super) fn owes_replies(&self) -> bool {
        self.replies.owes()
    }
}
