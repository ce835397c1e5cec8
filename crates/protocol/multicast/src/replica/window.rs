//! The messages of one client at one member: undelivered ones, and delivered ones until their slots are used again.

use stentor_fabric::SplitMix64;

use super::Rejected;
use super::closing::Closing;
use super::heirs::Heirs;
use super::slot::Slot;
use crate::item::{Head, ShortSlot};
use crate::message::Destination;
use crate::mutant::mutant;
use crate::slot_table::SlotTable;
use crate::state::{AssignedSlot, ClientState, Succession};
use crate::{ClientId, GroupId, GroupSet, Mutant, Timestamp, ids};

/// A client's slots at this group.
///
/// The client reuses the entry of a slot, one window later, only when every member that counts for its flow control has
/// delivered the slot's message. Until then the message is retained for members that have not delivered it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Window {
    slots: SlotTable<Slot>,
    /// The first retained slot.
    base: u64,
    /// Sequence of the last slot before `base`. Sequences rise with slots, so a sequence up to this one belongs to a
    /// freed slot.
    freed: u64,
    /// The first slot that is neither delivered nor a settled no-op.
    delivered: u64,
    /// Sequence of the last slot before `delivered`.
    done: u64,
    /// Sequence of the last message before `delivered` that is not a no-op.
    good: u64,
    /// The slot after the last one that is held, or that an item has named.
    top: u64,
    /// The next slot to assign; at a follower, the slot after the last assigned one.
    pub(super) assigned: u64,
    /// Number of assigned but undecided messages by destination set, for the FIFO rule.
    undecided: Vec<(GroupSet, u32)>,
    /// See [`ClientState::closed`].
    pub(super) closed: u64,
    /// Generation below which this member accepts no messages from the client's processes. Members may forward them.
    pub(super) over_below: u64,
    /// The successions of the client id.
    pub(super) heirs: Heirs,
    /// The leader's progress in closing earlier processes of the client id.
    pub(super) closing: Closing,
    /// The first unassigned slot, if it blocks later ones.
    pub(super) gap: Gap,
}

/// A leader's view of a gap: the first unassigned slot, whose body it does not hold, before a slot whose body it holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Gap {
    pub(super) slot: u64,
    /// Ticks since the gap was found, or since the other members were last asked.
    pub(super) age: u8,
    /// Members that hold nothing in the slot, as a bit mask.
    pub(super) lacking: u64,
}

impl Window {
    pub(super) fn new(window: u32) -> Self {
        Window {
            slots: SlotTable::new(window),
            base: 0,
            freed: 0,
            delivered: 0,
            done: 0,
            good: 0,
            top: 0,
            assigned: 0,
            undecided: Vec::new(),
            closed: 0,
            over_below: 0,
            heirs: Heirs::new(),
            closing: Closing::default(),
            gap: Gap::default(),
        }
    }

    /// Returns the first retained slot.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// Returns the first slot that is neither delivered nor a settled no-op.
    pub(super) fn first_undelivered(&self) -> u64 {
        self.delivered
    }

    /// Returns the undelivered slots up to the last one that is held or named.
    pub(super) fn open(&self) -> std::ops::Range<u64> {
        self.delivered..self.top.max(self.delivered)
    }

    /// Returns the slots that are assigned and not delivered.
    pub(super) fn pending(&self) -> std::ops::Range<u64> {
        self.delivered..self.assigned
    }

    #[inline]
    pub(super) fn holds(&self, slot: u64) -> bool {
        slot < self.delivered || self.is_here(slot) && self.slot(slot).body
    }

    /// Returns whether the next message to assign is held and names a time that it must follow. Its assignment may have
    /// had to wait for that time.
    pub(super) fn waits_for_a_time(&self) -> bool {
        self.is_here(self.assigned) && self.slot(self.assigned).not_before != 0
    }

    /// Returns whether the slot holds the body of this message, or is before the first undelivered one.
    pub(super) fn holds_message(&self, slot: u64, sequence: u64) -> bool {
        self.holds(slot) && (slot < self.delivered || self.slot(slot).sequence == sequence)
    }

    /// Returns whether the entry at the slot's index belongs to this slot, and not to the slot one window earlier.
    #[inline]
    pub(super) fn is_here(&self, slot: u64) -> bool {
        slot >= self.base && self.slots.reaches(slot - self.base)
    }

    /// Returns the slot that an item is about, unless the slot is freed already or the message is void. The slot may be
    /// beyond the window.
    #[inline]
    pub(super) fn resolve(&self, head: &Head) -> Option<u64> {
        if self.heirs.is_void(head.sequence) {
            return None;
        }
        if head.sequence > self.done {
            return Some(head.slot.from(self.base));
        }
        // Sequences rise with slots, so the message is either in a delivered slot that is retained, or freed.
        let slot = head.slot.from(self.base);
        let same = |known: &Slot| known.sequence == head.sequence || known.no_op && ids::is_nameless(known.sequence);
        (slot < self.delivered && same(self.slot(slot))).then_some(slot)
    }

    /// Returns the slot that a no-op entry names, unless the slot is freed already. The slot may be beyond the window.
    pub(super) fn resolve_no_op(&self, head: &Head) -> Option<u64> {
        let slot = head.slot.from(self.base);
        (slot - self.base < ShortSlot::SPAN / 2).then_some(slot)
    }

    /// Returns the first slot of a process, as an entry names it. The slot may be freed already.
    pub(super) fn resolve_first(&self, head: &Head) -> u64 {
        let slot = head.slot.from(self.base);
        if slot - self.base < ShortSlot::SPAN / 2 { slot } else { slot.saturating_sub(ShortSlot::SPAN) }
    }

    /// Returns whether a slot is beyond the window.
    #[inline]
    pub(super) fn is_beyond(&self, slot: u64) -> bool {
        slot >= self.delivered + self.slots.window()
    }

    /// Returns whether this member regards the process that multicast a message as ended.
    pub(super) fn is_over(&self, sequence: u64) -> bool {
        ids::generation(sequence) < self.over_below
    }

    /// Returns the generation of the process that left a gap at `slot`. `behind` is the next slot after the gap whose
    /// message is held.
    ///
    /// If an item has named the gap's message, the generation is that of the message. Otherwise it follows from the
    /// succession that begins after the gap, or else from the message after the gap.
    pub(super) fn left_by(&self, slot: u64, behind: u64) -> u64 {
        let here = self.slot_or_none(slot).map_or(0, |known| known.sequence);
        if here != 0 && !ids::is_nameless(here) {
            return ids::generation(here);
        }
        self.heirs.left_by(slot).unwrap_or_else(|| ids::generation(self.slot(behind).sequence))
    }

    /// Returns the first undelivered slot at or after `from` that satisfies a condition.
    pub(super) fn first_from(&self, from: u64, condition: impl Fn(&Slot) -> bool) -> Option<u64> {
        let end = self.top.min(self.base + self.slots.window());
        (from.max(self.delivered)..end).find(|slot| condition(self.slot(*slot)))
    }

    /// Returns the first held slot after the first unassigned one, if the latter is not held.
    pub(super) fn gap_before(&self) -> Option<u64> {
        let held = self.holds(self.assigned);
        self.first_from(self.assigned, |behind| behind.body).filter(|_| !held)
    }

    /// Returns whether an undelivered slot is held or named.
    pub(super) fn has_open(&self) -> bool {
        self.top > self.delivered
    }

    /// Returns the slot after the last one whose body is held. Slots before it may not be held.
    pub(super) fn end_of_held(&self) -> u64 {
        let end = self.top.min(self.base + self.slots.window()).max(self.delivered);
        (self.delivered..end).rev().find(|slot| self.slot(*slot).body).map_or(self.delivered, |last| last + 1)
    }

    /// Returns whether the slot of this message has delivered another message, so that this one is delivered nowhere.
    pub(super) fn is_superseded(&self, head: &Head) -> bool {
        let slot = head.slot.from(self.base);
        slot < self.delivered && self.slot(slot).sequence > head.sequence
    }

    /// Returns whether a message that is not retained is known to have been delivered here.
    pub(super) fn has_kept(&self, head: &Head) -> bool {
        head.sequence <= self.good && !self.heirs.is_void(head.sequence) && !self.is_superseded(head)
    }

    /// Returns the slot of a retained message.
    pub(super) fn find(&self, sequence: u64) -> Option<u64> {
        let end = self.top.max(self.assigned).min(self.base + self.slots.window());
        (self.base..end).find(|slot| self.slot(*slot).sequence == sequence)
    }

    /// Returns whether a message is held, or no longer needs a body because its slot was delivered or is a settled
    /// no-op.
    pub(super) fn holds_somewhere(&self, sequence: u64) -> bool {
        sequence <= self.done || self.find(sequence).is_some_and(|slot| self.holds(slot))
    }

    /// Returns the largest sequence that is known here.
    pub(super) fn last_sequence(&self) -> u64 {
        let named = self.slots.made().iter().map(|slot| slot.sequence).max().unwrap_or(0);
        named.max(self.freed).max(self.done)
    }

    /// Returns the slot for a body. Returns `None` if the body is stored already, or the message is delivered, void or
    /// a no-op.
    ///
    /// `wire` is the slot as it was received. Bodies may arrive in any order, because some are forwarded, but a
    /// client's sequences rise with its slots.
    pub(super) fn admit(&self, client: ClientId, wire: u64, sequence: u64) -> Result<Option<u64>, Rejected> {
        if sequence <= self.freed || self.heirs.is_void(sequence) {
            return Ok(None);
        }
        let slot = self.base + wire.wrapping_sub(self.base) % (1 << Destination::SLOT_BITS);
        if slot < self.delivered {
            return Ok(None);
        }
        self.check(client, slot)?;
        let last = if slot == self.base { self.freed } else { self.slot_or_none(slot - 1).map_or(0, |m| m.sequence) };
        if sequence <= last {
            return Err(Rejected::Sequence { client: client.0, sequence, last });
        }
        match self.slot_or_none(slot) {
            Some(known) if known.no_op || known.body && known.sequence == sequence => Ok(None),
            Some(known) if known.may_be(sequence) => Ok(Some(slot)),
            None => Ok(Some(slot)),
            Some(_) => Err(Rejected::OtherMessage { client: client.0, slot, sequence }),
        }
    }

    #[inline]
    fn slot_or_none(&self, slot: u64) -> Option<&Slot> {
        self.is_here(slot).then(|| self.slot(slot))
    }

    #[inline]
    pub(super) fn check(&self, client: ClientId, slot: u64) -> Result<(), Rejected> {
        if self.is_beyond(slot) {
            let end = self.delivered + self.slots.window();
            return Err(Rejected::BeyondWindow { client: client.0, slot, end });
        }
        Ok(())
    }

    /// Makes an entry available for this slot, by freeing slots that are a window earlier and delivered. Call it after
    /// [`check`](Window::check).
    #[inline]
    pub(super) fn make_room(&mut self, slot: u64) {
        while slot >= self.base + self.slots.window() {
            self.free_first();
        }
        self.top = self.top.max(slot + 1);
    }

    fn free_first(&mut self) {
        let base = self.base;
        let slot = self.slot_mut(base);
        let sequence = slot.sequence;
        slot.clear();
        self.freed = self.freed.max(sequence);
        self.base += 1;
    }

    #[inline]
    pub(super) fn slot(&self, slot: u64) -> &Slot {
        self.slots.get(slot)
    }

    #[inline]
    pub(super) fn slot_mut(&mut self, slot: u64) -> &mut Slot {
        self.slots.get_mut(slot)
    }

    /// Advances past slots that are delivered, or are settled no-ops.
    pub(super) fn pass_delivered(&mut self) {
        while self.is_here(self.delivered) && self.slot(self.delivered).is_done() {
            let Slot { sequence, no_op, .. } = *self.slot(self.delivered);
            self.done = self.done.max(sequence);
            self.good = if no_op { self.good } else { sequence };
            self.delivered += 1;
        }
        self.assigned = self.assigned.max(self.delivered);
    }

    /// Returns whether the FIFO rule (M6) allows an assignment: every earlier message is decided, or its destinations
    /// are a subset of this one's.
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

    fn count_decided(&mut self, set: GroupSet) {
        if let Some((_, count)) = self.undecided.iter_mut().find(|(known, _)| *known == set) {
            *count = count.saturating_sub(1);
        }
    }

    /// Records that a message is decided at a vector whose maximum is `latest`. `assigner` is `true` at the process
    /// that assigns messages and counts the undecided ones.
    #[inline]
    pub(super) fn decide(&mut self, slot: u64, latest: Timestamp, assigner: bool) {
        let message = self.slot_mut(slot);
        message.decided = Some(latest);
        let set = message.set;
        if assigner && slot < self.assigned {
            self.count_decided(set);
        }
    }

    /// Makes a slot a no-op. Unless the no-op is lost with its ballot, neither the message in the slot nor any later
    /// message of the same client process will be delivered.
    pub(super) fn fill(&mut self, slot: u64, sequence: u64, assigner: bool) {
        self.closed = self.closed.max(ids::generation(sequence) + 1);
        self.over_below = self.over_below.max(self.closed);
        let assigned = slot < self.assigned;
        let message = self.slot_mut(slot);
        if message.no_op || message.delivered {
            return;
        }
        if message.sequence != sequence {
            message.clear();
            message.sequence = sequence;
        }
        let (undecided, set) = (message.decided.is_none() && assigned && assigner, message.set);
        message.no_op = true;
        message.votes.clear(message.groups);
        self.assigned = self.assigned.max(slot + 1);
        if undecided {
            self.count_decided(set);
        }
        if let Some(first) = self.heirs.next_first(slot)
            && !(slot + 1..first.min(self.base + self.slots.window())).any(|slot| self.is_kept(slot))
        {
            self.heirs.lower(first, self.good_before(slot));
        }
    }

    /// Returns whether a slot is known to have a message that is not a no-op.
    fn is_kept(&self, slot: u64) -> bool {
        let kept = |known: &Slot| !known.no_op && known.sequence != 0 && !ids::is_nameless(known.sequence);
        self.slot_or_none(slot).is_some_and(kept)
    }

    /// Returns the sequence of the last message before a slot; no-ops do not count.
    fn good_before(&self, slot: u64) -> u64 {
        let kept = (self.delivered..slot).rev().find(|slot| self.is_kept(*slot));
        kept.map_or(self.good, |slot| self.slot(slot).sequence)
    }

    /// Returns the first slot that is neither assigned nor held.
    pub(super) fn end_of_prefix(&self) -> u64 {
        let mut slot = self.assigned;
        while self.is_here(slot) && self.holds(slot) {
            slot += 1;
        }
        slot
    }

    /// Returns the slots and sequences of the messages that are held and not assigned.
    pub(super) fn held(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let end = self.top.min(self.base + self.slots.window());
        let held = (self.assigned..end).map(|slot| (slot, self.slot(slot)));
        held.filter(|(_, message)| message.body).map(|(slot, message)| (slot, message.sequence))
    }

    /// Records a succession: a new process owns `first` and all later slots. `first` follows the assigned slots and the
    /// slots that are held without a gap after them. Returns the slots and sequences of held messages that are void
    /// now.
    pub(super) fn succeed(&mut self, generation: u64, life: u64, first: u64) -> Vec<(u64, u64)> {
        let heir = Succession { generation, life, first, after: self.good_before(first), settled: false };
        self.follow(heir)
    }

    /// Records a succession that the leader has ordered. Returns the slots and sequences of held messages that are void
    /// now.
    pub(super) fn follow(&mut self, heir: Succession) -> Vec<(u64, u64)> {
        self.over_below = self.over_below.max(heir.generation);
        self.gap = Gap::default();
        self.heirs.push(heir);
        self.drop_void()
    }

    /// Forgets void messages that are not assigned. Returns the slots and sequences of those that were held.
    pub(super) fn drop_void(&mut self) -> Vec<(u64, u64)> {
        let end = self.top.min(self.base + self.slots.window());
        let known = self.assigned.max(self.delivered)..end;
        let void = |slot: &u64| self.slot(*slot).sequence != 0 && self.heirs.is_void(self.slot(*slot).sequence);
        let void: Vec<u64> = known.filter(void).collect();
        self.forget(void)
    }

    /// Forgets all messages that are not assigned, because they belong to an ended history. Returns the slots and
    /// sequences of those that were held.
    pub(super) fn drop_unassigned(&mut self) -> Vec<(u64, u64)> {
        let end = self.top.min(self.base + self.slots.window());
        self.forget(self.assigned.max(self.delivered)..end)
    }

    /// Forgets the messages in these slots. Returns the slots and sequences of those that were held.
    fn forget(&mut self, slots: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
        let mut held = Vec::new();
        for slot in slots {
            let known = self.slot_mut(slot);
            held.extend(known.body.then_some((slot, known.sequence)));
            known.clear();
        }
        held
    }

    /// Records that the no-op in a slot is settled: a majority has processed its entry. Returns whether the slot was
    /// still open.
    pub(super) fn settle(&mut self, slot: u64) -> bool {
        let open = slot >= self.delivered;
        if open {
            self.slot_mut(slot).settled = true;
            self.pass_delivered();
        }
        open
    }

    /// Finds a message by a hash of its sequence, for the mutant that does so.
    pub(super) fn first_with_hash(&self, sequence: u64) -> Option<u64> {
        let hash = |sequence: u64| sequence.wrapping_mul(SplitMix64::GOLDEN) >> 62;
        self.open().find(|slot| self.holds(*slot) && hash(self.slot(*slot).sequence) == hash(sequence))
    }
}

/// Adoption of another member's state.
impl Window {
    /// Returns the state that is processed here: every assigned slot that is retained.
    pub(super) fn state(&self) -> ClientState {
        let entries = (self.base..self.assigned).map(|slot| self.slot(slot).entry(slot < self.delivered)).collect();
        let (delivered, from, freed, closed, good) = (self.delivered, self.base, self.freed, self.closed, self.good);
        let (successions, held) = (self.heirs.all().to_vec(), self.held().collect());
        ClientState { delivered, from, freed, closed, good, successions, entries, held }
    }

    /// Returns whether an undelivered slot of this window is before the slots that the state retains.
    ///
    /// Otherwise this window has a slot for every message that the state's process holds, because all of these are
    /// within one window of the state's first retained slot.
    pub(super) fn is_behind(&self, state: &ClientState) -> bool {
        state.from > self.delivered
    }

    /// Returns the sequences of unassigned messages that the state's process holds, that this member lacks, and that it
    /// would accept.
    pub(super) fn lacks_held<'a>(
        &'a self,
        client: ClientId,
        state: &'a ClientState,
    ) -> impl Iterator<Item = u64> + use<'a> {
        let wanted = move |slot, sequence| matches!(self.admit(client, slot, sequence), Ok(Some(_)));
        state.held.iter().filter(move |(slot, sequence)| wanted(*slot, *sequence)).map(|(_, sequence)| *sequence)
    }

    /// Returns the sequences of a state's messages whose bodies are needed and missing here.
    pub(super) fn lacks<'a>(&'a self, state: &'a ClientState) -> impl Iterator<Item = u64> + use<'a> {
        let entries = state.entries.iter().enumerate().map(|(at, entry)| (state.from + at as u64, entry));
        entries
            .filter(|(slot, entry)| {
                let is_here = |known: &Slot| (known.body || known.delivered) && known.sequence == entry.sequence;
                let held = self.slot_or_none(*slot).is_some_and(is_here);
                *slot >= self.delivered && !entry.no_op && !held
            })
            .map(|(_, entry)| entry.sequence)
    }

    /// Marks all messages that the state's process has delivered as delivered here. The application has adopted that
    /// process's state.
    pub(super) fn jump(&mut self, state: &ClientState, group: GroupId) {
        if state.delivered > self.delivered {
            self.jump_to(state, group);
        }
        for (slot, entry) in (state.from..).zip(&state.entries) {
            if entry.delivered && slot >= self.delivered {
                self.make_room(slot);
                self.slot_mut(slot).take(entry, group);
                self.slot_mut(slot).finish();
            }
        }
    }

    /// Advances to the first slot that is neither delivered nor a settled no-op in a state that is further advanced.
    fn jump_to(&mut self, state: &ClientState, group: GroupId) {
        let capacity = self.slots.window();
        if state.from > self.base + capacity {
            self.slots.made_mut().iter_mut().for_each(Slot::clear);
            self.base = state.from;
        }
        while self.base < state.from {
            self.free_first();
        }
        self.freed = self.freed.max(state.freed);
        self.good = self.good.max(state.good);
        self.over_below = self.over_below.max(state.closed);
        self.delivered = state.delivered;
        self.assigned = self.assigned.max(state.delivered);
        for (slot, entry) in (state.from..state.delivered).zip(&state.entries) {
            if slot >= self.base {
                self.make_room(slot);
                self.slot_mut(slot).take(entry, group);
                self.slot_mut(slot).finish();
            }
        }
        self.top = self.top.max(self.delivered);
        let before = &state.entries[..(state.delivered - state.from) as usize];
        self.done = self.done.max(before.last().map_or(state.freed, |last| last.sequence));
    }

    /// Forgets assignments whose slots a later process of the client uses according to `state`, which is of a later
    /// ballot. It forgets the first such assignment and all after it. An assigned slot could not store the later
    /// process's body.
    ///
    /// The forgotten assignments cannot count any more, see `succession.rs`. Returns the slots and sequences of
    /// forgotten messages whose bodies were held.
    pub(super) fn give_way(&mut self, state: &ClientState) -> Vec<(u64, u64)> {
        let assigned = (state.from..).zip(&state.entries).filter(|(_, entry)| !entry.no_op);
        let used = assigned.map(|(slot, entry)| (slot, entry.sequence)).chain(state.held.iter().copied());
        let earlier = |slot, sequence| ids::generation(self.slot(slot).sequence) < ids::generation(sequence);
        let used = used.filter(|(slot, sequence)| self.pending().contains(slot) && earlier(*slot, *sequence));
        let Some(first) = used.map(|(slot, _)| slot).min() else { return Vec::new() };
        let assigned = std::mem::replace(&mut self.assigned, first);
        self.forget(first..assigned)
    }

    /// Marks the assigned entries of this window as held, and no others. The window contains the group's own entries,
    /// which have no bodies.
    pub(super) fn hold_assigned(&mut self, mutant: Mutant) {
        for slot in self.open() {
            if !self.is_here(slot) {
                return;
            }
            let assigned = slot < self.assigned;
            let message = self.slot_mut(slot);
            message.body = assigned && (message.body || !mutant!(mutant, TimeEntryAwaited));
            message.not_before = 0;
        }
    }

    /// Replaces the assignments by those of a state. All bodies that the state needs must be held, and this window must
    /// not be [behind](Window::is_behind) the state. With `leads`, the timestamps of other groups' leaders are kept.
    pub(super) fn adopt(&mut self, state: &ClientState, group: GroupId, leads: bool) {
        for slot in self.open() {
            if self.is_here(slot) {
                self.slot_mut(slot).unassign(leads);
            }
        }
        for (at, entry) in state.entries.iter().enumerate() {
            let slot = state.from + at as u64;
            if slot >= self.delivered {
                self.make_room(slot);
                self.slot_mut(slot).take(entry, group);
            }
        }
        self.assigned = state.assigned().max(self.delivered);
        self.closed = state.closed;
        self.heirs.replace(&state.successions);
        self.closing = Closing::default();
        self.over_below = self.over_below.max(self.closed).max(self.heirs.last().map_or(0, |heir| heir.generation));
        self.gap = Gap::default();
        self.pass_delivered();
        self.undecided.clear();
        for slot in self.pending() {
            let message = self.slot(slot);
            if message.decided.is_none() && !message.no_op {
                let set = message.set;
                self.count_undecided(set);
            }
        }
    }
}

impl Slot {
    /// Returns whether the slot needs no further action.
    fn is_done(&self) -> bool {
        self.delivered || self.no_op && self.settled
    }

    /// Returns the slot as it is sent to other members. `passed` is `true` if the slot is below the state's
    /// `delivered`, which then implies the delivery.
    fn entry(&self, passed: bool) -> AssignedSlot {
        let complete = self.vector && self.times().complete();
        AssignedSlot {
            sequence: self.sequence,
            destinations: self.destinations.clone(),
            times: if self.destinations.is_empty() { Vec::new() } else { self.times().words().to_vec() },
            vector: complete,
            decided: if self.no_op { self.settled } else { complete && self.is_final() },
            no_op: self.no_op,
            delivered: self.delivered && !passed && !self.no_op,
            ended: self.ended().copied().unwrap_or_default(),
        }
    }
}
