//! A link, and the state of its present connection.

use std::ops::{Deref, DerefMut};

use stentor_link::Link;

/// A link to a member or to a client.
#[derive(Debug)]
pub(super) struct PeerLink {
    link: Link,
    /// Life of the process whose hello arrived on this connection.
    pub(super) greeted: Option<u64>,
    /// Receives that the peer's writes with an immediate consumed on this connection.
    pub(super) consumed: u64,
    /// The last request that sent a hello; 0 if there is none.
    pub(super) greeting: u64,
    /// The first word of the link's receives in the inbox, if it has any.
    pub(super) receives: Option<usize>,
}

impl PeerLink {
    pub(super) fn new(link: Link, receives: Option<usize>) -> Self {
        PeerLink { link, greeted: None, consumed: 0, greeting: 0, receives }
    }

    /// Returns whether the link is up and the peer's hello arrived.
    #[inline]
    pub(super) fn is_met(&self) -> bool {
        self.is_ready() && self.greeted.is_some()
    }

    /// Resets the state for the next connection.
    pub(super) fn begin_connection(&mut self) {
        (self.greeted, self.consumed) = (None, 0);
    }
}

impl Deref for PeerLink {
    type Target = Link;

    #[inline]
    fn deref(&self) -> &Link {
        &self.link
    }
}

impl DerefMut for PeerLink {
    #[inline]
    fn deref_mut(&mut self) -> &mut Link {
        &mut self.link
    }
}
