//! The regions that peers have granted.

use std::collections::HashMap;

use stentor_fabric::{Access, ProcessId, Purpose, RemoteRegion};

/// Key and address of a peer's region, as its owner's fabric announced them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteKey {
    /// Key of the region.
    pub key: u64,
    /// Address of the region.
    pub base: u64,
}

/// A grant of a peer that is not known to be revoked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// Key and address of the region.
    pub place: RemoteKey,
    /// Size of the region, in bytes.
    pub bytes: u64,
    /// The permitted access.
    pub access: Access,
}

/// Regions of peers, by purpose.
///
/// This module creates the [`key`](RemoteRegion::key) of a [`RemoteRegion`]: its low half is the low half of the
/// owner's key, and its high half is the index of the entry with the region's address. A region that was granted again
/// has another key, because the owner's key has changed. Posting needs no search for the address.
#[derive(Debug, Default)]
pub struct Remotes {
    numbers: HashMap<(ProcessId, Purpose), u32>,
    entries: Vec<KnownRegion>,
}

#[derive(Clone, Copy, Debug)]
struct KnownRegion {
    owner: ProcessId,
    place: RemoteKey,
    bytes: u64,
    access: Access,
    granted: bool,
}

impl Remotes {
    /// Records that a peer has granted a region.
    pub(crate) fn grant(&mut self, peer: ProcessId, purpose: Purpose, granted: Granted) {
        let Granted { place, bytes, access } = granted;
        let entry = KnownRegion { owner: peer, place, bytes, access, granted: true };
        let next = self.entries.len() as u32;
        let number = *self.numbers.entry((peer, purpose)).or_insert(next);
        match self.entries.get_mut(number as usize) {
            Some(known) => *known = entry,
            None => self.entries.push(entry),
        }
    }

    /// Records that a peer has revoked a grant, if `key` is still the current one.
    pub(crate) fn revoke(&mut self, peer: ProcessId, purpose: Purpose, key: u64) {
        if let Some(number) = self.numbers.get(&(peer, purpose)) {
            let entry = &mut self.entries[*number as usize];
            entry.granted &= entry.place.key != key;
        }
    }

    /// Drops all grants of a peer whose control connection is lost. If the peer restarts, its device may use the same
    /// keys for other memory, so the address is cleared, and stale handles refer to nothing in the next life.
    pub(crate) fn forget(&mut self, peer: ProcessId) {
        for (_, number) in self.numbers.iter().filter(|((owner, _), _)| *owner == peer) {
            let entry = &mut self.entries[*number as usize];
            (entry.granted, entry.place.base) = (false, 0);
        }
    }

    /// Returns the region of a peer, while it is granted.
    #[must_use]
    pub fn resolve(&self, peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion> {
        let number = *self.numbers.get(&(peer, purpose))?;
        let KnownRegion { place, bytes, granted, .. } = self.entries[number as usize];
        let key = u64::from(number) << 32 | place.key & u64::from(u32::MAX);
        granted.then_some(RemoteRegion { peer, key, bytes })
    }

    /// Returns the grant of a region that was resolved earlier, or `None` if it was revoked or granted again since
    /// then, or never existed. Fabrics that check the grant while posting call this.
    #[inline]
    #[must_use]
    pub fn granted(&self, region: &RemoteRegion) -> Option<Granted> {
        let (number, key) = ((region.key >> 32) as usize, region.key & u64::from(u32::MAX));
        let KnownRegion { owner, place, bytes, access, granted } = *self.entries.get(number)?;
        let same = owner == region.peer && place.key & u64::from(u32::MAX) == key;
        (granted && same).then_some(Granted { place, bytes, access })
    }

    /// Returns key and address of a region that was resolved earlier. If it was granted again since then, or was never
    /// granted, the result has the low half of the given key, which the owner refuses.
    #[inline]
    #[must_use]
    pub fn place(&self, region: &RemoteRegion) -> RemoteKey {
        let (number, key) = ((region.key >> 32) as usize, region.key & u64::from(u32::MAX));
        match self.entries.get(number) {
            Some(entry) if entry.place.key & u64::from(u32::MAX) == key => entry.place,
            _ => RemoteKey { key, base: 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: ProcessId = ProcessId(3);
    const PURPOSE: Purpose = Purpose(9);

    fn place(key: u64, base: u64) -> RemoteKey {
        RemoteKey { key, base }
    }

    fn granted(place: RemoteKey) -> Granted {
        Granted { place, bytes: 64, access: Access::Write }
    }

    #[test]
    fn a_grant_is_resolved_until_it_is_revoked() {
        let mut remotes = Remotes::default();
        assert_eq!(remotes.resolve(PEER, PURPOSE), None);
        remotes.grant(PEER, PURPOSE, granted(place(7 << 32 | 5, 0x1000)));
        let first = remotes.resolve(PEER, PURPOSE).unwrap();
        assert_eq!((first.peer, first.bytes, remotes.place(&first)), (PEER, 64, place(7 << 32 | 5, 0x1000)));
        assert_eq!(remotes.granted(&first), Some(granted(place(7 << 32 | 5, 0x1000))));
        assert_eq!(remotes.granted(&RemoteRegion { peer: ProcessId(4), ..first }), None, "of another owner");
        remotes.revoke(PEER, PURPOSE, 4);
        assert_eq!(remotes.resolve(PEER, PURPOSE), Some(first), "an earlier key");
        remotes.revoke(PEER, PURPOSE, 7 << 32 | 5);
        assert_eq!(remotes.granted(&first), None);
        assert_eq!(remotes.resolve(PEER, PURPOSE), None);
        remotes.grant(PEER, PURPOSE, granted(place(6, 0x2000)));
        let second = remotes.resolve(PEER, PURPOSE).unwrap();
        assert_ne!(first.key, second.key);
        assert_eq!((remotes.granted(&first), remotes.granted(&second)), (None, Some(granted(place(6, 0x2000)))));
        assert_eq!((remotes.place(&second), remotes.place(&first)), (place(6, 0x2000), place(5, 0)), "keeps its key");
        remotes.forget(PEER);
        assert_eq!(remotes.resolve(PEER, PURPOSE), None);
        assert_eq!(remotes.place(&second), place(6, 0), "a region of an ended life");
    }

    #[test]
    fn regions_are_separate_and_a_forged_one_has_no_address() {
        let mut remotes = Remotes::default();
        for n in 0..4 {
            remotes.grant(ProcessId(n), PURPOSE, granted(place(u64::from(n) + 10, u64::from(n) << 20)));
        }
        remotes.forget(ProcessId(1));
        let bases: Vec<_> =
            (0..4).map(|n| remotes.resolve(ProcessId(n), PURPOSE).map(|region| remotes.place(&region).base)).collect();
        assert_eq!(bases, [Some(0), None, Some(2 << 20), Some(3 << 20)]);
        let forged = RemoteRegion { peer: PEER, key: u64::MAX, bytes: 8 };
        assert_eq!(remotes.place(&forged), place(u64::from(u32::MAX), 0));
    }
}
