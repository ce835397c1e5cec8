//! The timers of a group, which a state machine sets while it is called.

use std::sync::{Mutex, MutexGuard, PoisonError};

use stentor_session::Timers;

/// The timers of a group. A [`Context`](crate::Context) sets them through a shared reference, and the owner of the
/// machine fires them.
#[derive(Debug, Default)]
pub(crate) struct SharedTimers(Mutex<Timers>);

impl SharedTimers {
    pub(crate) fn new(timers: Timers) -> Self {
        SharedTimers(Mutex::new(timers))
    }

    fn lock(&self) -> MutexGuard<'_, Timers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, at: u64, timer: u64) {
        self.lock().set(at, timer);
    }

    pub(crate) fn clear(&self, timer: u64) {
        self.lock().clear(timer);
    }

    /// Returns the timer that fires next at the present position.
    pub(crate) fn fire(&self) -> Option<u64> {
        self.lock().fire()
    }

    /// Returns the timers without locking: the exclusive reference shows that no context exists.
    #[inline]
    pub(crate) fn get(&mut self) -> &mut Timers {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends all timers to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        self.lock().write(out);
    }
}
