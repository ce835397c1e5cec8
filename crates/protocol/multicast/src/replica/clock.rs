//! The clock of a group at one member: physical where possible, otherwise logical.

use crate::Mutant;
use crate::mutant::mutant;

/// A member's clock. The next time that a leader assigns is the larger of the last one plus 1 and its physical time, in
/// nanoseconds. So times follow physical time as long as no time of another group or of an earlier leader is ahead of
/// it. A group whose clock is below the maximum of a vector raises its clock at once and never waits.
///
/// # Invariants
/// - The clock never decreases.
/// - It is at least every time in every vector that this member has appended or processed, so every message that its
///   leader timestamps afterwards comes later.
/// - Physical time alone does not advance it: without messages the clock does not advance.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Clock {
    now: u64,
    /// The physical time that was set last. At 0 there is none, and the clock is logical.
    physical: u64,
    /// The latest time that is accepted from another group; at 0 every time is accepted.
    latest: u64,
    /// The value to which a mutant raises the clock later; 0 if there is none.
    put_off: u64,
}

impl Clock {
    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Advances the clock and returns the new time. No time is returned twice.
    #[inline]
    pub(super) fn next(&mut self, mutant: Mutant) -> u64 {
        self.now = (self.now + 1).max(self.physical);
        if mutant!(mutant, PhysicalAlone) && self.physical != 0 {
            self.now = self.physical;
        }
        self.now
    }

    /// Sets the physical time and the bound for the clocks of other groups.
    #[inline]
    pub(super) fn set_physical(&mut self, physical: u64, bound: u64, mutant: Mutant) {
        let learned = self.physical == 0;
        (self.physical, self.latest) = (physical, if physical == 0 { 0 } else { physical.saturating_add(bound) });
        if learned {
            self.forget_recovered(mutant);
        }
    }

    /// Returns how far a time of another group is beyond the bound, in nanoseconds; 0 if the time is within the bound.
    #[inline]
    pub(super) fn beyond(&self, time: u64, mutant: Mutant) -> u64 {
        if self.latest == 0 || mutant!(mutant, FarTimesTaken) { 0 } else { time.saturating_sub(self.latest) }
    }

    /// Sets the clock to the physical time, for the mutant that ignores a new leader's recovered clock.
    pub(super) fn forget_recovered(&mut self, mutant: Mutant) {
        if mutant!(mutant, ClockSetBack) && self.physical != 0 {
            self.now = self.physical;
        }
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

    /// Performs a delayed raise, for the mutant that raises the clock in another step than the one that appends the
    /// entry.
    #[inline]
    pub(super) fn catch_up(&mut self) {
        if self.put_off != 0 {
            self.raise(self.put_off);
            self.put_off = 0;
        }
    }
}
