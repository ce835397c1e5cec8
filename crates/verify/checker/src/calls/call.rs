//! A call as its caller recorded it.

use std::fmt;

use super::kind::Kind;
use super::model::Model;
use super::outcome::Outcome;
use super::position::Position;
use crate::ids::{Group, GroupSet};

/// A call as its caller recorded it. All times of a history come from one clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The session.
    pub session: u64,
    /// The generation of the session: the process that held it.
    pub generation: u64,
    /// When the call was submitted; recorded before anything of it is sent.
    pub submitted: u64,
    /// The groups that it is for.
    pub groups: GroupSet,
    /// What to do there.
    pub operation: Vec<u8>,
    /// Command or read.
    pub kind: Kind,
    /// How it ended.
    pub outcome: Outcome,
    /// Positions that the session took over from others before it submitted this call. Later calls of the same generation
    /// count as having observed them, too. Its own answers need not be listed.
    pub observed: Vec<Position>,
}

impl Call {
    /// Returns when the call was answered, or `None` if it was not.
    #[must_use]
    pub fn answered(&self) -> Option<u64> {
        match &self.outcome {
            Outcome::Answered { at, .. } => Some(*at),
            Outcome::NotApplied | Outcome::Unknown => None,
        }
    }

    /// Returns the position in the answer.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        match &self.outcome {
            Outcome::Answered { position, .. } => *position,
            Outcome::NotApplied | Outcome::Unknown => None,
        }
    }

    /// Returns the reply of a group.
    #[must_use]
    pub fn reply(&self, group: Group) -> Option<&[u8]> {
        match &self.outcome {
            Outcome::Answered { replies, .. } => {
                replies.iter().find(|(of, _)| *of == group).map(|(_, reply)| reply.as_slice())
            }
            Outcome::NotApplied | Outcome::Unknown => None,
        }
    }

    /// Whether the call is one that was answered, or may have taken effect without an answer.
    pub(super) fn takes_part(&self) -> bool {
        match self.outcome {
            Outcome::Answered { .. } => true,
            Outcome::Unknown => self.kind == Kind::Command,
            Outcome::NotApplied => false,
        }
    }

    /// Whether the answer was there before the other call was submitted.
    pub(super) fn is_before(&self, other: &Call) -> bool {
        self.answered().is_some_and(|answered| answered < other.submitted)
    }

    /// Replays the call in one of its groups. Returns whether the model gives the reply that was answered, if one was.
    pub(super) fn replay<M: Model>(&self, model: &M, group: Group, state: &mut M::State) -> bool {
        let reply = if self.kind.is_read() {
            model.read(state, group, &self.operation)
        } else {
            model.apply(state, group, &self.operation)
        };
        self.reply(group).is_none_or(|expected| *expected == reply)
    }

    /// Whether both have a group in common.
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
