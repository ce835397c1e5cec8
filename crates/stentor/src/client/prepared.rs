//! Commands that get a ticket before they are sent.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::calls::Calls;
use super::{Call, CallError, Ticket};

/// A command that waits for its ticket: a future of [`Prepared`].
#[derive(Debug)]
#[must_use = "the command is given up when this is dropped"]
pub struct Preparing(Option<Result<Slot, CallError>>);

/// A slot whose call is held, or is about to be held. Dropping the slot gives the call up.
#[derive(Debug)]
struct Slot {
    calls: Arc<Calls>,
    at: u32,
    /// `true` if the call survives the drop of this value.
    goes_on: bool,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.goes_on {
            self.calls.release_hold(self.at, false);
            self.calls.desert(self.at);
        }
    }
}

impl Preparing {
    pub(super) fn new(call: Call) -> Self {
        Preparing(Some(call.into_slot().map(|(calls, at)| Slot { calls, at, goes_on: false })))
    }

    /// Waits until the command has its ticket, for at most the client's [patience](super::ClientBuilder::patience).
    ///
    /// # Errors
    /// Returns why the command will never be sent.
    ///
    /// # Panics
    /// Panics if polling the future has already returned its result.
    pub fn wait(mut self) -> Result<Prepared, CallError> {
        let slot = self.0.take().expect("the prepared command was already returned")?;
        slot.calls.wait_held(slot.at)?;
        Ok(Prepared(slot))
    }
}

impl Future for Preparing {
    type Output = Result<Prepared, CallError>;

    /// # Panics
    /// Panics if the future is polled again after it has returned its result.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let slot = match self.0.take() {
            Some(Ok(slot)) => slot,
            Some(Err(how)) => return Poll::Ready(Err(how)),
            None => panic!("the future was polled after it had returned the command"),
        };
        match slot.calls.poll_held(slot.at, context.waker()) {
            Some(held) => Poll::Ready(held.map(|()| Prepared(slot))),
            None => {
                self.0 = Some(Ok(slot));
                Poll::Pending
            }
        }
    }
}

/// A command that has its ticket and is not sent yet.
#[derive(Debug)]
#[must_use = "the command is given up when this is dropped"]
pub struct Prepared(Slot);

impl Prepared {
    /// Returns the ticket, which identifies the command permanently.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        Ticket(self.0.calls.lock(self.0.at).ticket.clone())
    }

    /// Sends the command.
    pub fn send(mut self) -> Call {
        self.0.goes_on = true;
        self.0.calls.release_hold(self.0.at, true);
        Call::made(Arc::clone(&self.0.calls), self.0.at)
    }
}
