//! The takeover of a client id by another process. It needs a majority of the client id's home group and of each group
//! that the process multicasts to, and of no other group.
//!
//! A client's messages have dense slots at each group. A new process must know the first slot that no earlier process
//! uses. But an earlier process's messages may be anywhere: at members that do not answer, in rings, at other groups.
//! So each group decides alone, in its own order, where the new process begins. Messages of earlier processes in that
//! slot and all later ones are *void*, even if they are found later. If another group holds a void message, this group
//! sends [`Refused`](PeerMessage::Refused) to it, and the other group makes the message a no-op.
//!
//! # States of a process at a group
//! *asking* (a member forwards the request in the process's hello: `Open`) → *closing* (the leader asks the members to
//! refuse messages of earlier processes: `Close`; each member answers with the messages that it holds: `Closed`) →
//! *proposed* (the leader appended a [`Succession`]: generation, first slot) → *settled* (a majority has processed that
//! entry). Only then is the first slot reported to the process, and the process begins.
//!
//! Each client id has a home group ([`Topology::home`](crate::Topology::home)). There the process asks without a
//! generation, and is assigned the next one: the order of the home group numbers the processes. The request names the
//! smallest generation that the process may have, as members reported it. The process is numbered only if that is above
//! the latest generation. So only one of several processes that ask for one number gets it. A request that a member
//! forwards late, for a process that ended long ago, supersedes no process. A process with one life gets the same
//! number however often it asks. At all other groups the process asks with that generation.
//!
//! # Invariants
//! 1. *A member that answered `Closed` for generation G accepts no body of a smaller generation from a client's ring,
//!    and reports to no such process which messages it holds.* The answer counts only in the ballot that its sender had
//!    installed, and only at the leader of that ballot. So closings are in no promise and no state: if the ballot ends
//!    first, the next leader asks again.
//! 2. *The first slot is after all messages that any member of a majority held without a gap when it answered.* The
//!    leader itself holds all of these messages before it appends the succession. An answer whose bodies do not arrive
//!    is dropped, and its sender is asked again.
//! 3. *A succession counts when it is settled*, like a no-op. Then every later leader's state has it, and no message of
//!    an earlier process is assigned to its first slot or a later one. Until then a later leader may lack it, and may
//!    assign messages that would be void. So neither another group nor the process is notified before.
//! 4. *No two messages have the same id.* A generation is reported to one life. It is above all generations whose
//!    successions the home group has. Generations that were reported are settled, so no later leader lacks one. A home
//!    group that has lost its memory numbers from the beginning. A group that remembers a larger generation, or another
//!    process with the same one, reports that, and the process asks its home group for a generation above it.
//!
//! # Safety
//! **A synced message is not void.** Let m be a synced message: members reported to its client that a majority Q1 holds
//! m in ballot b, with everything before it at this group. Let a leader append a succession in ballot c, based on
//! answers of a majority Q2.
//! - b < c: c's leader has m in its prefix (`campaign.rs`).
//! - b = c: some member is in both majorities with the same life, because a life that was admitted in between has not
//!   installed c before. That member reported that it holds m before it closed: after that it reports nothing to this
//!   process. So its answer lists m, and by invariant 2 the first slot is after m.
//! - b > c: if the succession was settled, every member that installed b has it, and reports nothing to earlier
//!   processes. If it was not settled, it either is in b's state, and the same holds, or it is not, and has no effect.
//!
//! **A void message is decided nowhere.** If a majority here had processed its assignment in a ballot up to c, c's
//! leader would have it assigned, and the first slot would be after it. Later leaders have the succession, and assign
//! no void message. `Refused` is sent only when the succession is settled.
//!
//! **Void assignments are dropped.** A deposed leader, or a member that followed it, may have assigned in its ballot b
//! a message that is void by a succession of a later ballot c, while the next process's message m is in the same slot.
//! A slot accepts no other body once it is assigned. So the member would wait for m for ever with c's state, or would
//! lead without it. But m exists, so its succession is settled in c: a majority has processed it. So no message of
//! earlier processes in m's slot or a later one can be decided in b, nor was one assigned in b after the succession,
//! which b lacks. Every later leader's state is of c or later, and none adopts these assignments of b. So they are
//! dropped when a state names m, before bodies are requested. The succession itself need not be known to be settled by
//! then.
//!
//! # Retained successions
//! Another group may ask much later for the timestamp of a void message. By then its slot, which an item names by few
//! bits, may be reused. So void messages are identified by *sequences*: all that a process of a smaller generation
//! multicast after [`Succession::after`]. A succession is retained until every other group has closed that generation,
//! too, and has nothing undecided of smaller ones (`Retire`, `Retired`); both facts are permanent. A group retains at
//! most [`Succession::MOST`] successions of a client; the next process waits.
//!
//! # Gaps
//! After a change of leader, the slots before the first one may be held by no member any more. Such a gap was left by a
//! process that has ended, and is filled like others (`no_op.rs`). A reset, which drops held messages, can leave such
//! gaps, too. If a process begins while such a gap is still open, its first slot is in the gap. It owns that slot and
//! all later ones, and the messages that the previous process multicast after the gap are void (`heirs.rs`). None of
//! them was synced, because a synced message is held with everything before it.
//!
//! The delivery order of a client id (M6) includes all its processes. A message waits for those of earlier processes
//! that are undecided with a group that is down. That costs nothing: they have smaller timestamps here, so nothing can
//! be delivered before they are decided.

use stentor_fabric::ProcessId;

use super::agreement::Agreement;
use super::closing::{Answer, Closing};
use super::{Effects, Replica};
use crate::item::{Head, ShortSlot, StreamEntry, StreamItem};
use crate::mutant::mutant;
use crate::peer_message::{Closed, Left, MessageRef, Opening, PeerMessage, SlotRef};
use crate::state::Succession;
use crate::{Ballot, ClientId, GroupId, ids};

/// Number of retained successions of one client at which a leader begins to ask other groups which can be dropped.
const RETIRE_FROM: usize = 4;

/// The part of a member that handles takeovers of client ids.
pub(super) struct Successions<'a, E> {
    pub(super) agreement: &'a mut Agreement,
    /// The ballot in which this member's answers count.
    pub(super) counts_in: Option<Ballot>,
    pub(super) effects: &'a mut E,
}

/// Succession of client ids.
impl Replica {
    /// Returns the latest succession of a client id that this member has processed.
    #[must_use]
    pub fn succession(&self, client: ClientId) -> Option<Succession> {
        self.window(client).and_then(|window| window.heirs.last().copied())
    }

    /// Returns whether the process that took over a client id may begin.
    #[must_use]
    pub fn has_opened(&self, last: &Succession) -> bool {
        // If its generation was only closed, because another group asked for that, the process must still open the
        // group itself: see `settling.rs`.
        last.settled && last.life != 0
    }

    /// Returns whether this group retains the maximum number of successions of a client, because other groups have not
    /// answered yet. No further process can take over the client id until then.
    #[must_use]
    pub fn is_crowded(&self, client: ClientId) -> bool {
        self.window(client).is_some_and(|window| window.heirs.is_full())
    }

    /// Requests that a process begins under a client id. Repeat the call until [`succession`](Replica::succession)
    /// names the process and is settled.
    pub fn open<E: Effects>(&mut self, asked: Opening, effects: &mut E) {
        if self.is_leader() {
            self.successions(effects).on_open(asked);
        } else if self.counts_in().is_some_and(|ballot| ballot.leader() != self.agreement.id.me()) {
            effects.send(self.ballot().leader(), &PeerMessage::Open(asked));
        }
    }
}

/// The part at a leader.
impl<E: Effects> Successions<'_, E> {
    /// Handles the request of a process to begin.
    pub(super) fn on_open(&mut self, asked: Opening) {
        let Some(window) = self.agreement.messages.client_mut(asked.client) else { return };
        let last = window.heirs.last().copied();
        if last.is_some_and(|last| !last.settled) {
            // The process will ask again.
            return;
        }
        if let Some(told) = asked.told.checked_sub(1)
            && window.heirs.open_last(told, asked.life)
        {
            window.closing.processed_by = self.agreement.id.bit;
            return self.propose(asked.client);
        }
        let Agreement { id, ballots, messages, .. } = &*self.agreement;
        let window = messages.window(asked.client);
        let next = last.map_or(0, |last| last.generation + 1).max(window.over_below).max(window.closed);
        let next = next.max(ids::first_generation_of(ballots.installed.incarnation()));
        let is_last = |generation| last.is_some_and(|last| (last.generation, last.life) == (generation, asked.life));
        let home = id.topology().home(asked.client) == id.group;
        let generation = match asked.told.checked_sub(1) {
            // The request must name a generation above the latest one. A late request may come from a process that was
            // already succeeded by another.
            None if home && last.is_none_or(|last| last.life != asked.life && asked.above > last.generation) => {
                next.max(asked.above)
            }
            // Only the latest process here, if there is one, may be assigned another number.
            Some(told) if home && asked.above > told && (last.is_none() || is_last(told)) => next.max(asked.above),
            Some(told) if last.is_none_or(|last| last.generation < told) && told >= window.over_below => told,
            _ => return,
        };
        self.close(generation, asked);
    }

    /// Asks the group to accept no more messages from processes with smaller generations.
    fn close(&mut self, generation: u64, asked: Opening) {
        let bit = self.agreement.id.bit;
        let window = self.agreement.messages.window_mut(asked.client);
        let busy = window.closing.asked.is_some_and(|(known, _)| known >= generation);
        if window.heirs.is_full() || busy || generation >= ids::GENERATIONS {
            return;
        }
        window.closing.end();
        window.closing.asked = Some((generation, asked));
        window.over_below = window.over_below.max(generation);
        window.closing.take(Answer { member: bit, held: Vec::new() });
        self.effects.place_changed(asked.client);
        self.ask_to_close(asked.client);
        self.succeed_if_closed(asked.client);
    }

    /// Repeats all open `Close` requests, because a member may have missed one.
    pub(super) fn ask_all_to_close(&mut self) {
        if self.agreement.owns_ballot() {
            self.agreement.messages.clients().for_each(|client| self.ask_to_close(client));
        }
    }

    fn ask_to_close(&mut self, client: ClientId) {
        let Agreement { id, ballots, messages, .. } = &*self.agreement;
        let closing = &messages.window(client).closing;
        let Some((generation, _)) = closing.asked else { return };
        let close = PeerMessage::Close(SlotRef { client, slot: 0, ballot: ballots.installed, generation });
        let answered = |process| closing.answers.iter().any(|answer| answer.member == id.bit_of(process));
        for member in id.others().filter(|member| !answered(*member)) {
            self.effects.send(member, &close);
        }
    }

    /// Handles a member's answer that it accepts no more messages from earlier processes. The answer lists the messages
    /// that the member holds.
    pub(super) fn on_closed(&mut self, from: ProcessId, closed: &Closed) {
        let (about, bit) = (closed.about, self.agreement.id.bit_of(from));
        let any = mutant!(self.agreement.id.mutant(), ClosedOfOldBallot);
        let current = about.ballot == self.agreement.ballots.installed || any;
        let window = self.agreement.messages.client_mut(about.client).filter(|_| current);
        let Some(window) = window else { return };
        if window.closing.asked.is_none_or(|(generation, _)| generation != about.generation) {
            return;
        }
        // A member may have given up a process that no other member has given up.
        window.over_below = window.over_below.max(about.slot.min(ids::GENERATIONS - 1));
        if window.over_below > about.generation {
            window.closing.end();
            return self.effects.place_changed(about.client);
        }
        let (pairs, _) = closed.held.as_chunks::<2>();
        let held = pairs.iter().map(|[slot, sequence]| (*slot, *sequence)).collect();
        window.closing.take(Answer { member: bit, held });
        if !self.succeed_if_closed(about.client) {
            self.want_held(about.client);
        }
    }

    /// Appends the succession if a majority has answered `Closed` and this leader holds all messages that those members
    /// listed without a gap. Returns whether it appended the succession.
    fn succeed_if_closed(&mut self, client: ClientId) -> bool {
        let id = &self.agreement.id;
        let window = self.agreement.messages.window(client);
        let Some((generation, asked)) = window.closing.asked else { return false };
        let first = window.end_of_prefix();
        let alone = mutant!(id.mutant(), OwnPrefixOnly);
        let complete = window.closing.answers.iter().filter(|answer| alone || !is_wanted(answer, first));
        if !id.is_majority(complete.map(|answer| answer.member).sum()) || self.counts_in.is_none() {
            return false;
        }
        let window = self.agreement.messages.window_mut(client);
        window.closing.end();
        window.closing.processed_by = id.bit;
        let dropped = window.succeed(generation, asked.life, first);
        self.note_dropped(client, dropped);
        self.propose(client);
        true
    }

    /// Requests messages that members hold and that are missing here.
    fn want_held(&mut self, client: ClientId) {
        let window = self.agreement.messages.window(client);
        let first = window.end_of_prefix();
        for answer in window.closing.answers.iter().filter(|answer| is_wanted(answer, first)) {
            let Some(holder) = self.agreement.id.others().find(|m| self.agreement.id.bit_of(*m) == answer.member)
            else {
                continue;
            };
            for (_, sequence) in answer.held.iter().filter(|(slot, _)| *slot >= first) {
                self.effects.send(holder, &PeerMessage::WantBody(MessageRef { client, sequence: *sequence }));
            }
        }
    }

    fn note_dropped(&mut self, client: ClientId, dropped: Vec<(u64, u64)>) {
        for (slot, sequence) in dropped {
            self.effects.dropped(client, slot, sequence);
        }
    }

    /// Appends an entry for the client's latest succession to the stream, and settles the succession if a majority has
    /// processed it.
    pub(super) fn propose(&mut self, client: ClientId) {
        self.append(client);
        self.count(client);
    }

    fn append(&mut self, client: ClientId) {
        let window = self.agreement.messages.window_mut(client);
        window.closing.age = 0;
        let Some(Succession { generation, life, first, after, settled }) = window.heirs.last().copied() else { return };
        let retired = window.heirs.retired_below;
        self.agreement.counter += 1;
        let sequence = ids::first_of_generation(generation);
        let head = Head { client, sequence, slot: ShortSlot::of(first), groups: 1 };
        let entry = StreamEntry::Succeed { life, after, retired, settled };
        self.effects.to_followers(&StreamItem { head, counter: self.agreement.counter, entry });
    }

    /// Handles the report that a follower has processed the succession.
    pub(super) fn on_succeeded(&mut self, from: ProcessId, processed: SlotRef) {
        let bit = self.agreement.id.bit_of(from);
        let current = processed.ballot == self.agreement.ballots.installed;
        let window = self.agreement.messages.client_mut(processed.client).filter(|_| current);
        let named = |last: &Succession| last.generation == processed.generation && last.life == processed.slot;
        let Some(window) = window.filter(|window| window.heirs.last().is_some_and(named)) else { return };
        let closing = &mut window.closing;
        closing.processed_by |= bit;
        self.count(processed.client);
    }

    fn count(&mut self, client: ClientId) {
        let Agreement { id, messages, .. } = &mut *self.agreement;
        let window = messages.window_mut(client);
        let enough = id.is_majority(window.closing.processed_by | id.bit) || mutant!(id.mutant(), SuccessionAtOnce);
        let Some(last) = window.heirs.last().copied().filter(|last| !last.settled && enough) else { return };
        window.heirs.settle(last.generation);
        self.effects.place_changed(client);
        self.append(client);
    }

    /// Proposes an unsettled succession again, at a new leader.
    pub(super) fn propose_again(&mut self, client: ClientId) {
        if self.agreement.messages.window(client).heirs.last().is_some_and(|last| !last.settled) {
            self.propose(client);
        }
    }

    /// Advances time by one tick.
    pub(super) fn tick(&mut self, client: ClientId) {
        let retry = self.agreement.id.config.retry_ticks;
        let window = self.agreement.messages.window_mut(client);
        let unsettled = window.heirs.last().is_some_and(|last| !last.settled);
        if window.closing.asked.is_some() || unsettled {
            self.repeat(client, unsettled, retry);
        } else if window.heirs.all().len() >= RETIRE_FROM {
            self.ask_to_retire(client, retry);
        }
    }

    fn repeat(&mut self, client: ClientId, unsettled: bool, retry: u8) {
        let window = self.agreement.messages.window_mut(client);
        window.closing.age = window.closing.age.saturating_add(1);
        let due = window.closing.age >= retry;
        if unsettled {
            if due {
                self.propose(client);
            }
            return;
        }
        if self.succeed_if_closed(client) || !due {
            return;
        }
        // A member that does not send the messages that it listed may have stopped. Its answer is dropped, so that
        // other members' answers form the majority.
        let window = self.agreement.messages.window_mut(client);
        window.closing.age = 0;
        let first = window.end_of_prefix();
        window.closing.answers.retain(|answer| !is_wanted(answer, first));
        self.ask_to_close(client);
    }

    /// Asks the other groups that have not reported it whether they have settled the messages of earlier processes.
    fn ask_to_retire(&mut self, client: ClientId, retry: u8) {
        let Agreement { id, ballots, messages, .. } = &mut *self.agreement;
        let window = messages.window_mut(client);
        let below = window.heirs.last().map_or(0, |last| last.generation);
        let closing = &mut window.closing;
        if window.heirs.retired_below >= below {
            return;
        }
        closing.retiring_age = closing.retiring_age.saturating_add(1);
        if closing.retiring_below == below && closing.retiring_age < retry.saturating_mul(4) {
            return;
        }
        if closing.retiring_below != below {
            *closing = Closing { retiring_below: below, ..std::mem::take(closing) };
            closing.retired = [id.group].into_iter().collect();
        }
        closing.retiring_age = 0;
        let retired = closing.retired;
        let ask = PeerMessage::Retire(Left { client, below, ballot: ballots.installed });
        for group in id.topology().group_ids().filter(|group| !retired.contains(*group)) {
            self.effects.send(ballots.known(group).leader(), &ask);
        }
        self.retire_if_done(client);
    }

    /// Handles the question of another group's leader whether this group has settled the messages of a client id's
    /// earlier processes. If their generations are not closed here, this leader closes them.
    pub(super) fn on_retire(&mut self, from: ProcessId, asked: Left) {
        let Left { client, below, .. } = asked;
        let Some(window) = self.agreement.messages.client(client) else { return };
        match window.heirs.first_from(below) {
            Some(heir) if heir.settled && window.first_undelivered() >= heir.first => {
                let done = Left { client, below, ballot: self.agreement.ballots.installed };
                self.effects.send(from, &PeerMessage::Retired(done));
            }
            Some(_) => {}
            None => {
                if window.heirs.last().is_none_or(|last| last.settled) {
                    self.close(below, Opening { client, life: 0, told: below + 1, above: 0 });
                }
            }
        }
    }

    /// Handles the report that another group has settled all messages of a client id's earlier processes.
    pub(super) fn on_retired(&mut self, group: GroupId, done: Left) {
        let ballots = &mut self.agreement.ballots;
        if !ballots.is_known(group, done.ballot) {
            // Another history of that group may have more unsettled messages, or this member does not know it yet. The
            // group is asked again.
            return;
        }
        ballots.hear_of(group, done.ballot);
        let Some(window) = self.agreement.messages.client_mut(done.client) else { return };
        if window.closing.retiring_below == done.below {
            window.closing.retired.insert(group);
            self.retire_if_done(done.client);
        }
    }

    fn retire_if_done(&mut self, client: ClientId) {
        let Agreement { id, messages, .. } = &mut *self.agreement;
        let window = messages.window_mut(client);
        let all: crate::GroupSet = id.topology().group_ids().collect();
        if all.is_subset(&window.closing.retired) {
            // The followers learn this with the next succession.
            window.heirs.retired_below = window.heirs.retired_below.max(window.closing.retiring_below);
        }
    }
}

/// Returns whether a member holds the first message that the leader lacks.
fn is_wanted(answer: &Answer, first: u64) -> bool {
    answer.held.iter().any(|(slot, _)| *slot == first)
}

/// The part at a follower.
impl<E: Effects> Successions<'_, E> {
    /// Handles the leader's request to accept no more messages from earlier processes.
    pub(super) fn on_close(&mut self, from: ProcessId, about: SlotRef) {
        let ignores = mutant!(self.agreement.id.mutant(), ClosingForgotten);
        let Some(window) = self.agreement.messages.client_mut(about.client) else { return };
        if self.counts_in != Some(about.ballot) {
            return;
        }
        if !ignores {
            window.over_below = window.over_below.max(about.generation);
        }
        let held = window.held().filter(|(_, sequence)| ids::generation(*sequence) < about.generation);
        let held = held.flat_map(|(slot, sequence)| [slot, sequence]).collect();
        let about = SlotRef { slot: window.over_below, ..about };
        self.effects.send(from, &PeerMessage::Closed(Closed { about, held }));
        self.effects.place_changed(about.client);
    }

    /// Processes a succession in the leader's stream.
    pub(super) fn on_entry(&mut self, head: &Head, entry: &StreamEntry<'_>) {
        let StreamEntry::Succeed { life, after, retired, settled } = *entry else { return };
        let (client, generation) = (head.client, ids::generation(head.sequence));
        let window = self.agreement.messages.window_mut(client);
        if window.heirs.open_last(generation, life) {
            self.effects.place_changed(client);
        }
        if window.heirs.last().is_none_or(|last| last.generation < generation) {
            let first = window.resolve_first(head);
            window.heirs.retired_below = window.heirs.retired_below.max(retired);
            let dropped = window.follow(Succession { generation, life, first, after, settled: false });
            self.note_dropped(client, dropped);
        }
        if settled {
            let window = self.agreement.messages.window_mut(client);
            if window.heirs.settle(generation) {
                self.effects.place_changed(client);
            }
        } else {
            let ballot = self.agreement.ballots.installed;
            let processed = SlotRef { client, slot: life, ballot, generation };
            self.effects.send(ballot.leader(), &PeerMessage::Succeeded(processed));
        }
    }
}
