//! The incarnations of groups in hellos, and connections that are refused because of them.
//!
//! Each end names in its hello the incarnation in which it has a state of its own group, and the incarnation of the
//! other end's group that it remembers. If one of them contradicts what the receiver of the hello knows, the receiver
//! *refuses* the connection: it reads and writes nothing over it, reports the reason on request, and checks the hello
//! again when its knowledge has changed. Both members apply the same rule. The end that refuses sends another hello if
//! its knowledge has changed since its last one. The end that accepts the connection also sends another hello, if its
//! last one contradicts the other end's hello and is outdated: otherwise the other end would refuse the outdated hello,
//! and would receive no other one. A client has no group of its own. It checks the incarnation of a member's group
//! likewise (`Client::accepts`), and a refused member must send another hello.

use stentor_fabric::{Fabric, ProcessId};

use super::Member;
use crate::node::hello::{Hello, HelloKind, Start};
use crate::{Contradiction, Incarnation, ProcessRole};

/// A connection that is refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusedLink {
    link: usize,
    hello: Hello,
    why: Contradiction,
}

/// The incarnations in hellos that this process has sent and received.
#[derive(Debug, Default)]
pub(super) struct Histories {
    /// Indexed by link: the incarnations in the last hello sent, this group's first.
    said: Vec<[Incarnation; 2]>,
    refused: Vec<RefusedLink>,
    /// This group's incarnation, and the known incarnation of each group, as of the last check.
    known: Vec<Incarnation>,
}

impl<F: Fabric> Member<F> {
    /// Returns the connected processes whose connections are refused, because they know a different history of a group
    /// under the same number.
    pub fn contradictions(&self) -> impl Iterator<Item = (ProcessId, Contradiction)> + '_ {
        self.histories.refused.iter().map(|refused| (self.links[refused.link].peer(), refused.why))
    }

    /// Returns the incarnations that a hello over this link carries: this group's, and the known one of the receiver's
    /// group.
    fn incarnations_for(&self, link: usize) -> [Incarnation; 2] {
        let yours = match self.topology.role(self.links[link].peer()) {
            Some(ProcessRole::Member { group, .. }) => self.replica.known_incarnation(group),
            _ => Incarnation::NONE,
        };
        [self.replica.incarnation(), yours]
    }

    /// Adds this process's incarnations to a hello.
    pub(super) fn with_incarnations(&mut self, link: usize, hello: Hello) -> Hello {
        let [own, yours] = self.incarnations_for(link);
        let links = self.links.len();
        self.histories.said.resize(links, [Incarnation::NONE; 2]);
        self.histories.said[link] = [own, yours];
        Hello { own, yours, ..hello }
    }

    /// Checks the incarnations in a hello. Returns whether the connection is accepted.
    pub(super) fn accepts(&mut self, link: usize, hello: &Hello) -> bool {
        let process = self.links[link].peer();
        let refused = self.histories.refused.len();
        self.histories.refused.retain(|refused| refused.link != link);
        let was_refused = self.histories.refused.len() < refused;
        let Err(why) = self.replica.on_greeting(process, hello.own, hello.yours) else {
            // Either the ring was stopped and must restart, or the other end refuses this member's last hello, which is
            // outdated.
            if was_refused || self.was_refuted(link, hello) {
                self.greet_again(link);
            }
            return true;
        };
        self.outputs.counts.rejected += 1;
        self.histories.refused.push(RefusedLink { link, hello: *hello, why });
        self.links[link].greeted = None;
        self.part_from(link);
        if self.histories.said.get(link) != Some(&self.incarnations_for(link)) {
            self.greet_again(link);
        }
        false
    }

    /// Returns whether the last hello that this member sent over a link contradicts the other end's hello and is
    /// outdated.
    fn was_refuted(&self, link: usize, hello: &Hello) -> bool {
        let Some(said) = self.histories.said.get(link) else { return false };
        let [own, yours] = *said;
        (own.contradicts(hello.yours) || yours.contradicts(hello.own)) && *said != self.incarnations_for(link)
    }

    /// Forgets the peer's hello when the link is down; the next hello repeats what the peer remembers. A process that
    /// this member expelled is presumed alive, so its hello stays valid until it or its successor sends another one.
    pub(super) fn forget_greeting(&mut self, link: usize) {
        self.histories.refused.retain(|refused| refused.link != link);
        let peer = self.links[link].peer();
        if !self.recovery.expelling.members().any(|member| member == peer) {
            self.replica.on_disconnected(peer);
        }
    }

    /// Repeats hellos after an incarnation has changed: to refused processes if any known incarnation changed, and to
    /// clients if this group's changed.
    pub(super) fn tell_histories(&mut self) {
        let now = || {
            let known = self.topology.group_ids().map(|group| self.replica.known_incarnation(group));
            std::iter::once(self.replica.incarnation()).chain(known)
        };
        if now().eq(self.histories.known.iter().copied()) {
            return;
        }
        let before = self.histories.known.first().copied();
        self.histories.known = now().collect();
        if before.is_some_and(|before| before != self.replica.incarnation()) {
            for client in 0..self.bodies.len() {
                let link = self.bodies[client].ring.credit.link;
                if self.links[link].is_ready() {
                    self.greet_again(link);
                }
            }
        }
        for RefusedLink { link, hello, .. } in std::mem::take(&mut self.histories.refused) {
            self.greet_again(link);
            self.greeted(link, &hello);
        }
    }

    fn greet_again(&mut self, link: usize) {
        let process = self.links[link].peer();
        let start = match self.peers.get_mut(process.index()) {
            Some(Some(peer)) => peer.outbound.start(0, &self.links),
            // A client's ring continues: it started with the connection.
            _ => self.client_of(link).map_or(Start::NONE, |client| self.replies.started(client)),
        };
        self.greet(link, HelloKind::Connection, start);
    }
}
