//! One seed of sessions: a phase with faults, then a phase without, in which every client must complete.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use stentor_checker::Report;
use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Due, FaultCounts, SimConfig};
use stentor_multicast::{Counts, GroupId, NodeError, ProcessRole, Topology};

use super::client::ClientActor;
use super::counts::SessionCounts;
use super::disk::Disk;
use super::drawn::Drawn;
use super::ledger::Ledger;
use super::machine::Machine;
use super::member::MemberActor;
use super::mutant::Mutant;
use super::scenario::{Scenario, UPGRADES_EACH};
use super::shared::Shared;
use super::story::Story;
use super::tally::Tally;
use super::workload::Workload;
use crate::chance::Chance;
use crate::clocks::Clocks;
use crate::faulty_run::{Phases, RECOVERY_STEPS};
use crate::nemesis::{Nemesis, NemesisCounts, Profile};
use crate::progress::Progress;
use crate::record::{Record, Recorded};

/// The result of a run.
#[derive(Debug, Default)]
pub struct RunReport {
    /// The verdicts.
    pub report: Report,
    /// Messages multicast.
    pub messages: u64,
    /// Deliveries.
    pub deliveries: u64,
    /// `true` if every client completed.
    pub finished: bool,
    /// Steps of all processes.
    pub steps: u64,
    /// Steps after the faults had stopped.
    pub recovery_steps: u64,
    /// Virtual time, in nanoseconds.
    pub virtual_ns: u64,
    /// The faults of the network.
    pub faults: FaultCounts,
    /// The faults of the nemesis.
    pub nemesis: NemesisCounts,
    /// The events of sessions.
    pub counts: SessionCounts,
    /// Remote writes of the protocol.
    pub writes: u64,
    /// The log of the nemesis, and the waiting processes at the end.
    pub log: Vec<String>,
}

impl RunReport {
    /// Returns the names of violated properties.
    pub fn violated(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.report.violated()
    }
}

/// Runs a seed.
///
/// # Errors
/// Returns a [`NodeError`] if the scenario is invalid, which a drawn one never is.
pub fn run_seed(seed: u64, mutant: Mutant) -> Result<RunReport, NodeError> {
    Ok(record_seed(seed, mutant, Record::Nothing)?.0)
}

/// Runs a seed without its drawn reads, timers and upgrades.
///
/// # Errors
/// Returns an error under the same conditions as [`run_seed`].
pub fn run_seed_without_reads(seed: u64, mutant: Mutant) -> Result<RunReport, NodeError> {
    let draw = Scenario::draw(seed);
    let scenario = Scenario { reads_ns: None, time_entries: false, timers: false, upgrades: false, ..draw };
    Ok(run(seed, drawn(scenario, mutant), mutant, Record::Nothing)?.report)
}

/// Runs a seed with timers and upgrades, and with reads if it draws any.
///
/// # Errors
/// Returns an error under the same conditions as [`run_seed`].
pub fn run_seed_with_timers(seed: u64, mutant: Mutant) -> Result<RunReport, NodeError> {
    let scenario = Scenario { time_entries: true, timers: true, upgrades: true, ..Scenario::draw(seed) };
    Ok(run(seed, drawn(scenario, mutant), mutant, Record::Nothing)?.report)
}

enum Actor {
    Member(Box<MemberActor>),
    Client(Box<ClientActor>),
}

impl Actor {
    /// Describes the notifications that a client awaits before it ends its session.
    fn awaits(&self) -> Option<String> {
        match self {
            Actor::Member(_) => None,
            Actor::Client(client) => client.awaits_notes(),
        }
    }
}

/// A run in progress: all its processes and its phase.
struct Run {
    shared: Rc<Shared>,
    actors: Vec<Option<Actor>>,
    /// The number of each process's current life.
    incarnations: Vec<u64>,
    writes: u64,
    phases: Phases,
}

/// Runs a seed and records its events.
///
/// # Errors
/// Returns an error under the same conditions as [`run_seed`].
pub fn record_seed(seed: u64, mutant: Mutant, record: Record) -> Result<(RunReport, Recorded), NodeError> {
    let Ended { report, recorded, .. } = run(seed, drawn(Scenario::draw(seed), mutant), mutant, record)?;
    Ok((report, recorded))
}

/// Returns the parts of a drawn run, with its small service.
fn drawn(scenario: Scenario, mutant: Mutant) -> Parts {
    let timers = scenario.timers.then(|| mutant.of_sessions());
    Parts {
        scenario,
        of_tally: true,
        machine: Box::new(move |_| Box::new(Tally::new(timers))),
        workload: Rc::new(RefCell::new(Drawn)),
        story: None,
        recovery_steps: RECOVERY_STEPS,
    }
}

/// The parts of a run other than the protocol.
pub(super) struct Parts {
    pub(super) scenario: Scenario,
    /// `true` if the machine is a [`Tally`].
    pub(super) of_tally: bool,
    pub(super) machine: Box<dyn Fn(GroupId) -> Box<dyn Machine>>,
    pub(super) workload: Rc<RefCell<dyn Workload>>,
    /// The log of the run in words, if it is requested.
    pub(super) story: Option<Story>,
    /// Maximum number of steps of all processes until every client completes after the faults have stopped.
    pub(super) recovery_steps: u64,
}

/// The results of a run that has ended.
pub(super) struct Ended {
    pub(super) report: RunReport,
    pub(super) recorded: Recorded,
    pub(super) ledger: Ledger,
    pub(super) story: Vec<String>,
    pub(super) leaders: u64,
    pub(super) restores: u64,
}

/// Runs a seed with these parts.
pub(super) fn run(seed: u64, parts: Parts, mutant: Mutant, record: Record) -> Result<Ended, NodeError> {
    let Parts { scenario, of_tally, machine, workload, story, recovery_steps } = parts;
    let base = &scenario.base;
    let topology = Arc::new(Topology::new(&base.groups, base.clients).expect("the clusters are within the limits"));
    let world = record.world(SimConfig {
        mix: base.mix.clone(),
        faults: base.set_faults(seed, Nemesis::UNTIL_NS),
        ..SimConfig::new(topology.processes(), seed, base.network.clone())
    });
    let disk = |_| RefCell::new(Disk { left: scenario.commands, ends_at: scenario.ends_at, ..Disk::default() });
    let mut nemesis = Nemesis::new(seed, scenario.profile, &topology, &world);
    // Every client id is taken over, so that the commands in earlier tickets are resolved.
    nemesis.fill_places();
    if scenario.reads_ns.is_some() || !of_tally {
        nemesis.part_leaders(&mut Chance::new(seed, super::scenario::READS + 1));
    }
    let clocks = Clocks::draw(seed, Profile::Clocks, &topology).expect("this profile has clocks");
    let programs = programs(seed, scenario.upgrades, &topology);
    let shared = Rc::new(Shared {
        progress: RefCell::new(Progress::new(&topology)),
        nemesis: RefCell::new(nemesis),
        clocks: RefCell::new(clocks),
        ledger: RefCell::new(Ledger::new(scenario.sessions, of_tally)),
        counts: RefCell::default(),
        disks: (0..base.clients).map(disk).collect(),
        scenario,
        salt: seed ^ 0x5345_5353_494f_4e53,
        world,
        topology,
        mutant,
        messages: Cell::new(0),
        deliveries: Cell::new(0),
        tokens: Cell::new(0),
        transcript: RefCell::new(record.transcript()),
        machine,
        workload,
        story: RefCell::new(story),
        stamp: Cell::new(0),
        leaders: Cell::new(0),
        restores: Cell::new(0),
        said_again: RefCell::default(),
        programs,
    });
    let incarnations = vec![1; shared.topology.processes()];
    let mut run = Run { shared, actors: Vec::new(), incarnations, writes: 0, phases: Phases::default() };
    for process in (0..run.shared.topology.processes() as u16).map(ProcessId) {
        let actor = run.actor(process)?;
        run.actors.push(Some(actor));
    }
    let finished = run.drive(recovery_steps)?;
    Ok(run.judge(finished))
}

/// Draws the times at which each process gets a newer program, by process.
fn programs(seed: u64, are_upgraded: bool, topology: &Topology) -> Vec<[u64; UPGRADES_EACH]> {
    let mut chance = Chance::new(seed, super::scenario::UPGRADES + 1);
    let mut times = || [(); UPGRADES_EACH].map(|()| chance.between(0, Nemesis::UNTIL_NS));
    (0..topology.processes()).map(|_| if are_upgraded { times() } else { [u64::MAX; UPGRADES_EACH] }).collect()
}

impl Run {
    /// Creates a process in its current life.
    fn actor(&self, process: ProcessId) -> Result<Actor, NodeError> {
        let incarnation = self.incarnations[process.index()];
        Ok(match self.shared.topology.role(process) {
            Some(ProcessRole::Client(client)) => {
                self.shared.world.name(process, &format!("c{}", client.0));
                Actor::Client(Box::new(ClientActor::new(&self.shared, client, incarnation)?))
            }
            _ => Actor::Member(Box::new(MemberActor::new(&self.shared, process, incarnation)?)),
        })
    }

    /// Runs both phases. Returns whether every client completed within these steps after the faults.
    fn drive(&mut self, recovery_steps: u64) -> Result<bool, NodeError> {
        while let Some(due) = self.phases.next(&self.shared.world, &self.shared.nemesis) {
            match due {
                Due::Step { process, now_ns } => {
                    self.step(process, now_ns);
                    match self.phases.recovery_steps() {
                        Some(_) if self.is_through() => return Ok(true),
                        Some(steps) if steps > recovery_steps => return Ok(false),
                        _ => {}
                    }
                }
                Due::Crashed(process) => self.crashed(process),
                Due::Restart(process) => self.restart(process)?,
            }
        }
        Ok(self.is_through())
    }

    fn step(&mut self, process: ProcessId, now_ns: u64) {
        let worked = match &mut self.actors[process.index()] {
            Some(Actor::Member(member)) => member.step(now_ns),
            Some(Actor::Client(client)) => client.step(now_ns),
            None => return,
        };
        self.shared.tell_violations();
        self.phases.stepped();
        self.shared.world.stepped(process, worked);
    }

    fn is_through(&self) -> bool {
        self.shared.are_all_done() && self.shared.progress.borrow().is_through(&self.shared.topology)
    }

    fn crashed(&mut self, process: ProcessId) {
        let now = self.shared.world.now_ns();
        self.count(process);
        if let Some(Actor::Member(actor)) = &self.actors[process.index()] {
            actor.crashed();
        }
        self.actors[process.index()] = None;
        self.shared.record("crash", now, process, &[]);
        self.shared.progress.borrow_mut().crashed(&self.shared.topology, process);
        self.shared.nemesis.borrow_mut().crashed(now, process);
    }

    fn restart(&mut self, process: ProcessId) -> Result<(), NodeError> {
        // The new actor creates its own handle of the fabric.
        drop(self.shared.world.restart(process));
        self.incarnations[process.index()] += 1;
        self.shared.nemesis.borrow_mut().restarted(self.shared.world.now_ns(), process);
        self.actors[process.index()] = Some(self.actor(process)?);
        Ok(())
    }

    /// Adds the counts of a process to the totals.
    fn count(&mut self, process: ProcessId) {
        let writes = |counts: &Counts| counts.protocol_writes();
        self.writes += match &self.actors[process.index()] {
            Some(Actor::Member(actor)) => {
                actor.count_reads();
                writes(actor.member.counts())
            }
            Some(Actor::Client(actor)) => writes(actor.client.counts()),
            None => 0,
        };
    }

    fn judge(mut self, finished: bool) -> Ended {
        let now = self.shared.world.now_ns();
        (0..self.actors.len() as u16).for_each(|process| self.count(ProcessId(process)));
        let stand = |actor: &Actor| match actor {
            Actor::Member(actor) => actor.stand(),
            Actor::Client(actor) => actor.stand(),
        };
        let stuck: Vec<String> = if finished { Vec::new() } else { self.actors.iter().flatten().map(stand).collect() };
        let awaited: Vec<String> = self.actors.iter().flatten().filter_map(Actor::awaits).collect();
        let missing = self.shared.progress.borrow().missing(&self.shared.topology).filter(|_| !finished);
        self.actors.clear();
        self.shared.tell(|| if finished { "every client is done" } else { "the run ended at a limit" }.to_owned());
        let shared = Rc::into_inner(self.shared).expect("the actors are dropped");
        let mut ledger = shared.ledger.into_inner();
        let mut counts = shared.counts.into_inner();
        counts.applied_in_several_groups = ledger.close(finished);
        let mut log = shared.nemesis.borrow().log().to_vec();
        log.extend(missing.map(|missing| format!("in the end: {missing}")));
        log.extend(stuck.iter().cloned());
        if let Some(why) = awaited.into_iter().next().filter(|_| !finished) {
            ledger.violate("X11", why);
        }
        if !finished {
            ledger.violate("X7", stuck.join("\n  "));
        }
        let (properties, counter_example) = ledger.verdicts();
        let nemesis = shared.nemesis.borrow().counts();
        let run = RunReport {
            report: Report { properties, counter_example, complete: finished, ..Report::default() },
            messages: shared.messages.get(),
            deliveries: shared.deliveries.get(),
            finished,
            steps: self.phases.steps(),
            recovery_steps: self.phases.recovery_steps().unwrap_or_default(),
            virtual_ns: now,
            faults: shared.world.fault_counts(),
            nemesis,
            counts,
            writes: self.writes,
            log,
        };
        let end = [finished.into(), run.steps, now, run.messages, run.deliveries];
        let recorded = Recorded::of(&shared.world, shared.transcript.into_inner(), &end, run.violated());
        let story = shared.story.into_inner().map(Story::into_lines).unwrap_or_default();
        let (leaders, restores) = (shared.leaders.get(), shared.restores.get());
        Ended { report: run, recorded, ledger, story, leaders, restores }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_deterministic() {
        let hashes = |seed| {
            let (run, mut recorded) = record_seed(seed, Mutant::None, Record::Hashes).expect("a possible scenario");
            assert_eq!(run.violated().collect::<Vec<_>>(), [""; 0], "{:?}", run.report.counter_example);
            recorded.hashes()
        };
        assert_eq!(hashes(3), hashes(3));
        assert_ne!(hashes(3), hashes(4));
    }
}
