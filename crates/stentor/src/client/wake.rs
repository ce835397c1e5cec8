//! Wakers, which are foreign code.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes a task. A waker that panics harms nobody else.
pub(super) fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        log::error!("a waker has panicked; its task may not hear of what it waits for");
    }
}
