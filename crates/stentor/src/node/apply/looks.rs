//! What other threads ask of a machine between two commands.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use super::work::Work;
use crate::node::Position;

/// A question: it gets the value, or where the machine has panicked.
type Look<S> = Box<dyn FnOnce(Result<&S, Position>) + Send>;

struct Shared<S> {
    any: AtomicBool,
    waiting: Mutex<Waiting<S>>,
}

struct Waiting<S> {
    looks: Vec<Look<S>>,
    /// Wakes the apply thread; `None`: the machine is on the protocol's.
    wake: Option<SyncSender<Work>>,
    /// The thread that answers.
    answers: Option<ThreadId>,
    /// Nobody answers any more.
    closed: bool,
}

/// Where other threads leave what they ask.
pub(in crate::node) struct Looks<S>(Arc<Shared<S>>);

impl<S> Clone for Looks<S> {
    fn clone(&self) -> Self {
        Looks(Arc::clone(&self.0))
    }
}

impl<S> Default for Looks<S> {
    fn default() -> Self {
        let waiting = Waiting { looks: Vec::new(), wake: None, answers: None, closed: false };
        Looks(Arc::new(Shared { any: AtomicBool::new(false), waiting: Mutex::new(waiting) }))
    }
}

impl<S> Looks<S> {
    fn waiting<T>(&self, act: impl FnOnce(&mut Waiting<S>) -> T) -> T {
        act(&mut self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The thread `answers` answers from now on, and sleeps until this wakes it.
    pub(super) fn open(&self, answers: ThreadId, wake: SyncSender<Work>) {
        self.waiting(|waiting| (waiting.answers, waiting.wake) = (Some(answers), Some(wake)));
    }

    /// Nobody answers any more. What waits is dropped.
    pub(super) fn close(&self) {
        let looks = self.waiting(|waiting| {
            (waiting.closed, waiting.wake) = (true, None);
            std::mem::take(&mut waiting.looks)
        });
        drop(looks);
    }

    /// Whether the apply thread itself asks: it would wait for its own answer.
    pub(in crate::node) fn is_own_thread(&self) -> bool {
        self.waiting(|waiting| waiting.answers == Some(thread::current().id()))
    }

    /// Leaves a question. It is dropped if nobody answers any more.
    pub(in crate::node) fn put(&self, look: Look<S>) {
        self.waiting(|waiting| {
            if waiting.closed {
                return;
            }
            waiting.looks.push(look);
            self.0.any.store(true, Ordering::Release);
            if let Some(wake) = &waiting.wake {
                // A queue that is full wakes it as well.
                let _ = wake.try_send(Work::Look);
            }
        });
    }

    /// Takes the questions. One load where there is none.
    #[inline]
    pub(super) fn take(&self) -> Vec<Look<S>> {
        if !self.0.any.load(Ordering::Relaxed) || !self.0.any.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        self.waiting(|waiting| std::mem::take(&mut waiting.looks))
    }
}
