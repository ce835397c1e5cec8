//! A member's physical time: its own wall clock and what it hears of others', for the group that it leads.
//!
//! Clocks travel in greetings, and in a letter to every connected member once in an interval and whenever the own wall clock was
//! stepped. A letter also names the time of the group that its sender leads. Heartbeats carry none: their region is read within
//! a group only, and not with every election.
//!
//! # Invariants
//! - A member that leads, or may lead at any moment, has told its state machine the physical time of this step before it takes
//!   anything.
//! - Nothing is said before a wall clock was told: who tells none has a logical clock.

use std::time::Duration;

use stentor_fabric::{Fabric, ProcessId};

use super::Member;
use super::recover::CLOCK;
use crate::physical_clock::nanoseconds;
use crate::{ClockError, PhysicalClock, Rejected};

/// How a member's clocks were used. A simulation counts it, to tell whether it comes there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClockCounts {
    /// Steps of a leader whose physical time was ahead of its group's clock: the next time is physical.
    pub physical: u64,
    /// Steps of a leader whose group's clock was ahead of its physical time: the next time is logical.
    pub behind: u64,
    /// Steps of a leader that waited for others' clocks.
    pub waiting: u64,
    /// Steps of a leader whose wall clock was off the median by more than the bound.
    pub off: u64,
    /// Times of other groups that were refused, because they were too far ahead.
    pub refused: u64,
}

/// What a member does about time.
#[derive(Debug)]
pub(super) struct MemberTime {
    pub(super) clock: PhysicalClock,
    /// The time of the last step, and of the last look at the wall clock.
    at: Duration,
    told_at: Duration,
    leads: bool,
    /// When others are to hear the own clock, ns.
    say_at: u64,
    pub(super) counts: ClockCounts,
}

impl MemberTime {
    pub(super) fn new(members: usize) -> Self {
        let clock = PhysicalClock::new(PhysicalClock::BOUND, members);
        let (at, told_at) = (Duration::ZERO, Duration::ZERO);
        MemberTime { clock, at, told_at, leads: false, say_at: 0, counts: ClockCounts::default() }
    }

    /// The wall clock for a greeting; 0 if there is none.
    pub(super) fn wall(&self) -> u64 {
        self.clock.wall(nanoseconds(self.at.max(self.told_at)))
    }

    /// Whether this is another moment than that of the last step.
    #[inline]
    pub(super) fn has_passed(&self, now: Duration) -> bool {
        self.at != now
    }

    /// Another member's clock, in a greeting or a letter; 0 is none.
    pub(super) fn hear(&mut self, process: ProcessId, wall: u64, group: u64) -> Result<(), ClockError> {
        if wall == 0 { Ok(()) } else { self.clock.hear(process, wall, (group != 0).then_some(group)) }
    }

    /// Counts what the state machine refused.
    #[cold]
    pub(super) fn note_refused(&mut self, rejected: &Rejected) {
        self.counts.refused += u64::from(matches!(rejected, Rejected::Clock { .. }));
    }
}

impl<F: Fabric> Member<F> {
    /// Sets how far clocks may be apart that are taken for right together; [`PhysicalClock::BOUND`] if it is not set. Call it
    /// before the first wall clock is told: what was heard is forgotten.
    pub fn set_clock_bound(&mut self, bound: Duration) {
        self.time.clock = PhysicalClock::new(bound, self.topology.all_members());
    }

    /// Tells this process's wall clock, nanoseconds since 1970, as it was at `now` in the time of [`step`](Member::step). From
    /// the first time on, the times of a group that this member leads follow physical time: see [`PhysicalClock`]. Call it
    /// again every few milliseconds: a clock that is stepped is judged anew, and steps no time.
    ///
    /// # Errors
    /// See [`ClockError`]; then this process has no wall clock until a sound one is told.
    pub fn tell_wall_clock(&mut self, now: Duration, wall: u64) -> Result<(), ClockError> {
        self.time.told_at = now;
        if self.time.clock.tell(nanoseconds(now), wall)? {
            self.time.say_at = 0;
        }
        Ok(())
    }

    /// Physical time at this member, and what is known of others' clocks.
    #[must_use]
    pub fn physical_clock(&self) -> &PhysicalClock {
        &self.time.clock
    }

    /// How clocks were used so far.
    #[must_use]
    pub fn clock_counts(&self) -> ClockCounts {
        self.time.counts
    }

    /// Time passes, or this member's part in its group may have changed.
    #[cold]
    pub(super) fn pass_time(&mut self, now: Duration) {
        self.time.at = now;
        if !self.time.clock.is_told() {
            return;
        }
        let now = nanoseconds(now);
        self.time.clock.pass(now);
        let (replica, time) = (&mut self.replica, &mut self.time);
        let leads = replica.is_leader();
        // Who joins may begin its group's life at any moment, and lead.
        if leads || replica.is_candidate() || replica.is_joining() {
            time.clock.follow(replica.clock(), !leads || !time.leads);
        } else {
            time.clock.stop();
        }
        time.leads = leads;
        let physical = time.clock.time(now).unwrap_or(0);
        // Below the end of time: the clock gives no other.
        let _ = replica.set_physical(physical, time.clock.bound());
        if leads {
            let counts = &mut time.counts;
            counts.off += u64::from(time.clock.is_off());
            *match (physical, replica.clock()) {
                (0, _) => &mut counts.waiting,
                (physical, clock) if physical > clock => &mut counts.physical,
                _ => &mut counts.behind,
            } += 1;
        }
        if now >= self.time.say_at {
            self.say_clock(now);
        }
    }

    /// Follows a change of this member's part in its group within a step.
    pub(super) fn follow_part(&mut self) {
        let replica = &self.replica;
        if !self.time.clock.is_told() {
            return;
        }
        let may_lead = replica.is_leader() || replica.is_candidate() || replica.is_joining();
        if replica.is_leader() != self.time.leads || may_lead == self.time.clock.time(0).is_none() {
            self.pass_time(self.time.at);
        }
    }

    /// Writes the own clock to all members that are connected.
    fn say_clock(&mut self, now: u64) {
        let clock = &self.time.clock;
        self.time.say_at = now + clock.interval();
        let group = if self.time.leads { clock.time(now).unwrap_or(0) } else { 0 };
        let words = [CLOCK, clock.wall(now), group];
        for process in (0..self.peers.len() as u16).map(ProcessId) {
            if self.is_connected_to(process) {
                self.send_letter(process, &words, &[]);
            }
        }
    }
}
