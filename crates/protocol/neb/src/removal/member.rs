//! A member's side of a removal: its promise, the processes that it fenced, and the decisions. A pure state machine.

use stentor_fabric::ProcessId;
use thiserror::Error;

use super::{Ballot, Cut, Standing};
use crate::{Config, Mutant, ProcessSet, mutant};

/// Reason why a process refuses an operator's request. The request had no effect, except with [`Refusal::Access`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Error)]
pub enum Refusal {
    /// The broadcast does not run in mode `all`.
    #[error("processes are removed in mode `all` only: in mode `quorum` no process waits for those that have stopped")]
    Mode,
    /// This process was removed itself.
    #[error("{0} was removed itself")]
    Removed(ProcessId),
    /// This process has promised another ballot: a later one, if the request was to fence, or any other one, if the
    /// request was a decision.
    #[error("another operator is at work (its round is {})", .0.round)]
    Promised(Ballot),
    /// Processes that the operator does not name were removed or fenced.
    #[error("the removal of {0} has begun or is complete, and this operator does not know of it")]
    Others(ProcessSet),
    /// Too few members would remain.
    #[error("{remain} of {members} members would remain: no majority")]
    Minority {
        /// Number of members after the removal.
        remain: usize,
        /// Number of members before the removal.
        members: usize,
    },
    /// The decision is about a process that is not fenced here.
    #[error("{0} is not fenced here")]
    NotFenced(ProcessId),
    /// Access could not be revoked. The process has promised the ballot and counts the peer as fenced; it tries again
    /// to revoke access with the next request to fence.
    #[error("the access of {peer} cannot be revoked: {why}")]
    Access {
        /// The process whose access should be revoked.
        peer: ProcessId,
        /// Reason that the fabric gives.
        why: String,
    },
    /// A decided value is invalid or not the sender's, or the decision differs from what was delivered here. The
    /// operator, or a process that reported to it, lies.
    #[error("the decided value of {sender} at index {index} is not that sender's: a remaining member lies")]
    Forged {
        /// Sender of the stream.
        sender: ProcessId,
        /// Index of the value.
        index: u64,
    },
}

/// State of one member.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Seat {
    me: ProcessId,
    everybody: ProcessSet,
    standing: Standing,
    /// Decisions about removed processes.
    cuts: Vec<Cut>,
    /// `true` if this member was asked to leave.
    left: bool,
    mutant: Mutant,
}

impl Seat {
    /// Creates a member of a broadcast from which no process was removed.
    #[must_use]
    pub fn new(config: &Config, me: ProcessId) -> Self {
        let (fenced, removed) = (ProcessSet::EMPTY, ProcessSet::EMPTY);
        let standing = Standing { promised: Ballot::default(), fenced, removed };
        Seat { me, everybody: config.everybody(), standing, cuts: Vec::new(), left: false, mutant: config.mutant }
    }

    /// Returns the member's promise, and the processes that it fenced and removed.
    #[must_use]
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Returns whether the member was asked to leave.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// Records that the member was asked to leave.
    pub fn leave(&mut self) {
        self.left = true;
    }

    /// Returns the decision about a removed process.
    #[must_use]
    pub fn cut(&self, sender: ProcessId) -> Option<&Cut> {
        self.cuts.iter().find(|cut| cut.sender == sender)
    }

    /// Promises a ballot. Returns the processes to fence that were not fenced before.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn fence(&mut self, ballot: Ballot, base: ProcessSet, targets: ProcessSet) -> Result<ProcessSet, Refusal> {
        let Standing { promised, fenced, removed } = self.standing;
        if self.left || targets.contains(self.me) {
            return Err(Refusal::Removed(self.me));
        }
        if ballot < promised {
            return Err(Refusal::Promised(promised));
        }
        let named = base.or(targets);
        let others = fenced.or(removed).minus(named);
        if !others.is_empty() {
            return Err(Refusal::Others(others));
        }
        let (members, remain) = (self.everybody.minus(base).len(), self.everybody.minus(named).len());
        if 2 * remain <= members {
            return Err(Refusal::Minority { remain, members });
        }
        self.standing.promised = ballot;
        self.standing.fenced = fenced.or(targets);
        Ok(targets.minus(fenced))
    }

    /// Checks that decisions of this ballot may be accepted.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn may_commit(&self, ballot: Ballot, cuts: &[Cut]) -> Result<(), Refusal> {
        if self.left {
            return Err(Refusal::Removed(self.me));
        }
        if ballot != self.standing.promised && !mutant!(self.mutant, RemovalAnyBallot) {
            return Err(Refusal::Promised(self.standing.promised));
        }
        let strange = cuts.iter().find(|cut| !self.standing.fenced.contains(cut.sender));
        strange.map_or(Ok(()), |cut| Err(Refusal::NotFenced(cut.sender)))
    }

    /// Accepts a decision that [may be](Seat::may_commit) accepted. Returns whether it is new.
    pub fn commit(&mut self, cut: &Cut) -> bool {
        let new = !self.standing.removed.contains(cut.sender);
        if new {
            self.standing.removed.insert(cut.sender);
            self.cuts.push(cut.clone());
        }
        new
    }
}
