//! Many seeds on all cores.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stentor_fabric_sim::FaultCounts;
use stentor_multicast::{NodeError, Plant};

use crate::nemesis::{NemesisCounts, Profile};
use crate::run::{RunReport, run_seed};

/// Seeds to run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The seeds.
    pub seeds: Range<u64>,
    /// Faults beside those of the network.
    pub profile: Option<Profile>,
    /// A planted bug.
    pub plant: Plant,
    /// End with the first seed that violates this property (all lower seeds are run to their end first).
    pub until: Option<&'static str>,
    /// Threads; 0: one per core.
    pub threads: usize,
}

/// A property that a seed violated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The seed.
    pub seed: u64,
    /// The violated properties, by name; the first is the one that the counter-example is about.
    pub properties: Vec<&'static str>,
    /// The smallest counter-example, as text.
    pub counter_example: String,
}

/// What came of a campaign. Everything but the wall time is the same for the same seeds, on any machine.
#[derive(Clone, Debug, Default)]
pub struct CampaignReport {
    /// Seeds that were run.
    pub seeds: u64,
    /// Seeds with a violation.
    pub violations: u64,
    /// The lowest of them; with [`Campaign::until`], the lowest that violates that property.
    pub first: Option<Violation>,
    /// Messages multicast.
    pub messages: u64,
    /// Deliveries.
    pub deliveries: u64,
    /// Steps of all processes.
    pub steps: u64,
    /// Remote writes of steps 1 to 4.
    pub writes: u64,
    /// Faults that happened, by kind.
    pub faults: FaultCounts,
    /// The profile.
    pub profile: Option<Profile>,
    /// What the nemesis of the profile did.
    pub nemesis: NemesisCounts,
    /// The most steps that it took to deliver everything after the faults had stopped.
    pub most_recovery_steps: u64,
    /// Wall time.
    pub wall: Duration,
}

impl CampaignReport {
    /// The kinds of fault that [`Scenario::claims`](crate::Scenario::claims) or the profile names and that never happened, in a
    /// campaign of at least 100 seeds; fewer cannot tell.
    #[must_use]
    pub fn unseen_claims(&self) -> Vec<&'static str> {
        match self.profile {
            None => crate::scenario::unseen_claims(self.seeds, &self.faults),
            Some(profile) => crate::scenario::unseen_by(profile, self.seeds, &self.nemesis),
        }
    }

    fn add(&mut self, seed: u64, run: &RunReport, until: Option<&str>) -> bool {
        self.seeds += 1;
        self.messages += run.messages;
        self.deliveries += run.deliveries;
        self.steps += run.steps;
        self.writes += run.writes;
        self.faults.add(&run.faults);
        self.nemesis.add(&run.nemesis);
        self.most_recovery_steps = self.most_recovery_steps.max(run.recovery_steps);
        let properties: Vec<_> = run.violated().collect();
        if properties.is_empty() {
            return false;
        }
        self.violations += 1;
        let found = until.is_some_and(|until| properties.contains(&until));
        if until.is_some() && !found {
            return false;
        }
        let counter_example = run.report.counter_example.clone().unwrap_or_else(|| "no counter-example".to_owned());
        self.take_first(Some(Violation { seed, properties, counter_example }));
        found
    }

    fn take_first(&mut self, other: Option<Violation>) {
        if let Some(other) = other
            && self.first.as_ref().is_none_or(|first| other.seed < first.seed)
        {
            self.first = Some(other);
        }
    }

    fn merge(&mut self, other: CampaignReport) {
        self.seeds += other.seeds;
        self.violations += other.violations;
        self.messages += other.messages;
        self.deliveries += other.deliveries;
        self.steps += other.steps;
        self.writes += other.writes;
        self.faults.add(&other.faults);
        self.nemesis.add(&other.nemesis);
        self.most_recovery_steps = self.most_recovery_steps.max(other.most_recovery_steps);
        self.take_first(other.first);
    }
}

impl Campaign {
    /// Runs the seeds; `progress` is called after each with the number done so far.
    ///
    /// # Errors
    /// [`NodeError`], if a scenario was impossible.
    pub fn run(&self, progress: impl Fn(u64) + Sync) -> Result<CampaignReport, NodeError> {
        let begin = Instant::now();
        let next = AtomicU64::new(self.seeds.start);
        let end = AtomicU64::new(self.seeds.end);
        let done = AtomicU64::new(0);
        let total = Mutex::new(Ok(CampaignReport { profile: self.profile, ..CampaignReport::default() }));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if self.threads == 0 { cores } else { self.threads };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mine = self.work(&next, &end, || progress(done.fetch_add(1, Ordering::Relaxed) + 1));
                    let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match (&mut *total, mine) {
                        (Ok(total), Ok(mine)) => total.merge(mine),
                        (Ok(_), Err(error)) => *total = Err(error),
                        (Err(_), _) => {}
                    }
                });
            }
        });
        let mut report = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)?;
        report.wall = begin.elapsed();
        Ok(report)
    }

    fn work(&self, next: &AtomicU64, end: &AtomicU64, done: impl Fn()) -> Result<CampaignReport, NodeError> {
        let mut report = CampaignReport::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end.load(Ordering::Relaxed) {
                return Ok(report);
            }
            if report.add(seed, &run_seed(seed, self.profile, self.plant)?, self.until) {
                end.fetch_min(seed, Ordering::Relaxed);
            }
            done();
        }
    }
}
