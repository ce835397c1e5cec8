//! How another process takes a client's place, with a majority of each group that it talks to and of no other.
//!
//! A client's messages have dense slots at each group. A new process must know the first slot that none before it uses, and an
//! earlier process's messages may lie anywhere: at members that do not answer, in rings, at other groups. So each group fixes by
//! itself, in its own order, where the new process begins; what earlier ones multicast from there on is void, also if it turns up
//! later. Another group that holds such a message is told [`Refused`](PeerMessage::Refused), and makes it a no-op.
//!
//! # States of a process at a group
//! *asking* (a member passes on what the process said in its greeting: `Open`) → *closing* (the leader has its group take nothing
//! more of earlier processes: `Close`; who does so says what it holds: `Closed`) → *proposed* (the leader appended
//! [`Succession`]: generation, first slot) → *settled* (a majority has processed that). Only then the process is told, and begins.
//!
//! Each client id has a home group ([`Topology::home`](crate::Topology::home)). There the process asks without a generation, and
//! gets the next one: the order of the home group numbers the processes. It names the smallest generation that it may have, as
//! members told it, and is numbered only if that is above the latest one: so of all that asked for one number one gets it, and a
//! word that a member passes on late, for a process that is long gone, deposes nobody. The same life gets the same number however
//! often it asks. All other groups it asks with that generation.
//!
//! # Invariants
//! 1. *A member that answered `Closed` for generation G takes no body of a smaller generation from a client's ring, and tells
//!    no such process what it holds.* The answer counts only in the ballot that its sender had installed, and only at the
//!    leader of that ballot. So closings are in no promise and no state: if the ballot ends first, the next leader asks again.
//! 2. *The first slot is behind everything that any of a majority held without a gap, when it answered*: the leader has all that
//!    itself by then. An answer whose bodies do not come is dropped; its sender is asked again.
//! 3. *A succession counts when it is settled*, like a no-op: then every later leader's state has it, and the slots from the first
//!    one on are assigned to nobody before. Until then a later leader may lack it, and may assign what would be void; so no other
//!    group and no process is told.
//! 4. *No two messages have one id.* A generation is told to one life. It is above all generations whose successions the home
//!    group has; those that were told are settled, so no later leader lacks one. A home group that forgot everything numbers
//!    from the beginning; a group that remembers a larger generation, or another process of the same one, says so, and the process
//!    asks its home for one above it.
//!
//! **What is synced is not void.** A client was told that m is held by a majority Q1 in ballot b, with everything before it at
//! this group. Let a leader append a succession in ballot c by answers of Q2.
//! - b < c: c's leader has m (`campaign.rs`): it is in its prefix.
//! - b = c: a member of both, in one life (a life that was taken in since has not installed c before), said that it holds m before
//!   it closed: after that it says nothing to this process. So its answer lists m, and 2 holds.
//! - b > c: everybody who installed b has the succession, if it was settled, and says nothing to earlier processes. If it was not
//!   settled, it is in b's state or it is not; if it is, the same holds, and else it is nothing.
//!
//! **A void message is decided nowhere.** If a majority here had processed its assignment in a ballot up to c, c's leader would
//! have it assigned, and the first slot would be behind it. Later leaders have the succession, and assign nothing void. `Refused`
//! is said when the succession is settled.
//!
//! **What is void gives way.** A deposed leader, or who followed it, may have assigned in its ballot b what is void by a
//! succession of a later ballot c; and the next process's message m is in the same slot. A slot takes no other body once it is
//! assigned, so the member would wait for m for ever, with c's state; or would lead without it. But m exists, so its succession is
//! settled, in c: a majority has processed that, and nothing of earlier processes from m's slot on can be decided in b, nor was it
//! assigned in b after the succession, which b lacks. Every later leader's state is of c or later, and none takes up what this
//! member has of b. So that is forgotten when a state names m, before bodies are asked for: the succession itself need not be
//! known to be settled by then.
//!
//! # What is kept
//! Another group may ask much later for the timestamp of a void message: by then the slot, which it names by few bits, may be used
//! again. So what is void is known by *sequences*: all that a process of a smaller generation multicast after
//! [`Succession::after`]. It is kept until every other group has closed that generation, too, and has nothing undecided of smaller
//! ones (`Retire`, `Retired`); both stay true. A group keeps at most [`Succession::MOST`] of a client: the next process waits.
//!
//! # What is left behind
//! Slots before the first one may be held by nobody any more when the leader changes: such a gap was left by a process that is
//! over, and is filled like others (`no_op.rs`). So may they after a reset, which forgets what is held. A process that comes before
//! such a gap is filled begins in it: it has all slots from there on, and what the one before it multicast behind the gap is void
//! (`heirs.rs`). Nothing of that was synced, because what is synced is held with everything before it.
//!
//! The order in which a client id's messages are delivered (M6) holds over all its processes: a message waits for those of earlier
//! processes that are undecided with a group that is down. That costs nothing: they have smaller timestamps here, so nothing can be
//! delivered before they are decided.

use stentor_fabric::ProcessId;

use super::agreement::Agreement;
use super::closing::{Answer, Closing};
use super::{Effects, Replica};
use crate::item::{Head, ShortSlot, StreamEntry, StreamItem};
use crate::mutant::mutant;
use crate::peer_message::{Closed, Left, MessageRef, Opening, PeerMessage, SlotRef};
use crate::state::Succession;
use crate::{Ballot, ClientId, GroupId, ids};

/// From so many successions of one client on, a leader asks other groups what can be forgotten.
const RETIRE_FROM: usize = 4;

/// The part of a member that lets processes take clients' places.
pub(super) struct Successions<'a, E> {
    pub(super) agreement: &'a mut Agreement,
    /// The ballot in which this member's word counts.
    pub(super) counts_in: Option<Ballot>,
    pub(super) effects: &'a mut E,
}

/// Who has a client's place.
impl Replica {
    /// The process that took a client's place over last, as far as this member has processed.
    #[must_use]
    pub fn succession(&self, client: ClientId) -> Option<Succession> {
        self.window(client).and_then(|window| window.heirs.last().copied())
    }

    /// Whether a process may begin that took a client's place over.
    #[must_use]
    pub fn has_opened(&self, last: &Succession) -> bool {
        // If its generation was only closed, because another group asked, it has to ask itself: see `settling.rs`.
        last.settled && last.life != 0
    }

    /// Whether this group keeps so much of a client's earlier processes, for other groups that do not answer, that none can
    /// follow.
    #[must_use]
    pub fn is_crowded(&self, client: ClientId) -> bool {
        self.window(client).is_some_and(|window| window.heirs.is_full())
    }

    /// A process that greeted wants to begin in a client's place. Repeat it until [`succession`](Replica::succession) is its
    /// own, and settled.
    pub fn open<E: Effects>(&mut self, asked: Opening, effects: &mut E) {
        if self.is_leader() {
            self.successions(effects).on_open(asked);
        } else if self.counts_in().is_some_and(|ballot| ballot.leader() != self.agreement.id.me()) {
            effects.send(self.ballot().leader(), &PeerMessage::Open(asked));
        }
    }
}

/// At a leader whose word counts.
impl<E: Effects> Successions<'_, E> {
    /// A process wants to begin.
    pub(super) fn on_open(&mut self, asked: Opening) {
        let Some(window) = self.agreement.messages.client_mut(asked.client) else { return };
        let last = window.heirs.last().copied();
        if last.is_some_and(|last| !last.settled) {
            // It will ask again.
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
            // It must know of the latest one: a word that was on its way for long is of a process that is followed already.
            None if home && last.is_none_or(|last| last.life != asked.life && asked.above > last.generation) => {
                next.max(asked.above)
            }
            // Only who is the latest here may have another number.
            Some(told) if home && asked.above > told && (last.is_none() || is_last(told)) => next.max(asked.above),
            Some(told) if last.is_none_or(|last| last.generation < told) && told >= window.over_below => told,
            _ => return,
        };
        self.close(generation, asked);
    }

    /// Has the group take nothing more of processes with smaller generations.
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

    /// A member may have missed that it is asked.
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

    /// A member takes nothing more, and holds this.
    pub(super) fn on_closed(&mut self, from: ProcessId, closed: &Closed) {
        let (about, bit) = (closed.about, self.agreement.id.bit_of(from));
        let any = mutant!(self.agreement.id.mutant(), ClosedOfOldBallot);
        let current = about.ballot == self.agreement.ballots.installed || any;
        let window = self.agreement.messages.client_mut(about.client).filter(|_| current);
        let Some(window) = window else { return };
        if window.closing.asked.is_none_or(|(generation, _)| generation != about.generation) {
            return;
        }
        // A member may have given up a process that nobody else has.
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

    /// Appends the succession, if a majority takes nothing more, and what it held is held here. Returns whether it did.
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

    /// Asks for what members hold that is not held here.
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

    /// Appends the latest succession.
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

    /// A follower has processed the succession.
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

    /// A new leader says again what is not settled.
    pub(super) fn propose_again(&mut self, client: ClientId) {
        if self.agreement.messages.window(client).heirs.last().is_some_and(|last| !last.settled) {
            self.propose(client);
        }
    }

    /// Time passes.
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
        // Who does not give what it holds may be gone: others count in its place.
        let window = self.agreement.messages.window_mut(client);
        window.closing.age = 0;
        let first = window.end_of_prefix();
        window.closing.answers.retain(|answer| !is_wanted(answer, first));
        self.ask_to_close(client);
    }

    /// Asks all other groups whether they are done with what earlier processes left.
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

    /// Another group's leader asks. If that generation is not closed here, it is closed.
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

    /// Another group is done.
    pub(super) fn on_retired(&mut self, group: GroupId, done: Left) {
        let ballots = &mut self.agreement.ballots;
        if !ballots.is_known(group, done.ballot) {
            // Another history of that group may have more left, or this member has not heard of it yet: it is asked again.
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
            // The followers hear of it with the next succession.
            window.heirs.retired_below = window.heirs.retired_below.max(window.closing.retiring_below);
        }
    }
}

/// Whether a member holds what is the first that the leader lacks.
fn is_wanted(answer: &Answer, first: u64) -> bool {
    answer.held.iter().any(|(slot, _)| *slot == first)
}

/// At a follower.
impl<E: Effects> Successions<'_, E> {
    /// The leader wants nothing more to be taken of earlier processes.
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

    /// The leader's stream says that a process took the place.
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
