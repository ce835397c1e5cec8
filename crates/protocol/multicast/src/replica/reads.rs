//! The conditions for a read at the leader.
//!
//! Each member delivers by itself. So a follower may deliver a message, and a client may learn of it, before the leader
//! delivers it. Being the leader is therefore not enough. A leader answers a read that must follow the time T (0: no
//! time) when four conditions hold:
//!
//! 1. It led when the read arrived. `node/member/confirm.rs` checks this.
//! 2. It has delivered all messages that some member of this group may have delivered when the read arrived.
//! 3. It has delivered every message of this group with a final timestamp up to T.
//! 4. No message gets a timestamp up to T in this group any more, whichever process leads.
//!
//! # Condition 2 follows from the first undelivered message
//! Let C be the clock when the read arrived, and let F be the undelivered message with the smallest key at a later
//! moment. If there is no F, or its key is larger than C, or it has no full vector, then this leader has delivered all
//! messages that some member may have delivered when the read arrived.
//!
//! Proof. Take a message that some member of this group had delivered when the read arrived. This leader has the
//! message's full vector: a majority processed the vector in this ballot, or in an earlier one whose state this leader
//! adopted. Its final time is at most C, because a leader raises its clock to the maximum of a vector before it appends
//! the vector. Its key is never larger than its final timestamp. So if the message is not delivered here, F precedes it
//! or is equal to it, and F's key is not larger than C. F also has a full vector. Otherwise F's own timestamp is
//! smaller than the message's, and no member of this group can have delivered the message before F was decided.
//! Deciding F requires a vector that this leader has appended. If F received its vector since, it has one now.
//!
//! An unsettled no-op counts as a message without a vector: no member delivers past it, see `deliver_due`.
//!
//! # Conditions 3 and 4 follow from the deliveries
//! The key of a message is its own group's timestamp as long as it is undecided, and then its final one. So if F's key
//! is larger than T, no message that is undelivered here gets a final timestamp up to T. If a message with a time of at
//! least T was delivered here, a majority of this group has processed an entry that raised its clock to T, in this
//! ballot or in an earlier one, and every later leader begins above it. Every later leader also begins above T if this
//! ballot began with a clock of at least T, because a majority has installed that clock. If neither condition is true,
//! the leader orders a time entry.

use super::Replica;
use super::agreement::Agreement;
use crate::mutant::mutant;
use crate::{Ballot, Timestamp};

/// The condition that a read at the leader waits for. It is fixed when the read arrives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReadBarrier {
    ballot: Ballot,
    /// The clock when the read arrived.
    clock: u64,
    not_before: u64,
}

impl ReadBarrier {
    /// Returns the ballot in which the read arrived.
    #[must_use]
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// Returns the time that the read must follow.
    #[must_use]
    pub fn not_before(&self) -> u64 {
        self.not_before
    }
}

/// The progress of a read at the leader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReadProgress {
    /// All messages that precede the read are delivered. The read is answered after all deliveries so far.
    Ready,
    /// An undelivered message may precede the read, or its delivery reaches the time that the read must follow.
    Waits,
    /// No message is in progress in this group, and none so far is as late as the time that the read must follow.
    Early,
    /// The member no longer leads in the ballot in which the read arrived.
    Over,
}

/// The undelivered message with the smallest key.
#[derive(Clone, Copy, Debug)]
struct First {
    key: Timestamp,
    /// `true` if the message's vector is full, so that other members may have delivered the message.
    is_full: bool,
}

impl Replica {
    /// Begins a read that must follow a time; 0 sets no bound. Returns `None` if this member does not lead.
    #[must_use]
    pub fn begin_read(&self, not_before: u64) -> Option<ReadBarrier> {
        let Agreement { ballots, clock, .. } = &self.agreement;
        let leads = self.is_leader() && ballots.is_current();
        leads.then(|| ReadBarrier { ballot: ballots.installed, clock: clock.now(), not_before })
    }

    /// Returns the progress of a read.
    ///
    /// `reached` is the time of the last message that was delivered here, or the clock with which this ballot
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

    /// Returns the incarnation in which the history of the delivery with this number began.
    #[must_use]
    pub fn origin_of(&self, number: u64) -> crate::Incarnation {
        self.agreement.ballots.origin_of(number)
    }

    /// Returns whether a member of this group has installed the ballot that this member leads, on the current
    /// connection with it.
    #[must_use]
    pub fn is_installed_at(&self, member: stentor_fabric::ProcessId) -> bool {
        self.is_leader() && self.leadership.installed & self.agreement.id.bit_of(member) != 0
    }
}

impl Agreement {
    /// Returns the undelivered message with the smallest key.
    ///
    /// The function also removes delivered messages and settled no-ops from the order, and raises keys that are too
    /// low, as `deliver_due` does.
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
