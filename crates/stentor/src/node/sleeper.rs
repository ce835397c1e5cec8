//! The wake-up of the protocol's thread by other threads.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, PoisonError, RwLock, TryLockError};

use stentor_fabric::Waker;

/// A handle that ends the sleep of the protocol's thread. When a node starts over, it gets a new fabric, and this
/// handle then uses that fabric's waker.
#[derive(Clone, Debug, Default)]
pub(super) struct Sleeper(Arc<RwLock<Option<Waker>>>);

impl Sleeper {
    /// Sets the waker of the fabric on which the protocol's thread sleeps. Once the node runs, only the protocol's
    /// thread calls this function.
    pub(super) fn set(&self, waker: Waker) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(waker);
    }

    /// Wakes the protocol's thread if it sleeps, so that it sees earlier stores of this thread. Never blocks, so signal
    /// handlers may call it.
    ///
    /// While the waker is being replaced, the lock is taken, and this call wakes nobody. The protocol's thread is awake
    /// then and arms later. The fence here pairs with the one in `arm`, so the check that follows the arming sees the
    /// earlier stores.
    pub(super) fn wake(&self) {
        fence(Ordering::SeqCst);
        let waker = match self.0.try_read() {
            Ok(waker) => waker,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if let Some(waker) = &*waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn the_newest_waker_is_used_and_nobody_waits_for_it() {
        let (sleeper, counts) = (Sleeper::default(), [0, 1].map(|_| Arc::new(AtomicU32::new(0))));
        sleeper.wake();
        for count in &counts {
            let own = Arc::clone(count);
            sleeper.set(Waker::new(move || _ = own.fetch_add(1, Ordering::Relaxed)));
            sleeper.clone().wake();
        }
        let replacing = sleeper.0.write().unwrap();
        sleeper.wake();
        drop(replacing);
        sleeper.wake();
        assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [1, 2]);
    }
}
