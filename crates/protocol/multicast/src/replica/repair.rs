//! Repair: members request messages and items that they miss. Messages and items that may be lost with a connection are
//! repeated until they have had their effect.

use stentor_fabric::ProcessId;

use super::agreement::Agreement;
use super::ballots::Known;
use super::leader::Leader;
use super::{Effects, Variant};
use crate::item::{Ack, StreamEntry, StreamItem, Times};
use crate::mutant::mutant;
use crate::peer_message::{MessageRef, PeerMessage};
use crate::{ClientId, GroupId};

/// Largest number of bodies that are forwarded at once: half of the peer messages that may wait for one peer.
pub(super) const BODIES: u64 = 32;

/// The part of a member that requests missing messages and decisions, and answers such requests.
pub(super) struct Repair<'a, E> {
    pub(super) agreement: &'a mut Agreement,
    /// `true` if this member leads.
    pub(super) leads: bool,
    /// `true` if this member has no memory.
    pub(super) joining: bool,
    pub(super) effects: &'a mut E,
}

impl<E: Effects> Repair<'_, E> {
    fn leader(&mut self) -> Leader<'_, E> {
        Leader { agreement: self.agreement, effects: self.effects }
    }

    /// Ages one undelivered slot that is not a no-op by a tick.
    pub(super) fn grow_old(&mut self, client: ClientId, slot: u64) {
        let Agreement { id, ballots, messages, .. } = &mut *self.agreement;
        let window = messages.window_mut(client);
        let assigned = slot < window.assigned;
        let next = slot == window.assigned || window.is_over(window.slot(slot).sequence);
        let message = window.slot_mut(slot);
        if message.groups == 0 || message.delivered {
            return;
        }
        message.age += 1;
        // The leader usually holds a body that is held here and not assigned, or receives it from the client. So the
        // member waits four times as long before it forwards the body.
        let factor = if message.body && !assigned { 4 } else { 1 };
        if message.age < id.config.retry_ticks.saturating_mul(factor) {
            return;
        }
        message.age = 0;
        let leader = ballots.installed.leader();
        let asked = MessageRef { client, sequence: message.sequence };
        let (body, decided, is_final) = (message.body, message.decided.is_some(), message.is_final());
        let follows = ballots.is_current() && leader != id.me() && !self.joining;
        match (assigned, body) {
            (true, _) if self.leads && !decided => self.leader().repeat(client, slot),
            (false, false) if self.leads => self.leader().request_body(client, slot),
            (true, _) if follows && !is_final => self.effects.send(leader, &PeerMessage::Ask(asked)),
            // The leader also needs messages that an ended process left after a gap.
            (false, true) if follows && next => self.effects.body(leader, client, slot),
            _ => {}
        }
    }

    /// Requests the body for which the head of the leader's stream has waited for a while, and the bodies after it.
    pub(super) fn want_bodies(&mut self, item: &StreamItem<'_>) {
        let leader = self.agreement.ballots.promised.leader();
        if mutant!(self.agreement.id.mutant(), AckWithoutBody)
            && let StreamEntry::Assign { position, ballot, time } = item.entry
            && item.head.groups == 1
        {
            self.effects.acknowledge(leader, &Ack { head: item.head, position, ballot, times: Times::new(&[time]) });
        }
        if self.agreement.messages.is_own(item.head.client) {
            return;
        }
        // A member that was admitted misses all messages from before it connected to the client, not only this one.
        let wanted = MessageRef { client: item.head.client, sequence: item.head.sequence };
        self.effects.send(leader, &PeerMessage::WantBodies(wanted));
    }

    /// Forwards a message, and the messages that are held without a gap after it, up to `most` in all. Answers `Gone`
    /// if the message is not held.
    pub(super) fn on_want(&mut self, from: ProcessId, wanted: MessageRef, most: u64) {
        let client = wanted.client;
        let held = |slot: &u64| {
            let window = self.agreement.messages.window(client);
            window.is_here(*slot) && window.slot(*slot).body
        };
        match self.agreement.messages.find(wanted).filter(held) {
            Some(slot) => {
                self.effects.body(from, client, slot);
                let behind = (slot + 1..slot + most).take_while(held);
                behind.for_each(|slot| self.effects.spare_body(from, client, slot));
            }
            None => self.effects.send(from, &PeerMessage::Gone(wanted)),
        }
    }

    /// Answers a follower that asks for the outcome of a message. Returns whether the message is not retained here.
    pub(super) fn on_ask(&mut self, from: ProcessId, asked: MessageRef) -> bool {
        let client = asked.client;
        let Some(slot) = self.agreement.messages.find(asked) else { return true };
        let message = self.agreement.messages.get(client, slot);
        if self.agreement.id.config.variant == Variant::V1 && message.vector && !message.no_op {
            // The follower may have missed one of the times. The vector has them all.
            self.leader().append_vector(client, slot);
        }
        self.agreement.tell_outcome(from, self.agreement.id.group, client, slot, self.effects);
        false
    }

    /// Returns whether the leader's report that a message is decided had no effect, because the entry with this vector
    /// is not processed here. Repeating the question would have no effect either.
    pub(super) fn is_unusable(&self, from: ProcessId, decided: MessageRef, times: &[u64]) -> bool {
        let Agreement { ballots, messages, .. } = &*self.agreement;
        messages.find(decided).filter(|_| from == ballots.installed.leader()).is_some_and(|slot| {
            let message = messages.get(decided.client, slot);
            let processed = message.vector && message.times().words() == times;
            !processed && !message.delivered && !message.no_op
        })
    }

    /// Returns whether this leader has not decided a message that a follower has delivered and does not retain.
    ///
    /// The acknowledgements of the message were lost on the way to this leader, and clients no longer count the leader
    /// for flow control. The leader can obtain what it lacks only with the application's state, and that requires a new
    /// ballot.
    pub(super) fn is_outrun(&self, forgotten: MessageRef) -> bool {
        let messages = &self.agreement.messages;
        messages.find(forgotten).filter(|_| self.leads).is_some_and(|slot| {
            let message = messages.get(forgotten.client, slot);
            message.decided.is_none() && !message.no_op && !message.delivered
        })
    }

    /// Processes the announcement of a group's ballot. Returns whether that brought the group's word into force.
    pub(super) fn on_announce(&mut self, from: ProcessId, group: GroupId, known: Known) -> bool {
        let Known { ballot, incarnation, origin } = known;
        let Agreement { id, ballots, .. } = &mut *self.agreement;
        if self.leads && group == id.group && origin.is_none() {
            // The sender does not know the incarnation in which this group's history began, so it accepts nothing of
            // this group. It asks for that incarnation.
            self.effects.send(from, &ballots.announce(group));
        }
        let (known, other) = (ballots.known(group), group != id.group);
        let is_less = ballot < known && !ballots.incarnation(group).contradicts(incarnation);
        if is_less {
            let of_group = id.topology().member_bit(group, from).is_some();
            let asks = incarnation.number < known.incarnation() && !other && !of_group && !self.joining;
            if other && of_group || asks {
                // A leader must know the largest ballot of its own group: see `StaleLeaderProbe`. Any other sender does
                // not know the incarnation.
                self.effects.send(from, &ballots.announce(group));
            }
            return false;
        }
        if !ballots.hear_in(group, ballot, incarnation) {
            return false;
        }
        if !origin.is_none() {
            ballots.hear_origin(group, incarnation, origin);
        }
        if !(self.leads && other) {
            return false;
        }
        let in_force = self.leader().words().relay();
        self.leader().send_timestamps_to(group);
        in_force
    }
}
