//! Reads that a client sends to members, until they are answered.
//!
//! # States of a read
//! *begun* → *asked* of a member → answered and removed. The read is sent again, to that member or to another one, in
//! three cases: the connection on which it was sent has ended, the member reports that another one leads, or no answer
//! has arrived for [`AGAIN`]. A repeated answer matches no read and is ignored.
//!
//! # Which member is asked
//! Reads at the leader go to the member that is believed to lead: the last one that has answered such a read, or one
//! that another member has named. Other reads go to one member of the group, at first a random one. In either case the
//! next member of the group is asked if that member is not connected or does not answer.

use std::time::Duration;

use stentor_fabric::{Fabric, ProcessId};
use stentor_multicast::{Client, GroupId, RecordSent, Topology};
use thiserror::Error;

use crate::{Outcome, Position, ReadGuarantee, ReadRequest, ReplyRecord};

/// Time without an answer after which a read is sent again. A leader that cannot answer sends no refusal.
const AGAIN: Duration = Duration::from_millis(100);
/// Pause of a read if the member that was asked names no other leader.
const REST: Duration = Duration::from_millis(2);

/// Reason why a read does not begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ReaderError {
    /// Too many reads are in progress.
    #[error("too many reads are under way")]
    Busy,
    /// No member of the group is connected.
    #[error("no member of the group is connected")]
    Away,
    /// The query is longer than a message may be.
    #[error("a query of {0} bytes is longer than a message may be")]
    TooLong(usize),
}

/// Result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReadOutcome<'a> {
    /// The read was answered.
    Answered {
        /// Group that answered.
        group: GroupId,
        /// Last position that the answer reflects.
        position: Position,
        /// Time that the group had certainly reached at the answer. At least the time of `position`.
        heard: u64,
        /// `true` if the read was one at the leader, so the replier led when it answered.
        is_led: bool,
        /// The answer, or `None` if it is longer than the limit.
        bytes: Option<&'a [u8]>,
    },
    /// The group has another history than that of the command that the answer had to reflect.
    OtherHistory(GroupId),
}

/// The member to which a read was last sent, and the time at which it was sent.
#[derive(Clone, Copy, Debug)]
struct Asked {
    member: ProcessId,
    /// Number of the connection to that member.
    round: u64,
    at: Duration,
}

#[derive(Clone, Debug)]
struct Read {
    name: u64,
    group: GroupId,
    guarantee: ReadGuarantee,
    query: Vec<u8>,
    asked: Option<Asked>,
    /// `true` if the read was sent to a member before.
    again: bool,
    /// Time before which the read is not sent again.
    rests_until: Duration,
}

/// The reads of one client.
#[derive(Clone, Debug)]
pub struct Reader {
    /// Reads by name modulo the size. Their buffers are reused.
    reads: Vec<Option<Read>>,
    spare: Vec<Vec<u8>>,
    /// Next name.
    next: u64,
    under_way: usize,
    /// Number of reads that are not assigned to a member at present.
    unasked: usize,
    /// Index of the member that is asked for reads at the leader, by group.
    leaders: Vec<usize>,
    /// Index of the member that is asked for other reads, by group.
    others: Vec<usize>,
}

impl Reader {
    /// Creates a client's reader, with at most `most` reads in progress. `word` is random, so that no two processes
    /// with one client id use the same names.
    #[must_use]
    pub fn new(topology: &Topology, most: usize, word: u64) -> Self {
        // Spreads the clients over the members.
        let others = |group: GroupId| (word >> 32) as usize % topology.size(group);
        Reader {
            reads: vec![None; most.max(1)],
            spare: Vec::new(),
            next: word,
            under_way: 0,
            unasked: 0,
            leaders: topology.group_ids().map(|_| 0).collect(),
            others: topology.group_ids().map(others).collect(),
        }
    }

    /// Returns the number of reads in progress.
    #[inline]
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Begins a read, and sends it to a member if one accepts it now. Returns the read's name.
    ///
    /// # Errors
    /// See [`ReaderError`]. After an error, no read has begun.
    pub fn begin<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        now: Duration,
        (group, guarantee): (GroupId, ReadGuarantee),
        query: &[u8],
    ) -> Result<u64, ReaderError> {
        if self.under_way == self.reads.len() {
            return Err(ReaderError::Busy);
        }
        let mut members = client.topology().members(group);
        if !members.any(|member| client.is_connected_to(member)) {
            return Err(ReaderError::Away);
        }
        while self.reads[self.place(self.next)].is_some() {
            self.next = self.next.wrapping_add(1);
        }
        let (name, mut bytes) = (self.next, self.spare.pop().unwrap_or_default());
        self.next = self.next.wrapping_add(1);
        bytes.extend_from_slice(query);
        let read =
            Read { name, group, guarantee, query: bytes, asked: None, again: false, rests_until: Duration::ZERO };
        let place = self.place(name);
        self.reads[place] = Some(read);
        (self.under_way, self.unasked) = (self.under_way + 1, self.unasked + 1);
        if !self.ask(client, now, place) {
            self.end(place);
            return Err(ReaderError::TooLong(query.len()));
        }
        Ok(name)
    }

    /// Sends each read that is not assigned to a member. With `all`, also sends again the reads whose answer is no
    /// longer expected; call it with `all` every few milliseconds.
    pub fn look<F: Fabric>(&mut self, client: &mut Client<F>, now: Duration, all: bool) {
        if self.under_way == 0 || !all && self.unasked == 0 {
            return;
        }
        for place in 0..self.reads.len() {
            if all {
                self.look_at(client, now, place);
            }
            if self.reads[place].as_ref().is_some_and(|read| read.asked.is_none()) {
                self.ask(client, now, place);
            }
        }
    }

    /// Processes an answer. Returns the read that it completes, and the result.
    pub fn on_reply<'a>(
        &mut self,
        now: Duration,
        from: ProcessId,
        topology: &Topology,
        record: &ReplyRecord<'a>,
    ) -> Option<(u64, ReadOutcome<'a>)> {
        let place = self.place(record.request);
        let read = self.reads[place].as_mut().filter(|read| read.name == record.request)?;
        let group = read.group;
        let at = |process: ProcessId| topology.members(group).position(|member| member == process);
        let from_at = at(from)?;
        let is_led = matches!(read.guarantee, ReadGuarantee::Leader { .. });
        let outcome = match record.outcome {
            Outcome::Applied | Outcome::Overflow => {
                if is_led {
                    self.leaders[usize::from(group.0)] = from_at;
                }
                let bytes = (record.outcome == Outcome::Applied).then_some(record.bytes);
                ReadOutcome::Answered { group, position: record.position, heard: record.applied, is_led, bytes }
            }
            Outcome::OtherHistory => ReadOutcome::OtherHistory(group),
            Outcome::Elsewhere => {
                // Another member may have been asked since.
                if read.asked.is_some_and(|asked| asked.member == from) {
                    let named = record.generation.checked_sub(1).and_then(|process| at(ProcessId(process as u16)));
                    let known = named.filter(|named| *named != from_at);
                    if known.is_none() {
                        read.rests_until = now + REST;
                    }
                    read.asked = None;
                    self.unasked += 1;
                    self.leaders[usize::from(group.0)] = known.unwrap_or((from_at + 1) % topology.size(group));
                }
                return None;
            }
            _ => return None,
        };
        let name = record.request;
        self.end(place);
        Some((name, outcome))
    }

    /// Removes a read whose answer is no longer needed.
    pub fn give_up(&mut self, name: u64) {
        let place = self.place(name);
        if self.reads[place].as_ref().is_some_and(|read| read.name == name) {
            self.end(place);
        }
    }

    /// Removes the reads of the groups that `is_meant` selects. Calls `each` with their names.
    pub fn give_up_all(&mut self, is_meant: impl Fn(GroupId) -> bool, mut each: impl FnMut(u64)) {
        for place in 0..self.reads.len() {
            if let Some(read) = self.reads[place].as_ref().filter(|read| is_meant(read.group)) {
                let name = read.name;
                self.end(place);
                each(name);
            }
        }
    }

    #[inline]
    fn place(&self, name: u64) -> usize {
        (name % self.reads.len() as u64) as usize
    }

    fn end(&mut self, place: usize) {
        if let Some(mut read) = self.reads[place].take() {
            self.under_way -= 1;
            self.unasked -= usize::from(read.asked.is_none());
            read.query.clear();
            self.spare.push(read.query);
        }
    }

    /// Unassigns a read from its member if no answer is expected any more, so that it is sent to the next one.
    fn look_at<F: Fabric>(&mut self, client: &Client<F>, now: Duration, place: usize) {
        let Some(read) = &mut self.reads[place] else { return };
        let Some(Asked { member, round, at }) = read.asked else { return };
        let is_lost = !client.is_connected_to(member) || client.query_rounds(member) != round;
        if !is_lost && now.saturating_sub(at) < AGAIN {
            return;
        }
        read.asked = None;
        self.unasked += 1;
        let group = usize::from(read.group.0);
        let size = client.topology().size(read.group);
        let chosen = match read.guarantee {
            ReadGuarantee::Leader { .. } => &mut self.leaders[group],
            _ => &mut self.others[group],
        };
        // Another read may already have switched to the next member.
        if client.topology().members(read.group).nth(*chosen) == Some(member) {
            *chosen = (*chosen + 1) % size;
        }
    }

    /// Sends a read to a member, if one accepts it now. Returns `false` if no member can ever accept it.
    fn ask<F: Fabric>(&mut self, client: &mut Client<F>, now: Duration, place: usize) -> bool {
        let Some(read) = &mut self.reads[place] else { return true };
        if now < read.rests_until {
            return true;
        }
        let group = usize::from(read.group.0);
        let size = client.topology().size(read.group);
        let chosen = match read.guarantee {
            ReadGuarantee::Leader { .. } => &mut self.leaders[group],
            _ => &mut self.others[group],
        };
        let head = ReadRequest { name: read.name, again: read.again, guarantee: read.guarantee, query: &[] }.head();
        for turn in 0..size {
            let at = (*chosen + turn) % size;
            let Some(member) = client.topology().members(read.group).nth(at) else { break };
            match client.query(member, &[&head, &read.query]) {
                RecordSent::Sent => {
                    *chosen = at;
                    read.again = true;
                    read.asked = Some(Asked { member, round: client.query_rounds(member), at: now });
                    self.unasked -= 1;
                    return true;
                }
                RecordSent::TooLong => return false,
                RecordSent::Full => return true,
                RecordSent::Away => {}
            }
        }
        true
    }
}
