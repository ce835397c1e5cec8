//! A member's side: what it promised, whom it fenced, what was decided. Pure.

use stentor_fabric::ProcessId;
use thiserror::Error;

use super::{Ballot, Cut, Standing};
use crate::{Config, Mutant, ProcessSet, mutant};

/// Why a process does not do what an operator asks. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Error)]
pub enum Refusal {
    /// Another mode.
    #[error("processes are removed in mode `all` only: in mode `quorum` nobody waits for those that have stopped")]
    Mode,
    /// It is no member itself.
    #[error("{0} was removed itself")]
    Removed(ProcessId),
    /// Another operator was later.
    #[error("another operator is at work (its round is {})", .0.round)]
    Promised(Ballot),
    /// Others were removed, or fenced, that the operator does not name.
    #[error("the removal of {0} has begun or is over: the operator did not know")]
    Others(ProcessSet),
    /// Too few would remain.
    #[error("{remain} of {members} members would remain: no majority")]
    Minority {
        /// After the removal.
        remain: usize,
        /// Before.
        members: usize,
    },
    /// A decision about somebody that this process did not fence.
    #[error("{0} is not fenced here")]
    NotFenced(ProcessId),
    /// Access could not be taken away.
    #[error("access cannot be taken away from {peer}: {why}")]
    Access {
        /// From whom.
        peer: ProcessId,
        /// The fabric's reason.
        why: String,
    },
    /// A value that is none of the sender's, or another one than was delivered here: who reported it lies.
    #[error("what is to be taken over of {sender} at index {index} is not its value: a member that remains lies")]
    Forged {
        /// Whose stream.
        sender: ProcessId,
        /// The index.
        index: u64,
    },
}

/// One member.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Seat {
    me: ProcessId,
    everybody: ProcessSet,
    standing: Standing,
    /// What was decided about those that are removed.
    cuts: Vec<Cut>,
    /// It was told to go.
    left: bool,
    mutant: Mutant,
}

impl Seat {
    /// A member of a broadcast that nobody was removed from.
    #[must_use]
    pub fn new(config: &Config, me: ProcessId) -> Self {
        let (fenced, removed) = (ProcessSet::EMPTY, ProcessSet::EMPTY);
        let standing = Standing { promised: Ballot::default(), fenced, removed };
        Seat { me, everybody: config.everybody(), standing, cuts: Vec::new(), left: false, mutant: config.mutant }
    }

    /// How it stands.
    #[must_use]
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Whether it was told to go.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// It is told to go.
    pub fn leave(&mut self) {
        self.left = true;
    }

    /// What was decided about a process that is removed.
    #[must_use]
    pub fn cut(&self, sender: ProcessId) -> Option<&Cut> {
        self.cuts.iter().find(|cut| cut.sender == sender)
    }

    /// Promises a ballot. Returns who is to be fenced now and was not before.
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

    /// Whether a decision of this ballot about these may be taken over.
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

    /// Takes a decision over that [may be](Seat::may_commit). Returns whether it is new.
    pub fn commit(&mut self, cut: &Cut) -> bool {
        let new = !self.standing.removed.contains(cut.sender);
        if new {
            self.standing.removed.insert(cut.sender);
            self.cuts.push(cut.clone());
        }
        new
    }
}
