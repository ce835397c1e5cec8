//! Regions: making, granting, revoking.
//!
//! Each grant is a registration of its own, with a key that nobody has seen before. A revocation closes it, which on no provider
//! says what becomes of a write that is half there. So the peer is asked first, on every connection with it, to leave the region
//! alone; it answers when nothing of it is under way any more, and the registration is closed then. If it does not answer in
//! time, all connections with it are broken: an endpoint that is closed takes nothing any more, and the answer is not needed.

use std::time::Instant;

use stentor_fabric::{Access, ProcessId, QpId, RegionId};
use stentor_fabric_net::{Fence, RemoteKey, Waiting, nonce};

use super::OfiDevice;
use super::frame::FrameKind;
use crate::PageMemory;
use crate::memory::Registration;

/// A grant of a region.
#[derive(Debug)]
pub(super) struct Grant {
    /// None for this process itself: then nothing goes through the provider.
    _registration: Option<Registration>,
    key: u64,
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
    /// It was said that it takes too long.
    late: bool,
}

/// A key that nobody has seen.
pub(super) fn fresh_key() -> u64 {
    // All ones means that there is none.
    u64::from_be_bytes(nonce()) >> 1
}

impl OfiDevice {
    pub(super) fn make_region(&mut self, bytes: u64) -> Result<(), String> {
        let memory = PageMemory::zeroed(bytes as usize).ok_or("the system has no more")?;
        let domain = &self.domain;
        let local =
            domain.info().memory_modes().local.then(|| Registration::new(domain, &memory, None, fresh_key(), None));
        self.locals.push(local.transpose().map_err(|error| error.to_string())?);
        self.shared.memories.push(memory);
        Ok(())
    }

    pub(super) fn grant_key(&mut self, region: RegionId, peer: ProcessId, access: Access) -> Result<RemoteKey, String> {
        let is_me = peer == self.me;
        let memory = &self.shared.memories[region.index()];
        let registration = (!is_me)
            .then(|| Registration::new(&self.domain, memory, Some(access), fresh_key(), None))
            .transpose()
            .map_err(|error| error.to_string())?;
        let (key, base) = registration.as_ref().map_or_else(|| (fresh_key(), 0), |made| (made.key(), made.base()));
        self.granted.insert((region, peer), Grant { _registration: registration, key });
        if is_me {
            self.own_keys.insert(key, region);
        }
        Ok(RemoteKey { key, base })
    }

    pub(super) fn ask_to_leave(&mut self, region: RegionId, peer: ProcessId) -> Fence {
        let Some(grant) = self.granted.remove(&(region, peer)) else { return Fence::Holds };
        self.own_keys.remove(&grant.key);
        let mut waiting = Vec::new();
        for qp in self.ends.iter_mut().filter(|qp| qp.peer == peer) {
            if let Some(life) = qp.life.as_mut().filter(|life| life.knows()) {
                life.say(FrameKind::Fence { key: grant.key });
                life.talk();
                waiting.push((qp.id, qp.lives));
            }
        }
        if waiting.is_empty() {
            return Fence::Holds;
        }
        self.revocations.push(Revocation { region, peer, grant, waiting, since: Instant::now(), late: false });
        Fence::Waits
    }

    /// Returns the next revocation that has been answered, and whose registration is closed; or a peer that does not answer.
    pub(super) fn next_revocation(&mut self) -> Option<Waiting> {
        let (ends, answered) = (&self.ends, &self.shared.answered);
        for (n, of) in self.revocations.iter_mut().enumerate() {
            of.waiting.retain(|(qp, life)| {
                let end = &ends[qp.index()];
                end.alive && end.lives == *life && !answered.contains(&(*qp, *life, of.grant.key))
            });
            if of.waiting.is_empty() {
                // Closed before anybody is told.
                let Revocation { region, peer, .. } = self.revocations.remove(n);
                return Some(Waiting::Holds(region, peer));
            }
            if !of.late && of.since.elapsed() > self.fence_timeout {
                of.late = true;
                return Some(Waiting::Late(of.peer));
            }
        }
        // All answers were looked at.
        self.shared.answered.clear();
        None
    }
}
