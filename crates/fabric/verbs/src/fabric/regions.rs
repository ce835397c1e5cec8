//! Regions: memory, registered once for each peer that may use it.
//!
//! A queue pair reaches only what is registered in its own protection domain, and each peer has one: so a key is worth nothing
//! to another peer. What this process itself uses on a peer's queue pairs is registered there besides, when it is first used,
//! without any right for the peer; so taking a grant back disturbs nothing of its own.

use std::collections::HashMap;
use std::sync::Arc;

use stentor_bootstrap::Place;
use stentor_fabric::memory::LINE;
use stentor_fabric::{
    Access, AccessError, Event, PostError, ProcessId, Purpose, QpId, RegionId, RegionSpec, RegisterError, Span,
};

use super::VerbsFabric;
use super::net::Net;
use super::retired::Retired;
use super::trouble::Trouble;
use crate::qp::Local;
use crate::{Errno, Memory, Region};

/// A region of this process.
#[derive(Debug)]
struct Own {
    spec: RegionSpec,
    memory: Arc<Memory>,
    /// For this process's own use, by peer.
    local: Vec<Option<Region>>,
    granted: HashMap<ProcessId, (Access, Region)>,
    /// Keys that were taken back, by peer.
    retired: HashMap<ProcessId, Retired>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Regions {
    own: Vec<Own>,
    names: HashMap<(ProcessId, Purpose), RegionId>,
    bytes: u64,
}

impl Regions {
    /// Memory of all regions, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    pub(super) fn memory(&self, region: RegionId) -> &Memory {
        &self.own[region.index()].memory
    }

    /// Refuses what is outside.
    #[inline]
    pub(super) fn check(&self, span: Span) -> Result<(), PostError> {
        let Span { region, offset, bytes } = span;
        let end = offset.checked_add(bytes.into());
        match (self.own.get(region.index()), end) {
            (Some(own), Some(end)) if end <= own.spec.bytes => Ok(()),
            _ => Err(PostError::OutOfLocalRegion { region, offset, bytes: bytes.into() }),
        }
    }

    /// A span as it is used on a queue pair with a peer. The first time that makes a system call.
    #[inline]
    pub(super) fn local(
        &mut self,
        net: &mut Net,
        qp: QpId,
        peer: ProcessId,
        span: Span,
    ) -> Result<Local<'_>, PostError> {
        self.check(span)?;
        let own = &mut self.own[span.region.index()];
        let place = &mut own.local[peer.index()];
        if place.is_none() {
            let made = net.domain(peer).and_then(|domain| Region::over(&domain, &own.memory, None));
            *place = Some(made.map_err(|error| {
                let region = span.region;
                let errno = error.errno.0;
                net.tell_once(Trouble::NotRegistered { peer, bytes: own.spec.bytes, why: error.to_string() });
                PostError::NotRegistered { qp, region, errno }
            })?);
        }
        let region = place.as_ref().expect("it was just made, if it was not there");
        Ok(Local { region, offset: span.offset, bytes: span.bytes })
    }
}

impl VerbsFabric {
    pub(super) fn register_region(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError> {
        let RegionSpec { purpose, writer, bytes } = spec;
        if bytes == 0 || !bytes.is_multiple_of(LINE as u64) {
            return Err(RegisterError::Size { bytes });
        }
        let processes = self.bootstrap.processes();
        if writer.index() >= processes {
            return Err(RegisterError::UnknownProcess(writer));
        }
        let regions = &mut self.regions;
        if regions.names.contains_key(&(writer, purpose)) {
            return Err(RegisterError::Duplicate { purpose, writer });
        }
        let (used, limit) = (regions.bytes, self.net.config.max_bytes);
        let refused = |reason| RegisterError::System { bytes, reason };
        if used.saturating_add(bytes) > limit {
            return Err(refused(format!("{used} of at most {limit} bytes are in use; raise max_bytes")));
        }
        if bytes > self.net.limits.region_bytes {
            let (most, device) = (self.net.limits.region_bytes, self.net.context.name());
            return Err(refused(format!("{device} has regions of at most {most} bytes; make several")));
        }
        let memory = usize::try_from(bytes).ok().and_then(Memory::zeroed);
        let memory = memory.ok_or_else(|| refused("this machine has not so much memory; ask for less".to_owned()))?;
        let local = (0..processes).map(|_| None).collect();
        let region = RegionId(regions.own.len() as u32);
        regions.own.push(Own { spec, memory, local, granted: HashMap::new(), retired: HashMap::new() });
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
        let own = self.regions.own.get(region.index()).ok_or(AccessError::UnknownRegion(region))?;
        let RegionSpec { writer, purpose, bytes } = own.spec;
        let known = peer.index() < self.bootstrap.processes();
        if peer != writer && (access != Access::Read || !known) {
            return Err(AccessError::NotForPeer { region, writer, peer });
        }
        match own.granted.get(&peer) {
            Some((granted, _)) if *granted == access => return Ok(()),
            Some(_) => self.take_away(region, peer)?,
            None => {}
        }
        let own = &mut self.regions.own[region.index()];
        let domain = self.net.domain(peer);
        let retired = own.retired.entry(peer).or_default();
        let made = domain
            .and_then(|domain| retired.fresh(Region::remote_key, || Region::over(&domain, &own.memory, Some(access))));
        let refused = |reason| AccessError::System { region, reason };
        let made = made.map_err(|error| refused(error.to_string()))?.ok_or_else(|| {
            let device = self.net.context.name();
            refused(format!("{device} gives out keys again that were taken back from {peer}; start this process anew"))
        })?;
        let place = Place { key: made.remote_key().into(), base: made.address() };
        own.granted.insert(peer, (access, made));
        self.bootstrap.grant(peer, purpose, place, bytes, access);
        self.watched |= access != Access::Read;
        Ok(())
    }

    /// Takes a grant back: with the return of the system call the device refuses the key, and nothing more lands with it.
    fn take_away(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        let own = &mut self.regions.own[region.index()];
        let Some((access, granted)) = own.granted.remove(&peer) else { return Ok(()) };
        let (purpose, key) = (own.spec.purpose, granted.remote_key());
        own.retired.entry(peer).or_default().add(key);
        if let Err((granted, errno)) = granted.deregister() {
            // Some device has it in use, for a message that was cut in two perhaps: without queue pairs nobody has.
            self.bootstrap.break_all(&mut self.net, peer);
            if let Err((granted, errno)) = again(granted, errno) {
                let own = &mut self.regions.own[region.index()];
                own.granted.insert(peer, (access, granted));
                let device = self.net.context.name();
                let reason = format!("{device} does not take the key {key:#x} back: {errno}; {}", remedy(errno));
                return Err(AccessError::System { region, reason });
            }
        }
        self.bootstrap.revoke(peer, purpose, key.into());
        Ok(())
    }

    pub(super) fn revoke_region(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        let own = self.regions.own.get(region.index()).ok_or(AccessError::UnknownRegion(region))?;
        let writer = own.spec.writer;
        if peer != writer && !own.granted.contains_key(&peer) {
            return Err(AccessError::NotForPeer { region, writer, peer });
        }
        self.take_away(region, peer)?;
        self.bootstrap.tell(Event::Revoked { region, peer });
        Ok(())
    }
}

fn again(region: Region, first: Errno) -> Result<(), (Region, Errno)> {
    // What is gone with its device cannot be written to by anybody.
    if first.is_gone() {
        drop(region);
        return Ok(());
    }
    region.deregister()
}

fn remedy(errno: Errno) -> &'static str {
    match errno {
        errno if errno.is_gone() => "the device is gone: start this process anew",
        _ => "look for the driver's reasons in the kernel's log (dmesg), and start this process anew",
    }
}
