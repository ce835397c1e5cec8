//! Looks: functions of other threads that inspect a state machine between two commands.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use super::handover::Giver;
use super::work::Work;
use crate::Position;
use crate::node::mailbox::Mailbox;

/// A look. It receives the value, or the position at which the machine is poisoned.
type Look<S> = Box<dyn FnOnce(Result<&S, Position>) + Send>;
/// The apply thread and the queue that wakes it. `None` if the machine is on the protocol's thread, or if the apply
/// thread has not begun or has ended.
type Answering = Option<(ThreadId, Giver)>;

/// The pending looks at a machine.
pub(in crate::node) struct Looks<S> {
    left: Mailbox<Look<S>>,
    thread: Arc<Mutex<Answering>>,
}

impl<S> Clone for Looks<S> {
    fn clone(&self) -> Self {
        Looks { left: self.left.clone(), thread: Arc::clone(&self.thread) }
    }
}

impl<S> Default for Looks<S> {
    fn default() -> Self {
        Looks { left: Mailbox::default(), thread: Arc::default() }
    }
}

impl<S> Looks<S> {
    fn thread(&self) -> MutexGuard<'_, Answering> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the calling thread as the one that answers, and `wake` as the queue that ends its sleep. Looks that
    /// were added before have woken no thread, so the caller answers them next.
    pub(super) fn open(&self, wake: Giver) {
        *self.thread() = Some((thread::current().id(), wake));
    }

    /// Records that the apply thread has ended, and drops the pending looks.
    pub(super) fn close(&self) {
        *self.thread() = None;
        self.left.close();
    }

    /// Returns whether the calling thread is the apply thread, which would deadlock if it waited for its own answer.
    pub(in crate::node) fn is_own_thread(&self) -> bool {
        self.thread().as_ref().is_some_and(|(answers, _)| *answers == thread::current().id())
    }

    /// Adds a look. It is dropped if the apply thread has ended.
    pub(in crate::node) fn put(&self, look: Look<S>) {
        self.left.put(look);
        if let Some((_, wake)) = &*self.thread() {
            // If the queue is full, the thread is awake anyway.
            let _ = wake.give(Work::Look);
        }
    }

    /// Returns all pending looks. Costs one load if there are none.
    #[inline]
    pub(super) fn take(&self) -> Vec<Look<S>> {
        self.left.take()
    }
}
