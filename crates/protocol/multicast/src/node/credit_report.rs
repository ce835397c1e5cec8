//! What a peer reports with its credits.

use super::inbound::Held;

/// What a peer says with its credits, besides the position that it freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct CreditReport {
    /// Slots freed (for clients); receives consumed (between members).
    pub(super) freed: u64,
    /// Highest sequence seen (for clients).
    pub(super) sequence: u64,
    /// What is held or freed (for clients).
    pub(super) held: Held,
    /// Whether the peer asks not to be waited for (to clients).
    pub(super) aside: bool,
}

/// The bit of a credit's generation that carries [`CreditReport::aside`].
pub(super) const ASIDE: u64 = 1 << 63;
