//! The node that runs an embedded client, as seen by the client's calls.

use std::sync::Arc;

/// The node that runs an embedded client.
#[derive(Clone)]
pub(crate) struct Keeper {
    /// Returns whether the calling thread would deadlock if it waited for a call.
    pub(crate) is_own_thread: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Wakes the node, if it has armed its fabric for a sleep.
    pub(crate) wake: Arc<dyn Fn() + Send + Sync>,
}

impl Keeper {
    pub(super) fn is_own_thread(&self) -> bool {
        (self.is_own_thread)()
    }

    pub(super) fn wake(&self) {
        (self.wake)();
    }
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}
