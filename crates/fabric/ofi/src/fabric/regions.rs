//! Regions: making, granting, revoking.
//!
//! Each grant is a registration of its own, with a key that nobody has seen before. A revocation closes it, which on no provider
//! says what becomes of a write that is half there. So the peer is asked first, on every connection with it, to leave the region
//! alone; it answers when nothing of it is under way any more, and the registration is closed then. If it does not answer in
//! time, all connections with it are broken: an endpoint that is closed takes nothing any more, and the answer is not needed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use stentor_bootstrap::{Place, nonce};
use stentor_fabric::memory::LINE;
use stentor_fabric::{Access, AccessError, Event, ProcessId, QpId, RegionId, RegionSpec, RegisterError};

use super::OfiFabric;
use super::frame::Kind;
use crate::memory::{Memory, Registration};

/// A grant of a region.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) access: Access,
    /// None for this process itself: then nothing goes through the provider.
    pub(super) _registration: Option<Registration>,
    pub(super) key: u64,
}

/// A region of this process.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) spec: RegionSpec,
    /// For operations of this process, where the provider wants one.
    pub(super) local: Option<Registration>,
    pub(super) granted: HashMap<ProcessId, Grant>,
}

/// A revocation that has not taken effect.
#[derive(Debug)]
pub(super) struct Revocation {
    region: RegionId,
    peer: ProcessId,
    grant: Grant,
    /// Who has not answered: queue pairs and their lives.
    waiting: Vec<(QpId, u32)>,
    since: Instant,
}

/// A key that nobody has seen.
pub(super) fn fresh_key() -> u64 {
    // All ones means that there is none.
    u64::from_be_bytes(nonce()) >> 1
}

impl OfiFabric {
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
        let (used, limit) = (self.memory_bytes(), self.config.max_bytes);
        let refused = |reason| RegisterError::System { bytes, reason };
        if used.saturating_add(bytes) > limit {
            return Err(refused(format!("{used} of at most {limit} bytes are in use; raise max_bytes")));
        }
        let memory = Memory::new(bytes as usize).ok_or_else(|| refused("the system has no more".to_owned()))?;
        let domain = &self.net.domain;
        let local =
            domain.info().memory_modes().local.then(|| Registration::new(domain, &memory, None, fresh_key(), None));
        let local = local.transpose().map_err(|error| refused(error.to_string()))?;
        let region = RegionId(self.regions.len() as u32);
        self.net.shared.memories.push(memory);
        self.regions.push(Own { spec, local, granted: HashMap::new() });
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
        let RegionSpec { writer, purpose, bytes } = own.spec;
        let known = peer.index() < self.bootstrap.processes();
        if peer != writer && (access != Access::Read || !known) {
            return Err(AccessError::NotForPeer { region, writer, peer });
        }
        match own.granted.get(&peer) {
            Some(grant) if grant.access == access => return Ok(()),
            Some(_) => self.withdraw(region, peer, false),
            None => {}
        }
        let memory: &Arc<Memory> = &self.net.shared.memories[region.index()];
        let registration = (peer != self.net.me)
            .then(|| Registration::new(&self.net.domain, memory, Some(access), fresh_key(), None))
            .transpose()
            .map_err(|error| AccessError::System { region, reason: error.to_string() })?;
        let (key, base) = registration.as_ref().map_or_else(|| (fresh_key(), 0), |made| (made.key(), made.base()));
        self.regions[region.index()].granted.insert(peer, Grant { access, _registration: registration, key });
        if peer == self.net.me {
            self.own_keys.insert(key, region);
        }
        self.bootstrap.grant(peer, purpose, Place { key, base }, bytes, access);
        Ok(())
    }

    pub(super) fn revoke_region(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        let own = self.regions.get(region.index()).ok_or(AccessError::UnknownRegion(region))?;
        let writer = own.spec.writer;
        let under_way = self.revocations.iter().any(|of| (of.region, of.peer) == (region, peer));
        if own.granted.contains_key(&peer) {
            self.withdraw(region, peer, true);
        } else if peer != writer {
            return Err(AccessError::NotForPeer { region, writer, peer });
        } else if !under_way {
            self.bootstrap.tell(Event::Revoked { region, peer });
        }
        Ok(())
    }

    /// Takes a grant away; with `tells`, the event comes when that has taken effect.
    fn withdraw(&mut self, region: RegionId, peer: ProcessId, tells: bool) {
        let own = &mut self.regions[region.index()];
        let Some(grant) = own.granted.remove(&peer) else { return };
        self.own_keys.remove(&grant.key);
        self.bootstrap.revoke(peer, own.spec.purpose, grant.key);
        let mut waiting = Vec::new();
        for qp in self.net.ends.iter_mut().filter(|qp| qp.peer == peer) {
            if let Some(life) = qp.life.as_mut().filter(|life| life.knows()) {
                life.say(Kind::Fence { key: grant.key });
                life.talk();
                waiting.push((qp.id, qp.lives));
            }
        }
        if waiting.is_empty() || !tells {
            // Without an event nobody relies on what the peer may still do; the memory is there either way.
            if tells {
                self.bootstrap.tell(Event::Revoked { region, peer });
            }
            if waiting.is_empty() {
                return;
            }
        }
        self.revocations.push(Revocation { region, peer, grant, waiting, since: Instant::now() });
        if !tells {
            self.silent.push((region, peer));
        }
    }

    /// Ends revocations that have been answered, and breaks connections with those who do not answer.
    pub(super) fn settle_revocations(&mut self) {
        if self.revocations.is_empty() {
            self.net.shared.answered.clear();
            return;
        }
        let answered = std::mem::take(&mut self.net.shared.answered);
        let mut late = Vec::new();
        for of in &mut self.revocations {
            let ends = &self.net.ends;
            of.waiting.retain(|(qp, life)| {
                let end = &ends[qp.index()];
                end.alive && end.lives == *life && !answered.contains(&(*qp, *life, of.grant.key))
            });
            if !of.waiting.is_empty() && of.since.elapsed() > self.config.fence_timeout {
                late.push(of.peer);
            }
        }
        for peer in late {
            self.bootstrap.break_all(&mut self.net, peer);
        }
        let mut n = 0;
        while n < self.revocations.len() {
            let ends = &self.net.ends;
            let open = |(qp, life): &(QpId, u32)| ends[qp.index()].alive && ends[qp.index()].lives == *life;
            if self.revocations[n].waiting.iter().any(open) {
                n += 1;
                continue;
            }
            let Revocation { region, peer, grant, .. } = self.revocations.remove(n);
            // Closed before anybody is told.
            drop(grant);
            match self.silent.iter().position(|of| *of == (region, peer)) {
                Some(at) => drop(self.silent.remove(at)),
                None => self.bootstrap.tell(Event::Revoked { region, peer }),
            }
        }
    }
}
