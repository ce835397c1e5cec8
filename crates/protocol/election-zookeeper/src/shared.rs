//! State that the handle of an election shares with the thread of that election.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use crate::Status;

/// State that a [`ZookeeperElection`](crate::ZookeeperElection) shares with its thread.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub status: Mutex<Status>,
    pub polls: AtomicU64,
}

impl Shared {
    /// Accesses the status. A poisoned lock is ignored, because a panic cannot leave the status inconsistent.
    pub(crate) fn status<T>(&self, change: impl FnOnce(&mut Status) -> T) -> T {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
