//! Letters, by kind.

use stentor_fabric::ProcessId;

use super::window::Window;
use super::{Rejected, Replica, Stage, Variant};
use crate::peer_message::{MessageRef, PeerMessage};
use crate::plant::planted;
use crate::{Ballot, ClientId, Effects, GroupId, ProcessRole};

/// Most bodies that are forwarded at once: half of the letters that may wait for one peer.
const BODIES: u64 = 32;

impl Replica {
    /// Another member wrote a letter. One that [fences](PeerMessage::fences) a ballot larger than
    /// [`promised`](Replica::promised) is given only when nobody but that ballot's leader can write this member's stream
    /// regions any more, and what was in them is processed.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn on_peer_message<E: Effects>(
        &mut self,
        from: ProcessId,
        letter: &PeerMessage,
        effects: &mut E,
    ) -> Result<(), Rejected> {
        let Some(ProcessRole::Member { group, .. }) = self.config.topology.role(from) else {
            return Err(Rejected::Sender(from));
        };
        self.check_sender(from, group, letter)?;
        if self.superseded {
            return Ok(());
        }
        match letter {
            PeerMessage::Join { life } => self.on_join(from, *life, effects),
            PeerMessage::Begun { life } => self.on_fresh(from, *life, effects),
            PeerMessage::Elder { life } => self.on_elder(*life, effects),
            PeerMessage::Campaign { ballot, lives } => {
                self.lives.check(lives)?;
                self.on_campaign(from, *ballot, lives, effects);
            }
            PeerMessage::Promise { ballot, state } => {
                self.check_state(state)?;
                self.on_promise(from, *ballot, state, effects);
            }
            PeerMessage::Refuse { promised } => self.hear_of(self.group, *promised),
            PeerMessage::Install { ballot, counter, state, admits, snapshot } => {
                self.check_state(state)?;
                self.on_install(*ballot, *counter, state, admits, *snapshot, effects);
            }
            PeerMessage::Installed { ballot } => self.on_installed(from, *ballot, effects),
            PeerMessage::Behind { ballot } => self.on_behind(from, *ballot, effects),
            PeerMessage::Transfer { ballot, state } => {
                self.check_state(state)?;
                self.on_transfer(from, *ballot, state, effects);
            }
            PeerMessage::Announce { group, ballot } => self.on_announce(from, *group, *ballot, effects),
            PeerMessage::WantBody(subject) => self.on_want(from, *subject, 1, effects),
            PeerMessage::WantBodies(subject) => self.on_want(from, *subject, BODIES, effects),
            PeerMessage::Gone(subject) => self.on_gone(*subject, effects),
            PeerMessage::Ask(subject) => self.on_ask(from, *subject, effects),
            PeerMessage::Decided { subject, ballot, times } if *ballot <= self.ballot => {
                self.on_decided(*subject, Some(times), effects);
                self.note_unusable(from, *subject, times);
            }
            PeerMessage::Decided { .. } => {}
            PeerMessage::Forgotten(subject) if group == self.group => self.on_outrun(*subject, effects),
            PeerMessage::Forgotten(subject) if self.leads => self.on_decided(*subject, None, effects),
            PeerMessage::Forgotten(_) => {}
            PeerMessage::Refused(subject) => self.on_refused(*subject, effects),
            PeerMessage::Seek(spot) => self.on_seek(from, *spot, effects),
            PeerMessage::Lacking(spot) => self.on_lacking(from, *spot, effects),
            PeerMessage::NoOpProcessed(spot) => self.on_voided(from, *spot, effects),
            PeerMessage::Probe { ballot } => self.on_stand(from, *ballot, effects),
            PeerMessage::Lead => {}
        }
        Ok(())
    }

    /// Whether a letter may come from where it came.
    fn check_sender(&self, from: ProcessId, group: GroupId, letter: &PeerMessage) -> Result<(), Rejected> {
        let own = group == self.group && from != self.config.me;
        let led = |ballot: &Ballot| ballot.leader() == from;
        let sound = match letter {
            PeerMessage::Campaign { ballot, .. } => own && led(ballot),
            PeerMessage::Install { ballot, admits, .. } => {
                let topology = &self.config.topology;
                own && led(ballot) && admits.iter().all(|(process, _)| topology.member_bit(group, *process).is_some())
            }
            PeerMessage::Announce { group, ballot } => {
                let known = self.config.topology.has_group(*group);
                known && self.config.topology.member_bit(*group, ballot.leader()).is_some()
            }
            PeerMessage::Refuse { promised } => {
                own && self.config.topology.member_bit(group, promised.leader()).is_some()
            }
            PeerMessage::WantBody(_) | PeerMessage::WantBodies(_) | PeerMessage::Gone(_) => from != self.config.me,
            PeerMessage::Decided { .. } => from != self.config.me,
            PeerMessage::Forgotten(_) => from != self.config.me,
            PeerMessage::Refused(_) => group != self.group,
            _ => own,
        };
        if sound { Ok(()) } else { Err(Rejected::Sender(from)) }
    }

    /// A larger ballot of a group was heard of.
    pub(super) fn hear_of(&mut self, group: GroupId, ballot: Ballot) {
        let known = &mut self.known[usize::from(group.0)];
        *known = (*known).max(ballot);
    }

    fn on_announce<E: Effects>(&mut self, from: ProcessId, group: GroupId, ballot: Ballot, effects: &mut E) {
        let known = self.known(group);
        if ballot < known {
            if group != self.group && self.config.topology.member_bit(group, from).is_some() {
                // Of its own group it should know more: see `outbid.rs`.
                effects.send(from, &PeerMessage::Announce { group, ballot: known });
            }
            return;
        }
        self.hear_of(group, ballot);
        if self.leads && group != self.group {
            self.tell_timestamps(group, effects);
        }
    }

    /// Sends this group's timestamps of every undecided common message to the leader of another group.
    pub(super) fn tell_timestamps<E: Effects>(&mut self, group: GroupId, effects: &mut E) {
        if planted!(self.config.plant, TimestampsNotRepeated) {
            return;
        }
        for client in 0..self.windows.len() as u16 {
            let window = &self.windows[usize::from(client)];
            for slot in window.first_undelivered()..window.assigned {
                let message = self.windows[usize::from(client)].slot(slot);
                let common = message.destinations.iter().position(|to| to.group == group);
                if let Some(position) = common
                    && message.decided.is_none()
                    && !message.void
                {
                    self.send_timestamp(ClientId(client), slot, position, effects);
                }
            }
        }
    }

    /// Finds a retained message.
    pub(super) fn find(&self, subject: MessageRef) -> Option<u64> {
        self.windows.get(usize::from(subject.client.0))?.find(subject.sequence)
    }

    /// Forwards a message, and what is held behind it.
    fn on_want<E: Effects>(&mut self, from: ProcessId, subject: MessageRef, most: u64, effects: &mut E) {
        let held = |slot| {
            let window = &self.windows[usize::from(subject.client.0)];
            window.is_here(slot) && window.slot(slot).body
        };
        match self.find(subject) {
            Some(slot) if held(slot) => {
                effects.body(from, subject.client, slot);
                (slot + 1..slot + most).take_while(|slot| held(*slot)).for_each(|slot| {
                    effects.spare_body(from, subject.client, slot);
                });
            }
            _ => effects.send(from, &PeerMessage::Gone(subject)),
        }
    }

    /// A body that is needed is nowhere to be had: the application's state contains it.
    fn on_gone<E: Effects>(&mut self, subject: MessageRef, effects: &mut E) {
        let held = |window: &Window| window.holds_somewhere(subject.sequence);
        if self.windows.get(usize::from(subject.client.0)).is_some_and(held) {
            // It came through its client's ring meanwhile.
            return;
        }
        match &self.stage {
            Stage::Campaigning(_) => self.want_transfer(effects),
            Stage::Leading | Stage::Preparing => {}
            Stage::Idle | Stage::Installing(_) => {
                let ballot = self.promised;
                if ballot.leader() != self.config.me && !self.is_joining() {
                    effects.send(ballot.leader(), &PeerMessage::Behind { ballot });
                }
            }
        }
    }

    fn on_ask<E: Effects>(&mut self, from: ProcessId, subject: MessageRef, effects: &mut E) {
        if !self.leads {
            return;
        }
        match self.find(subject) {
            Some(slot) => {
                let message = self.windows[usize::from(subject.client.0)].slot(slot);
                if self.config.variant == Variant::V1 && message.vector && !message.void {
                    // A state has whole vectors only; who missed one of the times gets them all.
                    self.append_vector(subject.client, slot, effects);
                }
                self.tell_outcome(from, self.group, subject.client, slot, effects);
            }
            // Everybody that counts has delivered it, and it is forgotten: who asks is behind. It asks about many messages
            // at once; what is on its way already is repeated by time.
            None if self.installed & self.config.topology.member_bit(self.group, from).unwrap_or(0) != 0 => {
                self.install_at(from, true, effects);
            }
            None => {}
        }
    }

    /// A leader, of this group or of another, or a follower that has delivered it, says that a message is decided: at these
    /// times, or so long ago that it has forgotten them. Then they are those of the vector here, if there is one:
    ///
    /// Let V be what the message is decided at, in ballot c of this group. A majority of this group processed the entry with
    /// V in c, so every leader of c or later has appended or adopted it. V's time of another group came in a ballot b of that
    /// group in which a majority acknowledged it, and that time stays the same in all later ballots of that group. Who has
    /// processed V has heard of b before (`say_known`), so every later leader here has; it takes no timestamp of a smaller
    /// ballot. So what replaces a time of V is equal to it.
    fn on_decided<E: Effects>(&mut self, subject: MessageRef, times: Option<&Vec<u64>>, effects: &mut E) {
        let Some(slot) = self.find(subject) else { return };
        let message = self.windows[usize::from(subject.client.0)].slot(slot);
        let same = times.is_none_or(|times| message.times().words() == times);
        if message.vector && same && self.learn(subject.client, slot) {
            self.settle(subject.client, effects);
        }
    }

    /// Notes that the leader has said that a message is decided. If that was of no use here, because the entry with
    /// this vector is not processed, asking again is of none either.
    fn note_unusable(&mut self, from: ProcessId, subject: MessageRef, times: &[u64]) {
        let Some(slot) = self.find(subject).filter(|_| from == self.ballot.leader()) else { return };
        let message = self.windows[usize::from(subject.client.0)].slot(slot);
        let processed = message.vector && message.times().words() == times;
        if !processed && !message.delivered && !message.void {
            self.note_starved();
        }
    }

    /// A follower has delivered and forgotten a message that is undecided here: this leader's acknowledgements were lost,
    /// and clients count it no more. What it lacks it can only take over, with the application's state: by a new ballot,
    /// like everything that a leader takes.
    fn on_outrun<E: Effects>(&mut self, subject: MessageRef, effects: &mut E) {
        let Some(slot) = self.find(subject).filter(|_| self.leads) else { return };
        let message = self.windows[usize::from(subject.client.0)].slot(slot);
        if message.decided.is_none() && !message.void && !message.delivered {
            let _ = self.campaign(effects);
        }
    }

    /// The message's vector is known to be decided. Returns whether that is news.
    pub(super) fn learn(&mut self, client: ClientId, slot: u64) -> bool {
        let leads = self.ballot.leader() == self.config.me;
        let window = &mut self.windows[usize::from(client.0)];
        let message = window.slot_mut(slot);
        if !message.vector || message.decided.is_some() || message.void || message.delivered {
            return false;
        }
        let (latest, set) = (message.latest(message.times()), message.set);
        message.decided = Some(latest);
        if slot < window.assigned && leads {
            window.count_decided(set);
        }
        true
    }

    /// Tells what became of a message: a follower that asks, or another group's leader that gives its timestamp. What is
    /// decided holds for the receiver's group from the largest ballot on that was heard of.
    pub(super) fn tell_outcome<E: Effects>(
        &self,
        to: ProcessId,
        group: GroupId,
        client: ClientId,
        slot: u64,
        effects: &mut E,
    ) {
        let message = self.windows[usize::from(client.0)].slot(slot);
        let subject = MessageRef { client, sequence: message.sequence };
        if message.is_settled() {
            let (ballot, times) = (self.known(group), message.times().words().to_vec());
            effects.send(to, &PeerMessage::Decided { subject, ballot, times });
        }
    }
}
