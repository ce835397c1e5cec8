//! Steps 2 and 3 of the protocol: how a leader handles its clients' messages and other groups' timestamps.

use stentor_fabric::ProcessId;

use super::agreement::Agreement;
use super::ballots::Known;
use super::no_op::NoOps;
use super::slot::Slot;
use super::words::Words;
use super::{Effects, Rejected, Variant};
use crate::item::{Head, RemoteTimestamp, StreamEntry, StreamItem};
use crate::mutant::mutant;
use crate::peer_message::{MessageRef, PeerMessage, Verdict};
use crate::{ClientId, GroupId, ids};

/// The part of a member that acts while it leads its group.
///
/// # Invariants
/// - A client's messages are assigned in its order, and only as far as their bodies are held and the FIFO rule allows
///   it.
/// - The clock is raised to a vector's maximum before the entry with the vector is appended, in one step of one thread.
///   So every message that this leader timestamps afterwards follows the message with that vector.
/// - The followers learn another group's ballot from the stream before any time of that ballot is appended.
pub(super) struct Leader<'a, E> {
    pub(super) agreement: &'a mut Agreement,
    pub(super) effects: &'a mut E,
}

impl<E: Effects> Leader<'_, E> {
    pub(super) fn no_ops(&mut self) -> NoOps<'_, E> {
        NoOps { agreement: self.agreement, effects: self.effects }
    }

    pub(super) fn words(&mut self) -> Words<'_, E> {
        Words { agreement: self.agreement, effects: self.effects }
    }

    /// Assigns a client's messages in its order, as far as their bodies are held and the FIFO rule, the bound of clocks
    /// and the client's share allow it. Fills slots whose messages cannot be assigned any more with no-ops.
    pub(super) fn assign_ready(&mut self, client: ClientId) {
        loop {
            let window = self.agreement.messages.window(client);
            let slot = window.assigned;
            if window.closed > 0 && self.no_ops().close(client, slot) {
                continue;
            }
            let window = self.agreement.messages.window(client);
            let any_order = mutant!(self.agreement.id.mutant(), NoFifo);
            if !window.holds(slot) || !(any_order || window.may_assign(&window.slot(slot).set)) {
                return;
            }
            let Slot { sequence, not_before, .. } = *window.slot(slot);
            if self.is_of_ended(client, sequence) {
                self.no_ops().fill(client, slot, ids::generation(sequence));
                continue;
            }
            if self.agreement.clock.beyond(not_before, self.agreement.id.mutant()) > 0 {
                // A later tick assigns the message, when this leader's physical time allows it.
                return;
            }
            if self.agreement.has_its_share(client, slot) {
                return;
            }
            self.assign(client, slot);
        }
    }

    /// Assigns messages that waited for their clients' shares, as far as the shares have room again.
    #[inline]
    pub(super) fn go_on_sharing(&mut self) {
        while let Some(client) = self.agreement.sharing.next_with_room() {
            self.assign_ready(client);
            self.agreement.deliver_due(self.effects);
        }
    }

    fn assign(&mut self, client: ClientId, slot: u64) {
        let Agreement { id, ballots, clock, counter, messages, sharing } = &mut *self.agreement;
        *counter += 1;
        let window = messages.window_mut(client);
        window.assigned += 1;
        let pending = window.pending();
        sharing.note_assigned(client, pending.end - pending.start);
        let message = window.slot_mut(slot);
        if !mutant!(id.mutant(), NotBeforeIgnored) {
            clock.raise(message.not_before);
        }
        let (time, ballot) = (clock.next(id.mutant()), ballots.installed);
        let own = message.own;
        message.stamp(own, ballot, time);
        message.ordered = true;
        let (set, key, position) = (message.set, message.tentative(), own as u8);
        let entry = StreamEntry::Assign { position, ballot, time };
        self.effects.to_followers(&StreamItem { head: message.head(client, own), counter: *counter, entry });
        for (at, to) in message.destinations.iter().enumerate().filter(|(at, _)| *at != own) {
            let item = RemoteTimestamp { head: message.head(client, at), position, ballot, time };
            self.effects.timestamp(ballots.known(to.group).leader(), &item);
        }
        if mutant!(id.mutant(), NotGenuine) {
            let leaders = ballots.all_known().map(|ballot| ballot.leader());
            for leader in leaders.filter(|leader| *leader != id.me()) {
                let item = RemoteTimestamp { head: message.head(client, own), position, ballot, time };
                self.effects.timestamp(leader, &item);
            }
        }
        window.count_undecided(set);
        let v1 = id.config.variant == Variant::V1;
        self.agreement.enqueue(key, client, slot);
        if v1 {
            self.pass_on_known(client, slot);
        }
        self.complete_if_known(client, slot);
    }

    /// Sends the other groups' known timestamps to the followers one by one, as V1 requires.
    fn pass_on_known(&mut self, client: ClientId, slot: u64) {
        for position in 0..self.agreement.messages.get(client, slot).groups {
            let message = self.agreement.messages.get(client, slot);
            if position != message.own && message.times().time(position) != 0 {
                self.pass_on(client, slot, position);
            }
        }
    }

    fn pass_on(&mut self, client: ClientId, slot: u64, position: usize) {
        let Agreement { clock, counter, messages, .. } = &mut *self.agreement;
        let message = messages.get(client, slot);
        let (ballot, time) = (message.ballot(position), message.times().time(position));
        clock.raise(time);
        *counter += 1;
        let entry = StreamEntry::Remote { position: position as u8, ballot, time };
        let head = message.head(client, message.own);
        self.effects.to_followers(&StreamItem { head, counter: *counter, entry });
    }

    /// Performs step 3 if all times of the message are known, in one step of one thread: raises the clock, appends the
    /// vector unless the followers know all its times, and votes.
    fn complete_if_known(&mut self, client: ClientId, slot: u64) {
        let Agreement { id, ballots, clock, messages, .. } = &mut *self.agreement;
        let message = messages.get_mut(client, slot);
        if !message.times().complete() || message.no_op || message.delivered {
            return;
        }
        clock.raise_before_append(message.times().max(), id.mutant());
        (message.vector, message.replaced) = (true, false);
        // In V1 each time was passed on as it arrived. But times that arrived in an earlier ballot were passed on only
        // in that ballot, so after the first ballot V1 appends the whole vector, too.
        let first = ballots.installed.number() == 1 && ballots.begins_from_nothing();
        if message.groups > 1 && (id.config.variant == Variant::V2 || !first) {
            self.append_vector(client, slot);
        }
        self.vote(client, slot, mutant!(self.agreement.id.mutant(), SoloLeaderSilent));
    }

    /// Votes for the vector in the slot.
    ///
    /// A follower's acknowledgement implies the leader's vote. A group of one process has no follower, so its leader
    /// acknowledges itself. In V1 every leader does. `silent` is for a mutant.
    fn vote(&mut self, client: ClientId, slot: u64, silent: bool) {
        self.agreement.vote(client, slot);
        let alone = self.agreement.id.is_alone() && !silent;
        if alone || self.agreement.id.config.variant == Variant::V1 {
            self.agreement.acknowledge(client, slot, self.effects);
        }
        self.agreement.decide(client, slot);
    }

    /// Appends the vector as one entry of the stream.
    pub(super) fn append_vector(&mut self, client: ClientId, slot: u64) {
        self.agreement.counter += 1;
        let message = self.agreement.messages.get(client, slot);
        let (head, entry) = (message.head(client, message.own), StreamEntry::Vector(message.times()));
        self.effects.to_followers(&StreamItem { head, counter: self.agreement.counter, entry });
    }

    /// Votes for a message's known vector under this leader's ballot.
    pub(super) fn vote_again(&mut self, client: ClientId, slot: u64) {
        let message = self.agreement.messages.get(client, slot);
        if !message.times().complete() {
            return;
        }
        if message.vector { self.vote(client, slot, false) } else { self.complete_if_known(client, slot) }
    }

    /// Repeats the timestamp and vector of an undecided message. A process that has processed the vector acknowledges
    /// it again.
    pub(super) fn repeat(&mut self, client: ClientId, slot: u64) {
        self.send_timestamps(client, slot);
        if self.agreement.messages.get(client, slot).vector && !mutant!(self.agreement.id.mutant(), VectorNotRepeated) {
            self.append_vector(client, slot);
            self.vote_again(client, slot);
        }
    }

    /// Proposes every undecided message again: sends its timestamp to the other leaders, and votes for its vector under
    /// this ballot. Unsettled no-ops are proposed again, too.
    pub(super) fn propose_again(&mut self) {
        for client in self.agreement.messages.clients() {
            for slot in self.agreement.messages.pending(client) {
                let message = self.agreement.messages.get(client, slot);
                if message.no_op && !message.settled {
                    self.no_ops().propose(client, slot);
                } else if message.decided.is_none() && !message.no_op && message.ordered {
                    self.send_timestamps(client, slot);
                    self.vote_again(client, slot);
                }
            }
        }
    }

    /// Sends this group's timestamp to the leaders of all other destination groups.
    fn send_timestamps(&mut self, client: ClientId, slot: u64) {
        let message = self.agreement.messages.get(client, slot);
        let own = message.own;
        for position in (0..message.destinations.len()).filter(|position| *position != own) {
            self.send_timestamp(client, slot, position);
        }
    }

    fn send_timestamp(&mut self, client: ClientId, slot: u64, position: usize) {
        if mutant!(self.agreement.id.mutant(), TimestampsNotRepeated) {
            return;
        }
        let message = self.agreement.messages.get(client, slot);
        let leader = self.agreement.ballots.known(message.destinations[position].group).leader();
        let (head, time) = (message.head(client, position), message.times().time(message.own));
        let ballot = self.agreement.ballots.installed;
        self.effects.timestamp(leader, &RemoteTimestamp { head, position: message.own as u8, ballot, time });
    }

    /// Sends this group's timestamps of all undecided messages in common with another group to that group's leader.
    pub(super) fn send_timestamps_to(&mut self, group: GroupId) {
        for client in self.agreement.messages.clients() {
            for slot in self.agreement.messages.pending(client) {
                let message = self.agreement.messages.get(client, slot);
                let common = message.destinations.iter().position(|to| to.group == group);
                if let Some(position) = common.filter(|_| message.decided.is_none() && !message.no_op) {
                    self.send_timestamp(client, slot, position);
                }
            }
        }
    }

    /// Requests the body of a message from every leader whose timestamp of it is known here, because each of them holds
    /// it.
    pub(super) fn request_body(&mut self, client: ClientId, slot: u64) {
        let message = self.agreement.messages.get(client, slot);
        let wanted = MessageRef { client, sequence: message.sequence };
        for position in (0..message.groups).filter(|position| message.times().time(*position) != 0) {
            let leader = message.ballot(position).leader();
            if leader != self.agreement.id.me() {
                self.effects.send(leader, &PeerMessage::WantBody(wanted));
            }
        }
    }

    /// Appends the ballots and words of other groups that the followers do not know yet.
    ///
    /// Returns whether a word came into force.
    pub(super) fn relay_ballots(&mut self) -> bool {
        let Agreement { id, ballots, counter, .. } = &mut *self.agreement;
        for group in id.topology().group_ids() {
            if let Some(Known { ballot, incarnation, .. }) = ballots.relay(group).filter(|_| group != id.group) {
                *counter += 1;
                let entry = StreamEntry::RemoteBallot { ballot, incarnation };
                self.effects.to_followers(&StreamItem { head: Head::NONE, counter: *counter, entry });
            }
        }
        self.words().relay()
    }

    /// Answers another group's leader that sent its timestamp of a message that has no slot here any more. Sends
    /// nothing if only an unsettled succession makes the message void.
    #[cold]
    fn tell_why_nowhere(&mut self, from: ProcessId, head: &Head) {
        let at_once = mutant!(self.agreement.id.mutant(), SuccessionAtOnce);
        let window = self.agreement.messages.window(head.client);
        let subject = MessageRef { client: head.client, sequence: head.sequence };
        let refused = PeerMessage::Refused(Verdict { message: subject, ballot: self.agreement.ballots.installed });
        let outcome = if window.heirs.is_void(head.sequence) {
            window.heirs.is_refused(head.sequence, at_once).then_some(refused)
        } else if window.is_superseded(head) {
            Some(refused)
        } else {
            Some(PeerMessage::Forgotten(subject))
        };
        outcome.into_iter().for_each(|outcome| self.effects.send(from, &outcome));
    }

    /// Processes the timestamp of another group's leader, whose ballot is at least the largest known one of that group.
    ///
    /// If `leads` is `false`, this member does not lead yet, and appends nothing to the stream. Returns whether
    /// deliveries may be due.
    pub(super) fn on_timestamp(
        &mut self,
        from: ProcessId,
        group: GroupId,
        item: &RemoteTimestamp,
        leads: bool,
    ) -> Result<bool, Rejected> {
        let (client, position) = (item.head.client, usize::from(item.position));
        if self.agreement.messages.is_own(client) {
            return Err(Rejected::Client(client.0));
        }
        let ahead = self.agreement.clock.beyond(item.time, self.agreement.id.mutant());
        if ahead > 0 && self.agreement.messages.is_open(&item.head) {
            return Err(Rejected::Clock { from, ahead });
        }
        if self.is_of_ended(client, item.head.sequence) {
            self.tell_lost(from, group, item);
            return Ok(false);
        }
        // The answer uses the name that the sender knows, because this group may never have seen the message.
        let subject = MessageRef { client, sequence: item.head.sequence };
        let slot = match self.agreement.messages.locate(&self.agreement.id, &item.head) {
            Ok(Some(slot)) => slot,
            Ok(None) => {
                self.tell_why_nowhere(from, &item.head);
                return Ok(false);
            }
            Err(rejected) => return self.agreement.messages.refuse(&item.head, rejected).map(|()| false),
        };
        let message = self.agreement.messages.get(client, slot);
        if message.destinations.get(position).is_some_and(|to| to.group != group) {
            return Err(Rejected::Sender(from));
        }
        self.agreement.ballots.hear_of(group, item.ballot);
        if leads && self.agreement.ballots.is_unrelayed(group, item.ballot) && self.relay_ballots() {
            self.agreement.messages.clients().for_each(|client| self.assign_ready(client));
        }
        let message = self.agreement.messages.get_mut(client, slot);
        if message.no_op {
            if message.settled {
                let ballot = self.agreement.ballots.installed;
                self.effects.send(from, &PeerMessage::Refused(Verdict { message: subject, ballot }));
            }
            return Ok(false);
        }
        if message.decided.is_some() {
            self.agreement.tell_outcome(from, group, client, slot, self.effects);
            return Ok(false);
        }
        let (time, keeps) = (message.times().time(position), mutant!(self.agreement.id.mutant(), FirstTimestampKept));
        if time != 0 && (message.ballot(position) >= item.ballot || keeps) {
            return Ok(false);
        }
        if message.is_ended(group) {
            // The message is decided with the time of the ended history, or not at all.
            return Ok(false);
        }
        message.stamp(position, item.ballot, item.time);
        // This member appends the vector again when it is ready to lead.
        message.replaced |= message.vector && !leads && time != item.time;
        message.vector &= leads || time == item.time;
        if time == item.time || !leads || !message.ordered {
            return Ok(false);
        }
        if self.agreement.id.config.variant == Variant::V1 {
            self.pass_on(client, slot, position);
        }
        self.complete_if_known(client, slot);
        Ok(true)
    }
}
