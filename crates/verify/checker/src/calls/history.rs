//! Calls that were made, and what is wrong with one that cannot have been made.

use thiserror::Error;

use super::call::Call;
use super::kind::Kind;
use super::outcome::Outcome;

/// A call that cannot be part of a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CallError {
    /// A call to nobody.
    #[error("the call has no groups: name at least one")]
    NoGroups,
    /// A read at one member, of several groups.
    #[error(
        "the read is for several groups, and reads at a leader or at any member are for one: make it an ordered read"
    )]
    OneGroupOnly,
    /// An answer that precedes its call.
    #[error(
        "the call was answered at {answered}, before it was submitted at {submitted}: take both times from one clock"
    )]
    AnsweredBefore {
        /// When it was submitted.
        submitted: u64,
        /// When it was answered.
        answered: u64,
    },
    /// Replies that are not one for each group.
    #[error("the answer has not exactly one reply for each group of the call: record them all")]
    Replies,
}

/// Calls to a replicated service, as their callers recorded them. The numbers of calls are indices, from 0.
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

    /// Adds a call and returns its number. Calls may be added in any order.
    ///
    /// # Errors
    /// See [`CallError`]; the history is unchanged then.
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

    /// Returns the calls, by number.
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
