//! What a read at the leader waits for.
//!
//! A member delivers by itself, so a follower may deliver a message, and a client learn of it, before the leader does. "It leads, so it
//! answers" is therefore no rule. A leader answers a read that comes after the time T (0: after nothing) when four things are so:
//!
//! 1. *(c)* It led when the read came. That is not decided here: see `node/member/confirm.rs`.
//! 2. *(d)* Everything is delivered here that may have been delivered in this group when the read came.
//! 3. *(a)* Everything of this group with a final timestamp up to T is delivered here.
//! 4. *(b)* Nothing gets a timestamp up to T in this group any more, whoever leads.
//!
//! # (d), by the first message that is not delivered
//! Let C be the clock when the read came, and F the undelivered message with the smallest key, later on. If there is none, or its key is
//! larger than C, or it has no full vector, then everything is delivered that may have been delivered when the read came. For a message
//! that was delivered somewhere in this group by then has its full vector here (a majority processed it in this ballot, or in an earlier one
//! whose state this leader took), and its final time is at most C: a leader raises its clock to the maximum of a vector before it appends
//! it. Its key is never larger than its final timestamp. So if it is not delivered here, then F comes before it or is it. F's key is not
//! larger than C then. And F has a full vector: otherwise F's own timestamp is smaller than the message's, and nobody in this group can have
//! delivered the message before F was decided, for which F needs a vector that this leader has appended; if F got its vector since, it has
//! one now.
//!
//! A no-op that is not settled counts as a message without a vector: nobody delivers past it, see `deliver_due`.
//!
//! # (a) and (b), by what is delivered
//! The key of a message is its own group's timestamp as long as it is not decided, and then its final one. So if F's key is larger than T,
//! nothing that is undelivered here gets a final timestamp up to T. And if something with a time of T or more was delivered here, a
//! majority of this group has processed an entry that raised its clock to T, in this ballot or in an earlier one: every later leader
//! begins above it. The same holds if the clock with which this ballot began is T or more, because a majority has installed it. Where
//! neither is so, the leader orders a time entry.

use super::Replica;
use super::agreement::Agreement;
use crate::mutant::mutant;
use crate::{Ballot, Timestamp};

/// What a read at the leader waits for. It is fixed when the read comes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReadBarrier {
    ballot: Ballot,
    /// The clock when the read came.
    clock: u64,
    not_before: u64,
}

impl ReadBarrier {
    /// Returns the ballot in which the read came.
    #[must_use]
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// Returns the time that the read comes after.
    #[must_use]
    pub fn not_before(&self) -> u64 {
        self.not_before
    }
}

/// How far a read at the leader is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReadProgress {
    /// What it waits for is delivered: it is answered behind all deliveries so far.
    Ready,
    /// Messages that came before it are not delivered.
    Waits,
    /// Nothing that is under way in this group is as late as the time that it comes after.
    Early,
    /// The member does not lead in that ballot any more.
    Over,
}

/// The undelivered message with the smallest key.
#[derive(Clone, Copy, Debug)]
struct First {
    key: Timestamp,
    /// Whether its vector is full, so that others may have delivered it.
    is_full: bool,
}

impl Replica {
    /// Begins a read that comes after a time; 0: after nothing. `None`: this member does not lead.
    #[must_use]
    pub fn begin_read(&self, not_before: u64) -> Option<ReadBarrier> {
        let Agreement { ballots, clock, .. } = &self.agreement;
        let leads = self.is_leader() && ballots.is_current();
        leads.then(|| ReadBarrier { ballot: ballots.installed, clock: clock.now(), not_before })
    }

    /// Returns how far a read is. `reached`: the time of the last message that was delivered here, or the clock with which this ballot
    /// [began](super::Effects::recovered), whichever is later.
    pub fn read_progress(&mut self, read: &ReadBarrier, reached: u64) -> ReadProgress {
        if !self.is_leader() || !self.agreement.ballots.is_current() || self.ballot() != read.ballot {
            return ReadProgress::Over;
        }
        let mutant = self.agreement.id.mutant();
        let not_before = if mutant!(mutant, ReadIgnoresTime) { 0 } else { read.not_before };
        match self.agreement.first_undelivered() {
            Some(First { key, is_full }) => {
                let passes = !is_full || key.time > read.clock || mutant!(mutant, ReadIgnoresVectors);
                let is_ready = passes && key.time > not_before && reached >= not_before;
                if is_ready { ReadProgress::Ready } else { ReadProgress::Waits }
            }
            None if reached >= not_before => ReadProgress::Ready,
            None => ReadProgress::Early,
        }
    }

    /// Returns where the history began that a delivery with this number is part of.
    #[must_use]
    pub fn origin_of(&self, number: u64) -> crate::Incarnation {
        self.agreement.ballots.origin_of(number)
    }

    /// Whether a member of this group has installed the ballot that is led from here, on the connection that there is with it.
    #[must_use]
    pub fn is_installed_at(&self, member: stentor_fabric::ProcessId) -> bool {
        self.is_leader() && self.leadership.installed & self.agreement.id.bit_of(member) != 0
    }
}

impl Agreement {
    /// The undelivered message with the smallest key. What is delivered, void for good, or keyed too low is put right on the way, as
    /// `deliver_due` does.
    fn first_undelivered(&mut self) -> Option<First> {
        loop {
            let first = self.messages.order.first()?;
            let window = self.messages.window(first.client);
            let message = window.slot(first.slot);
            let is_over = first.slot < window.first_undelivered() || message.delivered;
            if is_over || message.no_op && message.settled {
                self.messages.order.pop();
                continue;
            }
            match message.decided {
                Some(last) if last > first.key && !message.no_op => self.messages.order.raise_first(last),
                _ => {
                    let is_full = message.times().complete() && !message.no_op;
                    return Some(First { key: first.key, is_full });
                }
            }
        }
    }
}
