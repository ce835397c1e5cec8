//! A mailbox through which other threads send requests to a thread that polls it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A queue of requests to a polling thread, in order. Polling an empty mailbox costs one load.
pub(super) struct Mailbox<T>(Arc<Shared<T>>);

struct Shared<T> {
    /// `true` if there may be a request.
    any: AtomicBool,
    /// The pending requests. `None` if the mailbox is closed.
    waiting: Mutex<Option<Vec<T>>>,
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Mailbox(Arc::clone(&self.0))
    }
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Mailbox(Arc::new(Shared { any: AtomicBool::new(false), waiting: Mutex::new(Some(Vec::new())) }))
    }
}

impl<T> Mailbox<T> {
    fn waiting(&self) -> MutexGuard<'_, Option<Vec<T>>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request. It is dropped if the mailbox is closed.
    pub(super) fn put(&self, asked: T) {
        if let Some(waiting) = &mut *self.waiting() {
            waiting.push(asked);
            self.0.any.store(true, Ordering::Release);
        }
    }

    /// Returns all pending requests.
    #[inline]
    pub(super) fn take(&self) -> Vec<T> {
        if !self.0.any.load(Ordering::Relaxed) || !self.0.any.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        self.waiting().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Closes the mailbox. Drops the pending requests and all later ones.
    pub(super) fn close(&self) {
        let waiting = self.waiting().take();
        // The requests are dropped outside the lock, because their destructors may run foreign code.
        drop(waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_taken_once_in_order_until_the_mailbox_is_closed() {
        let mailbox = Mailbox::default();
        assert!(mailbox.take().is_empty());
        let asked = [1, 2, 3].map(Arc::new);
        asked.iter().take(2).for_each(|asked| mailbox.clone().put(Arc::clone(asked)));
        assert_eq!(mailbox.take(), asked[..2]);
        assert!(mailbox.take().is_empty());
        mailbox.put(Arc::clone(&asked[2]));
        mailbox.close();
        assert_eq!(Arc::strong_count(&asked[2]), 1, "what waited is dropped");
        mailbox.put(Arc::clone(&asked[2]));
        assert!(mailbox.take().is_empty() && Arc::strong_count(&asked[2]) == 1, "what comes later is dropped");
    }
}
