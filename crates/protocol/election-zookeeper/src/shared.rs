//! The state that the owner of an election and its thread share.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use crate::Status;

/// What the owner and the thread share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub status: Mutex<Status>,
    pub polls: AtomicU64,
}

impl Shared {
    /// Changes the status; a panic while it was held has harmed nothing.
    pub(crate) fn status<T>(&self, change: impl FnOnce(&mut Status) -> T) -> T {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
