//! Acknowledgements (2B), and when a message is decided (step 5).

use stentor_fabric::ProcessId;

use super::votes::Vote;
use super::{Rejected, Replica};
use crate::plant::planted;
use crate::{Ack, ClientId, Effects, ProcessRole};

impl Replica {
    /// Another destination process acknowledged a message.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn on_ack<E: Effects>(&mut self, from: ProcessId, ack: &Ack<'_>, effects: &mut E) -> Result<(), Rejected> {
        self.catch_up_clock();
        let position = usize::from(ack.position);
        // The leader's vote is its vector entry: whoever acknowledges the vector has seen it.
        let Some(ProcessRole::Member { group, index }) = self.config.topology.role(from) else {
            return Err(Rejected::Sender(from));
        };
        if self.is_joining() {
            return Ok(());
        }
        let implied = self.config.topology.member_bit(group, ack.ballot.leader()).ok_or(Rejected::Sender(from))?;
        let voter = 1 << index;
        let any_vector = planted!(self.config.plant, AckWithoutIdentity);
        let Some(slot) = self.locate(&ack.head)? else { return Ok(()) };
        let message = self.windows[usize::from(ack.head.client.0)].slot_mut(slot);
        if message.destinations.get(position).is_some_and(|to| to.group != group) {
            return Err(Rejected::Sender(from));
        }
        if message.delivered || message.void {
            return Ok(());
        }
        message.votes.record(&Vote { position, voter, implied, ballot: ack.ballot, times: ack.times }, any_vector);
        self.hear_of(group, ack.ballot);
        if self.decide(ack.head.client, slot) {
            self.settle(ack.head.client, effects);
        }
        Ok(())
    }

    /// Records this member's own vote for the vector in the slot, and the leader's that it implies.
    pub(super) fn vote(&mut self, client: ClientId, slot: u64) {
        let ballot = self.ballot;
        let leader = self.config.topology.member_bit(self.group, self.ballot.leader()).unwrap_or(0);
        let message = self.windows[usize::from(client.0)].slot_mut(slot);
        let mut votes = std::mem::take(&mut message.votes);
        let times = message.times();
        votes.record(&Vote { position: message.own, voter: self.bit, implied: leader, ballot, times }, false);
        if planted!(self.config.plant, SoloLeaderSilent) {
            for (position, to) in message.destinations.iter().enumerate() {
                if self.config.topology.size(to.group) == 1 {
                    let ballot = self.config.topology.first_ballot(to.group);
                    votes.record(&Vote { position, voter: 1, implied: 1, ballot, times }, false);
                }
            }
        }
        message.votes = votes;
    }

    /// Acknowledges to all other destination processes: N − 1 writes.
    pub(super) fn acknowledge<E: Effects>(&self, client: ClientId, slot: u64, effects: &mut E) {
        let message = self.windows[usize::from(client.0)].slot(slot);
        for (position, to) in message.destinations.iter().enumerate() {
            let head = message.head(client, position);
            let ack = Ack { head, position: message.own as u8, ballot: self.ballot, times: message.times() };
            for process in self.config.topology.members(to.group).filter(|process| *process != self.config.me) {
                effects.acknowledge(process, &ack);
            }
        }
    }

    /// Whether the message is decided by now and was not before.
    pub(super) fn decide(&mut self, client: ClientId, slot: u64) -> bool {
        let leads = self.ballot.leader() == self.config.me;
        let any = planted!(self.config.plant, NewerBallotCounts);
        let installed = if any { self.known(self.group) } else { self.ballot };
        let window = &mut self.windows[usize::from(client.0)];
        if !window.holds(slot) {
            return false;
        }
        let message = window.slot(slot);
        if message.decided.is_some() || message.void {
            return false;
        }
        let own = (message.own, installed);
        let Some(vector) = message.votes.quorum(&message.destinations, own, &self.config.topology) else {
            return false;
        };
        let (latest, set, assigned) = (message.latest(vector), message.set, slot < window.assigned);
        window.slot_mut(slot).decided = Some(latest);
        if assigned && leads {
            window.count_decided(set);
        }
        self.order_without_density(client, slot, latest);
        true
    }
}
