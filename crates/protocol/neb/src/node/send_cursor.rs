//! Progress of sending broadcasts to one peer.

/// Progress of sending to one peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SendCursor {
    /// Next index to write to the peer.
    pub(super) posted: u64,
    /// All writes that were posted on the peer's queue pair are below this index.
    pub(super) linked: u64,
    /// All writes below this index that were posted on the peer's queue pair are complete.
    pub(super) linked_done: u64,
    /// Writes below this index may still be in flight on the peer's queue pair, although their indices already count as
    /// written. The cursor has moved past these indices, because they were more than a window old.
    pub(super) passed: u64,
}

impl SendCursor {
    /// Returns whether no write that was posted on the peer's queue pair is in flight.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.linked_done >= self.linked
    }

    /// Creates a cursor at an index, with nothing in flight.
    pub(super) fn from(index: u64) -> Self {
        SendCursor { posted: index, linked: index, linked_done: index, passed: 0 }
    }
}
