//! Slots that are given up: what a client that died left half-written must not stop those who wait behind it.
//!
//! A client's slots are assigned in their order. If it died, and nobody living holds what was in one of them, the ones
//! behind it can never be assigned; another group that has given its own timestamp to one of those then waits for ever. So
//! the leader makes the slot void, by an entry of its dense stream.
//!
//! # Invariants
//! - *A gap is made void only when the process that left it is over at a majority of the group*, and when these members, in
//!   the leader's ballot, held nothing there: what was synced is not lost. A process is over at a member from the greeting
//!   of its successor, which multicasts nothing before all members hold nothing undelivered, gaps included; or from when
//!   it was given up, being away for long (`node/member/absent.rs`). A member where a process is over does not let it come
//!   back, so who lives and has nothing void has a majority, and who has lost that is told (`About::Superseded`).
//!   A member that forgot that a process is over may let it come back; but not when it knows that its generation is closed, and
//!   it writes it no credit then: whoever has something void counts it nowhere as delivered.
//!   A member that lost its memory lacks what it held; but the leader that takes it in has that from who promised
//!   (`count_promises`), and so it has it, too.
//! - *A void counts when it is settled*: when a majority of the group has processed an entry that says so under one ballot.
//!   Then every later leader's state has it, as it has what a majority acknowledged: nobody assigned the slot before, so no
//!   majority acknowledged what is in it, and nobody will. Until then a new leader may lack it and assign the slot; so no
//!   member counts the slot among those that are over, and no other group is told. What the same leader puts into its
//!   stream behind the entry needs no such care: a majority that processed that has processed this.
//! - *`Refused` says that a destination group has settled that the message is void*: it can be decided nowhere, ever. So a
//!   leader that is told makes it void although it is assigned, and whoever hears of that delivers past it at once: a
//!   later leader that has not heard brings the message back, but only until it is refused again.
//! - *Generations close.* The processes of a client place are told apart by the generations of their sequences. What a process multicast
//!   after a void slot is not assigned any more (M6 allows no holes), but made void in turn. Which generations are closed is
//!   part of the state, and follows from its void entries.
//! - Nobody here may have heard the name of what is in a void slot. It is known by its slot then, and by its generation.

use stentor_fabric::ProcessId;

use super::slot::Slot;
use super::window::Gap;
use super::{Replica, Stage};
use crate::item::{Head, ShortSlot, StreamEntry, StreamItem};
use crate::peer_message::{MessageRef, PeerMessage, SlotRef};
use crate::plant::planted;
use crate::{ClientId, Effects, ids};

impl Replica {
    /// A process greeted that takes a client's place and has not begun. All before it are over, those with generations below
    /// `below` also when it has begun: its own is not below. What they left behind is closed.
    pub fn succeed(&mut self, client: ClientId, below: u64) {
        if let Some(window) = self.windows.get_mut(usize::from(client.0)) {
            window.over = true;
            window.over_below = window.over_below.max(below);
        }
    }

    /// The process that [succeeded](Replica::succeed) may have begun.
    pub fn begin_client(&mut self, client: ClientId) {
        if let Some(window) = self.windows.get_mut(usize::from(client.0)) {
            window.over = false;
        }
    }

    /// The processes of a client's place with generations up to this one are given up here: they were away for too long. Nobody
    /// has greeted in their place, so whoever comes may have begun.
    pub fn end_client(&mut self, client: ClientId, generation: u64) {
        self.succeed(client, generation.saturating_add(1));
        self.begin_client(client);
    }

    /// The processes of a client's place with generations below this are over here.
    #[must_use]
    pub fn over_below(&self, client: ClientId) -> u64 {
        self.windows.get(usize::from(client.0)).map_or(0, |window| window.over_below)
    }

    /// Those of a client's place with generations below this are over in the whole group: what they multicast and is not assigned
    /// will not be.
    #[must_use]
    pub fn closed_below(&self, client: ClientId) -> u64 {
        self.windows.get(usize::from(client.0)).map_or(0, |window| window.closed)
    }

    /// The first slot that is held nowhere here before something that is, as a leader sees it, and the generation of the process
    /// of the client's place that left this gap. It may be filled still, by the client or by who holds it.
    #[must_use]
    pub fn gap_left_by(&self, client: ClientId) -> Option<(u64, u64)> {
        let window = self.windows.get(usize::from(client.0)).filter(|window| self.leads && window.has_open())?;
        let behind = window.gap_before()?;
        Some((window.assigned, ids::generation(window.slot(behind).sequence)))
    }

    /// Whether a process has [succeeded](Replica::succeed) in a client's place and has not begun.
    #[must_use]
    pub fn is_over(&self, client: ClientId) -> bool {
        self.windows.get(usize::from(client.0)).is_some_and(|window| window.over)
    }

    /// Returns the position behind the last slot that is held here and not delivered, whatever is missing before it; 0
    /// if there is no such client place.
    #[must_use]
    pub fn end_of_held(&self, client: ClientId) -> u64 {
        self.windows.get(usize::from(client.0)).map_or(0, |window| window.end_of_held())
    }

    /// Asks the group for what is in the first unassigned slot, if that stands in the way; makes it void when a majority
    /// lacks it.
    pub(super) fn look_for_gap<E: Effects>(&mut self, client: ClientId, effects: &mut E) {
        let window = &mut self.windows[usize::from(client.0)];
        let any = planted!(self.config.plant, VoidOfTheLiving);
        if !self.leads || (window.over_below == 0 && !window.over && !any) {
            return;
        }
        let slot = window.assigned;
        let behind = window.gap_before();
        if !behind.is_some_and(|behind| any || window.is_over(window.slot(behind).sequence)) {
            window.gap = Gap::default();
            return;
        }
        if window.gap.slot != slot || window.gap.lacking == 0 {
            window.gap = Gap { slot, age: 0, lacking: self.bit };
        }
        window.gap.age = window.gap.age.saturating_add(1);
        // Whoever holds something tells the leader without being asked: this is the last resort.
        if window.gap.age < self.config.retry_ticks.saturating_mul(4) {
            return;
        }
        window.gap.age = 0;
        let generation = behind.map_or(0, |behind| ids::generation(window.slot(behind).sequence));
        let spot = SlotRef { client, slot, ballot: self.ballot, generation };
        for member in self.others() {
            effects.send(member, &PeerMessage::Seek(spot));
        }
        self.count_lacking(client, effects);
    }

    /// The leader looks for what is in a slot. Nobody lacks what a process may still write: who has not been greeted by a
    /// successor is silent, because the leader's may have been one that never began, while the process before it lives.
    pub(super) fn on_seek<E: Effects>(&mut self, from: ProcessId, spot: SlotRef, effects: &mut E) {
        let current = self.promised == spot.ballot && self.ballot == spot.ballot && !self.is_joining();
        let Some(window) = self.windows.get(usize::from(spot.client.0)).filter(|_| current) else { return };
        if window.is_here(spot.slot) && window.slot(spot.slot).body {
            effects.body(from, spot.client, spot.slot);
        } else if !window.holds(spot.slot)
            && (window.over || spot.generation < window.over_below || planted!(self.config.plant, VoidOfTheLiving))
        {
            effects.send(from, &PeerMessage::Lacking(spot));
        }
    }

    pub(super) fn on_lacking<E: Effects>(&mut self, from: ProcessId, spot: SlotRef, effects: &mut E) {
        let bit = self.config.topology.member_bit(self.group, from).unwrap_or(0);
        let Some(window) = self.windows.get_mut(usize::from(spot.client.0)) else { return };
        if !self.leads || spot.ballot != self.ballot || window.gap.lacking == 0 || window.gap.slot != spot.slot {
            return;
        }
        window.gap.lacking |= bit;
        self.count_lacking(spot.client, effects);
        self.settle(spot.client, effects);
    }

    fn count_lacking<E: Effects>(&mut self, client: ClientId, effects: &mut E) {
        let window = &self.windows[usize::from(client.0)];
        let (slot, lacking) = (window.assigned, window.gap.lacking);
        let behind = window.first_from(slot, |behind| behind.body);
        let stands = window.gap.slot == slot && !window.holds(slot) && self.is_majority(lacking);
        let Some(sequence) = behind.filter(|_| stands).map(|behind| window.slot(behind).sequence) else { return };
        if !window.is_over(sequence) && !planted!(self.config.plant, VoidOfTheLiving) {
            return;
        }
        // What is missing is of the process that multicast what is behind it: there is one at a time.
        let generation = ids::generation(sequence);
        self.make_void(client, slot, generation, effects);
        self.settle(client, effects);
    }

    /// Whether these members are a majority of the own group.
    fn is_majority(&self, members: u64) -> bool {
        members.count_ones() >= self.config.topology.majority(self.group)
    }

    /// Makes the first unassigned slot void, if it is of a closed generation: what is in it is, or the first known thing behind it.
    pub(super) fn void_closed<E: Effects>(&mut self, client: ClientId, slot: u64, effects: &mut E) -> bool {
        let window = &self.windows[usize::from(client.0)];
        // A name alone may be a late word about what was never assigned; a new process may use that slot.
        let known = |message: &Slot| message.body || window.over && !ids::is_nameless(message.sequence);
        let Some(behind) = window.first_from(slot, known) else { return false };
        let generation = ids::generation(window.slot(behind).sequence);
        if generation >= window.closed {
            return false;
        }
        if planted!(self.config.plant, EraNotClosed) {
            return false;
        }
        self.make_void(client, slot, generation, effects);
        true
    }

    /// A leader gives up a slot: the first that is not assigned, or one whose message was refused.
    fn make_void<E: Effects>(&mut self, client: ClientId, slot: u64, generation: u64, effects: &mut E) {
        let window = &mut self.windows[usize::from(client.0)];
        window.gap = Gap::default();
        window.make_room(slot);
        let known = window.slot(slot).sequence;
        let sequence = if ids::generation(known) == generation { known } else { ids::first_of_generation(generation) };
        self.void(client, slot, sequence);
        self.say_void(client, slot, effects);
    }

    /// Tells the followers that a slot is void; they answer until that is settled.
    pub(super) fn say_void<E: Effects>(&mut self, client: ClientId, slot: u64, effects: &mut E) {
        self.append_void(client, slot, effects);
        self.count_voiders(client, slot, effects);
    }

    fn append_void<E: Effects>(&mut self, client: ClientId, slot: u64, effects: &mut E) {
        self.counter += 1;
        let message = self.windows[usize::from(client.0)].slot_mut(slot);
        message.age = 0;
        let groups = message.groups.max(1) as u8;
        let head = Head { client, sequence: message.sequence, slot: ShortSlot::of(slot), groups };
        let entry = StreamEntry::NoOp { settled: message.settled };
        effects.to_followers(&StreamItem { head, counter: self.counter, entry });
    }

    /// A follower's part of [`say_void`](Replica::say_void).
    pub(super) fn on_void<E: Effects>(&mut self, head: &Head, settled: bool, effects: &mut E) {
        let window = &mut self.windows[usize::from(head.client.0)];
        // What is freed here is void or delivered long since, and the leader needs no answer.
        let Some(slot) = window.resolve_void(head) else { return };
        if slot >= window.first_undelivered() {
            window.make_room(slot);
            self.void(head.client, slot, head.sequence);
        }
        if settled {
            self.void_for_good(head.client, slot, effects);
            self.deliver_due(effects);
        } else {
            let generation = ids::generation(head.sequence);
            let spot = SlotRef { client: head.client, slot, ballot: self.ballot, generation };
            effects.send(self.ballot.leader(), &PeerMessage::NoOpProcessed(spot));
        }
    }

    /// A follower has processed that a slot is void.
    pub(super) fn on_voided<E: Effects>(&mut self, from: ProcessId, spot: SlotRef, effects: &mut E) {
        let bit = self.config.topology.member_bit(self.group, from).unwrap_or(0);
        let Some(window) = self.windows.get_mut(usize::from(spot.client.0)) else { return };
        let open = spot.slot >= window.first_undelivered() && spot.slot < window.assigned;
        if !self.leads || spot.ballot != self.ballot || !open || !window.slot(spot.slot).void {
            return;
        }
        window.slot_mut(spot.slot).voiders |= bit;
        self.count_voiders(spot.client, spot.slot, effects);
        self.settle(spot.client, effects);
    }

    fn count_voiders<E: Effects>(&mut self, client: ClientId, slot: u64, effects: &mut E) {
        let message = self.windows[usize::from(client.0)].slot(slot);
        let enough = self.is_majority(message.voiders | self.bit) || planted!(self.config.plant, VoidAtOnce);
        if message.settled || !enough || self.stage != Stage::Leading {
            return;
        }
        self.void_for_good(client, slot, effects);
        self.append_void(client, slot, effects);
    }

    /// What is in the slot will never be delivered, if this is not lost with its ballot; nor what the same process of the
    /// client multicast after it.
    fn void(&mut self, client: ClientId, slot: u64, sequence: u64) {
        let leads = self.ballot.leader() == self.config.me;
        let window = &mut self.windows[usize::from(client.0)];
        window.closed = window.closed.max(ids::generation(sequence) + 1);
        window.over_below = window.over_below.max(window.closed);
        let assigned = slot < window.assigned;
        let message = window.slot_mut(slot);
        if message.void || message.delivered {
            return;
        }
        if message.sequence != sequence {
            message.clear();
            message.sequence = sequence;
        }
        let (undecided, set) = (message.decided.is_none() && assigned && leads, message.set);
        message.void = true;
        message.votes.clear();
        window.assigned = window.assigned.max(slot + 1);
        if undecided {
            window.count_decided(set);
        }
    }

    /// A majority has processed it.
    fn void_for_good<E: Effects>(&mut self, client: ClientId, slot: u64, effects: &mut E) {
        let window = &mut self.windows[usize::from(client.0)];
        if slot >= window.first_undelivered() {
            window.slot_mut(slot).settled = true;
            window.pass_delivered();
            effects.freed(client);
        }
    }

    /// A void slot that is not settled is a tick older.
    pub(super) fn grow_old_void<E: Effects>(&mut self, client: ClientId, slot: u64, effects: &mut E) {
        let message = self.windows[usize::from(client.0)].slot_mut(slot);
        if message.settled || !self.leads {
            return;
        }
        message.age += 1;
        if message.age >= self.config.retry_ticks {
            self.say_void(client, slot, effects);
            self.settle(client, effects);
        }
    }

    /// A message can never be decided: a destination group has settled that it is void.
    pub(super) fn on_refused<E: Effects>(&mut self, subject: MessageRef, effects: &mut E) {
        let Some(slot) = self.find(subject).filter(|_| self.leads) else { return };
        let message = self.windows[usize::from(subject.client.0)].slot(slot);
        if message.decided.is_some() || message.void || !message.ordered {
            return;
        }
        self.make_void(subject.client, slot, ids::generation(subject.sequence), effects);
        self.settle(subject.client, effects);
    }
}
