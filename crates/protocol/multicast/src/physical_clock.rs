//! The physical time of a group, carried by the process that leads it.
//!
//! # Inputs
//! - The monotonic time *now* of this process, with every call.
//! - Its own wall clock ([`tell`](PhysicalClock::tell)) and those of other members ([`hear`](PhysicalClock::hear)), each with
//!   the moment at which it was read or heard. A clock is kept as its distance from the monotonic time, so it goes on by
//!   itself.
//!
//! # States
//! *Stopped* → *waiting* ([`follow`](PhysicalClock::follow) was called, and too few clocks are known) → *running* →
//! *stopped* ([`stop`](PhysicalClock::stop)).
//!
//! # Which clock counts
//! The *median* is that of all clocks that are known and not too old, the own one included: the lower of the two in the
//! middle where their number is even. Time that ran ahead cannot be set back, so of two clocks that disagree the earlier one
//! is the smaller harm. The clocks of all groups count: a group of one member has no other opinion, and leaders of two groups
//! that take one median agree.
//! A reading that was delayed shows a clock too early, never too late: it is dated when time passes next, not before. So of
//! the last two readings of a clock the later one counts. What is heard around a pause of this process does not count: nobody
//! knows when it came.
//!
//! # Invariants
//! 1. *It never goes back* while it runs, whatever wall clocks do. It begins anew as long as nothing was given of it: a process
//!    that was there first, and believed its own clock, takes the median as soon as it hears others.
//! 2. *It is slewed, never stepped.* While it runs, it gains or loses at most [`SLEW_PPM`] against the monotonic time, towards
//!    the median, and does not pass it.
//! 3. *It begins at the median, or at the recovered time if that is later.* The recovered time is the group's logical clock:
//!    at least every time that the group has given. So a change of leader does not let time stand still or go back.
//! 4. *It begins, and takes over a recovered time, only when time has just passed.* What it hears of within a step is younger than the
//!    step's time: a recovered time that counted from there would be ahead by as long as the step has taken, and a process that was
//!    stopped takes long. Until then the group's times are logical.
//! 5. If all clocks that are heard are within `e` of true time, and the recovered time is, too, then it is.
//!
//! # What it does not do
//! A single process that hears nobody believes its own clock: it waits for others for four bounds, and goes on alone. If its
//! group gives times by then, they are what later ones have to be above.
//! A wall clock that is wrong at more than half of the members makes a wrong median.

use std::time::Duration;

use stentor_fabric::ProcessId;
use thiserror::Error;

/// The most that physical time gains or loses against the monotonic clock, in millionths.
pub const SLEW_PPM: i64 = 500;
/// Times from here on are refused: the year 2116.
pub const END_OF_TIME: u64 = 1 << 62;
/// For how long a process waits until it has heard enough clocks, in bounds.
const PATIENCE: u64 = 4;
/// Fewer clocks than this are no ground to judge one of them.
const FEWEST: usize = 3;
/// Clocks are told to other members once in so many bounds, and the time is slewed over as long.
const INTERVAL: u64 = 8;
/// A clock that was not heard for so many intervals does not count.
const FRESH: u64 = 4;
/// The median is looked at so often in a bound.
const LOOKS: u64 = 8;
/// A process that did not run for this part of a bound believes nothing that it heard meanwhile, and for as long afterwards.
const PAUSE: u64 = 2;
const MILLION: i64 = 1_000_000;

/// A clock that is no clock.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum ClockError {
    /// Before 1970, or after 2116.
    #[error("a wall clock of {0} ns since 1970: it must be above 0 and below 2^62 (the year 2116)")]
    Absurd(u64),
}

/// A clock that was heard since time passed last.
#[derive(Clone, Copy, Debug)]
struct Heard {
    process: ProcessId,
    wall: u64,
    group: Option<u64>,
}

/// What is known of another member's clock.
#[derive(Clone, Copy, Debug)]
struct Reading {
    process: ProcessId,
    /// The last two distances from the monotonic time, ns.
    last: [i64; 2],
    /// When it was heard last, ns.
    at: u64,
    /// The distance of its group's time from this process's monotonic time, while it leads.
    group: Option<i64>,
}

impl Reading {
    fn distance(&self) -> i64 {
        self.last[0].max(self.last[1])
    }
}

/// Time that is given now.
#[derive(Clone, Copy, Debug)]
struct Running {
    /// The time at which it began: nothing below it was given since.
    begun: u64,
    /// The monotonic time at the last look, ns, and the time then.
    since: u64,
    time: u64,
    /// Gain since then, in millionths.
    rate: i64,
}

/// Physical time at one process; see the module.
#[derive(Clone, Debug)]
pub struct PhysicalClock {
    bound: u64,
    /// Members of the cluster, this one included.
    members: usize,
    /// The distance of the own wall clock from the monotonic time, ns.
    own: Option<i64>,
    /// Whether this process looks at a wall clock, sound or not.
    told: bool,
    /// At most one of each member.
    heard: Vec<Heard>,
    readings: Vec<Reading>,
    median: Option<i64>,
    counted: usize,
    running: Option<Running>,
    /// Since when it waits for clocks.
    waits: Option<u64>,
    /// Whether time has passed with the last call, and not only been looked at.
    has_passed: bool,
    /// Whether it has to take over the recovered time when time has passed.
    owes: bool,
    /// The last call.
    now: u64,
    /// Since when this process runs without a pause; 0: from the beginning.
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

/// A clock at this distance, now.
fn at(distance: i64, now: u64) -> u64 {
    u64::try_from(distance.saturating_add_unsigned(now)).unwrap_or(0)
}

/// A monotonic time as the clock counts it.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(time.subsec_nanos()))
}

impl PhysicalClock {
    /// The bound if none is set.
    pub const BOUND: Duration = Duration::from_secs(1);

    /// A clock that knows nothing yet, in a cluster of so many members. Clocks that differ by more than `bound` are not taken
    /// for right together; at least 1 µs, at most a day.
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
            now: 0,
            awake: 0,
            next_look: 0,
            scratch: Vec::with_capacity(members),
        }
    }

    /// The bound, ns.
    #[must_use]
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// How often the own clock is to be told to other members, ns.
    #[must_use]
    pub fn interval(&self) -> u64 {
        self.bound * INTERVAL
    }

    /// Takes the own wall clock: nanoseconds since 1970 at `now`. Returns whether it was stepped by a quarter of the bound
    /// or more since the last time, so that others should hear of it.
    ///
    /// # Errors
    /// [`ClockError::Absurd`]; then this process has no wall clock until a sound one is told.
    pub fn tell(&mut self, now: u64, wall: u64) -> Result<bool, ClockError> {
        self.told = true;
        let before = self.own.take();
        let own = distance(wall, now)?;
        self.own = Some(own);
        let stepped = before.is_none_or(|before| before.abs_diff(own) >= self.bound / 4);
        self.next_look = if stepped { 0 } else { self.next_look };
        Ok(stepped)
    }

    /// Takes the clock of another member, heard since time [passed](PhysicalClock::pass) last; `group` is the time of its group
    /// if it leads one.
    ///
    /// # Errors
    /// [`ClockError::Absurd`]; nothing has changed then.
    pub fn hear(&mut self, process: ProcessId, wall: u64, group: Option<u64>) -> Result<(), ClockError> {
        for clock in group.into_iter().chain([wall]) {
            distance(clock, 0)?;
        }
        self.heard.retain(|heard| heard.process != process);
        self.heard.push(Heard { process, wall, group });
        Ok(())
    }

    /// Dates what was heard.
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

    /// The own wall clock at `now`, ns since 1970; 0 if this process has none.
    #[must_use]
    pub fn wall(&self, now: u64) -> u64 {
        self.own.map_or(0, |own| at(own, now))
    }

    /// Whether this process looks at a wall clock. One that cannot be is none: see [`wall`](PhysicalClock::wall).
    #[inline]
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.told
    }

    fn is_fresh(&self, reading: &Reading) -> bool {
        self.now.saturating_sub(reading.at) <= FRESH * self.interval()
    }

    /// Time passes. Call it whenever *now* has changed.
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
        // Within a step, what the step has heard is younger than the step's time: dated with it, a clock would show too late by as
        // long as the step has taken, and a process that starts may take long.
        if self.has_passed {
            self.date();
        }
        if self.now < self.next_look {
            return;
        }
        self.next_look = self.now + (self.bound / LOOKS).max(1);
        self.look();
    }

    /// Finds the median, and slews the time towards it.
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

    /// Runs, or waits until enough clocks are known: three, or those of all members, or a while has passed. `given` is the
    /// group's logical clock, the last time that was given; time begins anew as long as it is below the beginning. If this
    /// process `recovers`, because it begins to lead, time goes on from there.
    pub fn follow(&mut self, given: u64, recovers: bool) {
        let waits = *self.waits.get_or_insert(self.now);
        let recovers = recovers | self.owes;
        self.owes = recovers && !self.has_passed;
        if !self.has_passed {
            return;
        }
        let enough = self.counted >= FEWEST.min(self.members);
        let waited = self.now.saturating_sub(waits) >= PATIENCE * self.bound;
        self.running = self.running.filter(|running| given >= running.begun);
        let running = self.time(self.now);
        let time = match (running, self.median) {
            (Some(time), _) if recovers => time.max(given),
            (Some(_), _) => return,
            (None, Some(median)) if enough || waited => at(median, self.now).max(given),
            (None, _) => return,
        };
        if running != Some(time) {
            let begun = self.running.map_or(time, |running| running.begun);
            self.running = (time < END_OF_TIME).then_some(Running { begun, since: self.now, time, rate: 0 });
        }
    }

    /// Stops: this process does not lead any more.
    pub fn stop(&mut self) {
        (self.running, self.waits, self.owes) = (None, None, false);
    }

    /// The time at `now`, ns since 1970; `None` if it does not run, or after 2116.
    #[must_use]
    pub fn time(&self, now: u64) -> Option<u64> {
        let Running { since, time, rate, .. } = self.running?;
        let passed = now.saturating_sub(since);
        let slewed = passed.min(self.interval()) as i64 * rate / MILLION;
        Some(time.saturating_add(passed).saturating_add_signed(slewed)).filter(|time| *time < END_OF_TIME)
    }

    /// How many clocks count, the own one included.
    #[must_use]
    pub fn counted(&self) -> usize {
        self.counted
    }

    /// How far the own wall clock is ahead of the median, ns. `None`: fewer than three clocks are known, which is no ground
    /// to judge one of them.
    #[must_use]
    pub fn off(&self) -> Option<i64> {
        let median = self.median.filter(|_| self.counted >= FEWEST)?;
        Some(self.own?.saturating_sub(median))
    }

    /// Whether the own wall clock is off the median by more than the bound, or cannot be.
    #[must_use]
    pub fn is_off(&self) -> bool {
        let absurd = self.told && self.own.is_none() && self.counted >= FEWEST;
        absurd || self.off().is_some_and(|off| off.unsigned_abs() > self.bound)
    }

    /// Whether the wall clock of another member is known and within the bound of the median.
    #[must_use]
    pub fn is_right(&self, process: ProcessId) -> bool {
        let Some(median) = self.median else { return false };
        let reading = self.readings.iter().find(|reading| reading.process == process && self.is_fresh(reading));
        reading.is_some_and(|reading| reading.distance().abs_diff(median) <= self.bound)
    }

    /// How far the time is ahead of the median, ns, if it runs.
    #[must_use]
    pub fn ahead(&self) -> Option<i64> {
        let (time, median) = (self.time(self.now)?, at(self.median?, self.now));
        Some(i64::try_from(i128::from(time) - i128::from(median)).unwrap_or(i64::MAX))
    }

    /// While it runs: members that lead groups whose times are off this one by more than the bound, and how far they are
    /// ahead, ns.
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
