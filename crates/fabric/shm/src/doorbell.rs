//! How a sleeping process is woken without a system call, or a fence, per write.
//!
//! Each process has one wait word that its peers may write. The sleeper says that it is about to sleep, then looks at
//! everything once more; a writer stores its data, then looks at the wait word. A full fence on either side between
//! store and look means that at least one of the two sees the other (Dekker): no wake-up is lost.
#![cfg_attr(not(loom), allow(unreachable_pub, reason = "public under loom only"))]

use stentor_fabric::memory::{Ordering, Word, fence};

/// Awake: nobody needs to do anything.
pub const AWAKE: u64 = 0;
/// About to sleep on the wait word itself.
pub const FUTEX: u64 = 1;
/// About to sleep on the control sockets.
pub const SOCKET: u64 = 2;

/// Says that this process is about to sleep. What is looked at after this is seen or wakes.
#[inline]
pub fn arm(word: &Word, how: u64) {
    word.store(how, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Says that this process is awake.
#[inline]
pub fn disarm(word: &Word) {
    word.store(AWAKE, Ordering::Relaxed);
}

/// Takes the duty to wake the owner of this wait word: how it sleeps, or [`AWAKE`]. The caller has executed a full
/// fence since the last store that the owner should see.
#[inline]
pub fn ring(word: &Word) -> u64 {
    if word.load(Ordering::Relaxed) == AWAKE { AWAKE } else { word.swap(AWAKE, Ordering::AcqRel) }
}
