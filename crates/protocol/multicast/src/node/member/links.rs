//! Connections that come and go.
//!
//! A broken link is a suspicion, not a crash: its peer does not count for flow control until it is back, quorums stay what
//! they are. What was in flight is lost and is for the state machine to repair.

use stentor_fabric::{Event, Fabric, Opcode, ProcessId};

use super::Member;
use crate::mutant::mutant;
use crate::node::app::Application;
use crate::node::counts::Step;
use crate::node::hello::{Hello, HelloKind, Start};
use crate::node::peer_links::PeerEvent;
use crate::{ClientId, ProcessRole};

impl<F: Fabric> Member<F> {
    /// Connections that came and went. Makes system calls on some fabrics: call it while connecting, when idle and
    /// every few milliseconds. Returns whether there was anything.
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

    /// Takes completions. Whether there were any; those that are not of heartbeats are work.
    pub(super) fn poll_completions(&mut self) -> bool {
        let count = self.fabric.poll(&mut self.completions);
        for at in 0..count {
            let completion = self.completions[at];
            // Only heartbeats are read.
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

    /// The client at the other end of a link.
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
            // It may have greeted before, and waits for its credit.
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

    /// Nothing goes over a link any more until its ends have greeted again.
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
        // One that cannot be is none.
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

    /// Members whose links came up get what they need.
    pub(super) fn meet_peers<A: Application>(&mut self, app: &mut A) -> bool {
        let any = !self.recovery.fresh.is_empty();
        while let Some(process) = self.recovery.fresh.pop() {
            if self.is_connected_to(process) {
                self.peer_connected(process, app);
            }
        }
        if any {
            // It may be the leader, which has to hear who wants to begin.
            (0..self.bodies.len() as u16).map(ClientId).for_each(|client| self.ask_to_open(client, app));
        }
        any
    }

    /// From here on a follower gets this member's stream; it must be told where that is.
    pub(super) fn start_stream(&mut self, follower: ProcessId) -> Option<Start> {
        self.streams.start(follower, &self.links)
    }

    /// The leader's stream goes on here.
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
            // The record in work is of an earlier life of the leader, or of another place: it would be taken in place of
            // the first one of the new stream, which says what ballot follows.
            stream.held = None;
        }
        self.streams.reads = Some(leader);
    }
}
