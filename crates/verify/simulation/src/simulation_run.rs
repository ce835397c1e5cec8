//! Many seeds on all cores.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stentor_fabric_sim::FaultCounts;
use stentor_multicast::{NodeError, Plant};

use crate::channel;
use crate::neb;
use crate::nemesis::{NemesisCounts, Profile};
use crate::record::{Record, SeedHashes};
use crate::run::record_seed;
use crate::sets::{self, Sets};
use crate::switch;

/// A simulation run: many seeds of one simulation, on all cores.
#[derive(Clone, Debug)]
pub struct SimulationRun {
    /// The seeds.
    pub seeds: Range<u64>,
    /// End with the first seed that violates this property (all lower seeds are run to their end first).
    pub until: Option<&'static str>,
    /// What is recorded of each seed: a simulation run keeps hashes only.
    pub record: Record,
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

/// What came of a simulation run. Everything but the wall time is the same for the same seeds, on any machine.
#[derive(Clone, Debug, Default)]
pub struct SimulationReport {
    /// Seeds that were run.
    pub seeds: u64,
    /// Seeds with a violation.
    pub violations: u64,
    /// The lowest of them; with [`SimulationRun::until`], the lowest that violates that property.
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
    /// What else was counted, by name; the same names in every run of a protocol.
    pub more: Vec<(&'static str, u64)>,
    /// What the nemesis of the profile did; nothing in the profile `calm` and in simulations other than the multicast's.
    pub nemesis: NemesisCounts,
    /// The most steps that it took to deliver everything after the nemesis had stopped.
    pub most_recovery_steps: u64,
    /// By seed, if [`Record::Hashes`] were asked for.
    pub hashes: BTreeMap<u64, SeedHashes>,
    /// Wall time.
    pub wall: Duration,
}

/// What a simulation run keeps of one seed, whatever the protocol.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ran {
    pub(crate) properties: Vec<&'static str>,
    pub(crate) counter_example: Option<String>,
    pub(crate) messages: u64,
    pub(crate) deliveries: u64,
    pub(crate) steps: u64,
    pub(crate) writes: u64,
    pub(crate) faults: FaultCounts,
    pub(crate) more: Vec<(&'static str, u64)>,
    pub(crate) nemesis: NemesisCounts,
    pub(crate) recovery_steps: u64,
    pub(crate) hashes: SeedHashes,
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
    /// The kinds of fault that [`Scenario::claims_under`](crate::Scenario::claims_under) names and that never happened
    /// among at least 100 seeds; fewer cannot tell.
    #[must_use]
    pub fn unseen_claims(&self, profile: Profile, sets: Sets) -> Vec<&'static str> {
        let counted = [self.faults.named(), self.nemesis.named(), self.more.clone()].concat();
        let mut claims = crate::Scenario::claims_under(profile);
        if sets != Sets::Never {
            claims.extend(sets::CLAIMS);
        }
        crate::scenario::unseen(&claims, self.seeds, &counted)
    }

    /// The same for the broadcast.
    #[must_use]
    pub fn unseen_neb_claims(&self, severity: neb::Severity, sets: Sets) -> Vec<&'static str> {
        let counted = [self.faults.named(), self.more.clone()].concat();
        let mut claims = neb::Scenario::claims_under(severity);
        if sets != Sets::Never {
            claims.extend(sets::CLAIMS);
            claims.push(neb::SLOW);
        }
        crate::scenario::unseen(&claims, self.seeds, &counted)
    }

    /// The same for channels.
    #[must_use]
    pub fn unseen_channel_claims(&self) -> Vec<&'static str> {
        let counted = [self.faults.named(), self.more.clone()].concat();
        crate::scenario::unseen(channel::Scenario::claims(), self.seeds, &counted)
    }

    /// The same for the switch.
    #[must_use]
    pub fn unseen_switch_claims(&self) -> Vec<&'static str> {
        crate::scenario::unseen(switch::Scenario::claims(), self.seeds, &self.more)
    }

    fn add(&mut self, seed: u64, run: &Ran, until: Option<&str>) -> bool {
        self.seeds += 1;
        self.messages += run.messages;
        self.deliveries += run.deliveries;
        self.steps += run.steps;
        self.writes += run.writes;
        self.faults.add(&run.faults);
        add_named(&mut self.more, &run.more);
        self.nemesis.add(&run.nemesis);
        self.most_recovery_steps = self.most_recovery_steps.max(run.recovery_steps);
        if !run.hashes.is_empty() {
            self.hashes.insert(seed, run.hashes.clone());
        }
        let properties = run.properties.clone();
        if properties.is_empty() {
            return false;
        }
        self.violations += 1;
        let found = until.is_some_and(|until| properties.contains(&until));
        if until.is_some() && !found {
            return false;
        }
        let counter_example = run.counter_example.clone().unwrap_or_else(|| "no counter-example".to_owned());
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
    /// Runs seeds of the multicast; `progress` is called after each with the number done so far.
    ///
    /// # Errors
    /// [`NodeError`], if a scenario was impossible.
    pub fn multicast(
        &self,
        profile: Profile,
        sets: Sets,
        plant: Plant,
        progress: impl Fn(u64) + Sync,
    ) -> Result<SimulationReport, NodeError> {
        let one = |seed| {
            let (run, mut recorded) = record_seed(seed, profile, sets, plant, self.record)?;
            Ok(Ran {
                properties: run.violated().collect(),
                more: run.counts(),
                counter_example: run.report.counter_example,
                messages: run.messages,
                deliveries: run.deliveries,
                steps: run.steps,
                writes: run.writes,
                faults: run.faults,
                nemesis: run.nemesis,
                recovery_steps: run.recovery_steps,
                hashes: recorded.hashes(),
            })
        };
        self.run(one, progress)
    }

    /// Runs seeds of the broadcast; see [`multicast`](SimulationRun::multicast).
    ///
    /// # Errors
    /// [`NodeError`](stentor_neb::NodeError), if a scenario was impossible.
    pub fn neb(
        &self,
        severity: neb::Severity,
        sets: Sets,
        plant: stentor_neb::Plant,
        progress: impl Fn(u64) + Sync,
    ) -> Result<SimulationReport, stentor_neb::NodeError> {
        let one = |seed| {
            let (run, mut recorded) = neb::record_seed(seed, severity, sets, plant, self.record)?;
            Ok(Ran {
                properties: run.violated().collect(),
                more: run.counts(),
                counter_example: run.report.counter_example,
                messages: run.broadcasts,
                deliveries: run.deliveries,
                steps: run.steps,
                writes: run.writes,
                faults: run.faults,
                hashes: recorded.hashes(),
                ..Ran::default()
            })
        };
        self.run(one, progress)
    }

    /// Runs seeds of channels; see [`multicast`](SimulationRun::multicast).
    ///
    /// # Errors
    /// [`EndpointError`](stentor_channel::EndpointError), if a scenario was impossible.
    pub fn channel(
        &self,
        plant: stentor_channel::Plant,
        progress: impl Fn(u64) + Sync,
    ) -> Result<SimulationReport, stentor_channel::EndpointError> {
        let one = |seed| {
            let (run, mut recorded) = channel::record_seed(seed, plant, self.record)?;
            Ok(Ran {
                properties: run.violated().collect(),
                more: run.counts(),
                counter_example: run.report.counter_example,
                messages: run.writes,
                deliveries: run.reads,
                steps: run.steps,
                writes: run.posts,
                faults: run.faults,
                hashes: recorded.hashes(),
                ..Ran::default()
            })
        };
        self.run(one, progress)
    }

    /// Runs seeds of the switch; see [`multicast`](SimulationRun::multicast).
    ///
    /// # Errors
    /// [`CreateError`](stentor_switch::CreateError), if a scenario was impossible.
    pub fn switch(
        &self,
        mutant: stentor_switch::Mutant,
        progress: impl Fn(u64) + Sync,
    ) -> Result<SimulationReport, stentor_switch::CreateError> {
        let one = |seed| {
            let (run, mut recorded) = switch::record_seed(seed, mutant, self.record)?;
            Ok(Ran {
                properties: run.violated().collect(),
                more: run.counts,
                counter_example: run.report.counter_example,
                messages: run.posted,
                deliveries: run.executed,
                steps: run.steps,
                writes: run.passes,
                hashes: recorded.hashes(),
                ..Ran::default()
            })
        };
        self.run(one, progress)
    }

    fn run<E: Send>(
        &self,
        one: impl Fn(u64) -> Result<Ran, E> + Sync,
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
                // With fewer threads than were asked for it only takes longer.
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
        one: impl Fn(u64) -> Result<Ran, E>,
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
            if report.add(seed, &one(seed)?, self.until) {
                end.fetch_min(seed, Ordering::Relaxed);
            }
            done();
        }
    }
}
