//! One message of one client at one member.

use super::Rejected;
use super::votes::Votes;
use crate::item::{Head, Stamps};
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
    /// (ballot, time) per destination group; time 0 is unknown.
    stamps: Vec<u64>,
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
        self.stamps.clear();
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
            self.stamps.resize(2 * groups, 0);
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
        let head = Head { client, sequence: header.sequence, slot, groups: header.groups() as u8 };
        self.name(&head, slot, false)?;
        self.own = own;
        self.destinations.extend(header.destinations());
        self.set = header.destinations().map(|to| to.group).collect();
        Ok(())
    }

    pub(super) fn stamps(&self) -> Stamps<'_> {
        Stamps::new(&self.stamps)
    }

    pub(super) fn stamp(&mut self, position: usize, ballot: Ballot, time: u64) {
        self.stamps[2 * position] = ballot.to_word();
        self.stamps[2 * position + 1] = time;
    }

    pub(super) fn stamp_all(&mut self, vector: Stamps<'_>) {
        self.stamps.copy_from_slice(vector.words());
    }

    /// Own group's timestamp: the message's place in the order until it is decided.
    pub(super) fn tentative(&self) -> Timestamp {
        Timestamp { time: self.stamps().time(self.own), group: self.destinations[self.own].group.0 }
    }

    /// The largest timestamp of a vector.
    pub(super) fn latest(&self, vector: Stamps<'_>) -> Timestamp {
        self.destinations
            .iter()
            .enumerate()
            .map(|(position, to)| Timestamp { time: vector.time(position), group: to.group.0 })
            .max()
            .unwrap_or_default()
    }

    /// The head of an item about this message for the group at `position`.
    pub(super) fn head(&self, client: ClientId, position: usize) -> Head {
        Head { client, sequence: self.sequence, slot: self.destinations[position].slot, groups: self.groups as u8 }
    }
}
