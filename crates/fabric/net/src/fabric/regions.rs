//! Regions of this process and their grants.

use std::collections::HashMap;

use stentor_fabric::memory::LINE;
use stentor_fabric::{Access, AccessError, Event, ProcessId, Purpose, RegionId, RegionSpec, RegisterError, Span};

use super::{Device, Fence, NetFabric, Waiting};

/// A region of this process.
#[derive(Debug)]
struct Own {
    spec: RegionSpec,
    /// Access and key of each peer with a grant.
    granted: HashMap<ProcessId, (Access, u64)>,
}

/// All regions of this process.
#[derive(Debug)]
pub(super) struct Regions {
    own: Vec<Own>,
    names: HashMap<(ProcessId, Purpose), RegionId>,
    bytes: u64,
    /// Maximum of `bytes`.
    max_bytes: u64,
    /// Fences that do not hold yet: region, peer, and `true` if an event must report when the fence holds.
    fences: Vec<(RegionId, ProcessId, bool)>,
}

impl Regions {
    pub(super) fn new(max_bytes: u64) -> Regions {
        Regions { own: Vec::new(), names: HashMap::new(), bytes: 0, max_bytes, fences: Vec::new() }
    }

    /// Returns the size of all regions together, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether a span lies inside a region.
    #[inline]
    pub(super) fn contain(&self, Span { region, offset, bytes }: Span) -> bool {
        let end = offset.checked_add(bytes.into());
        self.own.get(region.index()).zip(end).is_some_and(|(own, end)| end <= own.spec.bytes)
    }

    /// Returns a region, if it exists.
    fn known(&self, region: RegionId) -> Result<&Own, AccessError> {
        self.own.get(region.index()).ok_or(AccessError::UnknownRegion(region))
    }
}

impl<D: Device> NetFabric<D> {
    pub(super) fn register_region(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError> {
        let RegionSpec { purpose, writer, bytes } = spec;
        if bytes == 0 || !bytes.is_multiple_of(LINE as u64) {
            return Err(RegisterError::Size { bytes });
        }
        if writer.index() >= self.cm.processes() {
            return Err(RegisterError::UnknownProcess(writer));
        }
        let regions = &mut self.regions;
        if regions.names.contains_key(&(writer, purpose)) {
            return Err(RegisterError::Duplicate { purpose, writer });
        }
        let refused = |reason| RegisterError::System { bytes, reason };
        let (used, limit) = (regions.bytes, regions.max_bytes);
        if used.saturating_add(bytes) > limit {
            return Err(refused(format!("{used} of at most {limit} bytes are in use; raise max_bytes")));
        }
        let region = RegionId(regions.own.len() as u32);
        self.device.register(region, bytes).map_err(refused)?;
        regions.own.push(Own { spec, granted: HashMap::new() });
        regions.names.insert((writer, purpose), region);
        regions.bytes += bytes;
        Ok(region)
    }

    pub(super) fn grant_region(
        &mut self,
        region: RegionId,
        peer: ProcessId,
        access: Access,
    ) -> Result<(), AccessError> {
        let own = self.regions.known(region)?;
        let RegionSpec { writer, purpose, bytes } = own.spec;
        let is_process = peer.index() < self.cm.processes();
        if peer != writer && (access != Access::Read || !is_process) {
            return Err(AccessError::NotForPeer { region, writer, peer });
        }
        match own.granted.get(&peer) {
            Some((granted, _)) if *granted == access => return Ok(()),
            // A change of access needs no event: the memory stays, and the old key soon becomes invalid.
            Some(_) => _ = self.fence(region, peer, false)?,
            None => {}
        }
        let place = self.device.grant(region, peer, access);
        let place = place.map_err(|reason| AccessError::System { region, reason })?;
        self.regions.own[region.index()].granted.insert(peer, (access, place.key));
        self.cm.grant(peer, purpose, place, bytes, access);
        Ok(())
    }

    pub(super) fn revoke_region(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        let own = self.regions.known(region)?;
        let writer = own.spec.writer;
        let is_granted = own.granted.contains_key(&peer);
        if peer != writer && !is_granted {
            return Err(AccessError::NotForPeer { region, writer, peer });
        }
        let waits = if is_granted {
            self.fence(region, peer, true)? == Fence::Waits
        } else {
            // The fence may belong to a change of access whose new grant failed, which reports no event by itself.
            let fence = self.regions.fences.iter_mut().rfind(|(of, from, _)| (*of, *from) == (region, peer));
            fence.map(|(.., tells)| *tells = true).is_some()
        };
        if !waits {
            self.cm.tell(Event::Revoked { region, peer });
        }
        Ok(())
    }

    /// Revokes a grant. If `tells` is `true` and the fence has to wait, an event reports when it holds.
    fn fence(&mut self, region: RegionId, peer: ProcessId, tells: bool) -> Result<Fence, AccessError> {
        let own = &mut self.regions.own[region.index()];
        let Some((_, key)) = own.granted.get(&peer).copied() else { return Ok(Fence::Holds) };
        let purpose = own.spec.purpose;
        let fence = match self.device.fence(region, peer) {
            Ok(fence) => fence,
            Err(_) => {
                // The device still uses the memory. It no longer does when the queue pairs to the peer are broken.
                self.cm.break_all(&mut self.device, peer);
                self.device.fence(region, peer).map_err(|reason| AccessError::System { region, reason })?
            }
        };
        self.regions.own[region.index()].granted.remove(&peer);
        self.cm.revoke(peer, purpose, key);
        if fence == Fence::Waits {
            self.regions.fences.push((region, peer, tells));
        }
        Ok(fence)
    }

    /// Reports fences that now hold, and breaks queue pairs to peers that delay a fence for too long.
    pub(super) fn settle_fences(&mut self) {
        while let Some(waiting) = self.device.next_fence() {
            match waiting {
                Waiting::Late(peer) => self.cm.break_all(&mut self.device, peer),
                Waiting::Holds(region, peer) => {
                    let fences = &mut self.regions.fences;
                    let Some(at) = fences.iter().position(|(of, from, _)| (*of, *from) == (region, peer)) else {
                        continue;
                    };
                    let (.., tells) = fences.remove(at);
                    if tells {
                        self.cm.tell(Event::Revoked { region, peer });
                    }
                }
            }
        }
    }
}
