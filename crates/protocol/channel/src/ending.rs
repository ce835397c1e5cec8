//! How far the two ends of a connection are with ending it.

/// How far the two ends of a connection are with ending it.
///
/// # Invariants
/// `said_last` implies `said_finished`, and that the peer has finished. What the peer said does not change.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Ending {
    /// Nothing more will be written.
    pub(crate) finishing: bool,
    /// What comes is not read any more.
    pub(crate) discarding: bool,
    /// Whether the peer was told that we finished.
    pub(crate) said_finished: bool,
    /// Lengths and pieces that the peer has sent in all, once it has finished.
    pub(crate) peer_finished: Option<[u64; 2]>,
    /// Whether our last control message was sent.
    pub(crate) said_last: bool,
    /// The number of control messages that the peer sends in all, once it says.
    pub(crate) peer_last: Option<u32>,
}

impl Ending {
    /// Whether either end has begun to end, as far as what comes is concerned.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.discarding || self.said_last || self.peer_finished.is_some()
    }
}
