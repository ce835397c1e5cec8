//! The logical clock.

use crate::Mutant;
use crate::mutant::mutant;

/// A member's logical clock.
///
/// # Invariants
/// - It never goes back.
/// - It is at least every time in every vector that this member has appended or processed, so whatever its leader
///   timestamps afterwards comes later.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Clock {
    now: u64,
    /// A raise that a mutant put off.
    put_off: u64,
}

impl Clock {
    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// The next time, which is given to nothing else.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    #[inline]
    pub(super) fn raise(&mut self, to: u64) {
        self.now = self.now.max(to);
    }

    /// Raises the clock to the maximum of a vector that is appended next.
    #[inline]
    pub(super) fn raise_before_append(&mut self, to: u64, mutant: Mutant) {
        if mutant!(mutant, NoClockRaise) {
            return;
        }
        if mutant!(mutant, ClockAfterEntry) {
            self.put_off = self.put_off.max(to);
            return;
        }
        self.raise(to);
    }

    /// For the mutant that raises the clock in another step than the one that appends the entry.
    #[inline]
    pub(super) fn catch_up(&mut self) {
        if self.put_off != 0 {
            self.raise(self.put_off);
            self.put_off = 0;
        }
    }
}
