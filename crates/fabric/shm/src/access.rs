//! Regions: registering, granting, revoking.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io;
use stentor_fabric::memory::{LINE, WORD, Word};
use stentor_fabric::{Access, AccessError, Event, OsError, ProcessId, RegionId, RegionSpec, RegisterError};

use crate::fabric::ShmFabric;
use crate::gate;
use crate::local::LocalRegion;
use crate::mapping::Mapping;
use crate::message::Message;
use stentor_host::memfd;

/// Allocates zeroed memory that a peer can map.
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
        let refused = |error: io::Errno| RegisterError::Refused { bytes, source: OsError(error.raw_os_error()) };
        let (memory, fd) = made.map_err(refused)?;
        self.data.regions.push(LocalRegion { spec, memory, fd, granted: None, readers: Vec::new(), sealed_for: None });
        self.region_names.insert((writer, purpose), region);
        Ok(region)
    }

    fn own_region(&mut self, region: RegionId, peer: ProcessId) -> Result<&mut LocalRegion, AccessError> {
        let own = self.data.regions.get_mut(region.index()).ok_or(AccessError::UnknownRegion(region))?;
        let writer = own.spec.writer;
        let theirs = writer == peer || own.readers.contains(&peer);
        if theirs { Ok(own) } else { Err(AccessError::NotForPeer { region, writer, peer }) }
    }

    pub(crate) fn grant_region(
        &mut self,
        region: RegionId,
        peer: ProcessId,
        access: Access,
    ) -> Result<(), AccessError> {
        let own = self.data.regions.get(region.index()).ok_or(AccessError::UnknownRegion(region))?;
        let writer = own.spec.writer;
        if writer != peer && (access != Access::Read || peer.0 >= self.config.processes) {
            return Err(AccessError::NotForPeer { region, writer, peer });
        }
        let held = own.access_of(peer);
        if held == Some(access) {
            return Ok(());
        }
        if held.is_some() {
            // The peer keeps its mapping, and with it the old access. The region therefore moves to fresh memory.
            self.take_away(region, peer)?;
        }
        if self.data.regions[region.index()].fd.is_none() {
            self.move_region(region)?;
        }
        let own = &mut self.data.regions[region.index()];
        if writer == peer {
            own.granted = Some(access);
        } else {
            own.readers.push(peer);
        }
        let sealed = self.seal(region);
        if sealed.is_err() {
            self.data.regions[region.index()].forget(peer);
        }
        sealed?;
        self.announce_grant(region, peer);
        Ok(())
    }

    /// Seals the memory for the access of the writer. Readers get a read-only descriptor of it.
    fn seal(&mut self, region: RegionId) -> Result<(), AccessError> {
        let own = &mut self.data.regions[region.index()];
        if let (Some(fd), Some(access), None) = (&own.fd, own.granted, own.sealed_for) {
            let sealed = if access == Access::Read { memfd::finish_read_only(fd) } else { memfd::finish(fd) };
            sealed
                .map_err(|error| AccessError::System { region, reason: format!("cannot seal its memory: {error}") })?;
            own.sealed_for = Some(access);
        }
        Ok(())
    }

    /// Sends a peer the grant of a region, if the peer is connected.
    pub(crate) fn announce_grant(&mut self, region: RegionId, peer: ProcessId) {
        let own = &self.data.regions[region.index()];
        let (Some(access), Some(fd)) = (own.access_of(peer), &own.fd) else { return };
        let (purpose, bytes, is_writer) = (own.spec.purpose, own.spec.bytes, own.spec.writer == peer);
        let generation = self.generation(region).load(stentor_fabric::memory::Ordering::Relaxed);
        let passed = if is_writer { Ok(Arc::clone(fd)) } else { memfd::read_only(fd).map(Arc::new) };
        let told = passed.map_err(|error| OsError(error.raw_os_error()).with_remedy()).and_then(|fd| {
            let message = Message::Grant { region: region.0, purpose, access, bytes, generation };
            if peer == self.config.me {
                return self.hear_own_grant(&message, &fd);
            }
            self.tell(peer, &message, &[fd]);
            Ok(())
        });
        if let Err(reason) = told {
            self.control.refuse_named(peer, &format!("cannot be granted region {purpose:?}: {reason}"));
        }
    }

    fn generation(&self, region: RegionId) -> &Word {
        &self.generations.words()[region.index()]
    }

    pub(crate) fn revoke_region(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        if self.own_region(region, peer)?.access_of(peer).is_some() {
            self.take_away(region, peer)?;
        }
        self.control.events.push_back(Event::Revoked { region, peer });
        Ok(())
    }

    /// Moves the region to fresh memory, which contains everything that peers may count as done. Peers that keep their
    /// access get the new memory.
    fn take_away(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        let all: Vec<ProcessId> = self.own_region(region, peer)?.peers().collect();
        self.move_region(region)?;
        let generation = self.generation(region).load(stentor_fabric::memory::Ordering::Relaxed);
        self.data.regions[region.index()].forget(peer);
        self.seal(region)?;
        for peer in all {
            if peer == self.config.me {
                self.data.flush();
                self.data.remotes.revoked(peer, region.0, generation);
            } else {
                self.tell(peer, &Message::Revoke { region: region.0, generation }, &[]);
            }
            self.announce_grant(region, peer);
        }
        Ok(())
    }

    /// Moves a region to fresh memory that can be shared. Unmaps the old memory at once, because no borrow of it can
    /// exist now.
    fn move_region(&mut self, region: RegionId) -> Result<(), AccessError> {
        let (bytes, populate) = (self.data.regions[region.index()].spec.bytes, self.config.populate);
        let failed = |error: io::Errno| AccessError::System {
            region,
            reason: format!("cannot allocate fresh memory: {}", OsError(error.raw_os_error()).with_remedy()),
        };
        let (memory, fd) = shareable(bytes, populate).map_err(failed)?;
        gate::close(self.generation(region));
        gate::snapshot(self.data.regions[region.index()].words(), memory.words());
        let own = &mut self.data.regions[region.index()];
        (own.memory, own.fd, own.sealed_for) = (memory, Some(fd), None);
        Ok(())
    }
}
