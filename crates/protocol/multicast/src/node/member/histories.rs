//! The incarnations of groups in greetings, and connections that are refused because of them.
//!
//! Each end greets with the incarnation in which it has a state of its own group, and the one that it remembers of the
//! other's. If one of them contradicts what is known at the other end, that end *refuses* the connection: nothing is taken
//! or written over it, it can be asked why, and the greeting is judged again when what is known has changed. Both ends judge
//! the same: the end that refuses greets again if it has heard something new since it greeted. So does the end that takes the
//! connection, if what it said contradicts the other's greeting, and holds no more: the other end refuses that, and hears
//! nothing else from it. Clients greet likewise: they remember incarnations, and have no group of their own.

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

/// What this process has said and heard about incarnations.
#[derive(Debug, Default)]
pub(super) struct Histories {
    /// By link: what was said in the last greeting, own incarnation first.
    said: Vec<[Incarnation; 2]>,
    refused: Vec<RefusedLink>,
    /// The own incarnation and all that are known, as of the last look.
    known: Vec<Incarnation>,
}

impl<F: Fabric> Member<F> {
    /// Returns the connected processes whose connections are refused, because they know another history of a group with the
    /// number of the one that is known here.
    pub fn contradictions(&self) -> impl Iterator<Item = (ProcessId, Contradiction)> + '_ {
        self.histories.refused.iter().map(|refused| (self.links[refused.link].peer(), refused.why))
    }

    /// What a greeting over a link says of incarnations: the own group's, and the one of the receiver's.
    fn incarnations_for(&self, link: usize) -> [Incarnation; 2] {
        let yours = match self.topology.role(self.links[link].peer()) {
            Some(ProcessRole::Member { group, .. }) => self.replica.known_incarnation(group),
            _ => Incarnation::NONE,
        };
        [self.replica.incarnation(), yours]
    }

    /// Adds to a greeting what this process knows of incarnations.
    pub(super) fn with_incarnations(&mut self, link: usize, hello: Hello) -> Hello {
        let [own, yours] = self.incarnations_for(link);
        let links = self.links.len();
        self.histories.said.resize(links, [Incarnation::NONE; 2]);
        self.histories.said[link] = [own, yours];
        Hello { own, yours, ..hello }
    }

    /// Judges what a greeting says of incarnations. Returns whether the connection goes on.
    pub(super) fn accepts(&mut self, link: usize, hello: &Hello) -> bool {
        let process = self.links[link].peer();
        let refused = self.histories.refused.len();
        self.histories.refused.retain(|refused| refused.link != link);
        let was_refused = self.histories.refused.len() < refused;
        let Err(why) = self.replica.on_greeting(process, hello.own, hello.yours) else {
            // Its ring was stopped, and begins anew; or the other end refuses what this one said before it moved.
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

    /// Whether the last greeting over a link says what contradicts the other end's, and is not true any more.
    fn was_refuted(&self, link: usize, hello: &Hello) -> bool {
        let Some(said) = self.histories.said.get(link) else { return false };
        let [own, yours] = *said;
        (own.contradicts(hello.yours) || yours.contradicts(hello.own)) && *said != self.incarnations_for(link)
    }

    /// A link is down: the process that greeted over it says anew what it remembers. A process that this one expelled lives, as
    /// far as it can tell: what it said holds until it greets again, or the next process in its place does.
    pub(super) fn forget_greeting(&mut self, link: usize) {
        self.histories.refused.retain(|refused| refused.link != link);
        let peer = self.links[link].peer();
        if !self.recovery.expelling.members().any(|member| member == peer) {
            self.replica.on_disconnected(peer);
        }
    }

    /// Greets refused processes again if a known incarnation has changed since the last look, and clients if the own one has.
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
            // A client's ring goes on: it began with the connection.
            _ => self.client_of(link).map_or(Start::NONE, |client| self.replies.started(client)),
        };
        self.greet(link, HelloKind::Connection, start);
    }
}
