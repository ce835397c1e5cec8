//! Reads that clients send to this member, until they may be answered.
//!
//! # States of a read at the leader
//! *received* → *covered* by a round of writes that began after it arrived ([`Member::confirm`]) → *confirmed* →
//! *ready*, when the deliveries that it needs have happened ([`Member::read_progress`]) → answered by the application,
//! after all deliveries so far. A member that does not lead, or that stops leading before the read is ready, refuses
//! the read and names the leader if it knows it.
//!
//! # Invariants
//! - A read at the leader is ready only if a round that began after it arrived is confirmed. One round covers all reads
//!   that arrived before it. While a round is in progress, arriving reads wait for the next one, so many reads share
//!   few writes.
//! - While too many queries wait here, further ones stay in their rings. That slows their clients down.
//! - For a read that cannot be answered, the client gets a refusal, or no answer and asks again. A read that its client
//!   does not send again is forgotten after [`LONGEST`]. A read that is sent again keeps its progress, and waits for
//!   nothing that arrived since.

use std::collections::VecDeque;
use std::time::Duration;

use stentor_fabric::Fabric;
use stentor_multicast::{ClientId, Incarnation, Member, ProcessRole, ReadBarrier, ReadProgress, Timestamp};

use crate::{Outcome, Position, ReadGuarantee, ReadRequest, ReplyRecord};

/// Largest number of waiting reads.
const MOST: usize = 1 << 14;
/// Number of bytes of waiting queries from which on no further query is taken.
const MOST_BYTES: usize = 4 << 20;
/// Time after which a waiting read is forgotten unless its client asks again.
const LONGEST: Duration = Duration::from_secs(1);
/// Interval between two searches for reads to forget.
const LOOK: Duration = Duration::from_millis(100);
/// Largest capacity of a buffer that is kept for later queries, in bytes.
const KEPT: usize = 4096;

/// A read that may be answered now, after all deliveries so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadyRead<'a> {
    /// The client that sent the read.
    pub client: ClientId,
    /// Name of the read, which the answer repeats.
    pub name: u64,
    /// Time that the group has certainly reached, for the answer to report; 0 if the leader was not needed.
    pub time: u64,
    /// Query for the application.
    pub query: &'a [u8],
}

/// Counters of reads by outcome. A simulation uses them to check that it reaches each outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadCounts {
    /// Number of reads that the leader was able to answer, because its leadership was confirmed and it had delivered
    /// all necessary commands.
    pub led: u64,
    /// Number of reads, counted in `led` too, that waited for a delivery after the leadership was confirmed.
    pub waited: u64,
    /// Number of reads that had to follow a command, and that could be answered because the command was delivered.
    pub after: u64,
    /// Number of reads, counted in `after` too, that waited for the delivery of that command.
    pub late: u64,
    /// Number of reads with the guarantee [`Local`](ReadGuarantee::Local), which wait for nothing but room.
    pub local: u64,
    /// Number of reads that another member must answer.
    pub elsewhere: u64,
    /// Number of reads that had to reflect a command of another history.
    pub other_history: u64,
    /// Number of reads that were dropped because their clients had not repeated them for a while.
    pub forgotten: u64,
    /// Number of queries that could not be parsed.
    pub rejected: u64,
}

/// Event for which a read waits.
#[derive(Clone, Copy, Debug)]
enum Needs {
    /// Confirmation of leadership. `round` is the round of writes that covers the read, once one has begun.
    Leader { barrier: ReadBarrier, round: Option<u64>, confirmed: bool },
    /// Delivery of a command.
    After { index: u64, incarnation: Incarnation, waited: bool },
    /// Delivery of a command with this or a later timestamp.
    Past { timestamp: Timestamp, waited: bool },
    /// No event except that the application has room.
    Nothing,
}

#[derive(Debug)]
struct Waiting {
    client: ClientId,
    name: u64,
    needs: Needs,
    query: Vec<u8>,
    /// Time at which the client last sent the read.
    asked_at: Duration,
}

/// Next action for a read.
enum Step {
    Ready(u64),
    Waits,
    Elsewhere,
    OtherHistory,
}

/// The reads at one member.
///
/// Call [`look`](Reads::look) after each [`Member::step`].
#[derive(Debug, Default)]
pub struct Reads {
    waiting: VecDeque<Waiting>,
    /// Number of waiting reads that need a round of writes and are not covered by one yet.
    uncovered: usize,
    /// Number of waiting reads that need no round.
    others: usize,
    /// Last round that covers some of the waiting reads.
    last_round: u64,
    bytes: usize,
    spare: Vec<Vec<u8>>,
    /// Largest time that waiting reads need and that no message in progress brings: the group must order a time entry.
    early: Option<u64>,
    next_look: Duration,
    counts: ReadCounts,
    record: Vec<u8>,
}

impl Reads {
    /// Receives reads from clients, and hands over those that may be answered while the application has `room`. Their
    /// answers follow everything that the member has delivered. `now` is the time since any fixed moment. Returns
    /// whether there was any work.
    pub fn look<F: Fabric>(
        &mut self,
        member: &mut Member<F>,
        (now, room): (Duration, bool),
        mut ready: impl FnMut(ReadyRead<'_>),
    ) -> bool {
        self.early = None;
        let took = self.take(member, now);
        self.forget_old(now);
        if self.waiting.is_empty() {
            return took;
        }
        self.confirm(member);
        took | (room && self.hand_over(member, &mut ready))
    }

    /// Returns the largest time that the group must reach before waiting reads can be answered, if no message in
    /// progress in the group is as late. The leader then orders a time entry. Returns `None` if no read waits for this
    /// reason.
    #[must_use]
    pub fn early(&self) -> Option<u64> {
        self.early
    }

    /// Returns the number of waiting reads.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn counts(&self) -> ReadCounts {
        self.counts
    }

    /// Forgets reads that their clients have not sent again for [`LONGEST`].
    fn forget_old(&mut self, now: Duration) {
        if now < self.next_look {
            return;
        }
        self.next_look = now.saturating_add(LOOK);
        for _ in 0..self.waiting.len() {
            let Some(read) = self.waiting.pop_front() else { break };
            if now.saturating_sub(read.asked_at) > LONGEST {
                self.counts.forgotten += 1;
                self.end(read);
            } else {
                self.waiting.push_back(read);
            }
        }
    }

    fn take<F: Fabric>(&mut self, member: &mut Member<F>, now: Duration) -> bool {
        let mut any = false;
        while self.waiting.len() < MOST && self.bytes < MOST_BYTES {
            let Some(query) = member.next_query() else { break };
            any = true;
            let Ok(ReadRequest { name, again, guarantee, query: asked }) = ReadRequest::parse(query.bytes) else {
                self.counts.rejected += 1;
                continue;
            };
            if again && self.is_waiting(query.client, name, now) {
                continue;
            }
            let (client, mut bytes) = (query.client, self.spare.pop().unwrap_or_default());
            bytes.extend_from_slice(asked);
            let needs = match guarantee {
                ReadGuarantee::Local => Needs::Nothing,
                ReadGuarantee::After { index, incarnation } => Needs::After { index, incarnation, waited: false },
                ReadGuarantee::Past { timestamp } => Needs::Past { timestamp, waited: false },
                ReadGuarantee::Leader { not_before } => match member.begin_read(not_before) {
                    Some(barrier) => Needs::Leader { barrier, round: None, confirmed: false },
                    None => {
                        self.give_back(bytes);
                        self.send_elsewhere(member, client, name);
                        continue;
                    }
                },
            };
            self.bytes += bytes.len();
            match needs {
                Needs::Leader { .. } => self.uncovered += 1,
                _ => self.others += 1,
            }
            self.waiting.push_back(Waiting { client, name, needs, query: bytes, asked_at: now });
        }
        any
    }

    /// Returns whether a read that its client has sent again still waits here. Renews the time at which it was sent.
    #[cold]
    fn is_waiting(&mut self, client: ClientId, name: u64, now: Duration) -> bool {
        let mut known = self.waiting.iter_mut().filter(|read| (read.client, read.name) == (client, name));
        known.next().is_some_and(|read| {
            read.asked_at = now;
            true
        })
    }

    /// Begins a round of writes that covers all reads that no round covers yet, if a round may begin now.
    fn confirm<F: Fabric>(&mut self, member: &mut Member<F>) {
        if self.last_round > member.confirmed() && !member.is_confirming() {
            self.uncover(member.confirmed());
        }
        if self.uncovered == 0 {
            return;
        }
        let Some(begun) = member.confirm() else { return };
        (self.last_round, self.uncovered) = (begun, 0);
        for waiting in &mut self.waiting {
            if let Needs::Leader { round, .. } = &mut waiting.needs {
                round.get_or_insert(begun);
            }
        }
    }

    /// Marks reads as uncovered whose rounds failed.
    #[cold]
    fn uncover(&mut self, confirmed: u64) {
        for waiting in &mut self.waiting {
            if let Needs::Leader { round, .. } = &mut waiting.needs
                && round.take_if(|round| *round > confirmed).is_some()
            {
                self.uncovered += 1;
            }
        }
        self.last_round = confirmed;
    }

    /// Returns whether nothing can be handed over: all are reads at the leader, and the oldest one is not confirmed.
    fn is_unconfirmed<F: Fabric>(&self, member: &Member<F>, confirmed: u64) -> bool {
        let Some(Waiting { needs: Needs::Leader { barrier, round, .. }, .. }) = self.waiting.front() else {
            return false;
        };
        let leads = member.begin_read(0).is_some_and(|now| now.ballot() == barrier.ballot());
        self.others == 0 && leads && round.is_none_or(|round| round > confirmed)
    }

    fn hand_over<F: Fabric>(&mut self, member: &mut Member<F>, ready: &mut impl FnMut(ReadyRead<'_>)) -> bool {
        let (mut any, confirmed) = (false, member.confirmed());
        if self.is_unconfirmed(member, confirmed) {
            return false;
        }
        for _ in 0..self.waiting.len() {
            let Some(mut waiting) = self.waiting.pop_front() else { break };
            let step = self.look_at(member, &mut waiting.needs, confirmed);
            let Waiting { client, name, query, .. } = &waiting;
            match step {
                Step::Waits => {
                    self.waiting.push_back(waiting);
                    continue;
                }
                Step::Ready(time) => ready(ReadyRead { client: *client, name: *name, time, query }),
                Step::Elsewhere => self.send_elsewhere(member, *client, *name),
                Step::OtherHistory => {
                    self.counts.other_history += 1;
                    let record = ReplyRecord::read(*name, Outcome::OtherHistory, (Position::default(), 0), &[]);
                    self.send(member, *client, &record);
                }
            }
            any = true;
            self.end(waiting);
        }
        any
    }

    /// Removes a read that waits no more.
    fn end(&mut self, waiting: Waiting) {
        match waiting.needs {
            Needs::Leader { round, .. } => self.uncovered -= usize::from(round.is_none()),
            _ => self.others -= 1,
        }
        self.bytes -= waiting.query.len();
        self.give_back(waiting.query);
    }

    fn look_at<F: Fabric>(&mut self, member: &mut Member<F>, needs: &mut Needs, confirmed: u64) -> Step {
        let ReadCounts { led, waited, after, late, local, .. } = &mut self.counts;
        match needs {
            Needs::Nothing => {
                *local += 1;
                Step::Ready(0)
            }
            Needs::After { index, incarnation, waited } => {
                let replica = member.replica();
                if replica.origin_of(*index) != *incarnation {
                    // A member that has not been admitted yet does not know a later history.
                    let is_behind = replica.is_joining() || replica.incarnation().number < incarnation.number;
                    return if is_behind { Step::Waits } else { Step::OtherHistory };
                }
                if member.applied() < *index {
                    *waited = true;
                    return Step::Waits;
                }
                *after += 1;
                *late += u64::from(*waited);
                Step::Ready(0)
            }
            Needs::Past { timestamp, waited } => {
                if member.last_timestamp() < *timestamp {
                    *waited = true;
                    return Step::Waits;
                }
                *after += 1;
                *late += u64::from(*waited);
                Step::Ready(0)
            }
            Needs::Leader { barrier, round, confirmed: was_confirmed } => {
                let progress = member.read_progress(barrier);
                let is_confirmed = round.is_some_and(|round| round <= confirmed);
                match progress {
                    ReadProgress::Over => Step::Elsewhere,
                    ReadProgress::Ready if is_confirmed => {
                        *led += 1;
                        *waited += u64::from(*was_confirmed);
                        Step::Ready(member.reached(barrier.ballot()))
                    }
                    ReadProgress::Early => {
                        let time = barrier.not_before();
                        self.early = Some(self.early.map_or(time, |early| early.max(time)));
                        Step::Waits
                    }
                    ReadProgress::Ready | ReadProgress::Waits => {
                        *was_confirmed = is_confirmed;
                        Step::Waits
                    }
                }
            }
        }
    }

    /// Sends to a client the id of the leader, as far as this member knows it.
    #[cold]
    fn send_elsewhere<F: Fabric>(&mut self, member: &mut Member<F>, client: ClientId, name: u64) {
        self.counts.elsewhere += 1;
        let leader = member.replica().ballot().leader();
        let is_known = member.topology().role(leader).is_some_and(|role| matches!(role, ProcessRole::Member { .. }));
        let is_other = leader != member.fabric().me() && !member.replica().is_joining();
        let generation = if is_known && is_other { u32::from(leader.0) + 1 } else { 0 };
        let record = ReplyRecord::read(name, Outcome::Elsewhere, (Position::default(), 0), &[]);
        self.send(member, client, &ReplyRecord { generation, ..record });
    }

    /// Sends a record to a client. Drops it if there is no room, because the client asks again.
    fn send<F: Fabric>(&mut self, member: &mut Member<F>, client: ClientId, record: &ReplyRecord<'_>) {
        record.write(&mut self.record);
        let _ = member.reply(client, &[&self.record]);
    }

    fn give_back(&mut self, mut query: Vec<u8>) {
        query.clear();
        if query.capacity() <= KEPT && self.spare.len() < MOST {
            self.spare.push(query);
        }
    }
}
