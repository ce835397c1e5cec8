//! Step 3: a leader that has all timestamps raises its clock, then appends the vector.

use stentor_fabric::ProcessId;

use super::{Rejected, Replica, Variant};
use crate::item::{Head, RemoteTimestamp, StreamEntry, StreamItem};
use crate::peer_message::{MessageRef, PeerMessage};
use crate::plant::planted;
use crate::{ClientId, Effects, ProcessRole};

impl Replica {
    /// Another group's leader wrote its timestamp.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn on_timestamp<E: Effects>(
        &mut self,
        from: ProcessId,
        item: &RemoteTimestamp,
        effects: &mut E,
    ) -> Result<(), Rejected> {
        self.catch_up_clock();
        let Some(ProcessRole::Member { group, .. }) = self.config.topology.role(from) else {
            return Err(Rejected::Sender(from));
        };
        if item.ballot.leader() != from || group == self.group {
            return Err(Rejected::Sender(from));
        }
        let ballot = self.known(group);
        if item.ballot < ballot {
            effects.send(from, &PeerMessage::Announce { group, ballot });
            return Ok(());
        }
        if self.promised.leader() != self.config.me {
            // The sender has not heard who leads here, or heard of somebody who does not any more.
            if !self.is_joining() {
                effects.send(from, &PeerMessage::Announce { group: self.group, ballot: self.known(self.group) });
            }
            return Ok(());
        }
        let Some(slot) = self.locate(&item.head)? else {
            let subject = MessageRef { client: item.head.client, sequence: item.head.sequence };
            let superseded = self.windows[usize::from(item.head.client.0)].is_superseded(&item.head);
            effects
                .send(from, &if superseded { PeerMessage::Refused(subject) } else { PeerMessage::Forgotten(subject) });
            return Ok(());
        };
        let (client, position) = (item.head.client, usize::from(item.position));
        let message = self.windows[usize::from(client.0)].slot_mut(slot);
        if message.destinations.get(position).is_some_and(|to| to.group != group) {
            return Err(Rejected::Sender(from));
        }
        self.hear_of(group, item.ballot);
        if self.leads && item.ballot > self.said[usize::from(group.0)] {
            self.say_known(effects);
        }
        let message = self.windows[usize::from(client.0)].slot_mut(slot);
        if message.void {
            if message.settled {
                // By the name that the sender knows: nobody here may have seen the message.
                effects.send(from, &PeerMessage::Refused(MessageRef { client, sequence: item.head.sequence }));
            }
            return Ok(());
        }
        if message.decided.is_some() {
            self.tell_outcome(from, group, client, slot, effects);
            return Ok(());
        }
        let time = message.times().time(position);
        if time != 0 && (message.ballot(position) >= item.ballot || planted!(self.config.plant, FirstTimestampKept)) {
            return Ok(());
        }
        message.stamp(position, item.ballot, item.time);
        // Appended afresh when this member is ready to lead.
        message.vector &= self.leads || time == item.time;
        if time != item.time && self.leads && message.ordered {
            if self.config.variant == Variant::V1 {
                self.pass_on(client, slot, position, effects);
            }
            self.complete_if_known(client, slot, effects);
            self.settle(client, effects);
        }
        Ok(())
    }

    /// Tells the followers which ballots of other groups were heard of since they were told.
    pub(super) fn say_known<E: Effects>(&mut self, effects: &mut E) {
        for at in 0..self.known.len() {
            let ballot = self.known[at];
            if ballot > std::mem::replace(&mut self.said[at], ballot) && at != usize::from(self.group.0) {
                self.counter += 1;
                let entry = StreamEntry::Heard(ballot);
                effects.to_followers(&StreamItem { head: Head::NONE, counter: self.counter, entry });
            }
        }
    }

    /// V1: every other group's timestamp goes to the followers on its own, as it comes.
    pub(super) fn pass_on_known<E: Effects>(&mut self, client: ClientId, slot: u64, effects: &mut E) {
        let message = self.windows[usize::from(client.0)].slot(slot);
        for position in 0..message.groups {
            let message = self.windows[usize::from(client.0)].slot(slot);
            if position != message.own && message.times().time(position) != 0 {
                self.pass_on(client, slot, position, effects);
            }
        }
    }

    fn pass_on<E: Effects>(&mut self, client: ClientId, slot: u64, position: usize, effects: &mut E) {
        self.counter += 1;
        let message = self.windows[usize::from(client.0)].slot(slot);
        let (ballot, time) = (message.ballot(position), message.times().time(position));
        self.clock = self.clock.max(time);
        let head = message.head(client, message.own);
        let entry = StreamEntry::Remote { position: position as u8, ballot, time };
        effects.to_followers(&StreamItem { head, counter: self.counter, entry });
    }

    /// Step 3, one step of one thread: clock first, then the entry. Afterwards every message that this leader
    /// timestamps comes after this one.
    pub(super) fn complete_if_known<E: Effects>(&mut self, client: ClientId, slot: u64, effects: &mut E) {
        let message = self.windows[usize::from(client.0)].slot(slot);
        if !message.times().complete() || message.void || message.delivered {
            return;
        }
        let (groups, latest) = (message.groups, message.times().max());
        self.raise_clock(latest);
        // In V1 each time was passed on as it came; but what came before this ballot began was passed on in another one.
        let first = self.ballot == self.config.topology.first_ballot(self.group);
        if groups > 1 && (self.config.variant == Variant::V2 || !first) {
            self.append_vector(client, slot, effects);
        }
        self.windows[usize::from(client.0)].slot_mut(slot).vector = true;
        self.vote(client, slot);
        // A follower's acknowledgement implies the leader's vote; a one-process group has no follower to imply it.
        let alone = self.config.topology.size(self.group) == 1 && !planted!(self.config.plant, SoloLeaderSilent);
        if alone || self.config.variant == Variant::V1 {
            self.acknowledge(client, slot, effects);
        }
        self.decide(client, slot);
    }

    /// The vector as one entry of the stream.
    pub(super) fn append_vector<E: Effects>(&mut self, client: ClientId, slot: u64, effects: &mut E) {
        self.counter += 1;
        let message = self.windows[usize::from(client.0)].slot(slot);
        let (head, entry) = (message.head(client, message.own), StreamEntry::Vector(message.times()));
        effects.to_followers(&StreamItem { head, counter: self.counter, entry });
    }

    fn raise_clock(&mut self, to: u64) {
        if planted!(self.config.plant, NoClockRaise) {
            return;
        }
        if planted!(self.config.plant, ClockAfterEntry) {
            self.put_off = self.put_off.max(to);
            return;
        }
        self.clock = self.clock.max(to);
    }

    /// For the planted bug that raises the clock in another step than the one that appends the entry.
    pub(super) fn catch_up_clock(&mut self) {
        if self.put_off != 0 {
            self.clock = self.clock.max(self.put_off);
            self.put_off = 0;
        }
    }
}
