//! Step 4: a follower processes its leader's dense stream and acknowledges.

use stentor_fabric::ProcessId;

use super::{Rejected, Replica, Stage};
use crate::item::{StreamEntry, StreamItem};
use crate::peer_message::{MessageRef, PeerMessage};
use crate::plant::planted;
use crate::{Ballot, ClientId, Effects, ProcessRole};

impl Replica {
    /// Whether a stream entry must wait: for its body, for the state of its ballot, or for the state that has the entries
    /// before it, which were lost with a connection.
    #[inline]
    #[must_use]
    pub fn stream_waits(&self, from: ProcessId, item: &StreamItem<'_>) -> bool {
        if matches!(self.stage, Stage::Installing(_)) && self.stream_ballot.leader() == from {
            return self.stream_ballot >= self.promised;
        }
        if !self.follows(from) || item.counter <= self.counter {
            return self.stream_ballot > self.ballot && self.stream_ballot.leader() == from;
        }
        if item.counter > self.counter + 1 {
            return true;
        }
        if matches!(item.entry, StreamEntry::Heard(_)) {
            return false;
        }
        let window = self.windows.get(usize::from(item.head.client.0));
        window.is_some_and(|window| match item.entry {
            StreamEntry::NoOp { .. } => window.resolve_void(&item.head).is_some_and(|slot| window.is_beyond(slot)),
            _ => window.resolve(&item.head).is_some_and(|slot| !window.holds_message(slot, item.head.sequence)),
        })
    }

    /// Whether entries of this process's stream are to be processed now.
    #[inline]
    fn follows(&self, from: ProcessId) -> bool {
        let fenced = self.promised != self.ballot && !planted!(self.config.plant, NotFenced);
        let current = self.stream_ballot == self.ballot && !fenced;
        current && from == self.ballot.leader() && from != self.config.me
    }

    /// A leader's stream: what follows is of this ballot.
    ///
    /// # Errors
    /// [`Rejected::Sender`] if the ballot is not led by the sender.
    pub fn on_begin(&mut self, from: ProcessId, ballot: Ballot) -> Result<(), Rejected> {
        if ballot.leader() != from || self.config.topology.member_bit(self.group, from).is_none() {
            return Err(Rejected::Sender(from));
        }
        self.stream_ballot = self.stream_ballot.max(ballot);
        Ok(())
    }

    /// The next entry of a leader's stream; call only when it does not [wait](Replica::stream_waits). Entries of ballots
    /// that are over, and those that the installed state contains, change nothing.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn on_stream<E: Effects>(
        &mut self,
        from: ProcessId,
        item: &StreamItem<'_>,
        effects: &mut E,
    ) -> Result<(), Rejected> {
        if from == self.config.me || self.config.topology.member_bit(self.group, from).is_none() {
            return Err(Rejected::Role);
        }
        if !self.follows(from) || item.counter <= self.counter {
            return Ok(());
        }
        if item.counter != self.counter + 1 {
            return Err(Rejected::Counter { counter: item.counter, expected: self.counter + 1 });
        }
        if let StreamEntry::Heard(ballot) = item.entry {
            return self.on_heard(ballot);
        }
        let client = item.head.client;
        if usize::from(client.0) >= self.windows.len() {
            return Err(Rejected::Client(client.0));
        }
        if let StreamEntry::Assign { ballot, .. } = item.entry
            && ballot != self.ballot
        {
            return Err(Rejected::Ballot(ballot));
        }
        if let StreamEntry::NoOp { settled } = item.entry {
            let window = &self.windows[usize::from(client.0)];
            window.resolve_void(&item.head).map_or(Ok(()), |slot| window.check(client, slot))?;
            self.counter += 1;
            self.on_void(&item.head, settled, effects);
            return Ok(());
        }
        let window = &self.windows[usize::from(client.0)];
        if let Some(slot) = window.resolve(&item.head) {
            window.check(client, slot)?;
            if !window.holds(slot) {
                return Err(Rejected::NotHeld { client: client.0, slot });
            }
        }
        let Some(slot) = self.locate(&item.head)? else {
            self.counter += 1;
            self.tell_forgotten(from, item, effects);
            return Ok(());
        };
        let window = &self.windows[usize::from(client.0)];
        // A planted bug may have found another slot.
        if !window.holds(slot) {
            return Err(Rejected::NotHeld { client: client.0, slot });
        }
        self.counter += 1;
        if window.slot(slot).void {
            // Refused by another group, which a leader since may not know.
            return Ok(());
        }
        if window.slot(slot).delivered {
            // The leader does not know: it is told what it needs by acknowledging again.
            if let StreamEntry::Vector(times) = item.entry
                && window.slot(slot).times() == times
            {
                self.acknowledge(client, slot, effects);
                self.tell_delivered(client, slot, effects);
            }
            return Ok(());
        }
        self.process(client, slot, item, effects);
        self.deliver_due(effects);
        Ok(())
    }

    /// The leader has heard of another group's ballot.
    fn on_heard(&mut self, ballot: Ballot) -> Result<(), Rejected> {
        let Some(ProcessRole::Member { group, .. }) = self.config.topology.role(ballot.leader()) else {
            return Err(Rejected::Ballot(ballot));
        };
        self.counter += 1;
        self.hear_of(group, ballot);
        Ok(())
    }

    /// Delivered here, and the leader says it again: once that is no wonder, after a change of leaders. But what acknowledgements
    /// of another group told this member may have been lost on the way to all others, and that group may be gone.
    fn tell_delivered<E: Effects>(&mut self, client: ClientId, slot: u64, effects: &mut E) {
        let (leader, ballot) = (self.ballot.leader(), self.ballot);
        let message = self.windows[usize::from(client.0)].slot_mut(slot);
        // Nothing else grows old once it is delivered.
        message.age = message.age.saturating_add(1);
        if message.age > 1 {
            let subject = MessageRef { client, sequence: message.sequence };
            let times = message.times().words().to_vec();
            effects.send(leader, &PeerMessage::Decided { subject, ballot, times });
        }
    }

    /// Delivered and forgotten here; but the leader says it again, so it does not know.
    fn tell_forgotten<E: Effects>(&self, leader: ProcessId, item: &StreamItem<'_>, effects: &mut E) {
        if matches!(item.entry, StreamEntry::Vector(_)) {
            let subject = MessageRef { client: item.head.client, sequence: item.head.sequence };
            effects.send(leader, &PeerMessage::Forgotten(subject));
        }
    }

    fn process<E: Effects>(&mut self, client: ClientId, slot: u64, item: &StreamItem<'_>, effects: &mut E) {
        let message = self.windows[usize::from(client.0)].slot_mut(slot);
        let known = message.vector;
        match item.entry {
            StreamEntry::Assign { time, .. } => self.order_assigned(client, slot, time),
            StreamEntry::Remote { position, ballot, time } => message.stamp(usize::from(position), ballot, time),
            StreamEntry::Vector(times) => message.stamp_all(times),
            StreamEntry::NoOp { .. } | StreamEntry::Heard(_) => return,
        }
        let message = self.windows[usize::from(client.0)].slot(slot);
        // A vector that comes again, with other times or not, is acknowledged again: that is what it came for.
        let again = known && !matches!(item.entry, StreamEntry::Assign { .. });
        if message.times().complete() && message.ordered && (!known || again) {
            self.vector_processed(client, slot, effects);
        }
    }

    fn order_assigned(&mut self, client: ClientId, slot: u64, time: u64) {
        self.clock = self.clock.max(time);
        let ballot = self.ballot;
        let window = &mut self.windows[usize::from(client.0)];
        window.assigned = window.assigned.max(slot + 1);
        let message = window.slot_mut(slot);
        message.stamp(message.own, ballot, time);
        message.ordered = true;
        let key = message.tentative();
        self.order_push(key, client, slot);
    }

    fn vector_processed<E: Effects>(&mut self, client: ClientId, slot: u64, effects: &mut E) {
        let message = self.windows[usize::from(client.0)].slot_mut(slot);
        message.vector = true;
        let latest = message.times().max();
        self.clock = self.clock.max(latest);
        self.vote(client, slot);
        self.acknowledge(client, slot, effects);
        self.decide(client, slot);
    }
}
