//! The keys of one group's partition, with their values.
//!
//! # Invariants
//! - The store depends only on the commands and on the time of the order. The iteration order of hash tables is never
//!   visible: [`scan`](Store::scan) visits keys in the order of a hash that is the same on all nodes.
//! - [`get`](Store::get) and [`scan`](Store::scan) skip a key that has expired. The next command removes it. The
//!   machine also sets a timer, so that an idle group removes expired keys in time.
//! - `freeze` copies only one pointer for each of 1024 shards. The store copies a shard when it changes the shard while
//!   a frozen store shares it.
//! - `ends` has one pair for each key that expires, and no other pairs.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read, Write};
use std::sync::Arc;

use crate::partition::{Partition, slot_of};

/// Number of shards. A shard is the unit that the store copies after `freeze`.
const SHARDS: u16 = 1024;

/// The cursor at the end of a [scan](Store::scan).
pub const SCAN_END: u64 = (SHARDS as u64) << 32;

/// Maximum length of a key and of a value, in bytes.
pub const LONGEST: usize = 65_536;

/// The value of a key, its version and its time of expiry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The bytes of the value.
    pub value: Vec<u8>,
    /// Index of the last position at which the value or its time of expiry changed. The commands of one batch have the
    /// same index.
    pub version: u64,
    /// Time of the order at which the key expires, or 0 if it never does.
    pub ends: u64,
}

type Shard = HashMap<Box<[u8]>, Entry, foldhash::fast::RandomState>;

/// Keys and their values.
#[derive(Debug)]
pub struct Store {
    /// The partition to which the keys of the store belong.
    pub partition: Partition,
    shards: Vec<Arc<Shard>>,
    keys: u64,
    ends: BTreeSet<(u64, Box<[u8]>)>,
}

impl Store {
    /// Returns an empty store.
    #[must_use]
    pub fn new(partition: Partition) -> Self {
        let shards = (0..SHARDS).map(|_| Arc::default()).collect();
        Store { partition, shards, keys: 0, ends: BTreeSet::new() }
    }

    /// Returns the number of keys. Expired keys count until they are removed.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Returns the value of a key, or `None` if there is no such key or it has expired at this time.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &[u8], time: u64) -> Option<&Entry> {
        let entry = self.shards[shard_of(key)].get(key)?;
        (entry.ends == 0 || entry.ends > time).then_some(entry)
    }

    /// Sets the value of a key.
    pub fn set(&mut self, key: &[u8], entry: Entry) {
        let ends = entry.ends;
        let shard = Arc::make_mut(&mut self.shards[shard_of(key)]);
        let before = match shard.get_mut(key) {
            Some(known) => Some(std::mem::replace(known, entry).ends),
            None => shard.insert(key.into(), entry).map(|known| known.ends),
        };
        self.keys += u64::from(before.is_none());
        self.move_end(key, before.unwrap_or(0), ends);
    }

    /// Changes an existing value with `change`, and sets its version. Returns the result of `change`, or `None` if
    /// there is no such key.
    pub fn change<R>(&mut self, key: &[u8], version: u64, change: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        let entry = Arc::make_mut(&mut self.shards[shard_of(key)]).get_mut(key)?;
        let before = entry.ends;
        let result = change(entry);
        entry.version = version;
        let after = entry.ends;
        self.move_end(key, before, after);
        Some(result)
    }

    /// Removes a key. Returns its value, or `None` if there is no such key.
    pub fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        let at = shard_of(key);
        if !self.shards[at].contains_key(key) {
            return None;
        }
        let entry = Arc::make_mut(&mut self.shards[at]).remove(key)?;
        self.keys -= 1;
        self.move_end(key, entry.ends, 0);
        Some(entry)
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        *self = Store::new(self.partition);
    }

    fn move_end(&mut self, key: &[u8], before: u64, after: u64) {
        if before == after {
            return;
        }
        if before != 0 {
            self.ends.remove(&(before, key.into()));
        }
        if after != 0 {
            self.ends.insert((after, key.into()));
        }
    }

    /// Removes the keys that have expired at this time.
    pub fn expire(&mut self, time: u64) {
        while let Some((ends, _)) = self.ends.first()
            && *ends <= time
            && let Some((_, key)) = self.ends.pop_first()
        {
            // The pair has been removed from `ends` already.
            if Arc::make_mut(&mut self.shards[shard_of(&key)]).remove(&key).is_some() {
                self.keys -= 1;
            }
        }
    }

    /// Returns the time at which the next key expires, or `None` if no key expires.
    #[must_use]
    pub fn next_end(&self) -> Option<u64> {
        self.ends.first().map(|(ends, _)| *ends)
    }

    /// Calls `take` for about `count` keys, beginning at the cursor. The first cursor is 0. `take` returns `false` if
    /// it has no room for the key. Returns the next cursor, which is [`SCAN_END`] at the end. A key that exists during
    /// the whole scan is visited at least once.
    pub fn scan<'a>(&'a self, cursor: u64, count: u32, time: u64, mut take: impl FnMut(&'a [u8]) -> bool) -> u64 {
        let (mut taken, mut from) = (0u32, cursor);
        for (at, shard) in self.shards.iter().enumerate().skip((cursor >> 32) as usize) {
            let mut keys: Vec<(u64, &[u8])> = shard
                .iter()
                .filter(|(_, entry)| entry.ends == 0 || entry.ends > time)
                .map(|(key, _)| ((at as u64) << 32 | u64::from(crc32fast::hash(key)), &**key))
                .filter(|(place, _)| *place >= from)
                .collect();
            keys.sort_unstable();
            let mut last = None;
            for (place, key) in keys {
                // Several keys may have the same cursor. They are visited in one step, so that no key is skipped.
                if (taken >= count && last != Some(place)) || !take(key) {
                    return place;
                }
                (taken, last) = (taken + 1, Some(place));
            }
            from = (at as u64 + 1) << 32;
            if taken >= count {
                break;
            }
        }
        from.max(cursor.min(SCAN_END))
    }

    /// Returns a copy of the present values.
    #[must_use]
    pub fn freeze(&self) -> FrozenStore {
        FrozenStore { shards: self.shards.clone(), keys: self.keys }
    }

    /// Replaces all keys by the keys that a frozen store wrote.
    ///
    /// # Errors
    /// Returns an error if the bytes end too early, or a key or a value is too long.
    pub fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut store = Store::new(self.partition);
        for _ in 0..read_u64(from)? {
            let (key, value) = (read_bytes(from)?, read_bytes(from)?);
            let (version, ends) = (read_u64(from)?, read_u64(from)?);
            store.set(&key, Entry { value, version, ends });
        }
        *self = store;
        Ok(())
    }
}

#[inline]
fn shard_of(key: &[u8]) -> usize {
    usize::from(slot_of(key) % SHARDS)
}

fn read_u64(from: &mut dyn Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn read_bytes(from: &mut dyn Read) -> io::Result<Vec<u8>> {
    let length = read_u64(from)?;
    if length > LONGEST as u64 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a key or value of {length} bytes")));
    }
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A copy of the values at one moment.
#[derive(Debug)]
pub struct FrozenStore {
    shards: Vec<Arc<Shard>>,
    keys: u64,
}

impl stentor::Frozen for FrozenStore {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.keys.to_le_bytes())?;
        for (key, entry) in self.shards.iter().flat_map(|shard| shard.iter()) {
            for bytes in [&**key, &entry.value] {
                out.write_all(&(bytes.len() as u64).to_le_bytes())?;
                out.write_all(bytes)?;
            }
            out.write_all(&entry.version.to_le_bytes())?;
            out.write_all(&entry.ends.to_le_bytes())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;
    use stentor::Frozen;

    use super::*;

    const ALL: Partition = Partition { index: 0, of: 1 };

    fn entry(value: u8, ends: u64) -> Entry {
        Entry { value: vec![value], version: 1, ends }
    }

    fn scanned(store: &Store, count: u32) -> Vec<Vec<u8>> {
        let (mut cursor, mut keys) = (0, Vec::new());
        while cursor != SCAN_END {
            let next = store.scan(cursor, count, 0, |key| {
                keys.push(key.to_vec());
                true
            });
            assert!(next > cursor, "{next} after {cursor}");
            cursor = next;
        }
        keys
    }

    #[test]
    fn scan_finds_each_key_once_for_any_count() {
        let mut store = Store::new(ALL);
        (0..3000u32).for_each(|n| store.set(&n.to_le_bytes(), entry(1, 0)));
        for count in [1, 10, 5000] {
            let keys = scanned(&store, count);
            assert_eq!((keys.len(), keys.iter().collect::<BTreeSet<_>>().len()), (3000, 3000));
        }
        let mut room = 5;
        let next = store.scan(0, 100, 0, |_| {
            room -= 1;
            room >= 0
        });
        assert!(next > 0 && next < SCAN_END, "the scan stops at the key that has no room");
    }

    #[test]
    fn keys_expire_in_time() {
        let mut store = Store::new(ALL);
        store.set(b"a", entry(1, 10));
        store.set(b"b", entry(2, 20));
        store.set(b"b", entry(2, 0));
        store.set(b"c", entry(3, 15));
        assert_eq!((store.next_end(), store.get(b"a", 9).is_some(), store.get(b"a", 10)), (Some(10), true, None));
        store.expire(12);
        assert_eq!((store.keys(), store.next_end()), (2, Some(15)));
        assert_eq!(store.change(b"c", 2, |entry| entry.ends = 0), Some(()));
        assert_eq!(store.next_end(), None);
    }

    #[test]
    fn frozen_store_does_not_change() {
        let mut store = Store::new(ALL);
        (0..100u8).for_each(|n| store.set(&[n], entry(n, u64::from(n))));
        let frozen = store.freeze();
        (0..100u8).for_each(|n| drop(store.remove(&[n])));
        let mut bytes = Vec::new();
        frozen.write(&mut bytes).unwrap();
        let mut other = Store::new(ALL);
        other.restore(&mut &bytes[..]).unwrap();
        assert_eq!((store.keys(), other.keys(), other.next_end()), (0, 100, Some(1)));
        assert_eq!(other.get(&[7], 0), Some(&entry(7, 7)));
        for length in 0..bytes.len() {
            assert!(Store::new(ALL).restore(&mut &bytes[..length]).is_err(), "{length} bytes of {}", bytes.len());
        }
    }

    proptest! {
        #[test]
        fn store_behaves_as_a_map(steps in proptest::collection::vec((0u8..6, 0u8..8, 0u64..40), 0..200)) {
            let (mut store, mut map, mut now) = (Store::new(ALL), BTreeMap::new(), 0);
            for (what, key, number) in steps {
                match what {
                    0..=2 => {
                        store.set(&[key], entry(key, number));
                        map.insert(key, number);
                    }
                    3 => prop_assert_eq!(store.remove(&[key]).map(|entry| entry.ends), map.remove(&key)),
                    _ => {
                        now += number / 8;
                        store.expire(now);
                        map.retain(|_, ends| *ends == 0 || *ends > now);
                    }
                }
                prop_assert_eq!(store.keys(), map.len() as u64);
                prop_assert_eq!(store.next_end(), map.values().copied().filter(|ends| *ends != 0).min());
            }
        }
    }
}
