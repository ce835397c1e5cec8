//! What peers have granted.

use std::collections::HashMap;

use stentor_fabric::{Access, ProcessId, Purpose, RemoteRegion};

/// Where a region of a peer is, as its owner's fabric says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteKey {
    /// Its key.
    pub key: u64,
    /// Its address.
    pub base: u64,
}

/// What a peer has granted, and has not taken back as far as is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// Where it is.
    pub place: RemoteKey,
    /// Its size, bytes.
    pub bytes: u64,
    /// What may be done with it.
    pub access: Access,
}

/// Regions of peers, by what they are for.
///
/// The [`key`](RemoteRegion::key) of a [`RemoteRegion`] is made here: the low half is the low half of the owner's key, the
/// high half says where its address stands. So a region that was granted anew has another name, and whoever posts needs no
/// search for the address.
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
    /// A peer has granted a region.
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

    /// It has taken it back, if the key is still the last one.
    pub(crate) fn revoke(&mut self, peer: ProcessId, purpose: Purpose, key: u64) {
        if let Some(number) = self.numbers.get(&(peer, purpose)) {
            let entry = &mut self.entries[*number as usize];
            entry.granted &= entry.place.key != key;
        }
    }

    /// It is gone, and all that it has granted. The device of its next life may give out the same keys for other memory: nothing
    /// of its last one is there where a handle of that points from now on.
    pub(crate) fn forget(&mut self, peer: ProcessId) {
        for (_, number) in self.numbers.iter().filter(|((owner, _), _)| *owner == peer) {
            let entry = &mut self.entries[*number as usize];
            (entry.granted, entry.place.base) = (false, 0);
        }
    }

    /// The region of a peer, as long as it is granted.
    #[must_use]
    pub fn resolve(&self, peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion> {
        let number = *self.numbers.get(&(peer, purpose))?;
        let KnownRegion { place, bytes, granted, .. } = self.entries[number as usize];
        let key = u64::from(number) << 32 | place.key & u64::from(u32::MAX);
        granted.then_some(RemoteRegion { peer, key, bytes })
    }

    /// What may be done with a region that was resolved some time ago; `None` if it was taken back since then, or granted anew,
    /// or by nobody. For fabrics that refuse while posting.
    #[inline]
    #[must_use]
    pub fn granted(&self, region: &RemoteRegion) -> Option<Granted> {
        let (number, key) = ((region.key >> 32) as usize, region.key & u64::from(u32::MAX));
        let KnownRegion { owner, place, bytes, access, granted } = *self.entries.get(number)?;
        let same = owner == region.peer && place.key & u64::from(u32::MAX) == key;
        (granted && same).then_some(Granted { place, bytes, access })
    }

    /// Where a region is that was resolved some time ago. One that was granted anew since then keeps the low half of its old
    /// key, which its owner refuses; so does one that nobody ever granted.
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
    fn what_was_granted_is_resolved_until_it_is_taken_back() {
        let mut remotes = Remotes::default();
        assert_eq!(remotes.resolve(PEER, PURPOSE), None);
        remotes.grant(PEER, PURPOSE, granted(place(7 << 32 | 5, 0x1000)));
        let first = remotes.resolve(PEER, PURPOSE).unwrap();
        assert_eq!((first.peer, first.bytes, remotes.place(&first)), (PEER, 64, place(7 << 32 | 5, 0x1000)));
        assert_eq!(remotes.granted(&first), Some(granted(place(7 << 32 | 5, 0x1000))));
        assert_eq!(remotes.granted(&RemoteRegion { peer: ProcessId(4), ..first }), None, "of another owner");
        remotes.revoke(PEER, PURPOSE, 4);
        assert_eq!(remotes.resolve(PEER, PURPOSE), Some(first), "a key of before");
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
        assert_eq!(remotes.place(&second), place(6, 0), "of a life that is over");
    }

    #[test]
    fn regions_keep_apart_and_a_forged_one_is_nowhere() {
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
