//! A node, as the calls of a client see it that is embedded there.

use std::sync::Arc;

/// The node that turns a client, as its calls see it.
#[derive(Clone)]
pub(crate) struct Keeper {
    /// Whether the calling thread is one that waits for itself if it waits for a call.
    pub(crate) is_own_thread: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Ends the node's sleep, if it has armed.
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
