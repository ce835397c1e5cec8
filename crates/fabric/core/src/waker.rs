//! Wake-ups of the thread that polls a fabric, from other threads of its process.

use std::fmt;
use std::sync::Arc;

use crate::memory::{Ordering, Word, fence};

/// A handle that ends the sleep of the thread that polls a [`Fabric`](crate::Fabric), from any thread of its process.
/// Cloning it is cheap. It may outlive its fabric and then does nothing.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}

impl Waker {
    /// Creates the waker of a fabric. `ring` executes a full fence, then wakes the polling thread if that is armed.
    #[must_use]
    pub fn new(ring: impl Fn() + Send + Sync + 'static) -> Self {
        Waker(Arc::new(ring))
    }

    /// Ends the sleep that follows the last [`arm`](crate::Fabric::arm), and makes the fabric's descriptor readable.
    /// The polling thread sees everything stored before this call, either in its check after arming or after the sleep.
    /// If the polling thread is not armed, the call costs a fence and a load. If it is armed, the first call costs a
    /// system call; further ones cost none until the thread arms again.
    #[inline]
    pub fn wake(&self) {
        (self.0)();
    }
}

const AWAKE: u64 = 0;
const ARMED: u64 = 1;
const RUNG: u64 = 2;

/// The flag that wakers check before they wake a polling thread, for fabrics that sleep on descriptors.
///
/// # No wake-up is lost
/// The sleeper stores that it is armed, then checks for work. A waker's thread stores work, then checks whether the
/// sleeper is armed. Each has a full fence between its store and its check, so at least one of them sees the store of
/// the other (Dekker). A waker that finds the sleeper armed claims the duty to wake it by a compare-and-swap. If the
/// sleeper arms again before it has seen that claim, the waker's fence came first, and the check after the new arming
/// sees the work.
#[derive(Debug)]
pub struct Alarm(Word);

impl Default for Alarm {
    fn default() -> Self {
        Alarm(Word::new(AWAKE))
    }
}

impl Alarm {
    /// Marks this thread as about to sleep. The caller must check for work afterwards. If another thread stores work
    /// and then calls [`ring`](Alarm::ring), either this check finds the work, or the sleeper is woken.
    #[inline]
    pub fn arm(&self) {
        self.0.store(ARMED, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Marks this thread as awake.
    #[inline]
    pub fn disarm(&self) {
        self.0.store(AWAKE, Ordering::Relaxed);
    }

    /// Returns whether a waker has rung since [`arm`](Alarm::arm).
    #[inline]
    #[must_use]
    pub fn has_rung(&self) -> bool {
        self.0.load(Ordering::Acquire) == RUNG
    }

    /// Claims the duty to wake the sleeper. Call this after the stores that the sleeper must see. Returns whether the
    /// caller now has the duty.
    #[inline]
    #[must_use = "the caller that claims the duty must wake the sleeper"]
    pub fn ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) == ARMED
            && self.0.compare_exchange(ARMED, RUNG, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_ring_wakes_an_armed_sleeper() {
        let alarm = Alarm::default();
        assert!(!alarm.ring() && !alarm.has_rung(), "awake");
        alarm.arm();
        assert!(!alarm.has_rung() && alarm.ring() && alarm.has_rung());
        assert!(!alarm.ring(), "rung already");
        alarm.disarm();
        assert!(!alarm.ring() && !alarm.has_rung(), "awake again");
        alarm.arm();
        assert!(alarm.ring(), "armed anew");
    }
}
