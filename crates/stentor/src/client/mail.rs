//! Notifications on their way from a client's serving thread to the receiver.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::notifications::{Inbox, Notification};
use crate::wake::wake;

/// The notifications of a [`Client`](super::Client), shared by its serving thread and the receiver.
#[derive(Debug, Default)]
pub(super) struct Mail {
    state: Mutex<MailState>,
    came: Condvar,
}

/// The error of a receiver that gets no more notifications.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Over;

#[derive(Debug, Default)]
struct MailState {
    inbox: Inbox,
    /// Number of the latest receiver. Earlier receivers get no more notifications.
    receiver: u64,
    waker: Option<Waker>,
    ended: bool,
}

impl Mail {
    fn lock(&self) -> MutexGuard<'_, MailState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends all notifications that `next` returns.
    pub(super) fn put(&self, mut next: impl FnMut() -> Option<Notification>) {
        self.change(|state| {
            while let Some(notification) = next() {
                state.inbox.push(notification);
            }
        });
    }

    /// Records that no more notifications will arrive.
    pub(super) fn end(&self) {
        self.change(|state| state.ended = true);
    }

    /// Registers a new receiver and returns its number. Earlier receivers end.
    pub(super) fn receiver(&self) -> u64 {
        self.change(|state| {
            state.receiver += 1;
            state.receiver
        })
    }

    /// Returns the next notification for a receiver, `Ok(None)` if none is queued, or `Err` if none will come any more.
    pub(super) fn take(&self, receiver: u64) -> Result<Option<Notification>, Over> {
        self.lock().take(receiver)
    }

    /// Returns the same as [`take`](Mail::take). If no notification is queued, registers `waker`.
    pub(super) fn poll(&self, receiver: u64, waker: &Waker) -> Result<Option<Notification>, Over> {
        let mut state = self.lock();
        let taken = state.take(receiver);
        let before = if taken == Ok(None) { state.waker.replace(waker.clone()) } else { None };
        drop(state);
        drop(before);
        taken
    }

    /// Returns the same as [`take`](Mail::take). If no notification is queued, waits for at most `longest`.
    pub(super) fn wait(&self, receiver: u64, longest: Duration) -> Result<Option<Notification>, Over> {
        let mut state = self.lock();
        let taken = state.take(receiver);
        if taken != Ok(None) {
            return taken;
        }
        state = self.came.wait_timeout(state, longest).unwrap_or_else(PoisonError::into_inner).0;
        state.take(receiver)
    }

    /// Changes the state and wakes the receiver. Wakers are foreign code, so they run outside the lock.
    fn change<T>(&self, change: impl FnOnce(&mut MailState) -> T) -> T {
        let mut state = self.lock();
        let changed = change(&mut state);
        let waker = state.waker.take();
        drop(state);
        self.came.notify_all();
        if let Some(waker) = waker {
            wake(waker);
        }
        changed
    }
}

impl MailState {
    fn take(&mut self, receiver: u64) -> Result<Option<Notification>, Over> {
        if self.receiver != receiver {
            return Err(Over);
        }
        let taken = self.inbox.pop();
        if taken.is_none() && self.ended { Err(Over) } else { Ok(taken) }
    }
}
