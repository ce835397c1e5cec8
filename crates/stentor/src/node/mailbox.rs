//! Where other threads leave what they ask of a thread that looks often.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is asked of a thread, in its order. A look at an empty mailbox is one load.
pub(super) struct Mailbox<T>(Arc<Shared<T>>);

struct Shared<T> {
    /// Whether there may be something.
    any: AtomicBool,
    /// `None`: nobody looks any more.
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

    /// Leaves something. It is dropped if nobody looks any more.
    pub(super) fn put(&self, asked: T) {
        if let Some(waiting) = &mut *self.waiting() {
            waiting.push(asked);
            self.0.any.store(true, Ordering::Release);
        }
    }

    /// Takes what is there.
    #[inline]
    pub(super) fn take(&self) -> Vec<T> {
        if !self.0.any.load(Ordering::Relaxed) || !self.0.any.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        self.waiting().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Drops what is there and what comes later.
    pub(super) fn close(&self) {
        let waiting = self.waiting().take();
        // Not under the lock: whoever asked may do anything then.
        drop(waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_taken_once_in_order_until_the_mailbox_is_closed() {
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
