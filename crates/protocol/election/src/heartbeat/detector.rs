//! Failure detector for one other process, based on its counter.
//!
//! The timeout adapts as in the phi-accrual detector: a threshold on phi under normally distributed intervals is a
//! timeout of the mean plus some multiple of the deviation. Mean and mean deviation are updated as TCP updates its
//! round-trip times (RFC 6298), in integers. Two words of state without floating point make a run replay bit for bit on
//! every machine. Two ideas are from Mu (Aguilera et al., OSDI 2020). The reader pulls, so a slow network only delays a
//! reading, which then shows a counter that moved. And a suspected process is not trusted at its first beat.

use crate::mutant::mutant;
use crate::{Beat, Mutant};

/// Verdict of the detector on another process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Life {
    /// This process has not seen the other process's counter advance yet.
    Unheard,
    /// The other process's counter advances.
    Alive,
    /// The other process's counter has stopped, the process was unreachable or reported dead, or it has restarted. It
    /// has not published enough beats since.
    Suspected,
}

/// Number of beats after which a suspected process is trusted again.
pub(crate) const BEATS_TO_TRUST: u32 = 3;
/// Number of intervals to measure before the timeout may be below the maximum.
const SAMPLES: u32 = 8;
/// Number of mean deviations above the mean at which a silence becomes suspicious: about six standard deviations.
const DEVIATIONS: u64 = 8;
/// Upper bound of the number of doublings of the timeout. With this number, the shortest timeout reaches a longest one
/// that is a million times as long, and the shift does not overflow.
const MAX_PATIENCE: u32 = 20;
/// Number of longest timeouts without a wrong suspicion after which one doubling is removed.
const CALM: u64 = 64;
/// Number of intervals of silence that confirm a broken connection after one wrong report. Each further wrong report
/// doubles it.
const CONFIRMING: u64 = 4;
/// Largest number of wrong reports that count. A death is confirmed after at most 32 intervals, however often the
/// connection broke while the process was alive.
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
    /// Time at which the counter was last seen to change, in polled time.
    moved: u64,
    samples: u32,
    mean: u64,
    deviation: u64,
    /// Number of wrong suspicions that still count. Each one doubles the timeout.
    patience: u32,
    patient_since: u64,
    owed: u32,
    /// `true` if the operating system reported the death of the process within the longest timeout after its last beat,
    /// and the process has neither restarted nor been trusted since.
    pub dead: bool,
    /// `true` if the process is suspected for its silence, so that its next beat proves the suspicion wrong.
    silent: bool,
    /// Time at which the connection broke, if no beat was read since.
    broke: Option<u64>,
    /// Number of wrong reports of a broken connection that still count. A report was wrong if another beat of the same
    /// life followed it.
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

    /// Returns the silence after which the process is suspected, in nanoseconds.
    pub(crate) fn timeout(&self, bounds: &Bounds) -> u64 {
        if mutant!(bounds.mutant, MinimumTimeout) {
            return bounds.min;
        }
        let adapted = if self.samples < SAMPLES {
            bounds.max
        } else {
            // Regular intervals so far do not guarantee regular ones: the deviation counts as at least a quarter of the
            // mean.
            self.mean.saturating_add(self.deviation.max(self.mean / 4).saturating_mul(DEVIATIONS))
        };
        let lengthened = adapted.clamp(bounds.min, bounds.max) << self.patience;
        lengthened.min(bounds.max)
    }

    /// Processes a reading. Returns whether it must not be used, because the process has not started or the reading is
    /// from an earlier life.
    pub(crate) fn observe(&mut self, beat: &Beat, now: u64, bounds: &Bounds) -> bool {
        if beat.incarnation == 0 || beat.incarnation < self.incarnation {
            return true;
        }
        let first = self.incarnation == 0;
        let grown = beat.counter > self.counter;
        // A counter that decreased in the same life also means a restart, or a torn reading of one.
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

    /// Updates the verdict after the silence so far.
    pub(crate) fn judge(&mut self, now: u64, bounds: &Bounds) {
        let silence = now.saturating_sub(self.moved);
        match self.life {
            Life::Alive if silence > self.timeout(bounds) => {
                self.suspect();
                self.silent = true;
            }
            Life::Alive if self.is_confirmed(now, bounds) => self.suspect(),
            // A process that was never seen to beat has no last beat, so its silence counts from the start.
            Life::Unheard if now > bounds.max => self.suspect(),
            _ => {}
        }
        if self.life == Life::Suspected && silence > bounds.max {
            // After so long a silence, a return does not prove that the timeout was too short.
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

    /// Returns whether the silence since the connection broke is long enough, given the number of earlier wrong
    /// reports.
    fn is_confirmed(&self, now: u64, bounds: &Bounds) -> bool {
        let needed = match self.wrong {
            0 => 0,
            wrong => bounds.interval.saturating_mul(CONFIRMING) << (wrong - 1),
        };
        self.broke.is_some_and(|broke| now.saturating_sub(broke) >= needed)
    }

    /// Reports that the connection with the process broke. The first report causes suspicion at once. If beats have
    /// followed earlier reports, a short silence must confirm this one. Wrong suspicions for silence do not affect
    /// that, and wrong reports do not affect the timeout.
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

    /// Reports that the operating system has announced the death of the process. If beats follow nevertheless, three of
    /// them restore trust. The process's claim is invalid at once, unless its silence exceeds the longest timeout. In
    /// that case the process was cut off from this one, and the connection may have been reset only when the cut ended.
    /// The process may then be alive for other members.
    pub(crate) fn died(&mut self, now: u64, bounds: &Bounds) {
        self.dead |= now.saturating_sub(self.moved) <= bounds.max;
        if self.life != Life::Suspected {
            self.suspect();
        }
    }
}
