//! A peer's region, resolved once per connection of the link that it is used over.

use stentor_fabric::{Fabric, Purpose, RemoteRegion};

use crate::Link;

/// A peer's region. A region that was resolved on an earlier connection of the link is never used.
#[derive(Clone, Copy, Debug)]
pub struct Resolved {
    purpose: Purpose,
    /// The connection, and what was resolved on it.
    found: Option<(u64, RemoteRegion)>,
}

impl Resolved {
    /// A region that is not resolved yet.
    #[must_use]
    pub fn new(purpose: Purpose) -> Self {
        Resolved { purpose, found: None }
    }

    /// What the region is for.
    #[inline]
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// The region, if it was resolved on the present connection of the link.
    #[inline]
    #[must_use]
    pub fn known(&self, link: &Link) -> Option<RemoteRegion> {
        self.found.filter(|(connection, _)| *connection == link.connection_id()).map(|(_, region)| region)
    }

    /// The region that was resolved last, for a caller that has asked [`known`](Resolved::known) or
    /// [`get`](Resolved::get) before.
    #[inline]
    #[must_use]
    pub fn last(&self) -> Option<RemoteRegion> {
        self.found.map(|(_, region)| region)
    }

    /// The region. Resolves it if that was not done on the present connection; `None` while the link is not up or the peer has
    /// not granted the region.
    #[inline]
    pub fn get<F: Fabric>(&mut self, fabric: &mut F, link: &Link) -> Option<RemoteRegion> {
        if let Some(region) = self.known(link) {
            return Some(region);
        }
        let region = if link.is_ready() { fabric.resolve(link.peer(), self.purpose) } else { None };
        self.found = region.map(|region| (link.connection_id(), region));
        region
    }

    /// Forgets the region: it may have been granted anew, with another key.
    pub fn forget(&mut self) {
        self.found = None;
    }
}
