//! Keys of peers' regions that this process must not use any more.
//!
//! A peer fences a key on every connection when it revokes a grant. The connection manager reports the same revocation
//! on another path, which may be slower. Until then the key still looks granted, so requests with it are refused here.
//!
//! If the provider chooses the keys, two peers may have the same key, and a peer may grant a key again after it has
//! closed the earlier registration. Keys are therefore kept for each peer, and a new grant removes its key.
//!
//! A fence on a connection that the peer has closed may arrive after the new grant. It is ignored: the connection manager
//! has reported its revocation before the close.

use std::collections::{HashMap, HashSet, VecDeque};

use stentor_fabric::{ProcessId, QpId};

/// Maximum number of keys that are kept for each peer. The connection manager has reported the oldest revocation long
/// before so many others arrive.
const MAX_KEYS: usize = 4096;

/// The fenced keys of all peers.
#[derive(Debug, Default)]
pub(super) struct Fenced {
    all: HashSet<(ProcessId, u64)>,
    /// The keys of `all` by peer, each list from the oldest to the newest.
    orders: HashMap<ProcessId, VecDeque<u64>>,
    /// Queue pairs whose end at the peer is closed.
    closed: HashSet<QpId>,
}

impl Fenced {
    #[inline]
    pub(super) fn contains(&self, peer: ProcessId, key: u64) -> bool {
        self.all.contains(&(peer, key))
    }

    /// Records that the peer has closed its end of a queue pair.
    pub(super) fn close(&mut self, qp: QpId) {
        self.closed.insert(qp);
    }

    /// Records that a queue pair begins a new life.
    pub(super) fn begin(&mut self, qp: QpId) {
        self.closed.remove(&qp);
    }

    /// Handles a fence that arrived on a queue pair. Ignores it if the peer has closed its end.
    pub(super) fn add(&mut self, qp: QpId, peer: ProcessId, key: u64) {
        if self.closed.contains(&qp) || !self.all.insert((peer, key)) {
            return;
        }
        let order = self.orders.entry(peer).or_default();
        order.push_back(key);
        if order.len() > MAX_KEYS
            && let Some(oldest) = order.pop_front()
        {
            self.all.remove(&(peer, oldest));
        }
    }

    /// Removes a key that the peer has granted again. Returns whether it was fenced.
    pub(super) fn remove(&mut self, peer: ProcessId, key: u64) -> bool {
        let removed = self.all.remove(&(peer, key));
        if removed && let Some(order) = self.orders.get_mut(&peer) {
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
    const QP: QpId = QpId(3);

    #[test]
    fn key_of_one_peer_is_not_fenced_at_another_one() {
        let mut fenced = Fenced::default();
        fenced.add(QP, A, 7);
        assert_eq!((fenced.contains(A, 7), fenced.contains(B, 7), fenced.contains(A, 8)), (true, false, false));
    }

    #[test]
    fn key_that_is_granted_again_is_no_longer_fenced() {
        let mut fenced = Fenced::default();
        // Each connection with the peer has a frame of its own.
        (0..3).for_each(|_| fenced.add(QP, A, 7));
        assert_eq!((fenced.remove(B, 7), fenced.remove(A, 7), fenced.remove(A, 7)), (false, true, false));
        assert!(!fenced.contains(A, 7));
        fenced.add(QP, A, 7);
        assert!(fenced.contains(A, 7), "it can be fenced again");
    }

    /// A provider that chooses the keys may use a key again as soon as its registration is closed.
    #[test]
    fn late_fence_of_a_closed_connection_does_not_affect_a_new_grant() {
        let mut fenced = Fenced::default();
        fenced.close(QP);
        assert!(!fenced.remove(A, 7), "the peer grants the key again");
        fenced.add(QP, A, 7);
        assert!(!fenced.contains(A, 7));
        fenced.add(QpId(4), A, 8);
        assert!(fenced.contains(A, 8), "another connection is open");
        fenced.begin(QP);
        fenced.add(QP, A, 7);
        assert!(fenced.contains(A, 7), "the next life is open");
    }

    #[test]
    fn number_of_keys_is_bounded_for_each_peer() {
        let mut fenced = Fenced::default();
        fenced.add(QP, B, 0);
        for key in 0..2 * MAX_KEYS as u64 {
            fenced.add(QP, A, key);
        }
        assert_eq!((fenced.all.len(), fenced.orders[&A].len()), (MAX_KEYS + 1, MAX_KEYS));
        assert!(fenced.contains(B, 0) && fenced.contains(A, 2 * MAX_KEYS as u64 - 1) && !fenced.contains(A, 0));
    }
}
