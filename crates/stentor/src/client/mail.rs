//! Notifications on their way from the thread that serves a client to the one that receives them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::notifications::{Inbox, Notification};
use super::wake::wake;

/// The notifications of a [`Client`](super::Client), between the thread that serves it and whoever receives them.
#[derive(Debug, Default)]
pub(super) struct Mail {
    state: Mutex<MailState>,
    came: Condvar,
}

/// The receiver has ended: no notification comes for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Over;

#[derive(Debug, Default)]
struct MailState {
    inbox: Inbox,
    /// The number of the last receiver. An earlier one gets nothing any more.
    receiver: u64,
    waker: Option<Waker>,
    ended: bool,
}

impl Mail {
    fn lock(&self) -> MutexGuard<'_, MailState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what has come.
    pub(super) fn put(&self, mut next: impl FnMut() -> Option<Notification>) {
        self.change(|state| {
            while let Some(notification) = next() {
                state.inbox.push(notification);
            }
        });
    }

    /// Nothing comes any more.
    pub(super) fn end(&self) {
        self.change(|state| state.ended = true);
    }

    /// Returns the number of a new receiver. Those before it are over.
    pub(super) fn receiver(&self) -> u64 {
        self.change(|state| {
            state.receiver += 1;
            state.receiver
        })
    }

    /// Returns the next notification for a receiver; `Err` if there is none and none comes any more.
    pub(super) fn take(&self, receiver: u64) -> Result<Option<Notification>, Over> {
        self.lock().take(receiver)
    }

    /// The same; if there is none now, leaves `waker` to be woken.
    pub(super) fn poll(&self, receiver: u64, waker: &Waker) -> Result<Option<Notification>, Over> {
        let mut state = self.lock();
        let taken = state.take(receiver);
        let before = if taken == Ok(None) { state.waker.replace(waker.clone()) } else { None };
        drop(state);
        drop(before);
        taken
    }

    /// The same; if there is none now, waits for so long at most.
    pub(super) fn wait(&self, receiver: u64, longest: Duration) -> Result<Option<Notification>, Over> {
        let mut state = self.lock();
        let taken = state.take(receiver);
        if taken != Ok(None) {
            return taken;
        }
        state = self.came.wait_timeout(state, longest).unwrap_or_else(PoisonError::into_inner).0;
        state.take(receiver)
    }

    /// Wakers are foreign code: they are woken outside the lock.
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
