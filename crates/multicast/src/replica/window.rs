//! The messages of one client that are not free here yet.

use super::Rejected;
use super::slot::Slot;
use crate::item::Head;
use crate::message::Destination;
use crate::{ClientId, GroupSet};

/// A client's slots at this group, `base` to `base + window`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Window {
    slots: Vec<Slot>,
    base: u64,
    /// Sequence of the last slot before `base`: sequences rise with slots, so what is not above it is about freed ones.
    freed: u64,
    /// The next slot whose body is missing.
    held: u64,
    /// The next slot to assign (leader).
    pub(super) assigned: u64,
    /// Assigned but undecided messages, counted by destination set (leader; for the FIFO rule).
    undecided: Vec<(GroupSet, u32)>,
}

impl Window {
    pub(super) fn new(window: u32) -> Self {
        Window {
            slots: vec![Slot::default(); window as usize],
            base: 0,
            freed: 0,
            held: 0,
            assigned: 0,
            undecided: Vec::new(),
        }
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    pub(super) fn holds(&self, slot: u64) -> bool {
        slot < self.held
    }

    /// The slot that an item is about, if it is not freed already; it may be beyond the window.
    pub(super) fn resolve(&self, head: &Head) -> Option<u64> {
        (head.sequence > self.freed).then(|| head.slot.from(self.base))
    }

    /// Sequence of the last message that is held, or was.
    fn last_sequence(&self) -> u64 {
        if self.held == self.base { self.freed } else { self.slot(self.held - 1).sequence }
    }

    /// A body may come only for the next slot, with a larger sequence than those before it, and only within the window.
    /// `slot` as it came over the wire. Returns the slot.
    pub(super) fn admit(&self, client: ClientId, slot: u64, sequence: u64) -> Result<u64, Rejected> {
        if slot != self.held % (1 << Destination::SLOT_BITS) {
            return Err(Rejected::Slot { client: client.0, slot, expected: self.held });
        }
        let last = self.last_sequence();
        if sequence <= last {
            return Err(Rejected::Sequence { client: client.0, sequence, last });
        }
        self.check(client, self.held)?;
        Ok(self.held)
    }

    /// A stream entry may be processed only when its body is held.
    pub(super) fn require_held(&self, client: ClientId, slot: u64) -> Result<(), Rejected> {
        self.check(client, slot)?;
        if self.holds(slot) {
            return Ok(());
        }
        Err(Rejected::Slot { client: client.0, slot, expected: self.held })
    }

    pub(super) fn held_one_more(&mut self) {
        self.held += 1;
    }

    pub(super) fn check(&self, client: ClientId, slot: u64) -> Result<(), Rejected> {
        let end = self.base + self.slots.len() as u64;
        if slot >= end {
            return Err(Rejected::BeyondWindow { client: client.0, slot, end });
        }
        Ok(())
    }

    pub(super) fn slot(&self, slot: u64) -> &Slot {
        &self.slots[slot as usize & (self.slots.len() - 1)]
    }

    pub(super) fn slot_mut(&mut self, slot: u64) -> &mut Slot {
        let mask = self.slots.len() - 1;
        &mut self.slots[slot as usize & mask]
    }

    /// Frees slots from the beginning of the window that are delivered.
    pub(super) fn free_delivered(&mut self) {
        while self.slot(self.base).delivered {
            let base = self.base;
            let slot = self.slot_mut(base);
            let sequence = slot.sequence;
            slot.clear();
            self.freed = sequence;
            self.base += 1;
        }
    }

    /// FIFO (M6): a message may be assigned only when every earlier one whose destinations are not a subset of its own
    /// is decided.
    pub(super) fn may_assign(&self, set: &GroupSet) -> bool {
        self.undecided.iter().all(|(earlier, count)| *count == 0 || earlier.is_subset(set))
    }

    pub(super) fn count_undecided(&mut self, set: GroupSet) {
        if let Some((_, count)) = self.undecided.iter_mut().find(|(known, _)| *known == set) {
            *count += 1;
        } else if let Some(unused) = self.undecided.iter_mut().find(|(_, count)| *count == 0) {
            *unused = (set, 1);
        } else {
            self.undecided.push((set, 1));
        }
    }

    pub(super) fn count_decided(&mut self, set: GroupSet) {
        if let Some((_, count)) = self.undecided.iter_mut().find(|(known, _)| *known == set) {
            *count -= 1;
        }
    }

    /// For the planted bug that finds messages by a hash.
    pub(super) fn first_with_hash(&self, sequence: u64) -> Option<u64> {
        let hash = |sequence: u64| sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62;
        (self.base..self.held).find(|slot| hash(self.slot(*slot).sequence) == hash(sequence))
    }
}
