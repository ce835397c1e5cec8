//! Peers' regions that this process may use.

use std::collections::HashMap;
use std::sync::Arc;

use stentor_fabric::memory::{Ordering, WORD, Word};
use stentor_fabric::{Access, ProcessId, Purpose, RemoteRegion, RemoteSpan};

use crate::gate;
use crate::mapping::{Mapping, ReadMapping};

/// A peer's memory, mapped as the access allows.
#[derive(Debug)]
pub(crate) enum RemoteMemory {
    /// Memory for [`Access::Write`] and [`Access::Atomic`].
    Write(Mapping),
    /// Memory for [`Access::Read`].
    Read(ReadMapping),
}

/// A peer's region.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) peer: ProcessId,
    pub(crate) purpose: Purpose,
    pub(crate) access: Access,
    pub(crate) memory: RemoteMemory,
    pub(crate) words: usize,
    /// The owner's number of the region: the index of its generation in the owner's control page.
    pub(crate) region: u32,
    /// Generation of the grant.
    pub(crate) generation: u64,
    /// The owner's control page with its generations.
    pub(crate) control: Arc<ReadMapping>,
    /// Key of the grant, which [`Remotes::insert`] assigns. No key is used twice.
    pub(crate) key: u64,
}

impl Remote {
    /// Returns whether the access is not revoked. The caller must have executed a full fence since its stores.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        gate::is_open(self.control.load(self.region as usize, Ordering::Relaxed), self.generation)
    }

    #[inline]
    fn range(&self, offset: u64, bytes: u64) -> Option<std::ops::Range<usize>> {
        if !(offset | bytes).is_multiple_of(WORD as u64) {
            return None;
        }
        let end = offset.checked_add(bytes)? / WORD as u64;
        (end <= self.words as u64).then_some((offset / WORD as u64) as usize..end as usize)
    }

    /// Returns the words of a span, if they may be written.
    #[inline]
    pub(crate) fn writable(&self, offset: u64, bytes: u64) -> Option<&[Word]> {
        let range = self.range(offset, bytes)?;
        match &self.memory {
            RemoteMemory::Write(memory) => Some(&memory.words()[range]),
            RemoteMemory::Read(_) => None,
        }
    }

    /// Returns the word at `offset`, if atomics are allowed.
    pub(crate) fn atomic(&self, offset: u64) -> Option<&Word> {
        if self.access != Access::Atomic {
            return None;
        }
        self.writable(offset, WORD as u64)?.first()
    }

    /// Copies a span to local memory. Returns whether it is inside the region.
    pub(crate) fn read(&self, offset: u64, to: &[Word]) -> bool {
        let Some(range) = self.range(offset, (to.len() * WORD) as u64) else { return false };
        for (to, word) in to.iter().zip(range) {
            let value = match &self.memory {
                RemoteMemory::Write(memory) => memory.words()[word].load(Ordering::Relaxed),
                RemoteMemory::Read(memory) => memory.load(word, Ordering::Relaxed),
            };
            to.store(value, Ordering::Relaxed);
        }
        true
    }
}

/// All granted regions of peers, by key and by name.
#[derive(Debug, Default)]
pub(crate) struct Remotes {
    slots: Vec<Option<Remote>>,
    by_name: HashMap<(ProcessId, Purpose), usize>,
    grants: u64,
}

impl Remotes {
    /// Returns the region that `span` names and its slot, if `peer` is the owner.
    #[inline]
    pub(crate) fn find(&self, peer: ProcessId, span: &RemoteSpan) -> Option<(u32, &Remote)> {
        let slot = span.region.key as u32;
        let remote = self.slots.get(slot as usize)?.as_ref()?;
        (remote.key == span.region.key && remote.peer == peer).then_some((slot, remote))
    }

    /// Returns the region in a slot.
    #[inline]
    pub(crate) fn slot(&self, slot: u32) -> Option<&Remote> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// Returns the number of regions that a peer has granted.
    pub(crate) fn count(&self, peer: ProcessId) -> usize {
        self.by_name.keys().filter(|(owner, _)| *owner == peer).count()
    }

    /// Returns the region with this name.
    pub(crate) fn resolve(&self, peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion> {
        let remote = self.slots[*self.by_name.get(&(peer, purpose))?].as_ref()?;
        Some(RemoteRegion { peer, key: remote.key, bytes: (remote.words * WORD) as u64 })
    }

    /// Adds a grant, and assigns its key.
    pub(crate) fn insert(&mut self, granted: Remote) {
        let name = (granted.peer, granted.purpose);
        self.remove(name);
        let slot = self.slots.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.grants += 1;
        self.slots[slot] = Some(Remote { key: self.grants << 32 | slot as u64, ..granted });
        self.by_name.insert(name, slot);
    }

    /// Removes the region with this name.
    pub(crate) fn remove(&mut self, name: (ProcessId, Purpose)) {
        if let Some(slot) = self.by_name.remove(&name) {
            self.slots[slot] = None;
        }
    }

    /// Removes a grant that the owner has revoked, unless a newer one has replaced it.
    pub(crate) fn revoked(&mut self, peer: ProcessId, region: u32, generation: u64) {
        let old = |remote: &&Remote| remote.peer == peer && remote.region == region && remote.generation < generation;
        if let Some(remote) = self.slots.iter().flatten().find(old) {
            self.remove((peer, remote.purpose));
        }
    }

    /// Removes all regions of a peer.
    pub(crate) fn remove_peer(&mut self, peer: ProcessId) {
        self.by_name.retain(|(owner, _), _| *owner != peer);
        for slot in &mut self.slots {
            if slot.as_ref().is_some_and(|remote| remote.peer == peer) {
                *slot = None;
            }
        }
    }
}
