//! A peer's region, resolved once per connection of the link over which it is used.

use stentor_fabric::{Fabric, Purpose, RemoteRegion};

use crate::Link;

/// A peer's region. A region that was resolved on an earlier connection of the link is never used.
#[derive(Clone, Copy, Debug)]
pub struct Resolved {
    purpose: Purpose,
    /// Connection, and the region that was resolved on it.
    found: Option<(u64, RemoteRegion)>,
}

impl Resolved {
    /// Creates a region that is not resolved yet.
    #[must_use]
    pub fn new(purpose: Purpose) -> Self {
        Resolved { purpose, found: None }
    }

    /// Returns the purpose of the region.
    #[inline]
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Returns the region, if it was resolved on the present connection of the link.
    #[inline]
    #[must_use]
    pub fn known(&self, link: &Link) -> Option<RemoteRegion> {
        self.found.filter(|(connection, _)| *connection == link.connection_id()).map(|(_, region)| region)
    }

    /// Returns the region that was resolved last, for a caller that has called [`known`](Resolved::known) or
    /// [`get`](Resolved::get) before.
    #[inline]
    #[must_use]
    pub fn last(&self) -> Option<RemoteRegion> {
        self.found.map(|(_, region)| region)
    }

    /// Returns the region, and resolves it if necessary. Returns `None` while the link is not up or the peer has not
    /// granted the region.
    #[inline]
    pub fn get<F: Fabric>(&mut self, fabric: &mut F, link: &Link) -> Option<RemoteRegion> {
        if let Some(region) = self.known(link) {
            return Some(region);
        }
        let region = if link.is_ready() { fabric.resolve(link.peer(), self.purpose) } else { None };
        self.found = region.map(|region| (link.connection_id(), region));
        region
    }

    /// Forgets the region, because it may have been granted again with another key.
    pub fn forget(&mut self) {
        self.found = None;
    }
}
