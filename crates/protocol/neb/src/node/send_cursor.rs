//! How far a process is with sending its broadcasts to one peer.

/// How far things are with one peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SendCursor {
    /// The next index to write there.
    pub(super) posted: u64,
    /// Everything that its queue pair was given is below.
    pub(super) linked: u64,
    /// Everything below that its queue pair was given was written.
    pub(super) linked_done: u64,
    /// What its queue pair was given below this may have been passed over, and be on its way still.
    pub(super) passed: u64,
}

impl SendCursor {
    /// Whether nothing that its queue pair was given is on its way.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.linked_done >= self.linked
    }

    /// From an index on, with nothing on its way.
    pub(super) fn from(index: u64) -> Self {
        SendCursor { posted: index, linked: index, linked_done: index, passed: 0 }
    }
}
