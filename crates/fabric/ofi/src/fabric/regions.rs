//! Registration, grants and revocation of regions.
//!
//! Each grant is a separate registration, with a random key unless the provider chooses the key. A revocation closes
//! the registration. No provider specifies what then happens to a write that has landed only in part. Therefore the
//! peer is first asked, on every connection with it, to stop using the region. The peer confirms when none of its
//! operations on the region is outstanding any more. The registration is closed only after that.
//!
//! If the peer does not confirm in time, all connections with it are broken. No operation lands through a closed
//! endpoint, so the confirmation is then not needed.

use std::time::Instant;

use stentor_fabric::{Access, ProcessId, QpId, RegionId};
use stentor_fabric_net::{Fence, RemoteKey, Waiting, nonce};

use super::OfiDevice;
use super::frame::FrameKind;
use crate::PageMemory;
use crate::memory::Registration;

/// A grant of a region to a peer.
#[derive(Debug)]
pub(super) struct Grant {
    /// `None` for a grant to this process itself, which does not use the provider.
    _registration: Option<Registration>,
    key: u64,
}

/// A revocation that has not taken effect yet.
#[derive(Debug)]
pub(super) struct Revocation {
    region: RegionId,
    peer: ProcessId,
    grant: Grant,
    /// Queue pairs, each with its life, on which the peer has not confirmed yet.
    waiting: Vec<(QpId, u32)>,
    since: Instant,
    /// `true` once the delay was reported.
    late: bool,
}

/// Returns a random key of 63 bits, so that it has almost certainly never been used before.
pub(super) fn fresh_key() -> u64 {
    // A key of all ones means that there is no key, so the top bit stays clear.
    u64::from_be_bytes(nonce()) >> 1
}

impl OfiDevice {
    pub(super) fn make_region(&mut self, bytes: u64) -> Result<(), String> {
        let memory = PageMemory::zeroed(bytes as usize).ok_or("the system has too little memory")?;
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

    /// Returns the next revocation that has taken effect, after closing its registration, or a peer whose confirmation
    /// is late.
    pub(super) fn next_revocation(&mut self) -> Option<Waiting> {
        let (ends, answered) = (&self.ends, &self.shared.answered);
        for (n, of) in self.revocations.iter_mut().enumerate() {
            of.waiting.retain(|(qp, life)| {
                let end = &ends[qp.index()];
                end.alive && end.lives == *life && !answered.contains(&(*qp, *life, of.grant.key))
            });
            if of.waiting.is_empty() {
                // Removing the revocation drops the grant, so the registration is closed before the revocation is
                // reported.
                let Revocation { region, peer, .. } = self.revocations.remove(n);
                return Some(Waiting::Holds(region, peer));
            }
            if !of.late && of.since.elapsed() > self.fence_timeout {
                of.late = true;
                return Some(Waiting::Late(of.peer));
            }
        }
        // All confirmations were evaluated above.
        self.shared.answered.clear();
        None
    }
}
