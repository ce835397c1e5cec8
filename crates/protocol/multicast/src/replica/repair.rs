//! What time brings: letters and items that may be lost with a connection are repeated until they have had their effect.

use stentor_fabric::ProcessId;

use super::{Rejected, Replica, Stage, Variant};
use crate::item::{Ack, RemoteTimestamp, StreamEntry, StreamItem, Times};
use crate::peer_message::{MessageRef, PeerMessage};
use crate::plant::planted;
use crate::{ClientId, Effects, ProcessRole};

impl Replica {
    /// Time passes: call every few milliseconds. What has made no progress for [`retry_ticks`](super::ReplicaConfig::retry_ticks)
    /// ticks is asked for, or said, again.
    pub fn on_tick<E: Effects>(&mut self, effects: &mut E) {
        if self.superseded {
            return;
        }
        self.grow_starved(effects);
        self.age = self.age.saturating_add(1);
        if self.age >= self.config.retry_ticks {
            self.age = 0;
            self.repeat_letters(effects);
        }
        let held_up = self.leads && effects.is_held_up();
        for client in 0..self.windows.len() as u16 {
            self.look_for_gap(ClientId(client), effects);
            if held_up {
                // Nothing grows old meanwhile: a leader whose stream stands still would fill its memory with it.
                continue;
            }
            for slot in self.windows[usize::from(client)].open() {
                self.grow_old(ClientId(client), slot, effects);
            }
        }
    }

    fn repeat_letters<E: Effects>(&mut self, effects: &mut E) {
        if self.is_joining() {
            self.join(effects);
            self.asking.pass();
        }
        match &self.stage {
            Stage::Idle => {}
            Stage::Campaigning(_) => {
                for member in self.others() {
                    effects.send(member, &self.campaign_letter());
                }
                self.count_promises(effects);
            }
            // Also long after it leads: somebody may come back.
            Stage::Preparing | Stage::Leading => {
                let installed = self.installed;
                for member in self.others() {
                    let bit = self.config.topology.member_bit(self.group, member).unwrap_or(0);
                    if installed & bit == 0 {
                        self.install_at(member, false, effects);
                    }
                }
                self.ask_who_stands(effects);
            }
            Stage::Installing(_) => self.go_on_installing(true, effects),
        }
    }

    /// One undelivered slot is a tick older.
    fn grow_old<E: Effects>(&mut self, client: ClientId, slot: u64, effects: &mut E) {
        let window = &mut self.windows[usize::from(client.0)];
        if !window.is_here(slot) {
            return;
        }
        let assigned = slot < window.assigned;
        let over = window.is_over(window.slot(slot).sequence);
        let message = window.slot_mut(slot);
        if message.void {
            self.grow_old_void(client, slot, effects);
            return;
        }
        if message.groups == 0 || message.delivered {
            return;
        }
        message.age += 1;
        // A body that nobody assigns is seldom one that the leader has not got: it is the sender's turn first.
        let retry_ticks =
            if message.body && !assigned { self.config.retry_ticks.saturating_mul(4) } else { self.config.retry_ticks };
        if message.age < retry_ticks {
            return;
        }
        message.age = 0;
        let subject = MessageRef { client, sequence: message.sequence };
        let (body, decided, settled) = (message.body, message.decided.is_some(), message.is_settled());
        if self.leads {
            match (assigned, body) {
                (true, _) if !decided => self.repeat(client, slot, effects),
                (false, false) => self.want_from_other_leaders(client, slot, subject, effects),
                _ => {}
            }
        } else if self.promised == self.ballot && !self.is_joining() {
            let leader = self.ballot.leader();
            match (assigned, body) {
                // It prepares to lead.
                _ if leader == self.config.me => {}
                (true, _) if !settled => effects.send(leader, &PeerMessage::Ask(subject)),
                // Of a process that is gone, the leader must know also what lies behind a gap.
                (false, true) if over || slot == self.windows[usize::from(client.0)].assigned => {
                    effects.body(leader, client, slot);
                }
                _ => {}
            }
        }
    }

    /// Says again what a leader said about an undecided message; who has heard it acknowledges again.
    fn repeat<E: Effects>(&mut self, client: ClientId, slot: u64, effects: &mut E) {
        self.send_timestamps(client, slot, effects);
        let message = self.windows[usize::from(client.0)].slot(slot);
        if message.vector && !planted!(self.config.plant, VectorNotRepeated) {
            self.append_vector(client, slot, effects);
            self.vote_again(client, slot, effects);
        }
    }

    /// A vector that is known counts as this leader's vote under its ballot.
    pub(super) fn vote_again<E: Effects>(&mut self, client: ClientId, slot: u64, effects: &mut E) {
        let message = self.windows[usize::from(client.0)].slot(slot);
        if !message.times().complete() {
            return;
        }
        if !message.vector {
            self.complete_if_known(client, slot, effects);
            return;
        }
        self.vote(client, slot);
        let alone = self.config.topology.size(self.group) == 1;
        if alone || self.config.variant == Variant::V1 {
            self.acknowledge(client, slot, effects);
        }
        self.decide(client, slot);
    }

    /// Writes this group's timestamp to the leaders of all other destination groups.
    pub(super) fn send_timestamps<E: Effects>(&self, client: ClientId, slot: u64, effects: &mut E) {
        if planted!(self.config.plant, TimestampsNotRepeated) {
            return;
        }
        let message = self.windows[usize::from(client.0)].slot(slot);
        for position in (0..message.destinations.len()).filter(|position| *position != message.own) {
            self.send_timestamp(client, slot, position, effects);
        }
    }

    pub(super) fn send_timestamp<E: Effects>(&self, client: ClientId, slot: u64, position: usize, effects: &mut E) {
        let message = self.windows[usize::from(client.0)].slot(slot);
        let leader = self.known(message.destinations[position].group).leader();
        let (head, time) = (message.head(client, position), message.times().time(message.own));
        let own = message.own as u8;
        effects.timestamp(leader, &RemoteTimestamp { head, position: own, ballot: self.ballot, time });
    }

    /// Whoever gave a timestamp of a message that is not held here has its body.
    fn want_from_other_leaders<E: Effects>(
        &mut self,
        client: ClientId,
        slot: u64,
        subject: MessageRef,
        effects: &mut E,
    ) {
        let message = self.windows[usize::from(client.0)].slot(slot);
        for position in 0..message.groups {
            if message.times().time(position) != 0 {
                let leader = message.ballot(position).leader();
                if leader != self.config.me {
                    effects.send(leader, &PeerMessage::WantBody(subject));
                }
            }
        }
    }

    /// Reports that the head of the leader's stream has waited for a while; if it waits for its body, the member asks
    /// for that. If it is for entries before it, see `starved.rs`.
    pub fn on_stalled<E: Effects>(&mut self, item: &StreamItem<'_>, effects: &mut E) {
        self.note_gap(item);
        let leader = self.promised.leader();
        let next = item.counter <= self.counter + 1;
        if next && leader != self.config.me && self.promised == self.ballot && !self.is_joining() {
            // Who was taken in misses what came before clients met it, not this one alone.
            let subject = MessageRef { client: item.head.client, sequence: item.head.sequence };
            if planted!(self.config.plant, AckWithoutBody)
                && let StreamEntry::Assign { position, ballot, time } = item.entry
                && item.head.groups == 1
            {
                effects.acknowledge(leader, &Ack { head: item.head, position, ballot, times: Times::new(&[time]) });
            }
            effects.send(leader, &PeerMessage::WantBodies(subject));
        }
    }

    /// The connections with a member are up again; what was on its way either way is lost.
    ///
    /// # Errors
    /// [`Rejected::Sender`] if it is not a member.
    pub fn on_connected<E: Effects>(&mut self, peer: ProcessId, effects: &mut E) -> Result<(), Rejected> {
        let Some(ProcessRole::Member { group, .. }) = self.config.topology.role(peer) else {
            return Err(Rejected::Sender(peer));
        };
        if self.superseded {
            return Ok(());
        }
        if let Some(life) = self.joining {
            if group == self.group {
                effects.send(peer, &PeerMessage::Join { life });
            }
            return Ok(());
        }
        if group == self.group {
            match &self.stage {
                Stage::Campaigning(_) => effects.send(peer, &self.campaign_letter()),
                Stage::Preparing | Stage::Leading => self.install_at(peer, false, effects),
                Stage::Idle | Stage::Installing(_) => {}
            }
        } else if self.leads {
            effects.send(peer, &PeerMessage::Announce { group: self.group, ballot: self.ballot });
            if self.known(group).leader() == peer {
                self.tell_timestamps(group, effects);
            }
        }
        self.acknowledge_all(Some(peer), effects);
        Ok(())
    }

    /// Whether the state to take over needs bodies that are missing.
    pub(super) fn lacks_for_takeover(&self) -> bool {
        self.best_state().is_none_or(|state| self.is_behind(state) || self.lacks(state).next().is_some())
    }

    /// Acknowledges a message to one process, if it is one of its destinations.
    pub(super) fn acknowledge_to<E: Effects>(&self, to: ProcessId, client: ClientId, slot: u64, effects: &mut E) {
        let message = self.windows[usize::from(client.0)].slot(slot);
        for (position, destination) in message.destinations.iter().enumerate() {
            if self.config.topology.member_bit(destination.group, to).is_some() {
                let head = message.head(client, position);
                let (own, times) = (message.own as u8, message.times());
                effects.acknowledge(to, &Ack { head, position: own, ballot: self.ballot, times });
            }
        }
    }
}
