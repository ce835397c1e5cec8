//! Regions: memory that is registered separately for each peer that may use it.
//!
//! A queue pair can access only memory that is registered in its own protection domain, and each peer has a separate
//! domain. A key that was granted to one peer is therefore useless to another.
//!
//! Memory that this process uses as source or target on a peer's queue pairs must be registered in that peer's domain,
//! too. This happens at first use, as a separate registration without access for the peer. Revoking a grant therefore
//! does not disturb this process's own operations.

use std::collections::HashMap;
use std::sync::Arc;

use stentor_fabric::{Access, PostError, ProcessId, QpId, RegionId, Span};
use stentor_fabric_net::{Fence, RemoteKey};

use super::VerbsDevice;
use super::retired::Retired;
use super::trouble::Trouble;
use crate::qp::Local;
use crate::{Errno, PageMemory, Region};

/// A region of this process.
#[derive(Debug)]
struct Own {
    memory: Arc<PageMemory>,
    bytes: u64,
    /// Registrations for this process's own operations, by peer.
    local: Vec<Option<Region>>,
    granted: HashMap<ProcessId, Region>,
    /// Keys that were granted to each peer and then revoked.
    retired: HashMap<ProcessId, Retired>,
}

/// All regions of this process.
#[derive(Debug, Default)]
pub(super) struct Regions {
    own: Vec<Own>,
}

impl Regions {
    #[inline]
    pub(super) fn memory(&self, region: RegionId) -> &PageMemory {
        &self.own[region.index()].memory
    }

    /// Returns a span in the form that requests on a queue pair with `peer` need. The region must be registered for
    /// `peer`.
    #[inline]
    pub(super) fn local(&self, peer: ProcessId, span: Span) -> Local<'_> {
        let region =
            self.own[span.region.index()].local[peer.index()].as_ref().expect("the region is registered for this peer");
        Local { region, offset: span.offset, bytes: span.bytes }
    }
}

impl VerbsDevice {
    /// Registers a region for this process's own operations on a queue pair with a peer, unless it is registered
    /// already.
    #[inline]
    pub(super) fn register_for_use(&mut self, qp: QpId, peer: ProcessId, region: RegionId) -> Result<(), PostError> {
        if self.regions.own[region.index()].local[peer.index()].is_some() {
            return Ok(());
        }
        self.register_first(qp, peer, region)
    }

    #[cold]
    fn register_first(&mut self, qp: QpId, peer: ProcessId, region: RegionId) -> Result<(), PostError> {
        let domain = self.domain(peer);
        let own = &mut self.regions.own[region.index()];
        match domain.and_then(|domain| Region::over(&domain, &own.memory, None)) {
            Ok(made) => {
                own.local[peer.index()] = Some(made);
                Ok(())
            }
            Err(error) => {
                let (errno, bytes) = (error.errno.0, own.bytes);
                self.tell_once(Trouble::NotRegistered { peer, bytes, why: error.to_string() });
                Err(PostError::NotRegistered { qp, region, errno })
            }
        }
    }

    pub(super) fn make_region(&mut self, bytes: u64) -> Result<(), String> {
        if bytes > self.limits.region_bytes {
            let (most, device) = (self.limits.region_bytes, self.context.name());
            return Err(format!("{device} supports regions of at most {most} bytes; create several regions"));
        }
        let memory = usize::try_from(bytes).ok().and_then(PageMemory::zeroed);
        let memory = memory.ok_or("this machine has too little memory; configure less")?;
        let local = self.domains.iter().map(|_| None).collect();
        self.regions.own.push(Own { memory, bytes, local, granted: HashMap::new(), retired: HashMap::new() });
        Ok(())
    }

    pub(super) fn grant_key(&mut self, region: RegionId, peer: ProcessId, access: Access) -> Result<RemoteKey, String> {
        let domain = self.domain(peer);
        let own = &mut self.regions.own[region.index()];
        let retired = own.retired.entry(peer).or_default();
        let made = domain
            .and_then(|domain| retired.fresh(Region::remote_key, || Region::over(&domain, &own.memory, Some(access))));
        let made = made.map_err(|error| error.to_string())?.ok_or_else(|| {
            let device = self.context.name();
            format!("{device} assigns only keys that were revoked from {peer} before; restart this process")
        })?;
        let place = RemoteKey { key: made.remote_key().into(), base: made.address() };
        own.granted.insert(peer, made);
        self.watched |= access != Access::Read;
        Ok(place)
    }

    /// Revokes a grant. Once the system call has returned, the device refuses the key, and no operation with this key
    /// lands any more.
    pub(super) fn take_key(&mut self, region: RegionId, peer: ProcessId) -> Result<Fence, String> {
        let own = &mut self.regions.own[region.index()];
        let Some(granted) = own.granted.remove(&peer) else { return Ok(Fence::Holds) };
        let key = granted.remote_key();
        match granted.deregister() {
            // No peer can write to memory whose device was removed.
            Err((granted, errno)) if !errno.is_gone() => {
                // The device still uses the key, for example for a message of which only a part has arrived.
                own.granted.insert(peer, granted);
                let device = self.context.name();
                Err(format!("{device} cannot revoke the key {key:#x}: {errno}; {}", remedy(errno)))
            }
            _ => {
                own.retired.entry(peer).or_default().add(key);
                Ok(Fence::Holds)
            }
        }
    }
}

fn remedy(errno: Errno) -> &'static str {
    match errno {
        errno if errno.is_gone() => "the device was removed: restart this process",
        _ => "look for the driver's reason in the kernel's log (dmesg), and restart this process",
    }
}
