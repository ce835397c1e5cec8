//! One message of one client at one member.

use super::Rejected;
use super::votes::Votes;
use crate::item::{Ack, Head, ShortSlot, Times};
use crate::message::Destination;
use crate::slot_table::heap_bytes;
use crate::state::AssignedSlot;
use crate::{Ballot, ClientId, GroupId, GroupSet, Header, Timestamp, Topology, ids};

/// One message. The entry and its memory are reused for the message one window later.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Slot {
    /// The client's number for the message; 0 while nothing is known.
    pub(super) sequence: u64,
    /// Number of destination groups; 0 while nothing is known.
    pub(super) groups: usize,
    /// Position of this member's group among the destinations; valid once the destinations are known.
    pub(super) own: usize,
    /// The destinations; known from the body, or from another member's state.
    pub(super) destinations: Vec<Destination>,
    pub(super) set: GroupSet,
    /// The message's time must be later than this one. It is valid once the body is held.
    pub(super) not_before: u64,
    /// Time of each destination group; 0 is unknown.
    times: Vec<u64>,
    /// For each destination group, the ballot of the leader that sent its time to this member; otherwise 0.
    ballots: Vec<u64>,
    pub(super) votes: Votes,
    /// `true` if the body is held.
    pub(super) body: bool,
    /// `true` if this group's timestamp is in the order.
    pub(super) ordered: bool,
    /// `true` if the stream is processed, or at a leader appended, through the whole vector.
    pub(super) vector: bool,
    /// `true` if a preparing leader has replaced a time of the vector. It then appends the vector again.
    pub(super) replaced: bool,
    /// Destination groups whose times in the vector belong to an ended history, see `settling.rs`.
    ended: Option<Box<GroupSet>>,
    /// The final timestamp, once the message is decided.
    pub(super) decided: Option<Timestamp>,
    pub(super) delivered: bool,
    /// `true` if the slot is a no-op. A no-op is never delivered. It becomes an ordinary slot again only if the ballot
    /// that made it a no-op ends before the no-op is settled (see `no_op.rs`).
    pub(super) no_op: bool,
    /// `true` if the no-op is final: a majority of the group has processed it.
    pub(super) settled: bool,
    /// Members known to the leader to have processed the unsettled no-op in this slot, as a bit mask.
    pub(super) processed_by: u64,
    /// Ticks since the last action on the slot.
    pub(super) age: u8,
}

impl Slot {
    /// Returns the heap bytes of a message to this many groups whose acknowledgements name one vector. The memory is
    /// kept for the next message in the slot.
    pub(super) fn heap_bytes(groups: usize) -> u64 {
        let destinations = heap_bytes::<Destination>(groups.next_power_of_two());
        destinations + 2 * heap_bytes::<u64>(groups) + Votes::heap_bytes(groups)
    }

    /// Clears all fields and keeps the allocated memory.
    pub(super) fn clear(&mut self) {
        self.votes.clear(self.groups);
        self.sequence = 0;
        self.groups = 0;
        self.own = 0;
        self.destinations.clear();
        self.set = GroupSet::default();
        self.not_before = 0;
        self.times.clear();
        self.ballots.clear();
        self.body = false;
        self.ordered = false;
        self.vector = false;
        self.replaced = false;
        self.ended = None;
        self.decided = None;
        self.delivered = false;
        self.revive();
        self.age = 0;
    }

    /// Makes a no-op slot an ordinary slot again.
    fn revive(&mut self) {
        self.no_op = false;
        self.settled = false;
        self.processed_by = 0;
    }

    /// Returns whether a message with this sequence may be in this slot. This is so if nothing is known of the slot, if
    /// the message is the known one here, or if a later process of the client id reuses the slot of a message that was
    /// never assigned.
    pub(super) fn may_be(&self, sequence: u64) -> bool {
        self.groups == 0 || self.sequence == sequence || (sequence > self.sequence && !self.ordered && !self.no_op)
    }

    /// Returns whether the held message belongs to an earlier process than this sequence's, and was never assigned.
    pub(super) fn is_followed_by(&self, sequence: u64) -> bool {
        ids::generation(self.sequence) < ids::generation(sequence) && self.body && !self.ordered && !self.no_op
    }

    /// Checks that an item for this slot names the same message, or sets the name of an unnamed slot.
    #[inline]
    pub(super) fn name(&mut self, head: &Head, slot: u64, lenient: bool) -> Result<(), Rejected> {
        if self.sequence == head.sequence && self.groups == usize::from(head.groups) {
            return Ok(());
        }
        self.name_anew(head, slot, lenient)
    }

    fn name_anew(&mut self, head: &Head, slot: u64, lenient: bool) -> Result<(), Rejected> {
        let groups = usize::from(head.groups);
        if self.no_op {
            // A no-op has no message, so any name in an item is accepted.
            return Ok(());
        }
        if self.groups != 0 && self.sequence != head.sequence && !self.body && self.may_be(head.sequence) && !lenient {
            self.clear();
        }
        if self.groups == 0 {
            self.sequence = head.sequence;
            self.groups = groups;
            self.times.resize(groups, 0);
            self.ballots.resize(groups, 0);
        } else if self.groups != groups || (self.sequence != head.sequence && !lenient) {
            return Err(Rejected::OtherMessage { client: head.client.0, slot, sequence: head.sequence });
        }
        Ok(())
    }

    /// Stores the header of the message's body. Its destinations contain this member's group.
    pub(super) fn hold(
        &mut self,
        client: ClientId,
        slot: u64,
        group: GroupId,
        header: &Header<'_>,
    ) -> Result<(), Rejected> {
        let groups = header.groups() as u8;
        let head = Head { client, sequence: header.sequence, slot: ShortSlot::of(slot), groups };
        if self.sequence != header.sequence && self.may_be(header.sequence) {
            self.clear();
        }
        self.name(&head, slot, false)?;
        self.destinations.clear();
        self.set = GroupSet::default();
        for (position, to) in header.destinations().enumerate() {
            if to.group == group {
                self.own = position;
            }
            self.destinations.push(to);
            self.set.insert(to.group);
        }
        self.not_before = header.not_before;
        self.body = true;
        Ok(())
    }

    /// Stores a message without a body to this group alone, such as a time entry.
    pub(super) fn hold_empty(&mut self, head: &Head, slot: u64, group: GroupId) -> Result<(), Rejected> {
        if self.sequence != head.sequence && self.may_be(head.sequence) {
            self.clear();
        }
        self.name(head, slot, false)?;
        self.destinations.clear();
        self.destinations.push(Destination { group, slot });
        (self.own, self.set) = (0, [group].into_iter().collect());
        self.body = true;
        Ok(())
    }

    pub(super) fn times(&self) -> Times<'_> {
        Times::new(&self.times)
    }

    /// Returns the ballot of the leader that sent the time at `position` to this member.
    pub(super) fn ballot(&self, position: usize) -> Ballot {
        Ballot::from_word(self.ballots[position])
    }

    pub(super) fn stamp(&mut self, position: usize, ballot: Ballot, time: u64) {
        self.ballots[position] = ballot.to_word();
        self.times[position] = time;
    }

    /// Sets all times to those of a vector of this group's leader.
    pub(super) fn stamp_all(&mut self, times: Times<'_>) {
        self.times.copy_from_slice(times.words());
    }

    /// Returns the groups whose times in the vector belong to an ended history.
    #[inline]
    pub(super) fn ended(&self) -> Option<&GroupSet> {
        self.ended.as_deref()
    }

    /// Returns whether the time of a group in the vector belongs to an ended history.
    pub(super) fn is_ended(&self, group: GroupId) -> bool {
        self.ended.as_ref().is_some_and(|ended| ended.contains(group))
    }

    /// Records that the history of a destination group has ended. A time in a processed vector is kept. Any other time
    /// of that group is forgotten.
    pub(super) fn end(&mut self, group: GroupId, topology: &Topology) {
        for position in 0..self.groups {
            let told_by = |ballot: Ballot| topology.member_bit(group, ballot.leader()).is_some();
            let of_group = match self.destinations.get(position) {
                Some(to) => to.group == group,
                None => told_by(self.ballot(position)),
            };
            if of_group && (self.vector || self.replaced) {
                self.ended.get_or_insert_default().insert(group);
            } else if of_group {
                self.stamp(position, Ballot::NONE, 0);
            }
        }
    }

    /// Returns this group's timestamp, which orders the message until it is decided.
    pub(super) fn tentative(&self) -> Timestamp {
        Timestamp { time: self.times[self.own], group: self.destinations[self.own].group.0 }
    }

    /// Returns the largest timestamp of a vector.
    pub(super) fn latest(&self, vector: Times<'_>) -> Timestamp {
        self.destinations
            .iter()
            .enumerate()
            .map(|(position, to)| Timestamp { time: vector.time(position), group: to.group.0 })
            .max()
            .unwrap_or_default()
    }

    /// Returns whether the message is decided, and the stream is processed through the decided vector.
    pub(super) fn is_final(&self) -> bool {
        self.vector && self.decided.is_some() && self.decided == Some(self.latest(self.times()))
    }

    /// Returns the head of an item about this message for the group at `position`.
    pub(super) fn head(&self, client: ClientId, position: usize) -> Head {
        let slot = ShortSlot::of(self.destinations[position].slot);
        Head { client, sequence: self.sequence, slot, groups: self.groups as u8 }
    }

    /// Returns an acknowledgement of this vector, for the group at `position`.
    #[inline]
    pub(super) fn ack(&self, client: ClientId, position: usize, ballot: Ballot) -> Ack<'_> {
        Ack { head: self.head(client, position), position: self.own as u8, ballot, times: self.times() }
    }

    /// Marks the message as delivered. Votes are not needed any more.
    pub(super) fn finish(&mut self) {
        self.delivered = true;
        self.age = 0;
        self.votes.clear(self.groups);
    }

    /// Removes the assignment, because another ballot's state determines whether and how the message is assigned.
    ///
    /// The body and the acknowledgements remain valid. The timestamps of other groups' leaders remain valid, too, but
    /// they are kept only if this member leads. A follower receives the times from the stream.
    pub(super) fn unassign(&mut self, leads: bool) {
        self.ordered = false;
        self.vector = false;
        self.replaced = false;
        self.ended = None;
        self.decided = None;
        self.revive();
        if !leads {
            self.times.fill(0);
            self.ballots.fill(0);
        } else if !self.destinations.is_empty() {
            self.stamp(self.own, Ballot::NONE, 0);
        }
        self.age = 0;
    }

    /// Applies an entry of a state to the slot. The body and the votes stay if they are of the same message.
    pub(super) fn take(&mut self, entry: &AssignedSlot, group: GroupId) {
        if self.sequence != entry.sequence || self.groups != entry.destinations.len() {
            self.clear();
            self.sequence = entry.sequence;
            self.groups = entry.destinations.len();
            self.times.resize(self.groups, 0);
            self.ballots.resize(self.groups, 0);
        }
        if self.destinations.is_empty() {
            self.destinations.extend_from_slice(&entry.destinations);
            self.set = entry.destinations.iter().map(|to| to.group).collect();
            self.own = entry.position(group).unwrap_or(0);
        }
        self.no_op = entry.no_op;
        self.settled = entry.no_op && entry.decided;
        for (position, time) in entry.times.iter().enumerate().filter(|(_, time)| **time != 0) {
            self.stamp(position, Ballot::NONE, *time);
        }
        // A message that became a no-op keeps its position in the order until the no-op is settled.
        self.ordered = !entry.no_op || entry.times.get(self.own).is_some_and(|time| *time != 0);
        self.vector = entry.vector;
        self.ended = (entry.ended != GroupSet::default()).then(|| Box::new(entry.ended));
        if entry.decided && !entry.no_op {
            self.decided = Some(self.latest(Times::new(&entry.times)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::votes::Vote;
    use super::*;

    fn taken<T>(vector: &Vec<T>) -> u64 {
        heap_bytes::<T>(vector.capacity())
    }

    #[test]
    fn announced_heap_bytes_are_a_tight_upper_bound() {
        for groups in [1, 4, 5, 8, 255] {
            let mut slot = Slot::default();
            // The capacity grows as it does when a header is read: the number of destinations is not known in advance.
            let destinations = (0..groups as u16).map(|group| Destination { group: GroupId(group), slot: 0 });
            slot.destinations.extend(destinations.filter(|_| true));
            slot.times.resize(groups, 0);
            slot.ballots.resize(groups, 0);
            let times = Times::new(&slot.times);
            slot.votes.record(&Vote { position: 0, voter: 1, implied: 0, ballot: Ballot::NONE, times }, false);
            let own = taken(&slot.destinations) + taken(&slot.times) + taken(&slot.ballots);
            let all = own + slot.votes.taken();
            let said = Slot::heap_bytes(groups);
            assert!(all <= said && said <= all + all / 4, "{groups} groups take {all} bytes, {said} are announced");
        }
    }

    #[test]
    fn memory_of_further_vectors_is_freed_with_the_message() {
        for groups in [1, 4, 5, 255] {
            let mut slot = Slot { groups, ..Slot::default() };
            for time in 1..=4 {
                let times = vec![time; groups];
                let times = Times::new(&times);
                slot.votes.record(&Vote { position: 0, voter: 1, implied: 0, ballot: Ballot::NONE, times }, false);
            }
            slot.clear();
            let (kept, said) = (slot.votes.taken(), Votes::heap_bytes(groups));
            assert!(kept <= said, "{groups} groups keep {kept} bytes, {said} are announced");
        }
    }
}
