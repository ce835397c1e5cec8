//! Runs one seed of the broadcast.

use std::cell::RefCell;
use std::rc::Rc;

use stentor_checker::Report;
use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Actor as _, Due, FaultCounts, SetCounts, SimConfig};
use stentor_neb::{Authority, Config, Liar, Mode, Mutant, Node, NodeError, ProcessSet, Told};

use super::actor::{Actor, Correct, Lying, Shared};
use super::history::History;
use super::operator::Operators;
use super::scenario::{DEADLINE_NS, MOST_STEPS, SPAN_NS, Scenario, Severity};
use crate::chance::Chance;
use crate::record::{Record, Recorded};
use crate::sets::Sets;

/// The stream of the operators' random choices.
const OPERATORS: u64 = 901;
/// Name of the count of slow fan-out sets.
pub(crate) const SLOW: &str = "sets found slow";

/// The result of a run.
#[derive(Debug, Default)]
pub struct RunReport {
    /// The verdicts.
    pub report: Report,
    /// Broadcasts of correct processes that did not crash. The other counts exclude crashed processes, too.
    pub broadcasts: u64,
    /// Deliveries at correct processes.
    pub deliveries: u64,
    /// Deliveries without a READ.
    pub fast: u64,
    /// Equivocations reported.
    pub equivocations: u64,
    /// Indices skipped.
    pub skipped: u64,
    /// Suspicions of processes.
    pub suspicions: u64,
    /// Registers that were read again because a read was torn.
    pub reread: u64,
    /// `true` for mode `all`, `false` for mode `quorum`.
    pub all: bool,
    /// `true` if the broadcasts of correct processes must be delivered by all correct processes.
    pub lively: bool,
    /// `true` if the run completed, or did not have to complete.
    pub finished: bool,
    /// Steps of all processes.
    pub steps: u64,
    /// Virtual time, in nanoseconds.
    pub virtual_ns: u64,
    /// The injected faults.
    pub faults: FaultCounts,
    /// Register WRITEs and broadcast WRITEs.
    pub writes: u64,
    /// The network's events with fan-out sets, if the run has any.
    pub sets: SetCounts,
    /// Number of times that the fan-out set of a correct process became slow.
    pub slow_sets: u64,
    /// The lies of the Byzantine processes.
    pub told: Told,
    /// Removals that an operator completed.
    pub removals: u64,
    /// Operators that crashed during a removal.
    pub operators_died: u64,
    /// Operators that were refused, because another operator was active or had been.
    pub operators_refused: u64,
}

impl RunReport {
    /// Returns further counts, by name.
    #[must_use]
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let mut counts = vec![
            ("deliveries without a READ", self.fast),
            ("equivocations reported", self.equivocations),
            ("indices skipped", self.skipped),
            ("suspicions", self.suspicions),
            ("registers read again", self.reread),
            ("seeds in mode all", u64::from(self.all)),
            ("seeds in which nothing may stay undelivered", u64::from(self.lively)),
        ];
        counts.extend([
            ("removals by an operator", self.removals),
            ("operators that died half-way", self.operators_died),
            ("operators that were refused", self.operators_refused),
        ]);
        counts.extend(self.told.named());
        counts.extend(self.sets.named());
        counts.push((SLOW, self.slow_sets));
        counts
    }

    /// Returns the names of violated properties. They include `B2` if a run that must complete did not.
    pub fn violated(&self) -> impl Iterator<Item = &'static str> + '_ {
        let stuck = !self.finished && !self.report.violated().any(|property| property == "B2");
        self.report.violated().chain(stuck.then_some("B2"))
    }
}

/// Runs a seed.
///
/// # Errors
/// Returns a [`NodeError`] if the scenario is invalid, which a drawn one never is.
pub fn run_seed(seed: u64, severity: Severity, sets: Sets, mutant: Mutant) -> Result<RunReport, NodeError> {
    run_scenario(seed, &Scenario::draw(seed, severity, mutant).choose(seed, sets))
}

/// Runs a seed with a given scenario.
///
/// # Errors
/// Returns an error under the same conditions as [`run_seed`].
pub fn run_scenario(seed: u64, scenario: &Scenario) -> Result<RunReport, NodeError> {
    Ok(run(seed, scenario, Record::Nothing)?.0)
}

/// Runs a seed and records its events.
///
/// # Errors
/// Returns an error under the same conditions as [`run_seed`].
pub fn record_seed(
    seed: u64,
    severity: Severity,
    sets: Sets,
    mutant: Mutant,
    record: Record,
) -> Result<(RunReport, Recorded), NodeError> {
    run(seed, &Scenario::draw(seed, severity, mutant).choose(seed, sets), record)
}

fn run(seed: u64, scenario: &Scenario, record: Record) -> Result<(RunReport, Recorded), NodeError> {
    let world = record.world(SimConfig {
        mix: scenario.mix.clone(),
        faults: scenario.plan.clone(),
        ..SimConfig::new(scenario.config.processes, seed, scenario.network.clone())
    });
    let shared = Rc::new(Shared { world, history: RefCell::new(History::new(scenario, record)) });
    let mut actors = Vec::new();
    for me in scenario.config.everybody().iter() {
        actors.push(Some(actor(me, seed, scenario, &shared)?));
    }
    let chance = Chance::new(seed, OPERATORS);
    let mut operators = scenario.removal.as_ref().map(|removal| Operators::new(&scenario.config, removal, chance));
    let finished = drive(&shared, &mut actors, scenario, &mut operators);
    let (mut run, recorded) = judge(shared, actors, finished, scenario);
    if let Some(operators) = operators {
        run.removals = u64::from(operators.done);
        (run.operators_died, run.operators_refused) = (operators.died, operators.refused);
    }
    Ok((run, recorded))
}

fn authority(config: &Config, me: ProcessId, salt: u64) -> Option<Authority> {
    let secret = |process: ProcessId| [process.0 as u8 + 1; 32];
    let public: Vec<_> = config.everybody().iter().map(|process| Authority::public_of(&secret(process))).collect();
    let keys = || Authority::new(salt, me, &secret(me), &public).expect("these keys belong together");
    config.signed.then(keys)
}

fn actor(me: ProcessId, seed: u64, scenario: &Scenario, shared: &Rc<Shared>) -> Result<Actor, NodeError> {
    let config = scenario.config;
    let salt = seed ^ 0x5354_454e_544f_5221;
    let fabric = shared.world.fabric(me);
    let (shared, chance) = (Rc::clone(shared), Chance::new(seed, 1 + u64::from(me.0)));
    let authority = authority(&config, me, salt);
    if let Some((_, lies)) = scenario.liars.iter().find(|(liar, _)| *liar == me) {
        shared.world.name(me, &format!("{me} lies"));
        let liar = Liar::new(fabric, config, salt, authority, *lies, 40, scenario.other_side)?;
        let liar = liar.equivocating_every(scenario.every);
        return Ok(Actor::Liar(Box::new(Lying { liar, me, shared, chance, until_ns: SPAN_NS })));
    }
    shared.world.name(me, &me.to_string());
    Ok(Actor::Correct(Box::new(Correct {
        node: Node::new(fabric, config, salt, authority)?,
        me,
        shared,
        chance,
        left: scenario.broadcasts,
        longest: scenario.longest,
        pause_ns: scenario.pause_ns,
        not_before_ns: 0,
        heads: vec![0; config.processes],
        refused: 0,
        equivocations: 0,
        removed: ProcessSet::EMPTY,
    })))
}

/// Returns whether every remaining process (correct, up and not removed) has an outcome for each broadcast of a
/// remaining process, and has completed the streams of the removed processes.
fn is_finished(actors: &[Option<Actor>], broadcasts: u64, removed: ProcessSet) -> bool {
    let remains = |place: usize| !removed.contains(ProcessId(place as u16));
    let correct = |actor: &Option<Actor>| matches!(actor, Some(Actor::Correct(_)));
    let senders: Vec<usize> = (0..actors.len()).filter(|place| correct(&actors[*place]) && remains(*place)).collect();
    senders.iter().all(|place| match &actors[*place] {
        Some(Actor::Correct(process)) => {
            process.left == 0
                && process.removed.covers(removed)
                && senders.iter().all(|sender| process.heads[*sender] >= broadcasts)
        }
        _ => true,
    })
}

/// Runs until all broadcasts and removals that must complete have completed, or until a limit is reached. Returns
/// whether they have completed.
fn drive(
    shared: &Shared,
    actors: &mut [Option<Actor>],
    scenario: &Scenario,
    operators: &mut Option<Operators>,
) -> bool {
    let removed = scenario.removal.as_ref().map_or(ProcessSet::EMPTY, |removal| removal.targets);
    let until = if scenario.lively { DEADLINE_NS } else { SPAN_NS };
    let mut steps = 0_u64;
    while let Some(due) = shared.world.next(until) {
        if let Some(operators) = operators {
            operators.round(&shared.world, actors);
        }
        match due {
            Due::Step { process, now_ns } => {
                let Some(actor) = &mut actors[process.index()] else { continue };
                let worked = actor.step(now_ns);
                shared.world.stepped(process, worked);
                steps += 1;
                let over = shared.world.now_ns() > SPAN_NS && scenario.lively;
                if (over || steps.is_multiple_of(64))
                    && scenario.lively
                    && is_finished(actors, scenario.broadcasts, removed)
                {
                    return true;
                }
                if steps > MOST_STEPS {
                    return !scenario.lively;
                }
            }
            Due::Crashed(process) => {
                shared.history.borrow_mut().crashed(shared.world.now_ns(), process);
                actors[process.index()] = None;
            }
            Due::Restart(_) => {}
        }
    }
    !scenario.lively || is_finished(actors, scenario.broadcasts, removed)
}

fn judge(shared: Rc<Shared>, actors: Vec<Option<Actor>>, finished: bool, scenario: &Scenario) -> (RunReport, Recorded) {
    let now = shared.world.now_ns();
    let mut run = RunReport {
        all: scenario.config.mode == Mode::All,
        lively: scenario.lively,
        finished,
        virtual_ns: now,
        faults: shared.world.fault_counts(),
        sets: shared.world.set_counts(),
        ..RunReport::default()
    };
    for actor in actors.iter().flatten() {
        let process = match actor {
            Actor::Correct(process) => process,
            Actor::Liar(lying) => {
                run.told.add(lying.liar.told());
                continue;
            }
        };
        let counts = process.node.counts();
        run.broadcasts += counts.broadcasts;
        run.deliveries += counts.deliveries;
        run.fast += counts.fast;
        run.equivocations += process.equivocations;
        run.skipped += counts.skipped;
        run.suspicions += counts.suspicions;
        run.reread += counts.reread;
        run.slow_sets += counts.slow_sets;
        run.writes += counts.broadcast_writes + counts.register_writes;
        let (bytes, limit) = (process.node.registered_bytes(), scenario.config.memory_bytes());
        shared.history.borrow_mut().memory(now, process.me, bytes, limit);
    }
    drop(actors);
    run.steps = shared.world.steps();
    let Shared { world, history } = Rc::into_inner(shared).expect("the actors are dropped");
    let (report, transcript) = history.into_inner().finish(scenario.lively);
    run.report = report;
    let end = [run.finished.into(), run.steps, run.virtual_ns, run.broadcasts, run.deliveries];
    let recorded = Recorded::of(&world, transcript, &end, run.violated());
    (run, recorded)
}
