//! Runs one seed of the channel.

use std::cell::RefCell;
use std::rc::Rc;

use stentor_channel::{Endpoint, EndpointError, Mutant};
use stentor_checker::Report;
use stentor_fabric::ProcessId;
use stentor_fabric_conformance::FaultInjector;
use stentor_fabric_sim::{Actor as _, Due, FaultCounts, SimConfig};

use super::actor::{Process, Shared, Task};
use super::history::History;
use super::scenario::{DEADLINE_NS, MOST_STEPS, Scenario};
use super::watch::{Ledger, Watched};
use crate::chance::Chance;
use crate::record::{Record, Recorded};

/// The result of a run.
#[derive(Debug, Default)]
pub struct RunReport {
    /// The verdicts.
    pub report: Report,
    /// Messages written by processes that did not crash. The other counts of actions exclude crashed processes, too.
    pub writes: u64,
    /// Messages read.
    pub reads: u64,
    /// Connection ends that failed.
    pub failed: u64,
    /// Connection ends that were closed by both sides.
    pub closed: u64,
    /// Connection ends that were aborted.
    pub given_up: u64,
    /// Completions that were reported before an earlier one.
    pub overtaken: u64,
    /// Completions that were lost because too many were pending.
    pub lost: u64,
    /// `true` if all connections were closed.
    pub finished: bool,
    /// Steps of all processes.
    pub steps: u64,
    /// Virtual time, in nanoseconds.
    pub virtual_ns: u64,
    /// The injected faults.
    pub faults: FaultCounts,
    /// Work requests posted.
    pub posts: u64,
}

impl RunReport {
    /// Returns further counts, by name.
    #[must_use]
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("completions told before earlier ones", self.overtaken),
            ("completions lost", self.lost),
            ("connections that failed", self.failed),
            ("connections closed by both ends", self.closed),
            ("connections given up", self.given_up),
        ]
    }

    /// Returns the names of violated properties. They include `C1` if a connection was not closed.
    pub fn violated(&self) -> impl Iterator<Item = &'static str> + '_ {
        let stuck = !self.finished && !self.report.violated().any(|property| property == "C1");
        self.report.violated().chain(stuck.then_some("C1"))
    }
}

/// Runs a seed.
///
/// # Errors
/// Returns an [`EndpointError`] if the scenario is invalid, which a drawn one never is.
pub fn run_seed(seed: u64, mutant: Mutant) -> Result<RunReport, EndpointError> {
    run_scenario(seed, &Scenario::draw(seed, mutant))
}

/// Runs a seed with a given scenario.
///
/// # Errors
/// Returns an error under the same conditions as [`run_seed`].
pub fn run_scenario(seed: u64, scenario: &Scenario) -> Result<RunReport, EndpointError> {
    Ok(run(seed, scenario, Record::Nothing)?.0)
}

/// Runs a seed and records its events.
///
/// # Errors
/// Returns an error under the same conditions as [`run_seed`].
pub fn record_seed(seed: u64, mutant: Mutant, record: Record) -> Result<(RunReport, Recorded), EndpointError> {
    run(seed, &Scenario::draw(seed, mutant), record)
}

fn run(seed: u64, scenario: &Scenario, record: Record) -> Result<(RunReport, Recorded), EndpointError> {
    let world = record.world(SimConfig {
        faults: scenario.plan.clone(),
        ..SimConfig::new(usize::from(scenario.processes), seed, scenario.network.clone())
    });
    let ledger = Rc::new(RefCell::new(Ledger::default()));
    let history = RefCell::new(History::new(scenario.processes, record));
    let shared = Rc::new(Shared { world, history, ledger });
    let mut actors = Vec::new();
    for me in (0..scenario.processes).map(ProcessId) {
        actors.push(Some(process(me, seed, scenario, &shared)?));
    }
    let (finished, steps) = drive(&shared, &mut actors);
    Ok(judge(&shared, &actors, scenario, finished, steps))
}

fn process(me: ProcessId, seed: u64, scenario: &Scenario, shared: &Rc<Shared>) -> Result<Process, EndpointError> {
    let mut disorders = scenario.disorders;
    disorders.seed = disorders.seed.wrapping_mul(31) + u64::from(me.0);
    let fabric = Watched::new(FaultInjector::new(shared.world.fabric(me), disorders), Rc::clone(&shared.ledger));
    let peers: Vec<ProcessId> = (0..scenario.processes).map(ProcessId).filter(|peer| *peer != me).collect();
    let endpoint = Endpoint::new(fabric, scenario.endpoint, &peers)?;
    let task = Task {
        peers,
        connections: scenario.endpoint.connections,
        messages: scenario.messages,
        longest: scenario.longest,
        rounds: scenario.rounds,
        pause_ns: scenario.pause_ns,
        gives_up_ns: scenario.gives_up.filter(|(who, _)| *who == me).map(|(_, at)| at),
    };
    Ok(Process::new(me, endpoint, Rc::clone(shared), Chance::new(seed, 1 + u64::from(me.0)), task))
}

/// Runs until all connections are closed or a limit is reached. Returns whether all are closed, and the number of
/// steps.
fn drive(shared: &Shared, actors: &mut [Option<Process>]) -> (bool, u64) {
    let mut steps = 0;
    while let Some(due) = shared.world.next(DEADLINE_NS) {
        match due {
            Due::Step { process, now_ns } => {
                let Some(actor) = &mut actors[process.index()] else { continue };
                let worked = actor.step(now_ns);
                shared.world.stepped(process, worked);
                steps += 1;
                if !worked && actors.iter().flatten().all(Process::is_done) {
                    return (true, steps);
                }
                if steps > MOST_STEPS {
                    return (false, steps);
                }
            }
            Due::Crashed(process) => {
                shared.history.borrow_mut().crashed(shared.world.now_ns(), process);
                actors[process.index()] = None;
            }
            Due::Restart(_) => {}
        }
    }
    (actors.iter().flatten().all(Process::is_done), steps)
}

fn judge(
    shared: &Rc<Shared>,
    actors: &[Option<Process>],
    scenario: &Scenario,
    finished: bool,
    steps: u64,
) -> (RunReport, Recorded) {
    let now = shared.world.now_ns();
    let mut history = shared.history.replace(History::new(scenario.processes, Record::Nothing));
    let faults = shared.world.fault_counts();
    let ledger = shared.ledger.borrow();
    for (end, status) in &ledger.broken {
        history.fault(now, *end, *status);
    }
    for (end, count, granted) in &ledger.beyond {
        history.in_flight(now, *end, *count, *granted);
    }
    // Receives for WRITE_WITH_IMM belong to no connection, so a missing one is attributed to the first connection.
    let first = (ProcessId(0), ProcessId(1), 0, 1);
    history.in_flight(now, first, faults.rnr_retries, 0);
    let (report, transcript) = history.finish();
    let mut run = RunReport { report, finished, steps, virtual_ns: now, faults, ..RunReport::default() };
    for process in actors.iter().flatten() {
        run.writes += process.counts.writes;
        run.reads += process.counts.reads;
        run.failed += process.counts.failed;
        run.closed += process.counts.closed;
        run.given_up += process.counts.given_up;
        run.overtaken += process.endpoint.fabric().inner.overtaken();
        run.lost += process.endpoint.fabric().inner.lost();
    }
    let processes = scenario.processes;
    let counts = |process| shared.world.process_counts(ProcessId(process));
    run.posts = (0..processes).map(|process| counts(process).total().posts()).sum();
    let end = [run.finished.into(), run.steps, run.virtual_ns, run.writes, run.reads];
    let recorded = Recorded::of(&shared.world, transcript, &end, run.violated());
    (run, recorded)
}
