//! A member's physical time: it reads its own wall clock, receives those of other members, and passes physical time to
//! the state machine of the group that it leads.
//!
//! A member sends its wall clock in its hellos. It also sends a clock message to every connected member: once in an
//! interval, and twice whenever its own wall clock was stepped. A clock message also carries the time of the group that
//! its sender leads. Heartbeats carry no clock, because they are read within a group only, and not every election uses
//! them.
//!
//! # Invariants
//! - A member that leads, or may lead at any moment, passes the physical time of a step to its state machine before it
//!   takes input in that step.
//! - A member whose caller has not supplied a wall clock ([`tell_wall_clock`](Member::tell_wall_clock)) sends no clock
//!   and passes no physical time on. As a leader it assigns logical times.

use std::time::Duration;

use stentor_fabric::{Fabric, ProcessId};

use super::Member;
use super::recover::CLOCK;
use crate::node::app::Application;
use crate::physical_clock::nanoseconds;
use crate::{ClockError, MessageId, PhysicalClock, Rejected};

/// Counts of how a member used its clocks. A simulation checks that its runs reach these cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClockCounts {
    /// Steps of a leader whose physical time was ahead of its group's clock: the next time is physical.
    pub physical: u64,
    /// Steps of a leader whose group's clock was not behind its physical time: the next time is logical.
    pub behind: u64,
    /// Steps of a leader that had no physical time yet, because it knew too few clocks.
    pub waiting: u64,
    /// Steps of a leader whose wall clock was off the median by more than the bound.
    pub off: u64,
    /// Times of other groups that were refused, because they were too far ahead.
    pub refused: u64,
}

/// A member's physical clock, when it was read, and when it is sent next.
#[derive(Debug)]
pub(super) struct MemberTime {
    pub(super) clock: PhysicalClock,
    /// The time of the last step.
    at: Duration,
    /// Time at which the wall clock was read last.
    told_at: Duration,
    /// `true` if this member led its group at the last update.
    leads: bool,
    /// Time at which this member sends its clock next, in nanoseconds.
    say_at: u64,
    /// `true` if this member sends its clock twice in short succession, because its wall clock was stepped. Other
    /// members use the later of the last two clocks that they received, so a clock that was set back would count as
    /// ahead until the next clock message.
    says_again: bool,
    pub(super) counts: ClockCounts,
}

impl MemberTime {
    pub(super) fn new(members: usize) -> Self {
        let clock = PhysicalClock::new(PhysicalClock::BOUND, members);
        let (at, told_at) = (Duration::ZERO, Duration::ZERO);
        MemberTime { clock, at, told_at, leads: false, say_at: 0, says_again: false, counts: ClockCounts::default() }
    }

    /// Returns the wall clock for a hello, in nanoseconds since 1970; 0 if there is none.
    pub(super) fn wall(&self) -> u64 {
        self.clock.wall(nanoseconds(self.at.max(self.told_at)))
    }

    /// Returns whether `now` differs from the time of the last step.
    #[inline]
    pub(super) fn has_passed(&self, now: Duration) -> bool {
        self.at != now
    }

    /// Records another member's wall clock and the time of the group that it leads, from a hello or a clock message; 0
    /// means none.
    pub(super) fn hear(&mut self, process: ProcessId, wall: u64, group: u64) -> Result<(), ClockError> {
        if wall == 0 { Ok(()) } else { self.clock.hear(process, wall, (group != 0).then_some(group)) }
    }

    /// Counts a time of another group that the state machine refused.
    #[cold]
    pub(super) fn note_refused(&mut self, rejected: &Rejected) {
        self.counts.refused += u64::from(matches!(rejected, Rejected::Clock { .. }));
    }
}

impl<F: Fabric> Member<F> {
    /// Sets the clock bound, which is the largest difference from the median with which a clock is considered right;
    /// [`PhysicalClock::BOUND`] by default. Call it before the first [`tell_wall_clock`](Member::tell_wall_clock): it
    /// discards all readings.
    pub fn set_clock_bound(&mut self, bound: Duration) {
        self.time.clock = PhysicalClock::new(bound, self.topology.all_members());
    }

    /// Supplies a reading of this process's wall clock: `wall`, in nanoseconds since 1970, was read at `now` in the
    /// time of [`step`](Member::step). After the first call, the times of a group that this member leads follow
    /// physical time: see [`PhysicalClock`]. Call it every few milliseconds. A step of the wall clock never steps the
    /// group's time.
    ///
    /// # Errors
    /// See [`ClockError`]. This process then has no wall clock until the next valid reading.
    pub fn tell_wall_clock(&mut self, now: Duration, wall: u64) -> Result<(), ClockError> {
        self.time.told_at = now;
        if self.time.clock.tell(nanoseconds(now), wall)? {
            (self.time.say_at, self.time.says_again) = (0, true);
        }
        Ok(())
    }

    /// Returns the physical clock of this member, with the clocks that it received from others.
    #[must_use]
    pub fn physical_clock(&self) -> &PhysicalClock {
        &self.time.clock
    }

    /// Returns the counts of how this member used its clocks so far.
    #[must_use]
    pub fn clock_counts(&self) -> ClockCounts {
        self.time.counts
    }

    /// Orders a time entry with a time later than `not_before`: see
    /// [`Replica::order_time`](crate::Replica::order_time). Returns its id if it was ordered. The next
    /// [`step`](Member::step) sends it.
    pub fn order_time<A: Application>(&mut self, not_before: u64, app: &mut A) -> Option<MessageId> {
        if self.replica.is_leader() {
            // The caller may have read the next step's time before it learned of `not_before`.
            self.time.clock.note_raise(self.replica.clock());
        }
        let ordered = self.with_replica(app, |replica, out| replica.order_time(not_before, out));
        if ordered.is_some() {
            self.gate.disturb();
        }
        ordered
    }

    /// Sets the smallest version among the programs of the group's members; 0 if it is not known. See
    /// [`Replica::set_version_goal`](crate::Replica::set_version_goal). Returns whether entries were ordered. The next
    /// [`step`](Member::step) sends them.
    pub fn set_version_goal<A: Application>(&mut self, goal: u32, app: &mut A) -> bool {
        let ordered = self.with_replica(app, |replica, out| replica.set_version_goal(goal, out));
        if ordered {
            self.gate.disturb();
        }
        ordered
    }

    /// Returns the present time of the group that this member leads, in nanoseconds since 1970. A message that is
    /// ordered now gets this time or a later one. Without physical time, it is the time of the last message. Returns
    /// `None` if this member does not lead.
    #[must_use]
    pub fn group_time(&self, now: Duration) -> Option<u64> {
        let physical = self.time.clock.time(nanoseconds(now)).unwrap_or(0);
        self.replica.is_leader().then(|| physical.max(self.replica.clock()))
    }

    /// Updates the physical clock when time has passed, or when this member may have begun or ceased to lead.
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
        // A joining process may found its group at any moment, and lead it.
        if leads || replica.is_candidate() || replica.is_joining() {
            time.clock.follow(replica.clock(), !leads || !time.leads);
        } else {
            time.clock.stop();
        }
        time.leads = leads;
        let physical = time.clock.time(now).unwrap_or(0);
        // An error is impossible: the clock gives no time beyond its end.
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

    /// Updates the physical clock if this member began or ceased to lead, or to be a possible leader, within a step.
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

    /// Sends this member's clock to all connected members.
    fn say_clock(&mut self, now: u64) {
        let clock = &self.time.clock;
        let pause = if std::mem::take(&mut self.time.says_again) { clock.bound() / 8 } else { clock.interval() };
        self.time.say_at = now + pause;
        let group = if self.time.leads { clock.time(now).unwrap_or(0) } else { 0 };
        let words = [CLOCK, clock.wall(now), group];
        for process in (0..self.peers.len() as u16).map(ProcessId) {
            if self.is_connected_to(process) {
                self.send_letter(process, &words, &[]);
            }
        }
    }
}
