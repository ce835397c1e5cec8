//! The state machine of a client. It numbers the client's messages and limits those in flight to a window per group.

use thiserror::Error;

use crate::mutant::mutant;
use crate::{ClientId, Destination, GroupId, Mutant, Topology};

/// The error of a multicast to a group whose members still hold a full window of this client's messages, or to a group
/// that does not exist.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("group {group} still holds {window} messages of this client; wait for deliveries")]
pub struct WindowFull {
    /// Index of the group.
    pub group: u16,
    /// Size of the window, in slots.
    pub window: u32,
}

/// The numbering of a client's messages, and the slots that are free.
///
/// A message has one sequence number over all destinations and one dense slot number per destination group.
#[derive(Clone, Debug)]
pub struct Sender {
    client: ClientId,
    window: u32,
    mutant: Mutant,
    sequence: u64,
    next: Vec<u64>,
    /// The first slot that is not free, by group.
    freed: Vec<u64>,
    /// The first slot that a member has not freed, and whether the member counts for flow control, by group and member.
    members: Vec<Vec<(u64, bool)>>,
    /// Number of members that count for flow control, by group.
    counted: Vec<usize>,
    majorities: Vec<usize>,
}

impl Sender {
    /// Creates the state of a client that has multicast nothing yet. All members count for flow control.
    #[must_use]
    pub fn new(topology: &Topology, client: ClientId, window: u32) -> Self {
        let members = topology.group_ids().map(|group| vec![(0, true); topology.size(group)]).collect();
        let counted = topology.group_ids().map(|group| topology.size(group)).collect();
        let majorities = topology.group_ids().map(|group| topology.majority(group) as usize).collect();
        let (next, freed) = (vec![0; topology.groups()], vec![0; topology.groups()]);
        Sender { client, window, mutant: Mutant::None, sequence: 0, next, freed, members, counted, majorities }
    }

    /// Enables a mutant, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn with_mutant(self, mutant: Mutant) -> Self {
        Sender { mutant, ..self }
    }

    pub(crate) fn mutant(&self) -> Mutant {
        self.mutant
    }

    /// Returns the id of this client.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Continues after earlier processes of the same client id, which used sequences up to `sequence`.
    pub fn resume_sequence(&mut self, sequence: u64) {
        self.sequence = self.sequence.max(sequence);
    }

    /// Starts at slot `slots` of a group. Earlier processes of the client id may have left undelivered messages before
    /// that slot.
    ///
    /// No member of the group counts for flow control until it is [admitted](Sender::admit).
    pub fn resume_slots(&mut self, group: GroupId, slots: u64) {
        let group = usize::from(group.0);
        if let Some(members) = self.members.get_mut(group) {
            (self.next[group], self.freed[group]) = (slots, 0);
            members.fill((0, false));
            self.counted[group] = 0;
        }
    }

    /// Returns whether this process has used all sequence numbers of its generation.
    #[inline]
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        crate::ids::is_last_of_generation(self.sequence)
    }

    /// Checks whether the windows of all groups in `to` have room for the next message.
    ///
    /// # Errors
    /// Returns [`WindowFull`] with the first group whose window has no room or that does not exist.
    #[inline]
    pub fn check(&self, to: &[GroupId]) -> Result<(), WindowFull> {
        for group in to {
            let next = self.next.get(usize::from(group.0)).copied().unwrap_or(u64::MAX);
            if next >= self.freed(*group) + u64::from(self.window) {
                return Err(WindowFull { group: group.0, window: self.window });
            }
        }
        Ok(())
    }

    /// Numbers the next message to the groups in `to`, which must be in rising order, and returns its sequence.
    ///
    /// The destinations with their slots replace the content of `destinations`. Call [`check`](Sender::check) first.
    #[inline]
    pub fn number(&mut self, to: &[GroupId], destinations: &mut Vec<Destination>) -> u64 {
        self.sequence += 1;
        destinations.clear();
        for &group in to {
            // A group that `check` refuses has no slot.
            let Some(next) = self.next.get_mut(usize::from(group.0)) else { continue };
            destinations.push(Destination { group, slot: *next });
            *next += 1;
        }
        self.sequence
    }

    /// Returns the sequence that [`number`](Sender::number) assigns next.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.sequence + 1
    }

    /// Returns the slot of the next message to a group, or 0 if there is no such group.
    #[must_use]
    pub fn next(&self, group: GroupId) -> u64 {
        self.next.get(usize::from(group.0)).copied().unwrap_or(0)
    }

    #[inline]
    fn member(&mut self, group: GroupId, member: usize) -> Option<&mut (u64, bool)> {
        self.members.get_mut(usize::from(group.0))?.get_mut(member)
    }

    /// Records that a member has freed all slots below `slots`.
    #[inline]
    pub fn on_freed(&mut self, group: GroupId, member: usize, slots: u64) {
        let Some((known, _)) = self.member(group, member) else { return };
        if slots > *known {
            *known = slots;
            self.settle(group);
        }
    }

    /// Returns the first slot of a group that is not free. Only [`resume_slots`](Sender::resume_slots) decreases the
    /// value, to 0.
    ///
    /// A slot is free once every member that counts for flow control has freed it, while those members are a majority.
    #[inline]
    #[must_use]
    pub fn freed(&self, group: GroupId) -> u64 {
        self.freed.get(usize::from(group.0)).copied().unwrap_or(0)
    }

    #[inline]
    fn settle(&mut self, group: GroupId) {
        if !self.has_majority(group) {
            return;
        }
        let group = usize::from(group.0);
        let counted = self.members[group].iter().filter(|(_, counts)| *counts).map(|(slots, _)| *slots);
        let freed = if mutant!(self.mutant, SlotsFreedByOne) { counted.max() } else { counted.min() };
        self.freed[group] = self.freed[group].max(freed.unwrap_or(0));
    }

    /// Returns whether a majority of the group's members counts for flow control.
    #[inline]
    #[must_use]
    pub fn has_majority(&self, group: GroupId) -> bool {
        let group = usize::from(group.0);
        self.counted.get(group).is_some_and(|counted| *counted >= self.majorities[group])
    }

    /// Counts a member for flow control, possibly again. The member has freed all slots below `slots`. Returns whether
    /// it counts now.
    ///
    /// A member that has not freed all free slots of the group is not counted: counting it would occupy slots that are
    /// already free.
    pub fn admit(&mut self, group: GroupId, member: usize, slots: u64) -> bool {
        let enough = slots >= self.freed(group);
        let Some((known, counts)) = self.member(group, member) else { return false };
        let counted = *counts;
        if enough {
            (*known, *counts) = (slots, true);
        }
        let counts = *counts;
        self.counted[usize::from(group.0)] += usize::from(counts && !counted);
        self.settle(group);
        counts
    }

    /// Returns whether a member counts for flow control.
    #[inline]
    #[must_use]
    pub fn counts(&self, group: GroupId, member: usize) -> bool {
        let members = self.members.get(usize::from(group.0));
        members.and_then(|members| members.get(member)).is_some_and(|(_, counts)| *counts)
    }

    /// Stops counting a member for flow control.
    pub fn expel(&mut self, group: GroupId, member: usize) {
        if let Some((_, counts)) = self.member(group, member) {
            let counted = std::mem::replace(counts, false);
            self.counted[usize::from(group.0)] -= usize::from(counted);
            self.settle(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender() -> Sender {
        let topology = Topology::new(&[3, 1], 1).expect("the topology is possible");
        Sender::new(&topology, ClientId(0), 2)
    }

    #[test]
    fn slots_are_dense_per_group_and_sequences_over_all() {
        let (mut sender, mut to) = (sender(), Vec::new());
        assert_eq!(sender.number(&[GroupId(0)], &mut to), 1);
        assert_eq!(sender.number(&[GroupId(0), GroupId(1)], &mut to), 2);
        assert_eq!(to.iter().map(|to| to.slot).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn a_window_is_full_until_every_member_that_counts_has_freed() {
        let (mut sender, mut to) = (sender(), Vec::new());
        for _ in 0..2 {
            sender.number(&[GroupId(0)], &mut to);
        }
        assert_eq!(sender.check(&[GroupId(0)]), Err(WindowFull { group: 0, window: 2 }));
        sender.on_freed(GroupId(0), 0, 2);
        sender.on_freed(GroupId(0), 1, 1);
        assert_eq!(sender.freed(GroupId(0)), 0);
        sender.expel(GroupId(0), 2);
        assert_eq!(sender.freed(GroupId(0)), 1);
        assert_eq!(sender.check(&[GroupId(0)]), Ok(()));
    }

    #[test]
    fn no_slot_becomes_free_without_a_majority() {
        let (mut sender, mut to) = (sender(), Vec::new());
        sender.number(&[GroupId(0)], &mut to);
        sender.on_freed(GroupId(0), 0, 1);
        sender.expel(GroupId(0), 1);
        sender.expel(GroupId(0), 2);
        assert!(!sender.has_majority(GroupId(0)) && sender.has_majority(GroupId(1)));
        assert_eq!(sender.freed(GroupId(0)), 0, "one of three members has freed the slot, which is not a majority");
    }

    #[test]
    fn a_returning_member_counts_once_it_has_freed_all_free_slots() {
        let (mut sender, mut to) = (sender(), Vec::new());
        sender.expel(GroupId(0), 2);
        for _ in 0..2 {
            sender.number(&[GroupId(0)], &mut to);
        }
        sender.on_freed(GroupId(0), 0, 2);
        sender.on_freed(GroupId(0), 1, 2);
        assert!(!sender.admit(GroupId(0), 2, 1) && !sender.counts(GroupId(0), 2));
        // The member does not count while there is no majority, either.
        sender.expel(GroupId(0), 1);
        assert!(!sender.admit(GroupId(0), 2, 1));
        assert_eq!(sender.freed(GroupId(0)), 2);
        assert!(sender.admit(GroupId(0), 2, 2) && sender.has_majority(GroupId(0)));
        sender.number(&[GroupId(0)], &mut to);
        sender.on_freed(GroupId(0), 0, 3);
        assert_eq!(sender.freed(GroupId(0)), 2, "the readmitted member counts");
    }
}
