//! Letters, by kind.

use stentor_fabric::ProcessId;

use super::window::Window;
use super::{Rejected, Replica, Stage, Variant};
use crate::letter::{Letter, Subject};
use crate::plant::planted;
use crate::{Ballot, ClientId, Effects, GroupId, Place};

/// Most bodies that are forwarded at once: half of the letters that may wait for one peer.
const BODIES: u64 = 32;

impl Replica {
    /// Another member wrote a letter. One that [fences](Letter::fences) a ballot larger than
    /// [`promised`](Replica::promised) is given only when nobody but that ballot's leader can write this member's stream
    /// regions any more, and what was in them is processed.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn on_letter<E: Effects>(&mut self, from: ProcessId, letter: &Letter, effects: &mut E) -> Result<(), Rejected> {
        let Some(Place::Member { group, .. }) = self.config.topology.place(from) else {
            return Err(Rejected::Sender(from));
        };
        self.check_sender(from, group, letter)?;
        if self.superseded {
            return Ok(());
        }
        match letter {
            Letter::Join { incarnation } => self.on_join(from, *incarnation, effects),
            Letter::Begun { incarnation } => self.on_fresh(from, *incarnation, effects),
            Letter::Elder { incarnation } => self.on_elder(*incarnation, effects),
            Letter::Campaign { ballot, lives } => {
                self.lives.check(lives)?;
                self.on_campaign(from, *ballot, lives, effects);
            }
            Letter::Promise { ballot, state } => {
                self.check_state(state)?;
                self.on_promise(from, *ballot, state, effects);
            }
            Letter::Refuse { promised } => self.hear_of(self.group, *promised),
            Letter::Install { ballot, counter, state, admits, snapshot } => {
                self.check_state(state)?;
                self.on_install(*ballot, *counter, state, admits, *snapshot, effects);
            }
            Letter::Installed { ballot } => self.on_installed(from, *ballot, effects),
            Letter::Behind { ballot } => self.on_behind(from, *ballot, effects),
            Letter::Transfer { ballot, state } => {
                self.check_state(state)?;
                self.on_transfer(from, *ballot, state, effects);
            }
            Letter::Announce { group, ballot } => self.on_announce(from, *group, *ballot, effects),
            Letter::WantBody(subject) => self.on_want(from, *subject, 1, effects),
            Letter::WantBodies(subject) => self.on_want(from, *subject, BODIES, effects),
            Letter::Gone(subject) => self.on_gone(*subject, effects),
            Letter::Ask(subject) => self.on_ask(from, *subject, effects),
            Letter::Decided { subject, ballot, times } if *ballot <= self.ballot => {
                self.on_decided(*subject, Some(times), effects);
                self.note_unusable(from, *subject, times);
            }
            Letter::Decided { .. } => {}
            Letter::Forgotten(subject) if group == self.group => self.on_outrun(*subject, effects),
            Letter::Forgotten(subject) if self.leads => self.on_decided(*subject, None, effects),
            Letter::Forgotten(_) => {}
            Letter::Refused(subject) => self.on_refused(*subject, effects),
            Letter::Seek(spot) => self.on_seek(from, *spot, effects),
            Letter::Lacking(spot) => self.on_lacking(from, *spot, effects),
            Letter::Voided(spot) => self.on_voided(from, *spot, effects),
            Letter::Stand { ballot } => self.on_stand(from, *ballot, effects),
            Letter::Lead => {}
        }
        Ok(())
    }

    /// Whether a letter may come from where it came.
    fn check_sender(&self, from: ProcessId, group: GroupId, letter: &Letter) -> Result<(), Rejected> {
        let own = group == self.group && from != self.config.me;
        let led = |ballot: &Ballot| ballot.leader() == from;
        let sound = match letter {
            Letter::Campaign { ballot, .. } => own && led(ballot),
            Letter::Install { ballot, admits, .. } => {
                let topology = &self.config.topology;
                own && led(ballot) && admits.iter().all(|(process, _)| topology.member_bit(group, *process).is_some())
            }
            Letter::Announce { group, ballot } => {
                let known = self.config.topology.has_group(*group);
                known && self.config.topology.member_bit(*group, ballot.leader()).is_some()
            }
            Letter::Refuse { promised } => own && self.config.topology.member_bit(group, promised.leader()).is_some(),
            Letter::WantBody(_) | Letter::WantBodies(_) | Letter::Gone(_) => from != self.config.me,
            Letter::Decided { .. } => from != self.config.me,
            Letter::Forgotten(_) => from != self.config.me,
            Letter::Refused(_) => group != self.group,
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
                effects.letter(from, &Letter::Announce { group, ballot: known });
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
    pub(super) fn find(&self, subject: Subject) -> Option<u64> {
        self.windows.get(usize::from(subject.client.0))?.find(subject.sequence)
    }

    /// Forwards a message, and what is held behind it.
    fn on_want<E: Effects>(&mut self, from: ProcessId, subject: Subject, most: u64, effects: &mut E) {
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
            _ => effects.letter(from, &Letter::Gone(subject)),
        }
    }

    /// A body that is needed is nowhere to be had: the application's state contains it.
    fn on_gone<E: Effects>(&mut self, subject: Subject, effects: &mut E) {
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
                    effects.letter(ballot.leader(), &Letter::Behind { ballot });
                }
            }
        }
    }

    fn on_ask<E: Effects>(&mut self, from: ProcessId, subject: Subject, effects: &mut E) {
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
    fn on_decided<E: Effects>(&mut self, subject: Subject, times: Option<&Vec<u64>>, effects: &mut E) {
        let Some(slot) = self.find(subject) else { return };
        let message = self.windows[usize::from(subject.client.0)].slot(slot);
        let same = times.is_none_or(|times| message.times().words() == times);
        if message.vector && same && self.learn(subject.client, slot) {
            self.settle(subject.client, effects);
        }
    }

    /// Notes that the leader has said that a message is decided. If that was of no use here, because the entry with
    /// this vector is not processed, asking again is of none either.
    fn note_unusable(&mut self, from: ProcessId, subject: Subject, times: &[u64]) {
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
    fn on_outrun<E: Effects>(&mut self, subject: Subject, effects: &mut E) {
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
        let subject = Subject { client, sequence: message.sequence };
        if message.is_settled() {
            let (ballot, times) = (self.known(group), message.times().words().to_vec());
            effects.letter(to, &Letter::Decided { subject, ballot, times });
        }
    }
}
