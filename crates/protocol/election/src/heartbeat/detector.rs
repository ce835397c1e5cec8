//! Whether another process is alive, judged by its counter.
//!
//! The timeout adapts in the manner of the phi-accrual detector: a threshold on phi under normally distributed intervals
//! is a timeout of mean plus some multiple of the deviation. Mean and mean deviation are kept as TCP keeps its round-trip
//! times (RFC 6298), in integers: two words of state, no floating point, so that a run replays bit for bit everywhere.
//! From Mu comes that the reader pulls: a slow network delays a reading, which then shows a counter that moved, and that
//! a process once suspected is not trusted at its first beat.

use crate::mutant::mutant;
use crate::{Beat, Mutant};

/// What is thought of another process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Life {
    /// Its counter was not seen to move yet.
    Unheard,
    /// Its counter moves.
    Alive,
    /// Its counter stands still, it was unreachable, or it has restarted and was not seen to work for long enough.
    Suspected,
}

/// Beats after which a suspected process is trusted again.
pub(crate) const BEATS_TO_TRUST: u32 = 3;
/// Intervals to have seen before the timeout goes below the maximum.
const SAMPLES: u32 = 8;
/// How many mean deviations above the mean a silence becomes suspicious: about six standard deviations.
const DEVIATIONS: u64 = 8;
/// More doublings than any pair of timeouts needs, and few enough not to overflow.
const MAX_PATIENCE: u32 = 20;
/// Longest timeouts without a wrong suspicion after which the patience it brought is halved.
const CALM: u64 = 64;
/// Intervals of silence that confirm a broken connection after one that meant nothing; doubled by each further one.
const CONFIRMING: u64 = 4;
/// The most such doublings: however often a connection broke in vain, a death is known after 32 intervals.
const MAX_WRONG: u32 = 4;

/// Shortest and longest timeout, and the interval of polls, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub interval: u64,
    pub min: u64,
    pub max: u64,
    pub mutant: Mutant,
}

#[derive(Clone, Debug)]
pub(crate) struct Detector {
    pub life: Life,
    incarnation: u64,
    counter: u64,
    /// When the counter last moved, in time polled.
    moved: u64,
    samples: u32,
    mean: u64,
    deviation: u64,
    /// Wrong suspicions not yet forgiven: each doubles the timeout.
    patience: u32,
    patient_since: u64,
    owed: u32,
    /// The system says that it is gone, and it has not been seen to live since.
    pub dead: bool,
    /// Suspected for its silence, so its next beat proves the suspicion wrong.
    silent: bool,
    /// The time at which its connection broke, if it has not beaten since.
    broke: Option<u64>,
    /// The number of times that it beat after its connection had broken, less those that are forgiven.
    wrong: u32,
    wrong_since: u64,
}

impl Detector {
    pub(crate) fn new() -> Self {
        Detector {
            life: Life::Unheard,
            incarnation: 0,
            counter: 0,
            moved: 0,
            samples: 0,
            mean: 0,
            deviation: 0,
            patience: 0,
            patient_since: 0,
            owed: 0,
            dead: false,
            silent: false,
            broke: None,
            wrong: 0,
            wrong_since: 0,
        }
    }

    /// The silence after which it is suspected, in nanoseconds.
    pub(crate) fn timeout(&self, bounds: &Bounds) -> u64 {
        if mutant!(bounds.mutant, MinimumTimeout) {
            return bounds.min;
        }
        let adapted = if self.samples < SAMPLES {
            bounds.max
        } else {
            // Clockwork is no promise of clockwork: the deviation counts as a quarter of the mean at least.
            self.mean.saturating_add(self.deviation.max(self.mean / 4).saturating_mul(DEVIATIONS))
        };
        let lengthened = adapted.clamp(bounds.min, bounds.max) << self.patience;
        lengthened.min(bounds.max)
    }

    /// Looks at a reading. Returns whether it is of an earlier life and must not be used.
    pub(crate) fn observe(&mut self, beat: &Beat, now: u64, bounds: &Bounds) -> bool {
        if beat.incarnation == 0 || beat.incarnation < self.incarnation {
            return true;
        }
        let first = self.incarnation == 0;
        let grown = beat.counter > self.counter;
        // A counter that jumps back under the same number is a restart too, or half of a reading of one.
        let restarted = !first && (beat.incarnation > self.incarnation || beat.counter < self.counter);
        let same = beat.counter == self.counter && !restarted;
        if mutant!(bounds.mutant, OnlyGrowingCounters) && !grown && !first {
            return false;
        }
        (self.incarnation, self.counter) = (beat.incarnation, beat.counter);
        if first {
            self.moved = now;
        } else if restarted {
            self.restart(now);
        } else if !same {
            self.beat(now, bounds);
        }
        false
    }

    fn restart(&mut self, now: u64) {
        self.moved = now;
        self.silent = false;
        self.dead = false;
        self.broke = None;
        if self.life != Life::Unheard {
            self.life = Life::Suspected;
            self.owed = BEATS_TO_TRUST;
        }
    }

    fn beat(&mut self, now: u64, bounds: &Bounds) {
        let interval = now.saturating_sub(self.moved);
        self.moved = now;
        if self.broke.take().is_some() {
            self.wrong = (self.wrong + 1).min(MAX_WRONG);
            self.wrong_since = now;
        }
        match self.life {
            Life::Unheard => self.trust(),
            Life::Alive => self.sample(interval),
            Life::Suspected => {
                if std::mem::take(&mut self.silent) && !mutant!(bounds.mutant, NeverPatient) {
                    self.patience = (self.patience + 1).min(MAX_PATIENCE);
                    self.patient_since = now;
                }
                self.owed = self.owed.saturating_sub(1);
                if self.owed == 0 || mutant!(bounds.mutant, TrustedAtOnce) {
                    self.trust();
                }
            }
        }
        if self.patience > 0 && now.saturating_sub(self.patient_since) > bounds.max.saturating_mul(CALM) {
            self.patience -= 1;
            self.patient_since = now;
        }
        if self.wrong > 0 && now.saturating_sub(self.wrong_since) > bounds.max {
            self.wrong -= 1;
            self.wrong_since = now;
        }
    }

    fn sample(&mut self, interval: u64) {
        if self.samples == 0 {
            (self.mean, self.deviation) = (interval, interval / 2);
        } else {
            let away = self.mean.abs_diff(interval);
            self.deviation = self.deviation - self.deviation / 4 + away / 4;
            self.mean = self.mean - self.mean / 8 + interval / 8;
        }
        self.samples = self.samples.saturating_add(1);
    }

    /// Judges the silence so far.
    pub(crate) fn judge(&mut self, now: u64, bounds: &Bounds) {
        let silence = now.saturating_sub(self.moved);
        match self.life {
            Life::Alive if silence > self.timeout(bounds) => {
                self.suspect();
                self.silent = true;
            }
            Life::Alive if self.is_confirmed(now, bounds) => self.suspect(),
            // What has never been heard has no beat to wait for: it is waited for from the start on.
            Life::Unheard if now > bounds.max => self.suspect(),
            _ => {}
        }
        if self.life == Life::Suspected && silence > bounds.max {
            // Dead long enough that its return is no proof of haste.
            self.silent &= silence <= bounds.max.saturating_mul(CALM);
            self.owed = BEATS_TO_TRUST;
        }
    }

    fn trust(&mut self) {
        self.life = Life::Alive;
        self.dead = false;
    }

    fn suspect(&mut self) {
        self.silent = false;
        self.life = Life::Suspected;
        self.owed = BEATS_TO_TRUST;
    }

    /// Returns whether the silence since its connection broke is long enough, given how often that meant nothing
    /// before.
    fn is_confirmed(&self, now: u64, bounds: &Bounds) -> bool {
        let needed = match self.wrong {
            0 => 0,
            wrong => bounds.interval.saturating_mul(CONFIRMING) << (wrong - 1),
        };
        self.broke.is_some_and(|broke| now.saturating_sub(broke) >= needed)
    }

    /// Reports that the connection with the process broke. Believed at once the first time; after it beat on in spite
    /// of that, once a short silence confirms it. How often its silence meant nothing is another matter, and so is the
    /// reverse.
    pub(crate) fn unreachable(&mut self, now: u64, bounds: &Bounds) {
        if mutant!(bounds.mutant, DeafAfterMistake) && (self.patience > 0 || self.wrong > 0) {
            return;
        }
        if self.life == Life::Alive {
            self.broke.get_or_insert(now);
            if self.is_confirmed(now, bounds) {
                self.suspect();
            }
        }
    }

    /// Reports that the system says that the process is gone. If it beats on nevertheless, three beats make it trusted again. Its
    /// claim is void at once, unless it has been silent here for longer than the time-out: then it was cut off from this process, whose
    /// connection to it may be reset when the cut ends, and it may live where others see it.
    pub(crate) fn died(&mut self, now: u64, bounds: &Bounds) {
        self.dead |= now.saturating_sub(self.moved) <= bounds.max;
        if self.life != Life::Suspected {
            self.suspect();
        }
    }
}
