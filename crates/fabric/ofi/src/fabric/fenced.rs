//! Keys of peers' regions that this process must not use any more.
//!
//! A peer fences a key on every connection when it revokes a grant. The connection manager reports the same revocation
//! on another path, which may be slower. Until then the key still looks granted, so requests with it are refused here.
//!
//! If the provider chooses the keys, two peers may have the same key, and a peer may grant a key again after it has
//! closed the earlier registration. Keys are therefore kept for each peer, and a new grant removes its key.

use std::collections::{HashMap, HashSet, VecDeque};

use stentor_fabric::ProcessId;

/// Maximum number of keys that are kept for each peer. The connection manager has reported the oldest revocation long
/// before so many others arrive.
const MAX_KEYS: usize = 4096;

#[derive(Debug, Default)]
struct Keys {
    all: HashSet<u64>,
    /// The same keys, the oldest first.
    order: VecDeque<u64>,
}

/// The fenced keys of all peers.
#[derive(Debug, Default)]
pub(super) struct Fenced {
    peers: HashMap<ProcessId, Keys>,
}

impl Fenced {
    #[inline]
    pub(super) fn contains(&self, peer: ProcessId, key: u64) -> bool {
        self.peers.get(&peer).is_some_and(|keys| keys.all.contains(&key))
    }

    pub(super) fn add(&mut self, peer: ProcessId, key: u64) {
        let Keys { all, order } = self.peers.entry(peer).or_default();
        if all.insert(key) {
            order.push_back(key);
        }
        if order.len() > MAX_KEYS
            && let Some(oldest) = order.pop_front()
        {
            all.remove(&oldest);
        }
    }

    /// Removes a key that the peer has granted again. Returns whether it was fenced.
    pub(super) fn remove(&mut self, peer: ProcessId, key: u64) -> bool {
        let Some(Keys { all, order }) = self.peers.get_mut(&peer) else { return false };
        let removed = all.remove(&key);
        if removed {
            order.retain(|other| *other != key);
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ProcessId = ProcessId(1);
    const B: ProcessId = ProcessId(2);

    #[test]
    fn key_of_one_peer_is_not_fenced_at_another_one() {
        let mut fenced = Fenced::default();
        fenced.add(A, 7);
        assert_eq!((fenced.contains(A, 7), fenced.contains(B, 7), fenced.contains(A, 8)), (true, false, false));
    }

    #[test]
    fn key_that_is_granted_again_is_no_longer_fenced() {
        let mut fenced = Fenced::default();
        // Each connection with the peer has a frame of its own.
        (0..3).for_each(|_| fenced.add(A, 7));
        assert_eq!((fenced.remove(B, 7), fenced.remove(A, 7), fenced.remove(A, 7)), (false, true, false));
        assert!(!fenced.contains(A, 7));
        fenced.add(A, 7);
        assert!(fenced.contains(A, 7), "it can be fenced again");
    }

    #[test]
    fn number_of_keys_is_bounded_for_each_peer() {
        let mut fenced = Fenced::default();
        fenced.add(B, 0);
        for key in 0..2 * MAX_KEYS as u64 {
            fenced.add(A, key);
        }
        let keys = &fenced.peers[&A];
        assert_eq!((keys.all.len(), keys.order.len()), (MAX_KEYS, MAX_KEYS));
        assert!(fenced.contains(B, 0) && fenced.contains(A, 2 * MAX_KEYS as u64 - 1) && !fenced.contains(A, 0));
    }
}
