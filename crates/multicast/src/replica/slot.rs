//! One message of one client at one member.

use super::Rejected;
use super::votes::Votes;
use crate::item::{Head, ShortSlot, Times};
use crate::message::Destination;
use crate::{Ballot, ClientId, GroupSet, Header, Timestamp};

/// One message. Reused for the message a window later, so that nothing is allocated per message.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Slot {
    /// The client's number for it; 0 while nothing is known.
    pub(super) sequence: u64,
    /// Destination groups; 0 while nothing is known.
    pub(super) groups: usize,
    /// Position of the own group; known once the body is held.
    pub(super) own: usize,
    pub(super) destinations: Vec<Destination>,
    pub(super) set: GroupSet,
    /// Time per destination group; 0 is unknown.
    times: Vec<u64>,
    /// Ballot per destination group whose leader told this member its time; else 0.
    ballots: Vec<u64>,
    pub(super) votes: Votes,
    /// Own group's timestamp is in the order.
    pub(super) ordered: bool,
    /// The stream is processed (or written) through the whole vector.
    pub(super) vector: bool,
    /// The final timestamp, once decided.
    pub(super) decided: Option<Timestamp>,
    pub(super) delivered: bool,
}

impl Slot {
    /// Forgets everything but the memory.
    pub(super) fn clear(&mut self) {
        self.sequence = 0;
        self.groups = 0;
        self.own = 0;
        self.destinations.clear();
        self.set = GroupSet::default();
        self.times.clear();
        self.ballots.clear();
        self.votes.clear();
        self.ordered = false;
        self.vector = false;
        self.decided = None;
        self.delivered = false;
    }

    /// An item came for this slot: checks that it names the same message, or gives the slot its name.
    pub(super) fn name(&mut self, head: &Head, slot: u64, lenient: bool) -> Result<(), Rejected> {
        let groups = usize::from(head.groups);
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

    /// The body is here.
    pub(super) fn hold(
        &mut self,
        client: ClientId,
        slot: u64,
        own: usize,
        header: &Header<'_>,
    ) -> Result<(), Rejected> {
        let groups = header.groups() as u8;
        let head = Head { client, sequence: header.sequence, slot: ShortSlot::of(slot), groups };
        self.name(&head, slot, false)?;
        self.own = own;
        self.destinations.extend(header.destinations());
        self.set = header.destinations().map(|to| to.group).collect();
        Ok(())
    }

    pub(super) fn times(&self) -> Times<'_> {
        Times::new(&self.times)
    }

    /// Ballot of the leader that gave the time at `position`, as far as this member was told.
    pub(super) fn ballot(&self, position: usize) -> Ballot {
        Ballot::from_word(self.ballots[position])
    }

    pub(super) fn stamp(&mut self, position: usize, ballot: Ballot, time: u64) {
        self.ballots[position] = ballot.to_word();
        self.times[position] = time;
    }

    /// All times, as the own group's leader has them.
    pub(super) fn stamp_all(&mut self, times: Times<'_>) {
        self.times.copy_from_slice(times.words());
    }

    /// Own group's timestamp: the message's place in the order until it is decided.
    pub(super) fn tentative(&self) -> Timestamp {
        Timestamp { time: self.times[self.own], group: self.destinations[self.own].group.0 }
    }

    /// The largest timestamp of a vector.
    pub(super) fn latest(&self, vector: Times<'_>) -> Timestamp {
        self.destinations
            .iter()
            .enumerate()
            .map(|(position, to)| Timestamp { time: vector.time(position), group: to.group.0 })
            .max()
            .unwrap_or_default()
    }

    /// The head of an item about this message for the group at `position`.
    pub(super) fn head(&self, client: ClientId, position: usize) -> Head {
        let slot = ShortSlot::of(self.destinations[position].slot);
        Head { client, sequence: self.sequence, slot, groups: self.groups as u8 }
    }
}
