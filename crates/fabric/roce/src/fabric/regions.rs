//! Regions: making, granting, revoking. Addresses on the wire are offsets: every region is at 0.

use std::collections::HashMap;

use stentor_bootstrap::{Place, nonce};
use stentor_fabric::memory::{LINE, WORD};
use stentor_fabric::{Access, AccessError, Event, ProcessId, RegionId, RegionSpec, RegisterError};

use super::RoceFabric;
use crate::endpoint::ProtectionDomain;

/// A region of this process.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) spec: RegionSpec,
    /// Who may use it how, with which key.
    pub(super) granted: HashMap<ProcessId, (Access, u32)>,
}

/// Each peer's queue pairs and keys belong together.
pub(super) fn domain(peer: ProcessId) -> ProtectionDomain {
    ProtectionDomain(peer.0.into())
}

impl RoceFabric {
    pub(super) fn register_region(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError> {
        let RegionSpec { purpose, writer, bytes } = spec;
        if bytes == 0 || !bytes.is_multiple_of(LINE as u64) {
            return Err(RegisterError::Size { bytes });
        }
        if writer.index() >= self.bootstrap.processes() {
            return Err(RegisterError::UnknownProcess(writer));
        }
        if self.region_names.contains_key(&(writer, purpose)) {
            return Err(RegisterError::Duplicate { purpose, writer });
        }
        let (used, limit) = (self.memory_bytes(), self.net.config.max_bytes);
        if used.saturating_add(bytes) > limit {
            let reason = format!("{used} of at most {limit} bytes are in use; raise max_bytes");
            return Err(RegisterError::System { bytes, reason });
        }
        let region = self.net.endpoint.memory_mut().register((bytes / WORD as u64) as usize, 0);
        self.regions.push(Own { spec, granted: HashMap::new() });
        self.region_names.insert((writer, purpose), region);
        Ok(region)
    }

    pub(super) fn grant_region(
        &mut self,
        region: RegionId,
        peer: ProcessId,
        access: Access,
    ) -> Result<(), AccessError> {
        let own = self.regions.get(region.index()).ok_or(AccessError::UnknownRegion(region))?;
        let writer = own.spec.writer;
        let known = peer.index() < self.bootstrap.processes();
        if peer != writer && (access != Access::Read || !known) {
            return Err(AccessError::NotForPeer { region, writer, peer });
        }
        match own.granted.get(&peer) {
            Some((granted, _)) if *granted == access => return Ok(()),
            Some((_, old)) => {
                let old = *old;
                self.take_away(region, peer, old);
            }
            None => {}
        }
        let entropy = u16::from_be_bytes(nonce());
        let key = self.net.endpoint.memory_mut().grant(region, domain(peer), access, entropy);
        let key = key.ok_or_else(|| AccessError::System {
            region,
            reason: "all 65536 places for keys are in use or used up".to_owned(),
        })?;
        self.regions[region.index()].granted.insert(peer, (access, key));
        let RegionSpec { purpose, bytes, .. } = self.regions[region.index()].spec;
        self.bootstrap.grant(peer, purpose, Place { key: key.into(), base: 0 }, bytes, access);
        Ok(())
    }

    fn take_away(&mut self, region: RegionId, peer: ProcessId, key: u32) {
        self.net.endpoint.memory_mut().revoke(key);
        let own = &mut self.regions[region.index()];
        own.granted.remove(&peer);
        let purpose = own.spec.purpose;
        self.bootstrap.revoke(peer, purpose, key.into());
    }

    pub(super) fn revoke_region(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        let own = self.regions.get(region.index()).ok_or(AccessError::UnknownRegion(region))?;
        let (writer, granted) = (own.spec.writer, own.granted.get(&peer).copied());
        if peer != writer && granted.is_none() {
            return Err(AccessError::NotForPeer { region, writer, peer });
        }
        if let Some((_, key)) = granted {
            // What was acknowledged is in the memory already: this process itself put it there.
            self.take_away(region, peer, key);
        }
        self.bootstrap.tell(Event::Revoked { region, peer });
        Ok(())
    }
}
