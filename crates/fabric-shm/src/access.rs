//! Regions: making, granting, revoking.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io;
use stentor_fabric::memory::{LINE, WORD, Word};
use stentor_fabric::{Access, AccessError, Event, ProcessId, RegionId, RegionSpec, RegisterError};

use crate::fabric::ShmFabric;
use crate::gate;
use crate::local::LocalRegion;
use crate::mapping::Mapping;
use crate::memfd;
use crate::message::Message;

/// Fresh memory that a peer can map.
fn shareable(bytes: u64, populate: bool) -> io::Result<(Mapping, Arc<OwnedFd>)> {
    let fd = memfd::create("stentor-region", bytes)?;
    let memory = Mapping::shared(fd.as_fd(), (bytes / WORD as u64) as usize, populate)?;
    Ok((memory, Arc::new(fd)))
}

impl ShmFabric {
    pub(crate) fn register_region(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError> {
        let RegionSpec { purpose, writer, bytes } = spec;
        if bytes == 0 || !bytes.is_multiple_of(LINE as u64) {
            return Err(RegisterError::Size { bytes });
        }
        if writer.0 >= self.config.processes {
            return Err(RegisterError::UnknownProcess(writer));
        }
        if self.region_names.contains_key(&(writer, purpose)) {
            return Err(RegisterError::Duplicate { purpose, writer });
        }
        let refused = |reason: String| RegisterError::System { bytes, reason };
        let (used, limit) = (self.memory_bytes(), self.config.max_bytes);
        if used.saturating_add(bytes) > limit {
            return Err(refused(format!("{used} of at most {limit} bytes are in use; raise max_bytes")));
        }
        let region = RegionId(self.data.regions.len() as u32);
        if region.0 >= self.config.max_regions {
            return Err(refused(format!("{} regions are the limit; raise max_regions", region.0)));
        }
        let made = if writer == self.config.me {
            Mapping::private((bytes / WORD as u64) as usize, self.config.populate).map(|memory| (memory, None))
        } else {
            shareable(bytes, self.config.populate).map(|(memory, fd)| (memory, Some(fd)))
        };
        let (memory, fd) = made.map_err(|error| {
            refused(match error {
                io::Errno::MFILE => "too many open files: raise the limit (ulimit -n)".to_owned(),
                other => other.to_string(),
            })
        })?;
        self.data.regions.push(LocalRegion { spec, memory, fd, granted: None, sealed_for: None });
        self.region_names.insert((writer, purpose), region);
        Ok(region)
    }

    fn own_region(&mut self, region: RegionId, peer: ProcessId) -> Result<&mut LocalRegion, AccessError> {
        let own = self.data.regions.get_mut(region.index()).ok_or(AccessError::UnknownRegion(region))?;
        let writer = own.spec.writer;
        if writer == peer { Ok(own) } else { Err(AccessError::NotForPeer { region, writer, peer }) }
    }

    pub(crate) fn grant_region(
        &mut self,
        region: RegionId,
        peer: ProcessId,
        access: Access,
    ) -> Result<(), AccessError> {
        let granted = self.own_region(region, peer)?.granted;
        if granted == Some(access) {
            return Ok(());
        }
        if granted.is_some() {
            // What the peer could do it can still do with what it has mapped.
            self.take_away(region, peer)?;
        }
        let own = self.own_region(region, peer)?;
        own.granted = Some(access);
        if let (Some(fd), None) = (&own.fd, own.sealed_for) {
            let sealed = if access == Access::Read { memfd::finish_read_only(fd) } else { memfd::finish(fd) };
            if let Err(error) = sealed {
                own.granted = None;
                return Err(AccessError::System { region, reason: format!("sealing: {error}") });
            }
            own.sealed_for = Some(access);
        }
        self.announce_grant(region);
        Ok(())
    }

    /// Tells the peer, if it is connected, that it may use a region.
    pub(crate) fn announce_grant(&mut self, region: RegionId) {
        let own = &self.data.regions[region.index()];
        let (Some(access), Some(fd)) = (own.granted, &own.fd) else { return };
        let (peer, purpose, bytes) = (own.spec.writer, own.spec.purpose, own.spec.bytes);
        let generation = self.generation(region).load(stentor_fabric::memory::Ordering::Relaxed);
        let fd = Arc::clone(fd);
        self.tell(peer, &Message::Grant { region: region.0, purpose, access, bytes, generation }, &[fd]);
    }

    fn generation(&self, region: RegionId) -> &Word {
        &self.generations.words()[region.index()]
    }

    pub(crate) fn revoke_region(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        if self.own_region(region, peer)?.granted.is_some() {
            self.take_away(region, peer)?;
        }
        self.control.events.push_back(Event::Revoked { region, peer });
        Ok(())
    }

    /// Moves to fresh memory, with everything in it that the peer may count as done. The old memory is unmapped here at
    /// once: nobody can hold a borrow of it now.
    fn take_away(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        let own = self.own_region(region, peer)?;
        if own.fd.is_none() {
            own.granted = None;
            return Ok(());
        }
        let (bytes, populate) = (own.spec.bytes, self.config.populate);
        let failed = |error: io::Errno| AccessError::System { region, reason: format!("no fresh memory: {error}") };
        let (memory, fd) = shareable(bytes, populate).map_err(failed)?;
        gate::close(self.generation(region));
        gate::snapshot(self.data.regions[region.index()].words(), memory.words());
        let generation = self.generation(region).load(stentor_fabric::memory::Ordering::Relaxed);
        let own = &mut self.data.regions[region.index()];
        (own.memory, own.fd, own.granted, own.sealed_for) = (memory, Some(fd), None, None);
        self.tell(peer, &Message::Revoke { region: region.0, generation }, &[]);
        Ok(())
    }
}
