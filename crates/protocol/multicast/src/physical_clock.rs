//! The physical time of a group, which the process that leads the group maintains.
//!
//! # Inputs
//! - The monotonic time *now* of this process, which the caller passes in.
//! - Its own wall clock ([`tell`](PhysicalClock::tell)) and those of other members ([`hear`](PhysicalClock::hear)). A
//!   clock is stored as its distance from the monotonic time, so it advances by itself.
//!
//! # States
//! *Stopped* → *waiting* ([`follow`](PhysicalClock::follow) was called, and too few clocks are known) → *running* →
//! *stopped* ([`stop`](PhysicalClock::stop)).
//!
//! # Which clocks count
//! The *median* is taken over all known clocks that are not too old, including this process's own. If their number is
//! even, it is the lower of the two in the middle. Time that ran ahead cannot be set back, so the earlier of two clocks
//! that disagree does less harm. The clocks of all groups count: a group of one member has no other source, and leaders
//! of two groups that use one median agree.
//!
//! A reading of another member's clock is dated when time passes next, not before. So a delayed reading makes a clock
//! appear too early, never too late. Therefore the later of the last two readings of a clock counts. Readings received
//! around a pause of this process do not count, because their time of arrival is unknown.
//!
//! # Invariants
//! 1. *The time never decreases* while it runs, whatever wall clocks do. A run starts again only as long as no time of
//!    that run was assigned. So a process that started first, and used its own clock, adopts the median as soon as it
//!    receives other clocks.
//! 2. *The time is slewed, not stepped*, except forward to a recovered time. While it runs, it gains or loses at most
//!    [`SLEW_PPM`] against the monotonic time. It moves towards the median and does not pass it.
//! 3. *The time starts at the median, or at the recovered time if that is later.* The recovered time is the group's
//!    logical clock, which is at least every time that the group has assigned. So the group's time does not decrease at
//!    a change of leader.
//! 4. *The time starts, and adopts a recovered time, only when time has just passed.* Information that arrives within a
//!    step is more recent than the step's time. If a recovered time counted from the step's time, the clock would be
//!    ahead by the duration of the step, which is long for a process that was stopped. Until time passes, the group's
//!    times are logical. For the same reason, a time to which the group's clock was raised between two steps
//!    ([`note_raise`](PhysicalClock::note_raise)) is not adopted in the next step, whose time may have been read before.
//! 5. If all clocks that count and the recovered time are within `e` of true time during a run, as this process dates
//!    them, then so is the physical time.
//!
//! # Limitations
//! A process that receives no other clock relies on its own. It waits for other clocks for four times the bound and
//! then runs with its own clock alone. If its group assigns times meanwhile, later times have to exceed them. If half
//! or more of the wall clocks that count are wrong, the median may be wrong.

use std::time::Duration;

use stentor_fabric::ProcessId;
use thiserror::Error;

/// Largest gain or loss of physical time against the monotonic clock, in millionths.
pub const SLEW_PPM: i64 = 500;
/// Smallest time that is refused, in nanoseconds since 1970. It is in the year 2116.
pub const END_OF_TIME: u64 = 1 << 62;
/// Time for which a process waits for enough clocks, as a multiple of the bound.
const PATIENCE: u64 = 4;
/// Smallest number of clocks with which one of them can be found wrong.
const FEWEST: usize = 3;
/// Interval at which clocks are sent to other members, and over which time is slewed, as a multiple of the bound.
const INTERVAL: u64 = 8;
/// Age beyond which a reading of a clock no longer counts, as a multiple of the interval.
const FRESH: u64 = 4;
/// Number of times that the median is computed within the time of one bound if no clock is received. A received clock
/// causes one more computation.
const LOOKS: u64 = 8;
/// Shortest length of a pause of this process: the bound divided by this number.
///
/// A process that did not run for this long or longer discards the clocks that it received meanwhile, and those that it
/// receives within this length of time afterwards.
const PAUSE: u64 = 2;
const MILLION: i64 = 1_000_000;

/// The error of an invalid clock value.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum ClockError {
    /// The value is 0, or is 2^62 ns or more (the year 2116).
    #[error("a wall clock of {0} ns since 1970: it must be above 0 and below 2^62 (the year 2116)")]
    Absurd(u64),
}

/// A reading of another member's clock that was received since time last passed.
#[derive(Clone, Copy, Debug)]
struct Heard {
    process: ProcessId,
    wall: u64,
    group: Option<u64>,
}

/// The last readings of another member's clock.
#[derive(Clone, Copy, Debug)]
struct Reading {
    process: ProcessId,
    /// The last two distances of the member's wall clock from this process's monotonic time, in nanoseconds.
    last: [i64; 2],
    /// Monotonic time of the last reading, in nanoseconds.
    at: u64,
    /// Distance of the member's group time from this process's monotonic time, in nanoseconds; `None` unless the member
    /// leads its group.
    group: Option<i64>,
}

impl Reading {
    fn distance(&self) -> i64 {
        self.last[0].max(self.last[1])
    }
}

/// The state of a running physical time.
#[derive(Clone, Copy, Debug)]
struct Running {
    /// The physical time at which this run started. No smaller time was assigned in this run.
    begun: u64,
    /// The monotonic time at which the rate was last set, in nanoseconds.
    since: u64,
    /// The physical time at the monotonic time `since`, in nanoseconds since 1970.
    time: u64,
    /// Gain against the monotonic time since `since`, in millionths.
    rate: i64,
}

/// The physical time at one process; see the module.
#[derive(Clone, Debug)]
pub struct PhysicalClock {
    bound: u64,
    /// Number of members of the cluster, including this one.
    members: usize,
    /// Distance of this process's wall clock from the monotonic time, in nanoseconds.
    own: Option<i64>,
    /// `true` once this process has reported a reading of its wall clock, whether the reading was valid or not.
    told: bool,
    /// The clocks received since time last passed, at most one of each member.
    heard: Vec<Heard>,
    readings: Vec<Reading>,
    median: Option<i64>,
    counted: usize,
    running: Option<Running>,
    /// The monotonic time since which the process waits for clocks, in nanoseconds.
    waits: Option<u64>,
    /// `true` if the last call of [`pass`](PhysicalClock::pass) advanced the time.
    has_passed: bool,
    /// `true` if a recovered time is to be adopted as soon as time passes.
    owes: bool,
    /// The group's logical clock before it was first raised between two steps, since a call of
    /// [`follow`](PhysicalClock::follow) could last adopt a time.
    before_raise: Option<u64>,
    /// The largest monotonic time of any call so far, in nanoseconds.
    now: u64,
    /// The end of the last pause, in nanoseconds of monotonic time; 0 if there was none.
    awake: u64,
    next_look: u64,
    scratch: Vec<i64>,
}

fn distance(clock: u64, now: u64) -> Result<i64, ClockError> {
    if clock == 0 || clock >= END_OF_TIME || now >= END_OF_TIME {
        return Err(ClockError::Absurd(clock));
    }
    Ok(clock as i64 - now as i64)
}

/// Returns the value of a clock with this distance at `now`.
fn at(distance: i64, now: u64) -> u64 {
    u64::try_from(distance.saturating_add_unsigned(now)).unwrap_or(0)
}

/// Converts a monotonic time to nanoseconds.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(time.subsec_nanos()))
}

impl PhysicalClock {
    /// The default bound.
    pub const BOUND: Duration = Duration::from_secs(1);

    /// Creates a clock without readings, in a cluster with this many members.
    ///
    /// A clock that differs from the median by more than `bound` is considered wrong. A bound below 1 µs counts as 1
    /// µs, and one above a day as a day.
    #[must_use]
    pub fn new(bound: Duration, members: usize) -> Self {
        PhysicalClock {
            bound: nanoseconds(bound).clamp(1_000, 86_400_000_000_000),
            members,
            own: None,
            told: false,
            heard: Vec::new(),
            readings: Vec::with_capacity(members),
            median: None,
            counted: 0,
            running: None,
            waits: None,
            has_passed: false,
            owes: false,
            before_raise: None,
            now: 0,
            awake: 0,
            next_look: 0,
            scratch: Vec::with_capacity(members),
        }
    }

    /// Returns the bound, in nanoseconds.
    #[must_use]
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// Returns the interval at which this process's clock is to be sent to other members, in nanoseconds.
    #[must_use]
    pub fn interval(&self) -> u64 {
        self.bound * INTERVAL
    }

    /// Sets this process's wall clock, which was `wall` nanoseconds since 1970 at `now`.
    ///
    /// Returns whether the clock was stepped by a quarter of the bound or more since the last call, or had no valid
    /// value then. Other members should receive it in this case.
    ///
    /// # Errors
    /// Returns [`ClockError::Absurd`] if the value is invalid. This process then has no wall clock until a valid one is
    /// set.
    pub fn tell(&mut self, now: u64, wall: u64) -> Result<bool, ClockError> {
        self.told = true;
        let before = self.own.take();
        let own = distance(wall, now)?;
        self.own = Some(own);
        let stepped = before.is_none_or(|before| before.abs_diff(own) >= self.bound / 4);
        self.next_look = if stepped { 0 } else { self.next_look };
        Ok(stepped)
    }

    /// Records the clock of another member, received since time last [passed](PhysicalClock::pass).
    ///
    /// `group` is the time of the member's group if the member leads it.
    ///
    /// # Errors
    /// Returns [`ClockError::Absurd`] if a value is invalid. In this case nothing changes.
    pub fn hear(&mut self, process: ProcessId, wall: u64, group: Option<u64>) -> Result<(), ClockError> {
        for clock in group.into_iter().chain([wall]) {
            distance(clock, 0)?;
        }
        self.heard.retain(|heard| heard.process != process);
        self.heard.push(Heard { process, wall, group });
        Ok(())
    }

    /// Converts the received clocks to readings that are dated with the current time.
    fn date(&mut self) {
        let now = self.now;
        for Heard { process, wall, group } in self.heard.drain(..) {
            let Ok(last) = distance(wall, now) else { continue };
            let group = group.and_then(|group| distance(group, now).ok());
            match self.readings.iter_mut().find(|reading| reading.process == process) {
                Some(reading) => *reading = Reading { process, last: [last, reading.last[0]], at: now, group },
                None => self.readings.push(Reading { process, last: [last; 2], at: now, group }),
            }
            self.next_look = 0;
        }
    }

    /// Returns this process's wall clock at `now`, in nanoseconds since 1970, or 0 if there is none.
    #[must_use]
    pub fn wall(&self, now: u64) -> u64 {
        self.own.map_or(0, |own| at(own, now))
    }

    /// Returns whether a reading of this process's wall clock was ever supplied, valid or not.
    #[inline]
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.told
    }

    fn is_fresh(&self, reading: &Reading) -> bool {
        self.now.saturating_sub(reading.at) <= FRESH * self.interval()
    }

    /// Advances the time to `now`. Call it whenever *now* has changed.
    pub fn pass(&mut self, now: u64) {
        let pause = self.bound / PAUSE;
        if self.now != 0 && now.saturating_sub(self.now) >= pause {
            self.awake = now;
        }
        self.has_passed = now > self.now;
        self.now = self.now.max(now);
        if self.awake != 0 && self.now - self.awake < pause {
            self.heard.clear();
        }
        // Clocks that arrive within a step are more recent than the step's time. If they were dated with that time,
        // they would appear ahead by the duration of the step, which is long in a process that starts.
        if self.has_passed {
            self.date();
        }
        if self.now < self.next_look {
            return;
        }
        self.next_look = self.now + (self.bound / LOOKS).max(1);
        self.look();
    }

    /// Computes the median, and sets the rate at which the time approaches it.
    fn look(&mut self) {
        let mut all = std::mem::take(&mut self.scratch);
        all.clear();
        all.extend(self.readings.iter().filter(|reading| self.is_fresh(reading)).map(Reading::distance));
        all.extend(self.own);
        all.sort_unstable();
        self.counted = all.len();
        self.median = all.len().checked_sub(1).map(|last| all[last / 2]);
        self.scratch = all;
        let (Some(time), Some(median)) = (self.time(self.now), self.median) else { return };
        let away = i128::from(at(median, self.now)) - i128::from(time);
        let rate = away * i128::from(MILLION) / i128::from(self.interval());
        let rate = rate.clamp(i128::from(-SLEW_PPM), i128::from(SLEW_PPM)) as i64;
        self.running = self.running.map(|running| Running { since: self.now, time, rate, ..running });
    }

    /// Runs the physical time of a group that this process leads, or may lead at any moment, or waits until enough
    /// clocks are known.
    ///
    /// Three clocks are enough, or those of all members. After four times the bound, fewer are enough. `given` is the
    /// group's logical clock, which is at least the last assigned time. While it is below the time at which this run
    /// started, the run starts anew. `recovers` is `true` unless the process leads and led before; the time then
    /// continues at `given` if that is later. If `given` was [raised](PhysicalClock::note_raise) between the last two
    /// steps, the clock before the raise counts instead.
    pub fn follow(&mut self, given: u64, recovers: bool) {
        let waits = *self.waits.get_or_insert(self.now);
        let recovers = recovers | self.owes;
        self.owes = recovers && !self.has_passed;
        if !self.has_passed {
            return;
        }
        let recovered = self.before_raise.take().unwrap_or(given);
        let enough = self.counted >= FEWEST.min(self.members);
        let waited = self.now.saturating_sub(waits) >= PATIENCE * self.bound;
        self.running = self.running.filter(|running| given >= running.begun);
        let running = self.time(self.now);
        let time = match (running, self.median) {
            (Some(time), _) if recovers => time.max(recovered),
            (Some(_), _) => return,
            (None, Some(median)) if enough || waited => at(median, self.now).max(recovered),
            (None, _) => return,
        };
        if running != Some(time) {
            let begun = self.running.map_or(time, |running| running.begun);
            self.running = (time < END_OF_TIME).then_some(Running { begun, since: self.now, time, rate: 0 });
        }
    }

    /// Records that the group's logical clock, which is `given`, may be raised between two steps, to a time that this
    /// process learned at an unknown moment. The *now* that [passes](PhysicalClock::pass) next may be earlier.
    pub fn note_raise(&mut self, given: u64) {
        self.before_raise.get_or_insert(given);
    }

    /// Stops the time, because this process neither leads nor may lead at any moment.
    pub fn stop(&mut self) {
        (self.running, self.waits, self.owes, self.before_raise) = (None, None, false, None);
    }

    /// Returns the physical time at `now`, in nanoseconds since 1970, or `None` if it does not run or is beyond 2116.
    #[must_use]
    pub fn time(&self, now: u64) -> Option<u64> {
        let Running { since, time, rate, .. } = self.running?;
        let passed = now.saturating_sub(since);
        let slewed = passed.min(self.interval()) as i64 * rate / MILLION;
        Some(time.saturating_add(passed).saturating_add_signed(slewed)).filter(|time| *time < END_OF_TIME)
    }

    /// Returns the number of clocks that count, including this process's own.
    #[must_use]
    pub fn counted(&self) -> usize {
        self.counted
    }

    /// Returns how far this process's wall clock is ahead of the median, in nanoseconds.
    ///
    /// Returns `None` if this process has no valid wall clock. Also returns `None` if fewer than three clocks count,
    /// because then none of them can be found wrong.
    #[must_use]
    pub fn off(&self) -> Option<i64> {
        let median = self.median.filter(|_| self.counted >= FEWEST)?;
        Some(self.own?.saturating_sub(median))
    }

    /// Returns whether this process's wall clock differs from the median by more than the bound, or is invalid. Returns
    /// `false` while fewer than three clocks count.
    #[must_use]
    pub fn is_off(&self) -> bool {
        let absurd = self.told && self.own.is_none() && self.counted >= FEWEST;
        absurd || self.off().is_some_and(|off| off.unsigned_abs() > self.bound)
    }

    /// Returns whether the wall clock of another member is known and within the bound of the median.
    #[must_use]
    pub fn is_right(&self, process: ProcessId) -> bool {
        let Some(median) = self.median else { return false };
        let reading = self.readings.iter().find(|reading| reading.process == process && self.is_fresh(reading));
        reading.is_some_and(|reading| reading.distance().abs_diff(median) <= self.bound)
    }

    /// Returns how far the physical time is ahead of the median, in nanoseconds, or `None` if it does not run or there
    /// is no median.
    #[must_use]
    pub fn ahead(&self) -> Option<i64> {
        let (time, median) = (self.time(self.now)?, at(self.median?, self.now));
        Some(i64::try_from(i128::from(time) - i128::from(median)).unwrap_or(i64::MAX))
    }

    /// Returns the members whose groups' times differ from this physical time by more than the bound, each with the
    /// number of nanoseconds by which its group's time is ahead.
    ///
    /// Returns no members while the physical time does not run.
    pub fn apart(&self) -> impl Iterator<Item = (ProcessId, i64)> + '_ {
        let own = self.time(self.now);
        self.readings.iter().filter(|reading| self.is_fresh(reading)).filter_map(move |reading| {
            let ahead = at(reading.group?, self.now) as i64 - own? as i64;
            (ahead.unsigned_abs() > self.bound).then_some((reading.process, ahead))
        })
    }
}

#[cfg(test)]
mod tests;
