//! A call as its caller recorded it.

use std::fmt;

use super::kind::Kind;
use super::model::Model;
use super::outcome::Outcome;
use super::position::Position;
use crate::ids::{Group, GroupSet};

/// A call as its caller recorded it. All times of a history are from one clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The session of the call.
    pub session: u64,
    /// The generation of the session, which identifies the process that held it.
    pub generation: u64,
    /// Time at which the call was submitted. It is recorded before any part of the call is sent.
    pub submitted: u64,
    /// The destination groups.
    pub groups: GroupSet,
    /// The operation that the groups perform.
    pub operation: Vec<u8>,
    /// The kind of call: a command or one of the reads.
    pub kind: Kind,
    /// The outcome of the call.
    pub outcome: Outcome,
    /// Positions that the session learnt from other sessions before it submitted this call. Later calls of the same
    /// generation count as having observed them, too. Positions of the session's own answers need not be listed.
    pub observed: Vec<Position>,
}

impl Call {
    /// Returns the time at which the call was answered, or `None` if it was not.
    #[must_use]
    pub fn answered(&self) -> Option<u64> {
        match &self.outcome {
            Outcome::Answered { at, .. } => Some(*at),
            Outcome::NotApplied | Outcome::Unknown => None,
        }
    }

    /// Returns the position in the answer, or `None` if there is none.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        match &self.outcome {
            Outcome::Answered { position, .. } => *position,
            Outcome::NotApplied | Outcome::Unknown => None,
        }
    }

    /// Returns the reply of `group`, or `None` if the call was not answered.
    #[must_use]
    pub fn reply(&self, group: Group) -> Option<&[u8]> {
        match &self.outcome {
            Outcome::Answered { replies, .. } => {
                replies.iter().find(|(of, _)| *of == group).map(|(_, reply)| reply.as_slice())
            }
            Outcome::NotApplied | Outcome::Unknown => None,
        }
    }

    /// Returns whether the call was answered, or may have taken effect without an answer.
    pub(super) fn takes_part(&self) -> bool {
        match self.outcome {
            Outcome::Answered { .. } => true,
            Outcome::Unknown => self.kind == Kind::Command,
            Outcome::NotApplied => false,
        }
    }

    /// Returns whether this call was answered before `other` was submitted.
    pub(super) fn is_before(&self, other: &Call) -> bool {
        self.answered().is_some_and(|answered| answered < other.submitted)
    }

    /// Replays the call in one of its groups. Returns `false` if the call was answered with another reply than the
    /// model's.
    pub(super) fn replay<M: Model>(&self, model: &M, group: Group, state: &mut M::State) -> bool {
        let reply = if self.kind.is_read() {
            model.read(state, group, &self.operation)
        } else {
            model.apply(state, group, &self.operation)
        };
        self.reply(group).is_none_or(|expected| *expected == reply)
    }

    /// Returns whether the two calls have a group in common.
    pub(super) fn meets(&self, other: &Call) -> bool {
        self.groups.iter().any(|group| other.groups.contains(group))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<String> = self.groups.iter().map(|group| format!("g{}", group.0)).collect();
        let (kind, operation) = (self.kind, self.operation.escape_ascii());
        write!(f, "session {}.{}: {kind} \"{operation}\" to {}", self.session, self.generation, groups.join(", "))?;
        write!(f, ", submitted at {}", self.submitted)?;
        match &self.outcome {
            Outcome::Answered { at, replies, position } => {
                write!(f, ", answered at {at}")?;
                for (group, reply) in replies {
                    write!(f, ", g{}: \"{}\"", group.0, reply.escape_ascii())?;
                }
                position.map_or(Ok(()), |position| write!(f, ", position {position}"))?;
            }
            Outcome::NotApplied => f.write_str(", not applied")?,
            Outcome::Unknown => f.write_str(", outcome unknown")?,
        }
        self.observed.iter().try_for_each(|position| write!(f, ", had observed {position}"))
    }
}
