//! Registered memory: keys, protection domains, bounds and rights.

use std::hash::{Hash, Hasher};

use stentor_fabric::memory::{Ordering, WORD, Word};
use stentor_fabric::{Access, RegionId, Span};

use stentor_atomic_copy as copy;

/// Number of low bits of a key that hold its index in the table, so that no search is needed.
const INDEX_BITS: u32 = 16;
const INDEX: u32 = (1 << INDEX_BITS) - 1;

/// The number of a protection domain. A key to a region is valid only on the queue pairs of one domain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProtectionDomain(pub u32);

/// The right that a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Right {
    Read,
    Write,
    Atomic,
}

#[derive(Debug)]
struct Region {
    words: Box<[Word]>,
    va: u64,
}

impl Region {
    fn values(&self) -> impl Iterator<Item = u64> + '_ {
        self.words.iter().map(|word| word.load(Ordering::Relaxed))
    }
}

/// A clone has separate memory with a copy of the contents.
impl Clone for Region {
    fn clone(&self) -> Region {
        Region { words: self.values().map(Word::new).collect(), va: self.va }
    }
}

impl PartialEq for Region {
    fn eq(&self, other: &Region) -> bool {
        self.va == other.va && self.values().eq(other.values())
    }
}

impl Eq for Region {}

impl Hash for Region {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.va.hash(state);
        self.words.len().hash(state);
        self.values().for_each(|value| value.hash(state));
    }
}

/// A grant: one access to one region by the queue pairs of one protection domain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    region: RegionId,
    domain: ProtectionDomain,
    access: Access,
    value: u32,
    live: bool,
    /// First key that was ever created at this index.
    first: u32,
}

impl Key {
    /// Returns the next key at this index, or `None` after the last one. Keys must not repeat, because a peer may still
    /// have an old key. An exhausted index is therefore never used again.
    fn successor(&self) -> Option<u32> {
        let next = self.value.wrapping_add(1 << INDEX_BITS);
        (next != self.first).then_some(next)
    }
}

/// All regions of one endpoint and the keys to them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Memory {
    regions: Vec<Region>,
    keys: Vec<Key>,
}

impl Memory {
    /// Maximum number of valid keys at a time, and of successive keys at one index. Over time, 2^32 different keys can
    /// therefore be created.
    pub const MAX_KEYS: usize = 1 << INDEX_BITS;

    /// Registers zeroed memory at a virtual address, which peers use in requests.
    pub fn register(&mut self, words: usize, va: u64) -> RegionId {
        let region = RegionId(self.regions.len() as u32);
        self.regions.push(Region { words: (0..words).map(|_| Word::new(0)).collect(), va });
        region
    }

    /// Returns the words of a region. The slice is empty if the region was deregistered.
    ///
    /// # Panics
    /// Panics if the region does not exist.
    #[inline]
    #[must_use]
    pub fn words(&self, region: RegionId) -> &[Word] {
        &self.regions[region.index()].words
    }

    /// Deregisters a region at once: its keys become invalid, and it has no words any more. If a posted receive uses
    /// the region, the responder refuses the SEND for it with "remote operational error", and the queue pair breaks. A
    /// queue pair also breaks if it must send from the region or store a response in it. A second call has no effect.
    ///
    /// # Panics
    /// Panics if the region does not exist.
    pub fn deregister(&mut self, region: RegionId) {
        self.regions[region.index()].words = Box::default();
        self.keys.iter_mut().filter(|key| key.region == region).for_each(|key| key.live = false);
    }

    /// Creates a key to a region for the queue pairs of a protection domain. `entropy`, if it is random, makes it
    /// unlikely that keys of different lives of a process are equal. Returns `None` if all
    /// [`MAX_KEYS`](Memory::MAX_KEYS) indices are in use or exhausted.
    ///
    /// # Panics
    /// Panics if the region does not exist.
    pub fn grant(&mut self, region: RegionId, domain: ProtectionDomain, access: Access, entropy: u16) -> Option<u32> {
        assert!(region.index() < self.regions.len(), "{region:?} is not registered");
        let free = |key: &Key| if key.live { None } else { Some((key.successor()?, key.first)) };
        let again = self.keys.iter().position(|key| free(key).is_some());
        let index = again.unwrap_or(self.keys.len());
        if index >= Memory::MAX_KEYS {
            return None;
        }
        let fresh = u32::from(entropy) << INDEX_BITS | index as u32;
        // A reused index has another key each time.
        let (value, first) = self.keys.get(index).and_then(free).unwrap_or((fresh, fresh));
        let key = Key { region, domain, access, value, live: true, first };
        match self.keys.get_mut(index) {
            Some(place) => *place = key,
            None => self.keys.push(key),
        }
        Some(value)
    }

    /// Invalidates a key at once. Has no effect on an invalid key.
    pub fn revoke(&mut self, key: u32) {
        if let Some(own) = self.keys.get_mut((key & INDEX) as usize)
            && own.value == key
        {
            own.live = false;
        }
    }

    /// Returns the virtual address of a region, or `None` if the region does not exist.
    #[must_use]
    pub fn va(&self, region: RegionId) -> Option<u64> {
        Some(self.regions.get(region.index())?.va)
    }

    /// Returns the size of all registered memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.regions.iter().map(|region| (region.words.len() * WORD) as u64).sum()
    }

    /// Returns whether a span lies inside its region.
    #[must_use]
    pub fn contains(&self, span: Span) -> bool {
        self.regions.get(span.region.index()).is_some_and(|region| {
            let bytes = (region.words.len() * WORD) as u64;
            span.offset.checked_add(span.bytes.into()).is_some_and(|end| end <= bytes)
        })
    }

    /// Returns the span that a peer's request addresses, if the key, the domain, the bounds and the rights permit it
    /// (InfiniBand specification 9.7.4.1.4).
    pub(crate) fn resolve(
        &self,
        domain: ProtectionDomain,
        (va, key): (u64, u32),
        bytes: u32,
        right: Right,
    ) -> Option<Span> {
        let own = self.keys.get((key & INDEX) as usize)?;
        let allowed = match right {
            Right::Read => true,
            Right::Write => own.access != Access::Read,
            Right::Atomic => own.access == Access::Atomic,
        };
        let offset = va.checked_sub(self.va(own.region)?)?;
        let span = Span { region: own.region, offset, bytes };
        (own.live && own.value == key && own.domain == domain && allowed && self.contains(span)).then_some(span)
    }

    /// Copies bytes out of a region. The span must have been checked.
    pub(crate) fn load(&self, region: RegionId, offset: u64, to: &mut [u8]) {
        let words = &self.regions[region.index()].words;
        let (mut at, mut to) = (offset as usize, to);
        let head = (at.wrapping_neg() % WORD).min(to.len());
        if head > 0 {
            let word = words[at / WORD].load(Ordering::Relaxed).to_ne_bytes();
            to[..head].copy_from_slice(&word[at % WORD..at % WORD + head]);
            (at, to) = (at + head, &mut to[head..]);
        }
        let (chunks, tail) = to.as_chunks_mut::<WORD>();
        copy::load(words.get(at / WORD..).unwrap_or(&[]), chunks);
        if !tail.is_empty() {
            let word = words[at / WORD + chunks.len()].load(Ordering::Relaxed).to_ne_bytes();
            let count = tail.len();
            tail.copy_from_slice(&word[..count]);
        }
    }

    /// Copies bytes into a region, and changes no other bytes. The span must have been checked.
    pub(crate) fn store(&self, region: RegionId, offset: u64, from: &[u8]) {
        let words = &self.regions[region.index()].words;
        let (mut at, mut from) = (offset as usize, from);
        let head = (at.wrapping_neg() % WORD).min(from.len());
        if head > 0 {
            patch(&words[at / WORD], at % WORD, &from[..head]);
            (at, from) = (at + head, &from[head..]);
        }
        let (chunks, tail) = from.as_chunks::<WORD>();
        copy::store(words.get(at / WORD..).unwrap_or(&[]), chunks);
        if !tail.is_empty() {
            patch(&words[at / WORD + chunks.len()], 0, tail);
        }
    }

    /// Returns the word of an atomic operation. The span must have been checked.
    pub(crate) fn word(&self, span: Span) -> &Word {
        &self.regions[span.region.index()].words[span.offset as usize / WORD]
    }
}

/// Replaces some bytes of a word.
fn patch(word: &Word, at: usize, bytes: &[u8]) {
    let mut value = word.load(Ordering::Relaxed).to_ne_bytes();
    value[at..at + bytes.len()].copy_from_slice(bytes);
    word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: ProtectionDomain = ProtectionDomain(1);
    const VA: u64 = 0x1000;

    #[test]
    fn bytes_are_copied_at_every_offset_and_no_others_change() {
        let mut memory = Memory::default();
        let region = memory.register(8, VA);
        for offset in 0..20_usize {
            for bytes in 0..30_usize {
                memory.store(region, 0, &[0xee; 64]);
                let data: Vec<u8> = (1..=bytes as u8).collect();
                memory.store(region, offset as u64, &data);
                let mut expected = [0xee; 64];
                expected[offset..offset + bytes].copy_from_slice(&data);
                let mut all = [0; 64];
                memory.load(region, 0, &mut all);
                assert_eq!(all, expected, "{bytes} bytes at {offset}");
                let mut part = vec![0; bytes];
                memory.load(region, offset as u64, &mut part);
                assert_eq!(part, data);
            }
        }
    }

    #[test]
    fn key_domain_bounds_and_rights_all_count() {
        let mut memory = Memory::default();
        let other = memory.register(8, VA);
        let region = memory.register(8, VA);
        memory.grant(other, ProtectionDomain(9), Access::Atomic, 7).unwrap();
        let key = memory.grant(region, DOMAIN, Access::Write, 7).unwrap();
        let resolve = |memory: &Memory, va, key, bytes, right| memory.resolve(DOMAIN, (va, key), bytes, right);
        assert_eq!(resolve(&memory, VA + 8, key, 56, Right::Write), Some(Span { region, offset: 8, bytes: 56 }));
        for (va, bytes) in [(VA + 8, 57), (VA - 1, 1), (VA + 65, 0), (u64::MAX, 8), (0, 8)] {
            assert_eq!(resolve(&memory, va, key, bytes, Right::Read), None, "{bytes} bytes at {va:#x}");
        }
        assert_eq!(resolve(&memory, VA, key, 8, Right::Atomic), None);
        assert_eq!(resolve(&memory, VA, key ^ 1, 8, Right::Read), None, "another domain");
        assert_eq!(resolve(&memory, VA, key ^ 1 << 20, 8, Right::Read), None);
        assert_eq!(memory.resolve(ProtectionDomain(2), (VA, key), 8, Right::Read), None);
        memory.revoke(key ^ 1 << 20);
        assert!(resolve(&memory, VA, key, 8, Right::Read).is_some(), "revoking another key has no effect on this one");
        memory.revoke(key);
        assert_eq!(resolve(&memory, VA, key, 8, Right::Read), None);
        let fresh = memory.grant(region, DOMAIN, Access::Read, 7).unwrap();
        assert_ne!(fresh, key);
        assert_eq!(resolve(&memory, VA, key, 8, Right::Read), None, "the old key is invalid");
        assert_eq!(resolve(&memory, VA, fresh, 8, Right::Write), None);
    }

    /// A revoked key never becomes valid again, however long a peer keeps it.
    #[test]
    fn no_key_is_created_twice() {
        let mut memory = Memory::default();
        let region = memory.register(8, VA);
        let mut seen = std::collections::HashSet::new();
        let first = memory.grant(region, DOMAIN, Access::Read, 0xfffe).unwrap();
        seen.insert(first);
        memory.revoke(first);
        for n in 1..Memory::MAX_KEYS + 10 {
            let key = memory.grant(region, DOMAIN, Access::Read, 0xfffe).unwrap();
            assert!(seen.insert(key), "key {n} is {key:#x} again");
            assert_eq!(key & INDEX, u32::from(n >= Memory::MAX_KEYS), "the next index only after one is exhausted");
            assert_eq!(memory.resolve(DOMAIN, (VA, first), 8, Right::Read), None);
            memory.revoke(key);
        }
    }

    #[test]
    fn deregistered_memory_is_inaccessible() {
        let mut memory = Memory::default();
        let (region, other) = (memory.register(8, VA), memory.register(8, VA));
        let [key, beside] = [region, other].map(|region| memory.grant(region, DOMAIN, Access::Atomic, 7).unwrap());
        memory.deregister(region);
        memory.deregister(region);
        assert_eq!(memory.resolve(DOMAIN, (VA, key), 8, Right::Read), None);
        assert!(
            memory.resolve(DOMAIN, (VA, beside), 8, Right::Atomic).is_some(),
            "the other region is still registered"
        );
        assert!(memory.words(region).is_empty() && !memory.contains(Span { region, offset: 0, bytes: 1 }));
        assert_eq!(memory.bytes(), 64);
        // A key that is created after the deregistration permits no access, either.
        let late = memory.grant(region, DOMAIN, Access::Atomic, 7).unwrap();
        assert_eq!(memory.resolve(DOMAIN, (VA, late), 1, Right::Read), None);
    }
}
