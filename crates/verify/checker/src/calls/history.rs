//! The input of the decision: the recorded calls, and the errors for calls that cannot have happened.

use thiserror::Error;

use super::call::Call;
use super::kind::Kind;
use super::outcome::Outcome;

/// A call that cannot be part of a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CallError {
    /// The call has no destination group.
    #[error("the call has no groups: name at least one")]
    NoGroups,
    /// A read at one member names several groups.
    #[error(
        "the read names several groups, but a read at a leader or at any member is for one group: make it an ordered read"
    )]
    OneGroupOnly,
    /// The answer is earlier than the submission.
    #[error(
        "the call was answered at {answered}, before it was submitted at {submitted}: take both times from one clock"
    )]
    AnsweredBefore {
        /// Time of the submission.
        submitted: u64,
        /// Time of the answer.
        answered: u64,
    },
    /// The answer does not have exactly one reply for each group.
    #[error("the answer does not have exactly one reply for each group of the call: record all replies")]
    Replies,
}

/// Calls to a replicated service, as their callers recorded them. Calls are numbered by their indices, from 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    calls: Vec<Call>,
}

impl History {
    /// Returns a history without calls.
    #[must_use]
    pub fn new() -> Self {
        History::default()
    }

    /// Adds a call and returns its number. The order in which calls are added is irrelevant.
    ///
    /// # Errors
    /// Returns a [`CallError`] if the call cannot have happened. The history is unchanged then.
    pub fn push(&mut self, call: Call) -> Result<usize, CallError> {
        match call.groups.len() {
            0 => return Err(CallError::NoGroups),
            1 => {}
            _ if matches!(call.kind, Kind::Command | Kind::Ordered) => {}
            _ => return Err(CallError::OneGroupOnly),
        }
        if let Outcome::Answered { at, replies, .. } = &call.outcome {
            if *at < call.submitted {
                return Err(CallError::AnsweredBefore { submitted: call.submitted, answered: *at });
            }
            if replies.len() != call.groups.len() || call.groups.iter().any(|group| call.reply(group).is_none()) {
                return Err(CallError::Replies);
            }
        }
        self.calls.push(call);
        Ok(self.calls.len() - 1)
    }

    /// Returns the calls, indexed by their numbers.
    #[must_use]
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }
}

impl TryFrom<Vec<Call>> for History {
    type Error = CallError;

    fn try_from(calls: Vec<Call>) -> Result<Self, CallError> {
        let mut history = History::new();
        calls.into_iter().try_for_each(|call| history.push(call).map(drop))?;
        Ok(history)
    }
}
