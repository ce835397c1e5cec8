//! One seed of the switch: a random walk over the possible steps, first with faults, then without.

use stentor_checker::switch::Finding;
use stentor_checker::{CounterExample, Report, Verdict};
use stentor_fabric_roce::endpoint::Outbox;
use stentor_switch::registers::State;
use stentor_switch::{Cause, Config, CreateError, Mutant};

use super::scenario::{MOST_STEPS, Scenario};
use super::step::Step;
use super::tape::Tape;
use super::world::World;
use crate::chance::Chance;
use crate::record::{Record, Recorded};

/// The result of a run.
#[derive(Debug)]
pub struct RunReport {
    /// The verdicts.
    pub report: Report,
    /// Requests posted.
    pub posted: u64,
    /// Packets executed by receivers.
    pub executed: u64,
    /// Number of steps.
    pub steps: u64,
    /// Number of passes through the pipeline.
    pub passes: u64,
    /// Counts of events, by name.
    pub counts: Vec<(&'static str, u64)>,
}

impl RunReport {
    /// Returns the names of violated properties.
    pub fn violated(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.report.violated()
    }
}

/// Maximum number of times that the control plane recreates the set in a run.
const MOST_ERAS: u64 = 3;

/// This number times the number of hosts is the minimum number of steps between two early timeouts of a host. In that
/// many steps, all members acknowledge a packet.
const PATIENCE: u64 = 60;

#[derive(Default)]
struct Tally {
    lost: u64,
    lost_in_loop: u64,
    repeated: u64,
    overtaken: u64,
    damaged: u64,
    early: u64,
    leases: u64,
    restarts: u64,
    poisoned: u64,
    anew: u64,
    posted: u64,
    executed: u64,
    findings: Vec<Finding>,
}

struct Walk<'a> {
    scenario: &'a Scenario,
    world: World,
    chance: Chance,
    out: Outbox,
    tally: Tally,
    troubled: bool,
    steps: u64,
    /// The step of each host's last early timeout.
    hurried: Vec<u64>,
}

/// Runs a seed.
///
/// # Errors
/// Returns a [`CreateError`] if the scenario is invalid, which a drawn one never is.
pub fn run_seed(seed: u64, mutant: Mutant) -> Result<RunReport, CreateError> {
    Ok(record_seed(seed, mutant, Record::Nothing)?.0)
}

/// Runs a seed and records its events. There is no trace, because steps have no time.
///
/// # Errors
/// Returns an error under the same conditions as [`run_seed`].
pub fn record_seed(seed: u64, mutant: Mutant, record: Record) -> Result<(RunReport, Recorded), CreateError> {
    run(seed, &Scenario::draw(seed, mutant), record)
}

fn run(seed: u64, scenario: &Scenario, record: Record) -> Result<(RunReport, Recorded), CreateError> {
    let mut out = Outbox::new(64);
    let config = Config {
        aggregation: scenario.aggregation,
        check_data: scenario.check_data,
        mutant: scenario.mutant,
        ..Config::new(scenario.setup.forward, scenario.setup.backward)
    };
    let mut world = World::new(scenario.setup, config, scenario.programs.clone(), &mut out)?;
    world.record(Tape::new(record));
    let chance = Chance::new(seed, 2);
    let hurried = vec![0; world.ranks()];
    let mut walk = Walk { scenario, world, chance, out, tally: Tally::default(), troubled: true, steps: 0, hurried };
    let most = scenario.safety_steps + MOST_STEPS;
    while walk.steps < most && walk.tally.findings.is_empty() && walk.world.watch().findings().is_empty() {
        walk.troubled = walk.steps < scenario.safety_steps;
        walk.steps += 1;
        if !walk.step()? {
            break;
        }
    }
    Ok(walk.judge())
}

impl Walk<'_> {
    /// Performs one step. Returns whether there was one.
    fn step(&mut self) -> Result<bool, CreateError> {
        let lost = matches!(self.world.state(), State::Poisoned | State::Silent);
        if lost && (self.world.is_quiet() || self.once_in(50)) {
            return self.begin_anew();
        }
        self.rare();
        let Some(step) = self.draw() else { return Ok(false) };
        self.count(step);
        self.world.step(step, &mut self.out);
        Ok(true)
    }

    fn once_in(&mut self, n: u64) -> bool {
        n > 0 && self.chance.between(1, n) == 1
    }

    fn trouble(&mut self, once_in: u64) -> bool {
        self.troubled && self.once_in(once_in)
    }

    /// Judges the set up to its loss, and recreates it.
    fn begin_anew(&mut self) -> Result<bool, CreateError> {
        self.tally.poisoned += u64::from(self.world.state() == State::Poisoned);
        if self.tally.anew >= MOST_ERAS {
            return Ok(false);
        }
        self.take();
        self.tally.anew += 1;
        self.world.create_anew(&mut self.out)?;
        Ok(true)
    }

    /// Collects the findings on the current set.
    fn take(&mut self) {
        let report = self.world.watch().report(false, true);
        self.tally.posted += report.counts.messages;
        self.tally.executed += report.counts.deliveries;
        self.tally.findings.extend_from_slice(self.world.watch().findings());
    }

    /// Performs the rare faults that do not affect a packet.
    fn rare(&mut self) {
        let trouble = self.scenario.trouble;
        if self.trouble(trouble.leases) {
            self.tally.leases += 1;
            self.world.step(Step::Lease, &mut self.out);
        }
        if self.trouble(trouble.restarts) {
            self.tally.restarts += 1;
            self.world.step(Step::Restart, &mut self.out);
        }
    }

    fn draw(&mut self) -> Option<Step> {
        let ranks = self.world.ranks();
        let mut steps = Vec::with_capacity(2 * ranks + 1);
        let (_, looping, _) = self.world.lengths(0);
        if looping > 0 {
            // Passes are faster than links.
            steps.extend([Step::Loop; 4]);
        }
        for rank in 0..ranks {
            let ((up, _, down), host) = (self.world.lengths(rank), rank as u8);
            if up > 0 {
                steps.push(Step::Up(host, 0));
            }
            if down > 0 {
                steps.push(Step::Down(host, 0));
            }
        }
        if steps.is_empty() || self.trouble(self.scenario.trouble.early_timers) || self.once_in(20) {
            let idle = steps.is_empty();
            if let Some(step) = self.idle(idle) {
                return Some(step);
            }
        }
        let step = (!steps.is_empty()).then(|| self.chance.pick(&steps))?;
        Some(self.worsen(step))
    }

    /// Draws a step without a packet. Used receives are posted again first. Otherwise, a host's deadline arrives, or a
    /// lease expires whose holder is gone. A deadline that arrives while other steps are possible is too early.
    fn idle(&mut self, idle: bool) -> Option<Step> {
        let ranks = self.world.ranks();
        let used: Vec<u8> =
            (0..ranks).filter(|rank| self.world.used_receives(*rank) > 0).map(|rank| rank as u8).collect();
        if !used.is_empty() {
            return Some(Step::Receives(self.chance.pick(&used)));
        }
        let waiting: Vec<u8> = (0..ranks).filter(|rank| self.world.waits(*rank)).map(|rank| rank as u8).collect();
        let early = self.troubled && self.scenario.trouble.early_timers > 0;
        if waiting.is_empty() || !idle && !early {
            return None;
        }
        if idle && self.world.holder_is_gone() && self.once_in(3) {
            return Some(Step::Lease);
        }
        let rank = self.chance.pick(&waiting);
        if !idle {
            // A sender gives up at the eighth consecutive timeout, and must not do so without a reason.
            let place = &mut self.hurried[usize::from(rank)];
            if self.steps < *place + PATIENCE * ranks as u64 {
                return None;
            }
            *place = self.steps;
            self.tally.early += 1;
        }
        Some(Step::Timer(rank))
    }

    /// Replaces the step of a packet by a fault of the packet, with some probability.
    fn worsen(&mut self, step: Step) -> Step {
        let trouble = self.scenario.trouble;
        let byte = self.chance.between(0, 255) as u8;
        match step {
            Step::Loop if self.trouble(trouble.loop_losses) => Step::LoseLoop,
            Step::Up(rank, _) if self.trouble(trouble.losses) => Step::LoseUp(rank),
            Step::Down(rank, _) if self.trouble(trouble.losses) => Step::LoseDown(rank),
            Step::Up(rank, _) if self.trouble(trouble.repeats) => Step::RepeatUp(rank),
            Step::Down(rank, _) if self.trouble(trouble.repeats) => Step::RepeatDown(rank),
            Step::Up(rank, _) if self.trouble(trouble.damages) => Step::DamageUp(rank, byte),
            Step::Down(rank, _) if self.trouble(trouble.damages) => Step::DamageDown(rank, byte),
            Step::Up(rank, _) if self.world.lengths(rank.into()).0 > 1 && self.trouble(trouble.delays) => {
                Step::Up(rank, 1)
            }
            Step::Down(rank, _) if self.world.lengths(rank.into()).2 > 1 && self.trouble(trouble.delays) => {
                Step::Down(rank, 1)
            }
            other => other,
        }
    }

    fn count(&mut self, step: Step) {
        let tally = &mut self.tally;
        match step {
            Step::LoseUp(_) | Step::LoseDown(_) => tally.lost += 1,
            Step::LoseLoop => tally.lost_in_loop += 1,
            Step::RepeatUp(_) | Step::RepeatDown(_) => tally.repeated += 1,
            Step::DamageUp(..) | Step::DamageDown(..) => tally.damaged += 1,
            Step::Up(_, 1) | Step::Down(_, 1) => tally.overtaken += 1,
            _ => {}
        }
    }

    fn judge(mut self) -> (RunReport, Recorded) {
        let calm = self.scenario.trouble == super::Trouble::default();
        if self.world.watch().findings().is_empty() {
            self.world.end();
        }
        self.take();
        let mut report = self.world.watch().report(true, !calm);
        for finding in &self.tally.findings {
            let example = CounterExample { summary: finding.summary.clone(), lines: Vec::new() };
            report.counter_example.get_or_insert_with(|| format!("{}: {example}", finding.property));
            report.properties.insert(finding.property, Verdict::Violated(example));
        }
        let passes = self.world.switch().counters().list().map(|(_, count)| count).sum();
        let tally = &self.tally;
        let with = |receivers| u64::from(self.scenario.receivers == receivers);
        let counts = vec![
            ("packets lost", tally.lost),
            ("mirror copies lost", tally.lost_in_loop),
            ("packets repeated", tally.repeated),
            ("packets overtaken", tally.overtaken),
            ("packets damaged", tally.damaged),
            ("early timeouts", tally.early),
            ("leases that ended", tally.leases),
            ("restarts", tally.restarts),
            ("sets poisoned", tally.poisoned),
            ("sets created anew", tally.anew),
            ("runs with 8 receivers", with(8)),
            ("runs with 32 receivers", with(32)),
            ("runs without any trouble", u64::from(calm)),
        ];
        let run =
            RunReport { report, posted: tally.posted, executed: tally.executed, steps: self.steps, passes, counts };
        let recorded = self.world.tape.take().map(|tape| tape.recorded(&self.end(&run), run.violated()));
        (run, recorded.unwrap_or_default())
    }

    /// Returns a description of the run's end in numbers, for its transcript.
    fn end(&self, run: &RunReport) -> Vec<u64> {
        let causes = Cause::ALL.iter().map(|cause| self.world.switch().counters().of(*cause));
        [run.steps, run.passes, run.posted, run.executed].into_iter().chain(causes).collect()
    }
}
