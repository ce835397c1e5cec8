//! Waking a sleeping process without a system call or a fence for each write.
//!
//! Each process has one wait word that its peers may write. The sleeper announces in it that it is about to sleep, then
//! checks everything once more. A writer stores its data, then checks the wait word. Both sides execute a full fence
//! between their store and their check, so at least one of them sees the other's store (Dekker's algorithm): no wake-up
//! is lost.
#![cfg_attr(not(loom), allow(unreachable_pub, reason = "public under loom only"))]

use stentor_fabric::memory::{Ordering, Word, fence};

/// The process is awake.
pub const AWAKE: u64 = 0;
/// The process sleeps, or is about to sleep, on the wait word itself.
pub const FUTEX: u64 = 1;
/// The process sleeps, or is about to sleep, on its epoll instance, which observes its eventfd and its control sockets.
pub const EPOLL: u64 = 2;

/// Announces that this process is about to sleep. Each store of a peer is either visible to later checks or wakes this
/// process.
#[inline]
pub fn arm(word: &Word, how: u64) {
    word.store(how, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Announces that this process is awake.
#[inline]
pub fn disarm(word: &Word) {
    word.store(AWAKE, Ordering::Relaxed);
}

/// Takes over the duty to wake the owner of this wait word. Returns how the owner sleeps, or [`AWAKE`]. The caller must
/// have executed a full fence since the last store that the owner should see.
#[inline]
pub fn ring(word: &Word) -> u64 {
    if word.load(Ordering::Relaxed) == AWAKE { AWAKE } else { word.swap(AWAKE, Ordering::AcqRel) }
}
