//! A call in flight, and its answer.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::calls::Calls;
use super::{CallError, Ticket};
use crate::{Group, Position};

/// A command or read in flight: a future of its outcome.
///
/// The future runs on any runtime, and [`wait`](Call::wait) needs none. Dropping it does not cancel the command.
#[derive(Debug)]
#[must_use = "a failure of the command goes unnoticed if its call is dropped"]
pub struct Call(State);

#[derive(Debug)]
enum State {
    /// The call failed at once.
    Ended(CallError),
    /// The call occupies a slot.
    Made { calls: Arc<Calls>, slot: u32 },
    /// The outcome was returned.
    Taken,
}

impl Call {
    pub(super) fn made(calls: Arc<Calls>, slot: u32) -> Self {
        Call(State::Made { calls, slot })
    }

    /// Returns the slot. The new owner is responsible for it.
    pub(super) fn into_slot(mut self) -> Result<(Arc<Calls>, u32), CallError> {
        match std::mem::replace(&mut self.0, State::Taken) {
            State::Made { calls, slot } => Ok((calls, slot)),
            State::Ended(how) => Err(how),
            State::Taken => unreachable!("the outcome of this call was already returned"),
        }
    }

    pub(super) fn ended(how: CallError) -> Self {
        Call(State::Ended(how))
    }

    /// Returns the ticket, which identifies the command permanently. Store it, and [resolve](super::Client::resolve) it
    /// if this process dies. Returns `None` while the command is not sent: if the process dies then, the command is not
    /// applied. A read that is not [`Ordered`](super::Consistency::Ordered) has no ticket.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        match &self.0 {
            State::Made { calls, slot } => calls.ticket(*slot),
            State::Ended(_) | State::Taken => None,
        }
    }

    /// Waits for the outcome, for at most the client's [patience](super::ClientBuilder::patience).
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn wait(self) -> Result<Answer, CallError> {
        self.wait_until(None)
    }

    /// Waits for the outcome, for at most `at_most`. A command that was sent in this time continues, and the error
    /// carries its ticket. A command that was not sent is never applied, and the error is
    /// [`NotSent`](super::Refused::NotSent).
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn wait_for(self, at_most: Duration) -> Result<Answer, CallError> {
        self.wait_until(Some(Instant::now() + at_most))
    }

    fn wait_until(mut self, until: Option<Instant>) -> Result<Answer, CallError> {
        match std::mem::replace(&mut self.0, State::Taken) {
            State::Made { calls, slot } => {
                let outcome = calls.wait(slot, until);
                Answer::of(calls, slot, outcome)
            }
            State::Ended(how) => Err(how),
            State::Taken => unreachable!("the outcome of this call was already returned"),
        }
    }
}

impl Future for Call {
    type Output = Result<Answer, CallError>;

    /// # Panics
    /// Panics if the call is polled again after it has returned its outcome.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &self.0 {
            State::Made { calls, slot } => {
                let Some(outcome) = calls.poll(*slot, context.waker()) else { return Poll::Pending };
                let State::Made { calls, slot } = std::mem::replace(&mut self.0, State::Taken) else { unreachable!() };
                Poll::Ready(Answer::of(calls, slot, outcome))
            }
            State::Ended(how) => {
                let how = how.clone();
                self.0 = State::Taken;
                Poll::Ready(Err(how))
            }
            State::Taken => panic!("the call was polled after it had returned its outcome"),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let State::Made { calls, slot } = &self.0 {
            calls.desert(*slot);
        }
    }
}

/// The groups' replies to a command.
#[derive(Debug)]
pub struct Answer {
    calls: Arc<Calls>,
    slot: u32,
    position: Position,
    bytes: Vec<u8>,
    replies: Vec<(Group, Range<usize>)>,
}

impl Answer {
    /// Creates the answer to a successful call from the replies in its slot. Frees the slot of a failed call.
    fn of(calls: Arc<Calls>, slot: u32, outcome: Result<Position, CallError>) -> Result<Answer, CallError> {
        match outcome {
            Ok(position) => {
                let (bytes, replies) = calls.take_replies(slot);
                Ok(Answer { calls, slot, position, bytes, replies })
            }
            Err(error) => {
                calls.desert(slot);
                Err(error)
            }
        }
    }

    /// Returns the reply of the only group. With several groups, returns that of the first one in the order of the
    /// configuration.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.replies.first().map_or(&[], |(_, range)| &self.bytes[range.clone()])
    }

    /// Returns the reply of a group, or `None` if the command did not go to it.
    #[must_use]
    pub fn of_group(&self, group: Group) -> Option<&[u8]> {
        self.replies().find_map(|(replier, bytes)| (replier == group).then_some(bytes))
    }

    /// Returns the replies of all groups, in the order of the configuration.
    pub fn replies(&self) -> impl Iterator<Item = (Group, &[u8])> {
        self.replies.iter().map(|(group, range)| (*group, &self.bytes[range.clone()]))
    }

    /// Returns the command's position in the global order. Its `index` counts in the order of the first group.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.calls.give_back(self.slot, std::mem::take(&mut self.bytes), std::mem::take(&mut self.replies));
    }
}
