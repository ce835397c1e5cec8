//! Simulation runs: many seeds on all cores.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stentor_fabric_sim::FaultCounts;
use stentor_multicast::{Mutant, NodeError};

use crate::channel;
use crate::neb;
use crate::nemesis::{NemesisCounts, Profile};
use crate::record::{Record, SeedHashes};
use crate::run::record_seed;
use crate::sessions;
use crate::sets::{self, Sets};
use crate::switch;

/// A simulation run: many seeds of one simulation, on all cores.
#[derive(Clone, Debug)]
pub struct SimulationRun {
    /// The seeds.
    pub seeds: Range<u64>,
    /// A property whose first violation ends the run. All lower seeds are completed first.
    pub until: Option<&'static str>,
    /// The records of each seed. A simulation run keeps only hashes.
    pub record: Record,
    /// Number of threads. 0 means one per core.
    pub threads: usize,
}

/// A property that a seed violated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The seed.
    pub seed: u64,
    /// The names of the violated properties, sorted. The text of the counter-example begins with the one that it
    /// violates.
    pub properties: Vec<&'static str>,
    /// The smallest counter-example, as text.
    pub counter_example: String,
}

/// The result of a simulation run. For the same seeds, all fields except the wall time are equal on any machine. With
/// [`SimulationRun::until`], the number of seeds that are run depends on the threads.
#[derive(Clone, Debug, Default)]
pub struct SimulationReport {
    /// Seeds that were run.
    pub seeds: u64,
    /// Seeds with a violation.
    pub violations: u64,
    /// The violation of the lowest seed. With [`SimulationRun::until`], the violation of the lowest seed that violates
    /// the given property.
    pub first: Option<Violation>,
    /// Messages multicast.
    pub messages: u64,
    /// Deliveries.
    pub deliveries: u64,
    /// Steps of all processes.
    pub steps: u64,
    /// Remote writes of steps 1 to 4 of the multicast, and the corresponding counts of other simulations.
    pub writes: u64,
    /// Faults that occurred, by kind.
    pub faults: FaultCounts,
    /// Further counts, by name. The names are the same in every run of a protocol.
    pub more: Vec<(&'static str, u64)>,
    /// The faults of the profile's nemesis. All are zero in the profile `calm` and in most simulations other than the
    /// multicast's.
    pub nemesis: NemesisCounts,
    /// Maximum number of steps until all messages were delivered after the nemesis had stopped.
    pub most_recovery_steps: u64,
    /// The hashes of each seed, if [`Record::Hashes`] were requested.
    pub hashes: BTreeMap<u64, SeedHashes>,
    /// Wall-clock time of the run.
    pub wall: Duration,
}

fn add_named(to: &mut Vec<(&'static str, u64)>, more: &[(&'static str, u64)]) {
    if to.is_empty() {
        to.extend_from_slice(more);
        return;
    }
    for ((_, sum), (_, more)) in to.iter_mut().zip(more) {
        *sum += more;
    }
}

impl SimulationReport {
    /// Returns the names in [`Scenario::claims_under`](crate::Scenario::claims_under) whose count is zero after at
    /// least 100 seeds. Fewer seeds are not conclusive, and the result is empty.
    #[must_use]
    pub fn unseen_claims(&self, profile: Profile, sets: Sets) -> Vec<&'static str> {
        let mut claims = crate::Scenario::claims_under(profile);
        if sets != Sets::Never {
            claims.extend(sets::CLAIMS);
        }
        self.unseen(&claims)
    }

    /// Returns the unreached claims of the broadcast, as [`unseen_claims`](SimulationReport::unseen_claims) does for
    /// the multicast.
    #[must_use]
    pub fn unseen_neb_claims(&self, severity: neb::Severity, sets: Sets) -> Vec<&'static str> {
        let mut claims = neb::Scenario::claims_under(severity);
        if sets != Sets::Never {
            claims.extend(sets::CLAIMS);
            claims.push(neb::SLOW);
        }
        self.unseen(&claims)
    }

    /// Returns the unreached claims of channels, as [`unseen_claims`](SimulationReport::unseen_claims) does for the
    /// multicast.
    #[must_use]
    pub fn unseen_channel_claims(&self) -> Vec<&'static str> {
        self.unseen(channel::Scenario::claims())
    }

    /// Returns the unreached claims of the switch, as [`unseen_claims`](SimulationReport::unseen_claims) does for the
    /// multicast.
    #[must_use]
    pub fn unseen_switch_claims(&self) -> Vec<&'static str> {
        self.unseen(switch::Scenario::claims())
    }

    /// Returns the unreached claims of sessions, as [`unseen_claims`](SimulationReport::unseen_claims) does for the
    /// multicast.
    #[must_use]
    pub fn unseen_session_claims(&self) -> Vec<&'static str> {
        self.unseen(sessions::Scenario::claims())
    }

    fn unseen(&self, claims: &[&'static str]) -> Vec<&'static str> {
        let counted = [self.faults.named(), self.nemesis.named(), self.more.clone()].concat();
        crate::scenario::unseen(claims, self.seeds, &counted)
    }

    /// Converts these counts to the report of one seed, with its hashes and, if it violated properties, its violation.
    fn of_seed(
        mut self,
        seed: u64,
        properties: Vec<&'static str>,
        counter_example: Option<String>,
        hashes: SeedHashes,
    ) -> Self {
        self.seeds = 1;
        if !hashes.is_empty() {
            self.hashes.insert(seed, hashes);
        }
        if !properties.is_empty() {
            self.violations = 1;
            let counter_example = counter_example.unwrap_or_else(|| "no counter-example".to_owned());
            self.first = Some(Violation { seed, properties, counter_example });
        }
        self
    }

    fn take_first(&mut self, other: Option<Violation>) {
        if let Some(other) = other
            && self.first.as_ref().is_none_or(|first| other.seed < first.seed)
        {
            self.first = Some(other);
        }
    }

    fn merge(&mut self, other: SimulationReport) {
        self.seeds += other.seeds;
        self.violations += other.violations;
        self.messages += other.messages;
        self.deliveries += other.deliveries;
        self.steps += other.steps;
        self.writes += other.writes;
        self.faults.add(&other.faults);
        add_named(&mut self.more, &other.more);
        self.nemesis.add(&other.nemesis);
        self.most_recovery_steps = self.most_recovery_steps.max(other.most_recovery_steps);
        self.hashes.extend(other.hashes);
        self.take_first(other.first);
    }
}

impl SimulationRun {
    /// Runs seeds of the multicast. `progress` is called after each seed with the number of completed seeds.
    ///
    /// # Errors
    /// Returns a [`NodeError`] if a scenario was invalid.
    pub fn multicast(
        &self,
        profile: Profile,
        sets: Sets,
        mutant: Mutant,
        progress: impl Fn(u64) + Sync,
    ) -> Result<SimulationReport, NodeError> {
        let one = |seed| {
            let (run, mut recorded) = record_seed(seed, profile, sets, mutant, self.record)?;
            let properties = run.violated().collect();
            let counted = SimulationReport {
                more: run.counts(),
                messages: run.messages,
                deliveries: run.deliveries,
                steps: run.steps,
                writes: run.writes,
                faults: run.faults,
                nemesis: run.nemesis,
                most_recovery_steps: run.recovery_steps,
                ..SimulationReport::default()
            };
            Ok(counted.of_seed(seed, properties, run.report.counter_example, recorded.hashes()))
        };
        self.run(one, progress)
    }

    /// Runs seeds of the broadcast, as [`multicast`](SimulationRun::multicast) does.
    ///
    /// # Errors
    /// Returns a [`NodeError`](stentor_neb::NodeError) if a scenario was invalid.
    pub fn neb(
        &self,
        severity: neb::Severity,
        sets: Sets,
        mutant: stentor_neb::Mutant,
        progress: impl Fn(u64) + Sync,
    ) -> Result<SimulationReport, stentor_neb::NodeError> {
        let one = |seed| {
            let (run, mut recorded) = neb::record_seed(seed, severity, sets, mutant, self.record)?;
            let properties = run.violated().collect();
            let counted = SimulationReport {
                more: run.counts(),
                messages: run.broadcasts,
                deliveries: run.deliveries,
                steps: run.steps,
                writes: run.writes,
                faults: run.faults,
                ..SimulationReport::default()
            };
            Ok(counted.of_seed(seed, properties, run.report.counter_example, recorded.hashes()))
        };
        self.run(one, progress)
    }

    /// Runs seeds of channels, as [`multicast`](SimulationRun::multicast) does.
    ///
    /// # Errors
    /// Returns an [`EndpointError`](stentor_channel::EndpointError) if a scenario was invalid.
    pub fn channel(
        &self,
        mutant: stentor_channel::Mutant,
        progress: impl Fn(u64) + Sync,
    ) -> Result<SimulationReport, stentor_channel::EndpointError> {
        let one = |seed| {
            let (run, mut recorded) = channel::record_seed(seed, mutant, self.record)?;
            let properties = run.violated().collect();
            let counted = SimulationReport {
                more: run.counts(),
                messages: run.writes,
                deliveries: run.reads,
                steps: run.steps,
                writes: run.posts,
                faults: run.faults,
                ..SimulationReport::default()
            };
            Ok(counted.of_seed(seed, properties, run.report.counter_example, recorded.hashes()))
        };
        self.run(one, progress)
    }

    /// Runs seeds of the switch, as [`multicast`](SimulationRun::multicast) does.
    ///
    /// # Errors
    /// Returns a [`CreateError`](stentor_switch::CreateError) if a scenario was invalid.
    pub fn switch(
        &self,
        mutant: stentor_switch::Mutant,
        progress: impl Fn(u64) + Sync,
    ) -> Result<SimulationReport, stentor_switch::CreateError> {
        let one = |seed| {
            let (run, mut recorded) = switch::record_seed(seed, mutant, self.record)?;
            let properties = run.violated().collect();
            let counted = SimulationReport {
                more: run.counts,
                messages: run.posted,
                deliveries: run.executed,
                steps: run.steps,
                writes: run.passes,
                ..SimulationReport::default()
            };
            Ok(counted.of_seed(seed, properties, run.report.counter_example, recorded.hashes()))
        };
        self.run(one, progress)
    }

    /// Runs seeds of sessions, as [`multicast`](SimulationRun::multicast) does.
    ///
    /// # Errors
    /// Returns a [`NodeError`] if a scenario was invalid.
    pub fn sessions(
        &self,
        mutant: sessions::Mutant,
        progress: impl Fn(u64) + Sync,
    ) -> Result<SimulationReport, NodeError> {
        let one = |seed| {
            let (run, mut recorded) = sessions::record_seed(seed, mutant, self.record)?;
            let properties = run.violated().collect();
            let counted = SimulationReport {
                more: run.counts.named(),
                messages: run.messages,
                deliveries: run.deliveries,
                steps: run.steps,
                writes: run.writes,
                faults: run.faults,
                nemesis: run.nemesis,
                most_recovery_steps: run.recovery_steps,
                ..SimulationReport::default()
            };
            Ok(counted.of_seed(seed, properties, run.report.counter_example, recorded.hashes()))
        };
        self.run(one, progress)
    }

    fn run<E: Send>(
        &self,
        one: impl Fn(u64) -> Result<SimulationReport, E> + Sync,
        progress: impl Fn(u64) + Sync,
    ) -> Result<SimulationReport, E> {
        let begin = Instant::now();
        let next = AtomicU64::new(self.seeds.start);
        let end = AtomicU64::new(self.seeds.end);
        let done = AtomicU64::new(0);
        let total = Mutex::new(Ok(SimulationReport::default()));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if self.threads == 0 { cores } else { self.threads };
        let share = || {
            let mine = self.work(&one, &next, &end, || progress(done.fetch_add(1, Ordering::Relaxed) + 1));
            let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match (&mut *total, mine) {
                (Ok(total), Ok(mine)) => total.merge(mine),
                (Ok(_), Err(error)) => *total = Err(error),
                (Err(_), _) => {}
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // With fewer threads than requested, the run only takes longer.
                let _ = std::thread::Builder::new().spawn_scoped(scope, share);
            }
            share();
        });
        let mut report = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)?;
        report.wall = begin.elapsed();
        Ok(report)
    }

    fn work<E>(
        &self,
        one: impl Fn(u64) -> Result<SimulationReport, E>,
        next: &AtomicU64,
        end: &AtomicU64,
        done: impl Fn(),
    ) -> Result<SimulationReport, E> {
        let mut report = SimulationReport::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end.load(Ordering::Relaxed) {
                return Ok(report);
            }
            let mut one = one(seed)?;
            if let Some(until) = self.until {
                one.first = one.first.filter(|first| first.properties.contains(&until));
                if one.first.is_some() {
                    end.fetch_min(seed, Ordering::Relaxed);
                }
            }
            report.merge(one);
            done();
        }
    }
}
