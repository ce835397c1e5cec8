//! Ending the sleep of the thread that polls a fabric, from another thread of its process.

use std::fmt;
use std::sync::Arc;

use crate::memory::{Ordering, Word, fence};

/// Ends the sleep of the thread that polls a [`Fabric`](crate::Fabric), from any thread of its process. Cloning it is cheap. It may
/// outlive its fabric, and does nothing then.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}

impl Waker {
    /// Makes the waker of a fabric. `ring` executes a full fence, then wakes the polling thread if it is armed.
    #[must_use]
    pub fn new(ring: impl Fn() + Send + Sync + 'static) -> Self {
        Waker(Arc::new(ring))
    }

    /// Ends the sleep that follows the last [`arm`](crate::Fabric::arm), and makes the fabric's descriptor readable. The polling thread
    /// sees what was stored before this: in the look that it takes after it armed, or after the sleep. A thread that is not armed costs a
    /// fence and a load. A thread that is armed costs a system call, and costs none again until it arms anew.
    #[inline]
    pub fn wake(&self) {
        (self.0)();
    }
}

const AWAKE: u64 = 0;
const ARMED: u64 = 1;
const RUNG: u64 = 2;

/// Whether a polling thread is to be woken: what wakers look at, for fabrics that sleep on descriptors.
///
/// # No wake-up is lost
/// The sleeper stores that it is armed, and then looks for work. A waker's thread stores work, and then looks whether the sleeper is armed.
/// Each has a full fence between its store and its look, so at least one of them sees the store of the other (Dekker). A waker that
/// finds the sleeper armed takes the duty to wake it by a compare-and-swap. If the sleeper arms again before it has heard of that, the
/// waker's fence came first, and the look after the new arming sees the work.
#[derive(Debug)]
pub struct Alarm(Word);

impl Default for Alarm {
    fn default() -> Self {
        Alarm(Word::new(AWAKE))
    }
}

impl Alarm {
    /// Says that this thread is about to sleep. It then looks for work: what was stored before a ring is found there, or the ring wakes it.
    #[inline]
    pub fn arm(&self) {
        self.0.store(ARMED, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that this thread is awake.
    #[inline]
    pub fn disarm(&self) {
        self.0.store(AWAKE, Ordering::Relaxed);
    }

    /// Returns whether somebody rang since [`arm`](Alarm::arm).
    #[inline]
    #[must_use]
    pub fn has_rung(&self) -> bool {
        self.0.load(Ordering::Acquire) == RUNG
    }

    /// Takes the duty to wake the sleeper, after the stores that it should see. Returns whether the caller has it now.
    #[inline]
    #[must_use = "whoever takes the duty wakes the sleeper"]
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
    fn only_the_first_of_those_who_ring_an_armed_sleeper_wakes_it() {
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
