//! The receiver of a client's notifications.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::calls::Calls;
use super::mail::Over;
use super::notifications::Notification;

/// A receiver of the notifications to a client's session. [`Client::notifications`](super::Client::notifications)
/// creates it. It does not keep the client alive.
#[derive(Debug)]
pub struct Notifications {
    calls: Arc<Calls>,
    number: u64,
    is_over: bool,
}

impl Notifications {
    pub(super) fn new(calls: &Arc<Calls>) -> Self {
        Notifications { number: calls.mail().receiver(), calls: Arc::clone(calls), is_over: false }
    }

    /// Returns the next notification, or `None` if none is queued.
    pub fn try_recv(&mut self) -> Option<Notification> {
        let taken = self.calls.mail().take(self.number);
        self.told(taken)
    }

    /// Waits for the next notification, for at most `patience`. Returns `None` at once after the
    /// [end](Notifications::is_ended). On the threads of the node in which the client is embedded, never waits.
    pub fn recv_timeout(&mut self, patience: Duration) -> Option<Notification> {
        let since = Instant::now();
        loop {
            let mut left = patience.saturating_sub(since.elapsed());
            if self.calls.is_own_thread() {
                left = Duration::ZERO;
            }
            let taken = self.calls.mail().wait(self.number, left);
            if taken != Ok(None) || left.is_zero() {
                return self.told(taken);
            }
        }
    }

    /// Waits for the next notification. Returns `None` after the [end](Notifications::is_ended). Dropping the future
    /// loses no notification.
    pub fn recv(&mut self) -> impl Future<Output = Option<Notification>> + Send + '_ {
        poll_fn(|context| match self.calls.mail().poll(self.number, context.waker()) {
            Ok(None) => Poll::Pending,
            taken => Poll::Ready(self.told(taken)),
        })
    }

    /// Returns whether the last attempt to receive found that this receiver gets no more notifications: the client has
    /// ended, or [`Client::notifications`](super::Client::notifications) was called again.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.is_over
    }

    fn told(&mut self, taken: Result<Option<Notification>, Over>) -> Option<Notification> {
        self.is_over = taken.is_err();
        taken.ok().flatten()
    }
}
