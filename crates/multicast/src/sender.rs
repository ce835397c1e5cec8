//! The state machine of a client: numbers its messages and keeps to its windows.

use std::sync::Arc;

use thiserror::Error;

use crate::plant::planted;
use crate::{ClientId, Destination, GroupId, Plant, Topology};

/// A group's members still hold a full window of this client's messages.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("group {group} still holds {window} messages of this client; wait for deliveries")]
pub struct WindowFull {
    /// Index of the group.
    pub group: u16,
    /// Slots.
    pub window: u32,
}

/// Numbers a client's messages: one sequence over everything, and a dense slot number per destination group.
#[derive(Clone, Debug)]
pub struct Sender {
    client: ClientId,
    window: u32,
    plant: Plant,
    sequence: u64,
    next: Vec<u64>,
    freed: Vec<Vec<u64>>,
}

impl Sender {
    /// A client that has multicast nothing yet.
    #[must_use]
    pub fn new(topology: &Arc<Topology>, client: ClientId, window: u32, plant: Plant) -> Self {
        let freed = topology.group_ids().map(|group| vec![0; topology.size(group)]).collect();
        Sender { client, window, plant, sequence: 0, next: vec![0; topology.groups()], freed }
    }

    /// This client.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Continues after an earlier process of the same client place, which used sequences up to `sequence`.
    pub fn resume_sequence(&mut self, sequence: u64) {
        self.sequence = self.sequence.max(sequence);
    }

    /// Continues at a group where an earlier process's messages were all delivered.
    pub fn resume_slots(&mut self, group: GroupId, slots: u64) {
        let group = usize::from(group.0);
        self.next[group] = slots;
        self.freed[group].fill(slots);
    }

    /// Whether the next message may go to these groups.
    ///
    /// # Errors
    /// [`WindowFull`], naming the first group that has no room.
    #[inline]
    pub fn check(&self, to: &[GroupId]) -> Result<(), WindowFull> {
        for group in to {
            if self.next[usize::from(group.0)] >= self.freed(*group) + u64::from(self.window) {
                return Err(WindowFull { group: group.0, window: self.window });
            }
        }
        Ok(())
    }

    /// Numbers the next message; `to` in rising order. Call [`check`](Sender::check) first. Returns its sequence; its
    /// destinations go to `destinations`.
    #[inline]
    pub fn number(&mut self, to: &[GroupId], destinations: &mut Vec<Destination>) -> u64 {
        self.sequence += 1;
        destinations.clear();
        for &group in to {
            let next = &mut self.next[usize::from(group.0)];
            destinations.push(Destination { group, slot: *next });
            *next += 1;
        }
        self.sequence
    }

    /// A member has freed all slots below `slots`.
    #[inline]
    pub fn on_freed(&mut self, group: GroupId, member: usize, slots: u64) {
        let known = &mut self.freed[usize::from(group.0)][member];
        *known = (*known).max(slots);
    }

    /// Slots below this are free at every member that counts.
    #[inline]
    #[must_use]
    pub fn freed(&self, group: GroupId) -> u64 {
        let freed = self.freed[usize::from(group.0)].iter().copied();
        if planted!(self.plant, SlotsFreedByOne) {
            return freed.filter(|slots| *slots != u64::MAX).max().unwrap_or(0);
        }
        freed.min().unwrap_or(0)
    }

    /// A member no longer counts for flow control.
    pub fn expel(&mut self, group: GroupId, member: usize) {
        self.on_freed(group, member, u64::MAX);
    }
}
