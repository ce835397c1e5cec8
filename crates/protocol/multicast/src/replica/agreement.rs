//! The agreement of a group in the installed ballot: the vector at which each message is decided, and the order of
//! deliveries.

use stentor_fabric::ProcessId;

use super::ballots::Ballots;
use super::clock::Clock;
use super::identity::Identity;
use super::lives::Lives;
use super::messages::Messages;
use super::order::Undelivered;
use super::sharing::Sharing;
use super::survivors::is_decided_by_survivors;
use super::votes::Vote;
use super::{Delivery, Effects, Rejected};
use crate::item::{StreamEntry, StreamItem};
use crate::mutant::mutant;
use crate::origin::common;
use crate::peer_message::{MessageRef, PeerMessage};
use crate::state::State;
use crate::{Ack, Ballot, ClientId, GroupId, MessageId, Timestamp};

/// The messages of a member, and its position in the stream of its ballot.
///
/// # Invariants
/// - The processed part of one ballot never shrinks: `(installed ballot, counter)` only rises. A member's
///   acknowledgements depend on that, and so does its stream, whose entries are read once. The processed part does not
///   contain assignments that a later ballot makes void ([`Window::give_way`](super::window::Window::give_way)).
/// - Times that one leader assigns rise with the stream's counter.
/// - A message is decided when, for one vector, a majority of every destination group acknowledged it in one ballot of
///   that group. Groups whose history with the message has ended are exempt (`survivors.rs`). The message is delivered
///   when, in addition, the stream is processed through the entry with that vector and no other undelivered message
///   has a smaller key.
#[derive(Clone, Debug)]
pub(super) struct Agreement {
    pub(super) id: Identity,
    pub(super) ballots: Ballots,
    pub(super) clock: Clock,
    /// Number of processed entries of the installed ballot's stream; at its leader, number of appended entries.
    pub(super) counter: u64,
    pub(super) messages: Messages,
    pub(super) sharing: Sharing,
}

impl Agreement {
    pub(super) fn new(id: Identity) -> Self {
        let (ballots, messages) = (Ballots::new(id.topology(), id.group), Messages::new(&id));
        let sharing = Sharing::new(id.topology().clients(), &id.config);
        Agreement { id, ballots, clock: Clock::default(), counter: 0, messages, sharing }
    }

    /// Returns whether this member leads the installed ballot.
    #[inline]
    pub(super) fn owns_ballot(&self) -> bool {
        self.ballots.installed.leader() == self.id.me()
    }

    /// Returns the state that this member has processed.
    pub(super) fn state(&self, lives: &Lives) -> State {
        State {
            synced: self.ballots.installed,
            incarnation: self.ballots.installed_in,
            origins: self.ballots.origins.clone(),
            counter: self.counter,
            clock: self.clock.now(),
            delivered: self.messages.delivered,
            known: self.ballots.all_known().collect(),
            incarnations: self.ballots.incarnations().collect(),
            words: self.ballots.words().to_vec(),
            lives: lives.all().to_vec(),
            clients: self.messages.states(),
        }
    }

    /// Returns whether this member has delivered messages that the history of `state` does not contain.
    pub(super) fn is_parted_from(&self, state: &State) -> bool {
        self.ballots.installed != Ballot::NONE
            && self.messages.delivered > common(&self.ballots.origins, &state.origins)
    }

    /// Replaces this member's state by a state of the promised ballot.
    pub(super) fn adopt(&mut self, state: &State, counter: u64, leads: bool) {
        self.messages.adopt(state, &self.id, leads);
        self.clock.raise(state.clock);
        self.ballots.hear_of_all(&state.known, &state.incarnations);
        self.ballots.adopt_words(&state.words, self.id.bit);
        self.ballots.install(&state.origins);
        self.counter = counter;
        self.messages.order.clear();
        for client in self.messages.clients() {
            for slot in self.messages.pending(client) {
                let message = self.messages.get(client, slot);
                if message.ordered && !message.settled && !message.delivered {
                    self.enqueue(message.tentative(), client, slot);
                }
            }
        }
    }

    /// Returns whether a client's next message must wait because the client's share is in use. The next delivery of one
    /// of the client's messages ends the wait.
    #[inline]
    pub(super) fn has_its_share(&mut self, client: ClientId, slot: u64) -> bool {
        let pending = self.messages.pending(client);
        self.sharing.holds_back(client, slot, pending.end - pending.start, self.id.mutant())
    }

    #[inline]
    pub(super) fn enqueue(&mut self, key: Timestamp, client: ClientId, slot: u64) {
        let by_arrival = mutant!(self.id.mutant(), TiesByArrival);
        let (key, arrival) = if by_arrival { (Timestamp { group: 0, ..key }, self.counter) } else { (key, 0) };
        self.messages.order.push(Undelivered { key, arrival, client, slot });
    }

    /// Counts an acknowledgement of another destination process. Returns whether it decides the message.
    pub(super) fn on_ack(&mut self, from: ProcessId, ack: &Ack<'_>) -> Result<bool, Rejected> {
        let position = usize::from(ack.position);
        let (group, index) = self.id.member(from)?;
        // The leader votes by its vector entry, which a member that acknowledges the vector has seen.
        let implied = self.id.topology().member_bit(group, ack.ballot.leader()).ok_or(Rejected::Sender(from))?;
        if group != self.id.group && self.messages.is_own(ack.head.client) {
            return Err(Rejected::Client(ack.head.client.0));
        }
        let any_vector = mutant!(self.id.mutant(), AckWithoutIdentity);
        if group != self.id.group
            && !self.ballots.is_known(group, ack.ballot)
            && !mutant!(self.id.mutant(), IncarnationIgnored)
        {
            // The history of the acknowledgement has ended, or is not known here yet. Its sender will acknowledge
            // again.
            let ended = ack.ballot.incarnation() < self.ballots.known(group).incarnation();
            self.messages.settlements.refused += u64::from(ended);
            return Ok(false);
        }
        let slot = match self.messages.locate(&self.id, &ack.head) {
            Ok(Some(slot)) => slot,
            Ok(None) => return Ok(false),
            Err(rejected) => return self.messages.refuse(&ack.head, rejected).map(|()| false),
        };
        let message = self.messages.get_mut(ack.head.client, slot);
        if message.destinations.get(position).is_some_and(|to| to.group != group) {
            return Err(Rejected::Sender(from));
        }
        if message.delivered || message.no_op {
            return Ok(false);
        }
        let vote = Vote { position, voter: 1 << index, implied, ballot: ack.ballot, times: ack.times };
        message.votes.record(&vote, any_vector);
        if ack.ballot != self.ballots.known(group) && self.ballots.is_known(group, ack.ballot) {
            self.ballots.hear_of(group, ack.ballot);
        }
        Ok(self.decide(ack.head.client, slot))
    }

    /// Records this member's own vote for the vector in the slot, and the leader's vote that it implies.
    pub(super) fn vote(&mut self, client: ClientId, slot: u64) {
        let ballot = self.ballots.installed;
        let (voter, implied) = (self.id.bit, self.id.bit_of(ballot.leader()));
        let message = self.messages.get_mut(client, slot);
        let mut votes = std::mem::take(&mut message.votes);
        let times = message.times();
        votes.record(&Vote { position: message.own, voter, implied, ballot, times }, false);
        if mutant!(self.id.mutant(), SoloLeaderSilent) {
            for (position, to) in message.destinations.iter().enumerate() {
                if self.id.topology().size(to.group) == 1 {
                    let ballot = self.id.topology().first_ballot(to.group);
                    votes.record(&Vote { position, voter: 1, implied: 1, ballot, times }, false);
                }
            }
        }
        message.votes = votes;
    }

    /// Acknowledges to all other destination processes, each with a write of its own.
    pub(super) fn acknowledge<E: Effects>(&self, client: ClientId, slot: u64, effects: &mut E) {
        self.acknowledge_to(client, slot, |process| process != self.id.me(), effects);
    }

    fn acknowledge_to<E: Effects>(&self, client: ClientId, slot: u64, to: impl Fn(ProcessId) -> bool, effects: &mut E) {
        let message = self.messages.get(client, slot);
        for (position, destination) in message.destinations.iter().enumerate() {
            let ack = message.ack(client, position, self.ballots.installed);
            let processes = self.id.topology().members(destination.group).filter(|process| to(*process));
            processes.for_each(|process| effects.acknowledge(process, &ack));
        }
    }

    /// Acknowledges every undelivered message whose vector is processed. With `only`, the member sends the
    /// acknowledgements again to that process alone, which may have lost them with a connection.
    pub(super) fn acknowledge_all<E: Effects>(&mut self, only: Option<ProcessId>, effects: &mut E) {
        if !self.ballots.is_current() {
            return;
        }
        for client in self.messages.clients() {
            for slot in self.messages.pending(client) {
                let message = self.messages.get(client, slot);
                if !message.vector || message.no_op || !message.body {
                    continue;
                }
                if let Some(process) = only {
                    self.acknowledge_to(client, slot, |to| to == process, effects);
                } else {
                    self.vote(client, slot);
                    self.acknowledge(client, slot, effects);
                    self.decide(client, slot);
                }
            }
        }
    }

    /// Decides the message if the acknowledgements suffice. Returns whether it was undecided before and is decided now.
    pub(super) fn decide(&mut self, client: ClientId, slot: u64) -> bool {
        let owns_ballot = self.owns_ballot();
        let any = mutant!(self.id.mutant(), NewerBallotCounts);
        let installed = if any { self.ballots.known(self.id.group) } else { self.ballots.installed };
        let at_once = mutant!(self.id.mutant(), EntryAtOnce) && self.messages.is_own(client);
        let window = self.messages.window_mut(client);
        if !window.holds(slot) {
            return false;
        }
        let message = window.slot(slot);
        if message.decided.is_some() || message.no_op {
            return false;
        }
        let mut settled = false;
        let quorum = message.votes.quorum(&message.destinations, message.own, installed, self.id.topology());
        let latest = match quorum {
            Some(vector) => message.latest(vector),
            None if at_once => message.latest(message.times()),
            None if message.ended().is_none() => return false,
            None if is_decided_by_survivors(&self.id, &self.ballots, message) => {
                settled = true;
                message.latest(message.times())
            }
            None => return false,
        };
        window.decide(slot, latest, owns_ballot);
        if settled {
            self.messages.settlements.decided += 1;
        }
        self.order_without_density(client, slot, latest);
        true
    }

    /// Decides the message at its processed vector. Returns whether it was undecided before.
    fn learn(&mut self, client: ClientId, slot: u64) -> bool {
        let owns_ballot = self.owns_ballot();
        let window = self.messages.window_mut(client);
        let message = window.slot(slot);
        if !message.vector || message.decided.is_some() || message.no_op || message.delivered {
            return false;
        }
        window.decide(slot, message.latest(message.times()), owns_ballot);
        true
    }

    /// Processes the report that a message is decided. `times` is `None` if the sender no longer retains the times. The
    /// reporter is a leader of this or another group, or a follower that has delivered the message.
    ///
    /// If this member has processed a vector of the message, the times in that vector are the decided ones, for the
    /// following reason.
    ///
    /// Let V be the decided vector, in ballot c of this group. A majority of this group processed the entry with V in
    /// c, so every leader of c or later has appended or adopted it. V's time of another group was assigned in a ballot
    /// b of that group in which a majority acknowledged it, and that time stays the same in all later ballots of that
    /// group. A member that processed V knew b before (see [`Ballots`]), so every later leader here knows b. Such a
    /// leader accepts no timestamp of a ballot below b. So a time that replaces a time of V is equal to the replaced
    /// one.
    ///
    /// Returns whether the message was undecided before.
    pub(super) fn on_decided(&mut self, message: MessageRef, times: Option<&[u64]>) -> bool {
        let Some(slot) = self.messages.find(message) else { return false };
        let known = self.messages.get(message.client, slot);
        let same = times.is_none_or(|times| known.times().words() == times);
        known.vector && same && self.learn(message.client, slot)
    }

    /// Sends the outcome of a message to a follower that asks, or to another group's leader that sent its timestamp.
    /// Sends nothing unless the message is decided and its vector is processed here.
    ///
    /// The report names the largest known ballot of the receiver's group: that group acknowledged the vector in that
    /// ballot or in an earlier one.
    pub(super) fn tell_outcome<E: Effects>(
        &self,
        to: ProcessId,
        group: GroupId,
        client: ClientId,
        slot: u64,
        effects: &mut E,
    ) {
        let message = self.messages.get(client, slot);
        if message.is_final() {
            let (ballot, times) = (self.ballots.known(group), message.times().words().to_vec());
            let message = MessageRef { client, sequence: message.sequence };
            effects.send(to, &PeerMessage::Decided { message, ballot, times });
        }
    }

    /// Delivers, in order, every decided message that no other message of the stream can still precede.
    ///
    /// If the application has no room for a message, that message stays in the order with those after it: decided and
    /// not delivered, as if it waited for another one.
    pub(super) fn deliver_due<E: Effects>(&mut self, effects: &mut E) {
        if !self.ballots.is_current() {
            // The state of the larger promised ballot decides what is delivered next.
            return;
        }
        let mutant = self.id.mutant();
        while let Some(first) = self.messages.order.first() {
            let window = self.messages.window(first.client);
            let message = window.slot(first.slot);
            if first.slot < window.first_undelivered() || message.delivered {
                self.messages.order.pop();
                continue;
            }
            if message.no_op {
                if !message.settled && !mutant!(mutant, RefusedPassed) {
                    // A later leader may not know the no-op. No message after it is delivered until a majority knows
                    // it.
                    return;
                }
                self.messages.order.pop();
                continue;
            }
            let Some(last) = message.decided else {
                if mutant!(mutant, TentativeIgnored) {
                    self.messages.order.pop();
                    continue;
                }
                if mutant!(mutant, VectorUnblocks) && message.vector {
                    let full = message.latest(message.times());
                    if full > first.key {
                        self.messages.order.raise_first(full);
                        continue;
                    }
                }
                return;
            };
            let key = if mutant!(mutant, TiesByArrival) { Timestamp { group: 0, ..last } } else { last };
            if key > first.key {
                self.messages.order.raise_first(key);
                continue;
            }
            // The stream must be processed through the entry with the decided vector. An earlier entry with other times
            // is not enough: after that, the leader may have assigned times that precede this message.
            let dense = message.is_final() || message.vector && mutant!(mutant, AnyVectorIsDense);
            if !dense && !mutant!(mutant, NoDensity) {
                return;
            }
            if !effects.has_room() {
                self.messages.held_back = true;
                return;
            }
            self.messages.order.pop();
            self.deliver(first.client, first.slot, last, effects);
        }
    }

    fn deliver<E: Effects>(&mut self, client: ClientId, slot: u64, timestamp: Timestamp, effects: &mut E) {
        self.messages.delivered += 1;
        let number = self.messages.delivered;
        let window = self.messages.window_mut(client);
        let message = window.slot_mut(slot);
        message.finish();
        let id = MessageId { client, sequence: message.sequence };
        window.pass_delivered();
        self.sharing.note_delivered(client);
        let (ballot, origin) = (self.ballots.installed, self.ballots.origin_of(number));
        effects.deliver(&Delivery { id, slot, timestamp, number, ballot, origin });
    }

    /// Orders a message as soon as it is decided, for the mutants that do so.
    fn order_without_density(&mut self, client: ClientId, slot: u64, latest: Timestamp) {
        let no_density = mutant!(self.id.mutant(), NoDensity) && !self.messages.get(client, slot).ordered;
        if no_density || mutant!(self.id.mutant(), TentativeIgnored) {
            self.enqueue(latest, client, slot);
        }
    }

    /// Returns whether this member currently processes stream entries of process `from`.
    #[inline]
    pub(super) fn follows(&self, from: ProcessId) -> bool {
        let Ballots { promised, installed, stream, .. } = self.ballots;
        let fenced = promised != installed && !mutant!(self.id.mutant(), NotFenced);
        stream == installed && !fenced && from == installed.leader() && from != self.id.me()
    }

    /// Returns whether a stream entry must wait: for its body, for the state of its ballot, or for the state that
    /// contains earlier entries that were lost with a connection.
    #[inline]
    pub(super) fn stream_waits(&self, from: ProcessId, item: &StreamItem<'_>) -> bool {
        if !self.follows(from) || item.counter <= self.counter {
            return self.ballots.stream > self.ballots.installed && self.ballots.stream.leader() == from;
        }
        if item.counter > self.counter + 1 {
            return true;
        }
        let Some(window) = self.messages.client(item.head.client) else { return false };
        if self.messages.is_own(item.head.client) {
            // A group's own entry needs no body. But if this member has delivered too little, the entry's slot may be
            // beyond the window.
            return window.resolve(&item.head).is_some_and(|slot| window.is_beyond(slot));
        }
        match item.entry {
            StreamEntry::RemoteBallot { .. } | StreamEntry::Word { .. } | StreamEntry::Succeed { .. } => false,
            StreamEntry::NoOp { .. } => window.resolve_no_op(&item.head).is_some_and(|slot| window.is_beyond(slot)),
            _ => window.resolve(&item.head).is_some_and(|slot| !window.holds_message(slot, item.head.sequence)),
        }
    }
}
