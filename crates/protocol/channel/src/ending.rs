//! The state of closing a connection.

/// Progress of the two ends of a connection in closing it.
///
/// # Invariants
/// If `said_last` is set, `said_finished` is set and the peer has finished. Totals that the peer has announced do not
/// change.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Ending {
    /// `true` if the owner writes no further messages.
    pub(crate) finishing: bool,
    /// `true` if arriving messages are discarded instead of read.
    pub(crate) discarding: bool,
    /// `true` if the peer has been informed that this end has finished.
    pub(crate) said_finished: bool,
    /// Total number of lengths and pieces that the peer has sent, once it has finished.
    pub(crate) peer_finished: Option<[u64; 2]>,
    /// `true` if this end has sent its last control message.
    pub(crate) said_last: bool,
    /// Total number of control messages that the peer sends, once it has announced it.
    pub(crate) peer_last: Option<u32>,
}

impl Ending {
    /// Returns whether closing has begun in a way that affects how arriving messages are handled.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.discarding || self.said_last || self.peer_finished.is_some()
    }
}
