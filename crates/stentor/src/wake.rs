//! Waking of tasks through their wakers, which are foreign code.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes a task. A panic of the waker is caught, so that it affects nothing else.
pub(crate) fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        log::error!("a waker has panicked; its task may not be woken");
    }
}
