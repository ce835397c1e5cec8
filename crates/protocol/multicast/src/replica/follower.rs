//! Step 4 of the protocol: a follower processes its leader's dense stream and acknowledges vectors.

use stentor_fabric::ProcessId;

use super::agreement::Agreement;
use super::no_op::NoOps;
use super::succession::Successions;
use super::words::Words;
use super::{Effects, Rejected};
use crate::item::{StreamEntry, StreamItem};
use crate::peer_message::{MessageRef, PeerMessage};
use crate::{ClientId, Word};

/// The part of a member that processes a leader's stream.
///
/// # Invariants
/// - Entries are processed in the order of their counters, without gaps, and each once in a ballot.
/// - A vector is acknowledged only when its message's body is held and the stream is processed through it.
pub(super) struct Follower<'a, E> {
    pub(super) agreement: &'a mut Agreement,
    pub(super) effects: &'a mut E,
}

impl<E: Effects> Follower<'_, E> {
    /// Processes the next entry of a leader's stream.
    pub(super) fn on_stream(&mut self, from: ProcessId, item: &StreamItem<'_>) -> Result<(), Rejected> {
        let Agreement { id, ballots, counter, messages, .. } = &mut *self.agreement;
        if item.counter != *counter + 1 {
            return Err(Rejected::Counter { counter: item.counter, expected: *counter + 1 });
        }
        let client = item.head.client;
        match item.entry {
            StreamEntry::RemoteBallot { .. }
            | StreamEntry::Word { .. }
            | StreamEntry::NoOp { .. }
            | StreamEntry::Succeed { .. } => return self.on_rare(item),
            StreamEntry::Assign { ballot, .. } if messages.client(client).is_some() && ballot != ballots.installed => {
                return Err(Rejected::Ballot(ballot));
            }
            StreamEntry::Assign { .. } if messages.is_own(client) => messages.hold_own_entry(&item.head, id.group)?,
            _ => {}
        }
        let window = messages.client(client).ok_or(Rejected::Client(client.0))?;
        if let Some(slot) = window.resolve(&item.head) {
            window.check(client, slot)?;
            if !window.holds(slot) {
                return Err(Rejected::NotHeld { client: client.0, slot });
            }
        }
        let Some(slot) = messages.locate(id, &item.head)? else {
            *counter += 1;
            self.tell_forgotten(from, item);
            return Ok(());
        };
        // A mutant may have found another slot.
        if !messages.window(client).holds(slot) {
            return Err(Rejected::NotHeld { client: client.0, slot });
        }
        *counter += 1;
        let message = messages.get(client, slot);
        if message.no_op {
            // The slot is a no-op here, and a new leader may not know that.
            return Ok(());
        }
        if message.delivered {
            // The leader does not know that the message is decided. The repeated acknowledgement informs the leader.
            if matches!(item.entry, StreamEntry::Vector(times) if message.times() == times) {
                self.agreement.acknowledge(client, slot, self.effects);
                self.tell_delivered(client, slot);
            }
            return Ok(());
        }
        self.process(client, slot, item);
        self.agreement.deliver_due(self.effects);
        Ok(())
    }

    /// Processes the next entry if its kind needs no body.
    #[cold]
    fn on_rare(&mut self, item: &StreamItem<'_>) -> Result<(), Rejected> {
        let Agreement { id, ballots, counter, messages, .. } = &mut *self.agreement;
        let client = item.head.client;
        match item.entry {
            StreamEntry::RemoteBallot { ballot, incarnation } => {
                // The leader has learned of another group's ballot.
                let (group, _) = id.member(ballot.leader()).map_err(|_| Rejected::Ballot(ballot))?;
                *counter += 1;
                ballots.hear_in(group, ballot, incarnation);
            }
            StreamEntry::Word { ballot, incarnation, origin, in_force } => {
                let (group, _) = id.member(ballot.leader()).map_err(|_| Rejected::Ballot(ballot))?;
                *counter += 1;
                ballots.hear_in(group, ballot, incarnation);
                let word = Word { incarnation, origin, in_force };
                Words { agreement: self.agreement, effects: self.effects }.on_entry(group, word);
            }
            StreamEntry::NoOp { settled } => {
                let window = messages.place(client).ok_or(Rejected::Client(client.0))?;
                window.resolve_no_op(&item.head).map_or(Ok(()), |slot| window.check(client, slot))?;
                *counter += 1;
                NoOps { agreement: self.agreement, effects: self.effects }.on_entry(&item.head, settled);
            }
            StreamEntry::Succeed { .. } => {
                messages.place(client).ok_or(Rejected::Client(client.0))?;
                *counter += 1;
                let (agreement, effects) = (&mut *self.agreement, &mut *self.effects);
                Successions { agreement, counts_in: None, effects }.on_entry(&item.head, &item.entry);
            }
            StreamEntry::Assign { .. } | StreamEntry::Remote { .. } | StreamEntry::Vector(_) => {}
        }
        Ok(())
    }

    /// Reports to the leader that a message is decided, if the leader repeats its vector more than once.
    ///
    /// One repetition is normal after a change of leaders. But this member may have decided by acknowledgements of
    /// another group that were lost on the way to all others, and that group may have stopped.
    fn tell_delivered(&mut self, client: ClientId, slot: u64) {
        let ballot = self.agreement.ballots.installed;
        let message = self.agreement.messages.get_mut(client, slot);
        // Nothing else increments the age of a delivered message.
        message.age = message.age.saturating_add(1);
        if message.age > 1 {
            let times = message.times().words().to_vec();
            let message = MessageRef { client, sequence: message.sequence };
            self.effects.send(ballot.leader(), &PeerMessage::Decided { message, ballot, times });
        }
    }

    /// Reports to the leader that a message was delivered here and is no longer retained. The leader repeated the
    /// message, so it does not know that the message is decided.
    fn tell_forgotten(&mut self, leader: ProcessId, item: &StreamItem<'_>) {
        if matches!(item.entry, StreamEntry::Vector(_)) {
            let forgotten = MessageRef { client: item.head.client, sequence: item.head.sequence };
            self.effects.send(leader, &PeerMessage::Forgotten(forgotten));
        }
    }

    fn process(&mut self, client: ClientId, slot: u64, item: &StreamItem<'_>) {
        let message = self.agreement.messages.get_mut(client, slot);
        let known = message.vector;
        match item.entry {
            StreamEntry::Assign { time, .. } => self.order_assigned(client, slot, time),
            StreamEntry::Remote { position, ballot, time } => message.stamp(usize::from(position), ballot, time),
            StreamEntry::Vector(times) => message.stamp_all(times),
            StreamEntry::NoOp { .. }
            | StreamEntry::Succeed { .. }
            | StreamEntry::RemoteBallot { .. }
            | StreamEntry::Word { .. } => return,
        }
        let message = self.agreement.messages.get(client, slot);
        // A repeated vector is acknowledged again, with the same times or others: the leader repeats it for that
        // purpose.
        let again = known && !matches!(item.entry, StreamEntry::Assign { .. });
        if message.times().complete() && message.ordered && (!known || again) {
            self.vector_processed(client, slot);
        }
    }

    fn order_assigned(&mut self, client: ClientId, slot: u64, time: u64) {
        let Agreement { ballots, clock, messages, .. } = &mut *self.agreement;
        clock.raise(time);
        let window = messages.window_mut(client);
        window.assigned = window.assigned.max(slot + 1);
        let message = window.slot_mut(slot);
        message.stamp(message.own, ballots.installed, time);
        message.ordered = true;
        let key = message.tentative();
        self.agreement.enqueue(key, client, slot);
    }

    fn vector_processed(&mut self, client: ClientId, slot: u64) {
        let message = self.agreement.messages.get_mut(client, slot);
        message.vector = true;
        let latest = message.times().max();
        self.agreement.clock.raise(latest);
        self.agreement.vote(client, slot);
        self.agreement.acknowledge(client, slot, self.effects);
        self.agreement.decide(client, slot);
    }
}
