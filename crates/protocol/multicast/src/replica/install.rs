//! A leader's state comes to a member: complete, with every body, or not at all.
//!
//! # Invariants
//! - *Of one ballot a member never has less than before.* A leader sends its state more than once, and the stream goes on
//!   meanwhile; a state is a letter, in pieces, and comes later than entries that were appended after it was taken. So a
//!   state of the installed ballot whose counter is not larger than the own one changes no assignment and no counter. It
//!   may be ahead all the same, in what is *delivered*: decisions come in acknowledgements, which this member may have
//!   missed. Of such a state it takes what the leader had delivered, with the application's state (`jump`), and nothing else.
//!
//!   If it took the assignments as well, the entries between the two counters would be forgotten. (1) This member has
//!   acknowledged them, and their message may be delivered because of that. With the leader gone, the others' promises
//!   need not contain it: the order breaks. (2) The stream does not bring them again, because a reader of a ring never goes
//!   back (`node/inbound.rs`); the next entry waits behind a gap for ever.
//!
//!   What is left out is not needed. In one ballot the leader's stream is the same for everybody, so what is processed here
//!   contains the state's assignments. And what the leader had delivered is the beginning of what this member delivers
//!   (M5), so counting it as delivered changes no order; entries behind it stay as they are, and are delivered or asked
//!   for like any other.

use stentor_fabric::ProcessId;

use super::{Rejected, Replica, Stage};
use crate::peer_message::{Admitted, MessageRef, PeerMessage};
use crate::plant::planted;
use crate::state::{ClientState, State};
use crate::{Ballot, ClientId, Effects};

/// A state that waits for bodies, or for the application's state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Pending {
    ballot: Ballot,
    counter: u64,
    state: State,
}

impl Replica {
    /// What this member has processed.
    pub(super) fn state(&self) -> State {
        State {
            synced: self.ballot,
            counter: self.counter,
            clock: self.clock,
            delivered: self.delivered,
            known: self.known.clone(),
            lives: self.lives.all().to_vec(),
            clients: self.windows.iter().map(super::window::Window::state).collect(),
        }
    }

    /// Whether a state is one of this cluster: right numbers of groups and clients, sound destinations, no more than a
    /// window of anything.
    pub(super) fn check_state(&self, state: &State) -> Result<(), Rejected> {
        let topology = &self.config.topology;
        if state.known.len() != topology.groups() || state.clients.len() != topology.clients() {
            return Err(Rejected::State("another number of groups or client places"));
        }
        self.lives.check(&state.lives)?;
        for entry in state.clients.iter().flat_map(|client| &client.entries) {
            let known = entry.destinations.iter().all(|to| topology.has_group(to.group));
            let rising = entry.destinations.is_sorted_by(|a, b| a.group < b.group);
            let ours = entry.void || entry.position(self.group).is_some_and(|own| entry.times[own] != 0);
            if !(known && rising && ours) {
                return Err(Rejected::State("a message that is not this group's"));
            }
        }
        let window = self.config.window as usize;
        if state.clients.iter().any(|client| client.entries.len() + client.held.len() > window) {
            return Err(Rejected::State("more messages than a window holds"));
        }
        let beyond =
            |client: &ClientState| client.held.last().is_some_and(|(slot, _)| slot - client.from >= window as u64);
        if state.clients.iter().any(beyond) {
            return Err(Rejected::State("a message beyond the window"));
        }
        Ok(())
    }

    /// Whether a state retains less than this member needs.
    pub(super) fn is_behind(&self, state: &State) -> bool {
        self.windows.iter().zip(&state.clients).any(|(window, client)| window.is_behind(client))
    }

    /// Messages that a state's process holds, unassigned, and that are missing here.
    pub(super) fn lacks_held<'a>(&'a self, state: &'a State) -> impl Iterator<Item = MessageRef> + use<'a> {
        let clients = (0..).map(ClientId).zip(self.windows.iter().zip(&state.clients));
        clients.flat_map(|(client, (window, state))| {
            window.lacks_held(client, state).map(move |sequence| MessageRef { client, sequence })
        })
    }

    /// Messages of a state whose bodies are needed and missing.
    pub(super) fn lacks<'a>(&'a self, state: &'a State) -> impl Iterator<Item = MessageRef> + use<'a> {
        let clients = self.windows.iter().zip(&state.clients).enumerate();
        clients.flat_map(|(client, (window, state))| {
            let client = ClientId(client as u16);
            window.lacks(state).map(move |sequence| MessageRef { client, sequence })
        })
    }

    /// The application took over the state that this one's process had: what that process delivered is delivered here.
    pub(super) fn jump<E: Effects>(&mut self, state: &State, effects: &mut E) {
        // Also when nothing was delivered, or less than here: slots that are void are passed without that, and what was
        // delivered there is the beginning of what was delivered here.
        self.states += 1;
        for (window, client) in self.windows.iter_mut().zip(&state.clients) {
            window.jump(client, self.group);
        }
        if state.delivered > self.delivered {
            self.delivered = state.delivered;
            effects.restore(state.delivered);
        }
    }

    /// Takes a state in place of the own one; see [`Window::adopt`](super::window::Window::adopt).
    pub(super) fn adopt(&mut self, state: &State, ballot: Ballot, counter: u64, leads: bool) {
        self.states += 1;
        for (window, client) in self.windows.iter_mut().zip(&state.clients) {
            window.adopt(client, self.group, leads);
        }
        self.clock = self.clock.max(state.clock);
        self.hear_of_all(&state.known);
        self.lives.hear_of_all(&state.lives);
        (self.promised, self.ballot, self.counter) = (ballot, ballot, counter);
        self.joining = None;
        self.rebuild_order();
    }

    fn rebuild_order(&mut self) {
        self.order.clear();
        for client in 0..self.windows.len() {
            let window = &self.windows[client];
            for slot in window.first_undelivered()..window.assigned {
                let message = self.windows[client].slot(slot);
                if message.ordered && !message.void && !message.delivered {
                    let key = message.tentative();
                    self.order_push(key, ClientId(client as u16), slot);
                }
            }
        }
    }

    /// A leader's state.
    pub(super) fn on_install<E: Effects>(
        &mut self,
        ballot: Ballot,
        counter: u64,
        state: &State,
        admits: &[Admitted],
        snapshot: bool,
        effects: &mut E,
    ) {
        let leader = ballot.leader();
        if let Some(life) = self.joining
            && !admits.contains(&(self.config.me, life))
        {
            // This ballot may lean on what this process has forgotten.
            return;
        }
        if ballot < self.promised {
            effects.send(leader, &PeerMessage::Refuse { promised: self.promised });
            return;
        }
        if !self.is_last_of(&state.lives, effects) {
            return;
        }
        let again = ballot == self.ballot && self.joining.is_none();
        if again && counter <= self.counter && !planted!(self.config.plant, StateSetBack) {
            self.pass_delivered(state, snapshot, effects);
            return;
        }
        if again && counter <= self.counter && !self.is_behind(state) {
            effects.send(leader, &PeerMessage::Installed { ballot });
            return;
        }
        if ballot > self.promised {
            self.promise(ballot);
        }
        if snapshot {
            self.jump(state, effects);
        }
        let mut state = state.clone();
        if self.joining.is_none() {
            // Who has its memory holds what it was counted for.
            state.forget_held();
        }
        self.stage = Stage::Installing(Box::new(Pending { ballot, counter, state }));
        self.age = 0;
        self.go_on_installing(true, effects);
    }

    /// Handles a state of the installed ballot that is no farther than what is processed here: see the top of this
    /// file.
    fn pass_delivered<E: Effects>(&mut self, state: &State, snapshot: bool, effects: &mut E) {
        let (ballot, leader) = (self.ballot, self.ballot.leader());
        if self.is_behind(state) {
            if snapshot {
                self.catch_ups.overtaken += 1;
                self.jump(state, effects);
            }
            if self.is_behind(state) {
                effects.send(leader, &PeerMessage::Behind { ballot });
                return;
            }
        }
        effects.send(leader, &PeerMessage::Installed { ballot });
        self.deliver_due(effects);
    }

    /// Installs what is pending if nothing is missing; else asks for it, if told to.
    pub(super) fn go_on_installing<E: Effects>(&mut self, ask: bool, effects: &mut E) {
        let Stage::Installing(pending) = &self.stage else { return };
        let (ballot, leader) = (pending.ballot, pending.ballot.leader());
        if self.is_behind(&pending.state) {
            if ask {
                effects.send(leader, &PeerMessage::Behind { ballot });
            }
            return;
        }
        if !planted!(self.config.plant, StateWithoutBodies) {
            let mut lacks = self.lacks(&pending.state).chain(self.lacks_held(&pending.state)).peekable();
            if lacks.peek().is_some() {
                if ask {
                    lacks.for_each(|subject| effects.send(leader, &PeerMessage::WantBody(subject)));
                }
                return;
            }
        }
        let Stage::Installing(pending) = std::mem::replace(&mut self.stage, Stage::Idle) else { return };
        self.adopt(&pending.state, ballot, pending.counter, false);
        effects.send(leader, &PeerMessage::Installed { ballot });
        self.acknowledge_all(None, effects);
        self.deliver_due(effects);
    }

    /// A body came: a state may have waited for it.
    pub(super) fn body_came<E: Effects>(&mut self, effects: &mut E) {
        match &self.stage {
            Stage::Installing(_) => self.go_on_installing(false, effects),
            Stage::Campaigning(_) => {
                let complete = !self.lacks_for_takeover();
                if complete {
                    self.count_promises(effects);
                }
            }
            _ => {}
        }
    }

    /// Acknowledges every undecided message whose vector is processed: to all, or what was lost on the way to one process.
    pub(super) fn acknowledge_all<E: Effects>(&mut self, only: Option<ProcessId>, effects: &mut E) {
        if self.promised != self.ballot {
            return;
        }
        for client in 0..self.windows.len() as u16 {
            let window = &self.windows[usize::from(client)];
            for slot in window.first_undelivered()..window.assigned {
                let message = self.windows[usize::from(client)].slot(slot);
                if !message.vector || message.void || !message.body {
                    continue;
                }
                if let Some(process) = only {
                    self.acknowledge_to(process, ClientId(client), slot, effects);
                } else {
                    self.vote(ClientId(client), slot);
                    self.acknowledge(ClientId(client), slot, effects);
                    self.decide(ClientId(client), slot);
                }
            }
        }
    }

    /// Sends this leader's state to a member, with the application's if `snapshot`; the stream goes on from there.
    pub(super) fn install_at<E: Effects>(&mut self, to: ProcessId, snapshot: bool, effects: &mut E) {
        let (ballot, counter, mut state) = (self.ballot, self.counter, self.state());
        let admits = self.admitted.clone();
        if !admits.iter().any(|(process, _)| *process == to) {
            state.forget_held();
        }
        // Sent again until it is known to be installed.
        self.installed &= !self.config.topology.member_bit(self.group, to).unwrap_or(0);
        effects.send(to, &PeerMessage::Install { ballot, counter, state, admits, snapshot });
        effects.begin_stream(ballot);
    }

    /// A member, or a candidate to whom this member is the donor, needs the application's state.
    pub(super) fn on_behind<E: Effects>(&mut self, from: ProcessId, ballot: Ballot, effects: &mut E) {
        if ballot == self.ballot && matches!(self.stage, Stage::Preparing | Stage::Leading) {
            self.install_at(from, true, effects);
        } else if ballot == self.promised && ballot.leader() == from && ballot != self.ballot {
            effects.send(from, &PeerMessage::Transfer { ballot, state: self.state() });
        }
    }

    /// A process without memory wants to be taken in. That takes a new ballot, made without its memory: the quorums of
    /// earlier ones may have leaned on what it forgot.
    pub(super) fn on_join<E: Effects>(&mut self, from: ProcessId, life: u64, effects: &mut E) {
        let bit = self.config.topology.member_bit(self.group, from).unwrap_or(0);
        if self.is_joining() {
            self.asking.now |= bit;
            self.on_fresh(from, life, effects);
            return;
        }
        let elder = self.lives.of(from);
        if life < elder {
            effects.send(from, &PeerMessage::Elder { life: elder });
            return;
        }
        self.lives.hear_of(from, life);
        if self.genesis.contains(&(from, life)) {
            // It has no memory because it never had any: perhaps it only has not heard that all are there. But others may
            // have begun with an earlier life of it, and do not answer this.
            effects.send(from, &PeerMessage::Begun { life: self.lives.of(self.config.me) });
        }
        if self.admitted.contains(&(from, life)) && matches!(self.stage, Stage::Preparing | Stage::Leading) {
            self.install_at(from, true, effects);
            return;
        }
        self.joiners.retain(|(process, _)| *process != from);
        self.joiners.push((from, life));
        self.forget_promises();
        self.installed &= !bit;
        if self.leads && !planted!(self.config.plant, JoinWithoutBallot) {
            let _ = self.campaign(effects);
        } else if self.leads {
            self.admitted.push((from, life));
            self.install_at(from, true, effects);
        }
    }

    /// Another process is, or was until just now, without memory too. When all are there, the group begins its life.
    pub(super) fn on_fresh<E: Effects>(&mut self, from: ProcessId, life: u64, effects: &mut E) {
        if !self.is_joining() {
            return;
        }
        self.fresh |= self.config.topology.member_bit(self.group, from).unwrap_or(0);
        self.genesis.retain(|(process, _)| *process != from);
        self.genesis.push((from, life));
        let all = (1_u128 << self.config.topology.size(self.group)) as u64;
        if self.fresh | self.bit != all.wrapping_sub(1) {
            return;
        }
        // Whoever has not heard that all are there hears it now.
        let life = self.lives.of(self.config.me);
        for member in self.others() {
            effects.send(member, &PeerMessage::Begun { life });
        }
        self.begin_life();
        if self.leads {
            // Nobody promised the first ballot, so who was there for it may have forgotten that. From the next one on a
            // majority remembers that the group has begun.
            let _ = self.campaign(effects);
        }
        for client in 0..self.windows.len() as u16 {
            self.settle(ClientId(client), effects);
        }
    }

    /// Asks the group to be taken in.
    pub(super) fn join<E: Effects>(&self, effects: &mut E) {
        let Some(life) = self.joining else { return };
        for member in self.others() {
            effects.send(member, &PeerMessage::Join { life });
        }
    }
}
