//! Handles connections that are established and lost.
//!
//! A broken link does not prove that the peer crashed. The peer does not count for flow control until it reconnects;
//! quorums stay unchanged. Writes in flight may be lost, and the state machine repairs that.

use stentor_fabric::{Event, Fabric, Opcode, ProcessId};

use super::Member;
use crate::mutant::mutant;
use crate::node::app::Application;
use crate::node::counts::Step;
use crate::node::hello::{Hello, HelloKind, Start};
use crate::node::peer_links::PeerEvent;
use crate::{ClientId, ProcessRole};

impl<F: Fabric> Member<F> {
    /// Handles the fabric's events: connections that were established or lost, and revocations that took effect.
    /// Returns whether there were any. This makes system calls on some fabrics, so call it only while connecting, when
    /// idle, and every few milliseconds.
    pub fn housekeep(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.fabric.next_event() {
            any = true;
            if let Event::Revoked { region, .. } = event {
                self.streams.revoked(region);
            }
            if let Some(event) = self.links.happened(&mut self.fabric, &event) {
                self.on_peer_event(event);
            }
        }
        self.sets.mend(&mut self.fabric, |_| false);
        for link in 0..self.links.len() {
            if let Some(event) = self.links.check_down(&mut self.fabric, link) {
                any = true;
                self.on_peer_event(event);
            }
        }
        if any {
            self.gate.disturb();
        }
        any
    }

    /// Polls completions. Returns whether there were any. Completions other than those of heartbeats count as work.
    pub(super) fn poll_completions(&mut self) -> bool {
        let count = self.fabric.poll(&mut self.completions);
        for at in 0..count {
            let completion = self.completions[at];
            // Heartbeats are the only READs.
            self.had_work |= completion.opcode != Opcode::Read;
            if let Some(event) = self.links.completed(&mut self.fabric, &completion) {
                self.on_peer_event(event);
            }
        }
        count > 0
    }

    pub(super) fn on_peer_event(&mut self, event: PeerEvent) {
        self.gate.disturb();
        match event {
            PeerEvent::Up(link) => self.up(link),
            PeerEvent::Down(link) => self.down(link),
            PeerEvent::Greeted(link, hello) => self.greeted(link, &hello),
            PeerEvent::Refused => self.outputs.counts.rejected += 1,
        }
    }

    /// Returns the client at the other end of a link, if it is one.
    pub(super) fn client_of(&self, link: usize) -> Option<ClientId> {
        match self.topology.role(self.links[link].peer()) {
            Some(ProcessRole::Client(client)) => Some(client),
            _ => None,
        }
    }

    fn up(&mut self, link: usize) {
        let process = self.links[link].peer();
        let mut start = Start::NONE;
        if let Some(Some(peer)) = self.peers.get_mut(process.index()) {
            if peer.streaming == Some(link) {
                return self.note_connected(process);
            }
            start = peer.outbound.start(0, &self.links);
        } else if let Some(client) = self.client_of(link) {
            // The client's hello may have arrived before, in which case the client waits for its credit.
            self.outputs.touch(client);
            start = self.replies.start(client, &self.links);
            if self.links[link].is_met() {
                self.replies.met(client);
            }
        }
        self.greet(link, HelloKind::Connection, start);
        self.note_connected(process);
    }

    pub(super) fn greet(&mut self, link: usize, kind: HelloKind, start: Start) {
        let hello = Hello { clock: self.time.wall(), ..Hello::new(kind, self.links.life, start) };
        let hello = self.with_incarnations(link, hello);
        let sent = self.links.greet(&mut self.fabric, link, hello);
        self.outputs.counts.write(Step::PeerMessage, sent);
    }

    fn down(&mut self, link: usize) {
        self.forget_greeting(link);
        if let Some(client) = self.client_of(link) {
            self.replies.stop(client);
        }
        self.part_from(link);
    }

    /// Stops the stream to a member, until the member is connected again. If `link` is the main one, also stops the
    /// control ring, drops queued peer messages and pauses the transfer to the member. Does nothing for a client.
    pub(super) fn part_from(&mut self, link: usize) {
        let process = self.links[link].peer();
        let Some(Some(peer)) = self.peers.get_mut(process.index()) else { return };
        self.outputs.connected[process.index()] = false;
        if link == peer.main {
            peer.outbound.stop(0);
            self.assemblers[process.index()].clear();
            self.interrupt_transfers(process);
        }
        self.streams.stop(process);
    }

    pub(super) fn greeted(&mut self, link: usize, hello: &Hello) {
        let Hello { kind: HelloKind::Connection, life, start, clock, .. } = *hello else { return };
        if !self.accepts(link, hello) {
            return;
        }
        let process = self.links[link].peer();
        if let Some(client) = self.client_of(link) {
            if hello.is_superseded(self.replica.over_below(client)) {
                self.outputs.counts.rejected += 1;
                return self.greet(link, HelloKind::Superseded, Start::NONE);
            }
            let fresh = self.links[link].greeted.replace(life) != Some(life);
            let seal = self.seals.of(process, life);
            self.replies.greeted(client, life, seal);
            self.queries.restart(usize::from(client.0), life, hello.queries, seal);
            if fresh && self.links[link].is_met() {
                self.replies.met(client);
            }
            self.bodies[usize::from(client.0)].greeted = Some(*hello);
            return;
        }
        let Some(Some(peer)) = self.peers.get_mut(process.index()) else { return };
        let known = peer.inbound.life();
        // An impossible clock is ignored.
        let _ = self.time.hear(process, clock, 0);
        self.links[link].greeted = Some(life);
        let seal = self.seals.of(process, life);
        peer.inbound.restart(life, start, seal);
        if known != Some(life) {
            peer.outbound.hear_credits(0, seal);
            self.streams.hear_credits(process, seal);
        }
        self.note_connected(process);
    }

    fn note_connected(&mut self, process: ProcessId) {
        let Some(Some(peer)) = self.peers.get_mut(process.index()) else { return };
        let streaming = peer.streaming.is_none_or(|link| self.links[link].is_ready());
        let connected = &mut self.outputs.connected[process.index()];
        if !*connected && streaming && self.links[peer.main].is_met() {
            *connected = true;
            self.bodies.iter_mut().for_each(|body| body.ticks = 0);
            self.recovery.fresh.push(process);
        }
    }

    /// Informs the state machine of members with which all links are up (again), so that it sends them the messages and
    /// items that they lack. Returns whether there were any such members.
    pub(super) fn meet_peers<A: Application>(&mut self, app: &mut A) -> bool {
        let any = !self.recovery.fresh.is_empty();
        while let Some(process) = self.recovery.fresh.pop() {
            if self.is_connected_to(process) {
                self.peer_connected(process, app);
            }
        }
        if any {
            // The new peer may be the leader, which must learn which client processes want to start.
            (0..self.bodies.len() as u16).map(ClientId).for_each(|client| self.ask_to_open(client, app));
        }
        any
    }

    /// Starts this member's stream at a follower. Returns the start, which must be reported to the follower.
    pub(super) fn start_stream(&mut self, follower: ProcessId) -> Option<Start> {
        self.streams.start(follower, &self.links)
    }

    /// Resumes reading the leader's stream at `start`.
    pub(super) fn resume_stream(&mut self, leader: ProcessId, start: Start) {
        let life = self.peers.get(leader.index()).and_then(Option::as_ref).and_then(|p| p.inbound.life());
        let (Some(life), Some(stream)) = (life, self.streams.of_mut(leader)) else {
            return;
        };
        let before = stream.ring.reader.position();
        let mut goes_on = stream.ring.restart(life, start, self.seals.of(leader, life));
        if mutant!(self.mutant, HeldOfAnotherLife) {
            goes_on = stream.ring.reader.position() == before;
        }
        if !goes_on {
            // The record that is being processed belongs to an earlier life of the leader or to another position. It
            // must not be taken for the first record of the new stream, which names the ballot that follows.
            stream.held = None;
        }
        self.streams.reads = Some(leader);
    }
}
