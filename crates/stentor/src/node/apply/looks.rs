//! What other threads ask of a machine between two commands.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use super::work::Work;
use crate::Position;
use crate::node::mailbox::Mailbox;

/// A question: it gets the value, or where the machine has panicked.
type Look<S> = Box<dyn FnOnce(Result<&S, Position>) + Send>;
/// The apply thread, and what wakes it. `None`: the machine is on the protocol's thread, or nobody answers any more.
type Answering = Option<(ThreadId, SyncSender<Work>)>;

/// Where other threads leave what they ask.
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

    /// This thread answers from now on, and sleeps until `wake` wakes it. What was left before woke nobody.
    pub(super) fn open(&self, wake: SyncSender<Work>) {
        *self.thread() = Some((thread::current().id(), wake));
    }

    /// Nobody answers any more. What waits is dropped.
    pub(super) fn close(&self) {
        *self.thread() = None;
        self.left.close();
    }

    /// Whether the apply thread itself asks: it would wait for its own answer.
    pub(in crate::node) fn is_own_thread(&self) -> bool {
        self.thread().as_ref().is_some_and(|(answers, _)| *answers == thread::current().id())
    }

    /// Leaves a question. It is dropped if nobody answers any more.
    pub(in crate::node) fn put(&self, look: Look<S>) {
        self.left.put(look);
        if let Some((_, wake)) = &*self.thread() {
            // A queue that is full wakes it as well.
            let _ = wake.try_send(Work::Look);
        }
    }

    /// Takes the questions. One load where there is none.
    #[inline]
    pub(super) fn take(&self) -> Vec<Look<S>> {
        self.left.take()
    }
}
