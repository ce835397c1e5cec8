//! Runs one seed of the multicast.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::SimConfig;
use stentor_multicast::{Client, Member, Mutant, NodeError, ProcessRole, ReplicaConfig, Topology};

use crate::actor::{Actor, ClientActor, Load, MemberActor, Shared};
use crate::faulty_run;
use crate::history::History;
use crate::nemesis::Profile;
use crate::record::{Record, Recorded};
use crate::report::RunReport;
use crate::scenario::{DEADLINE_NS, MOST_STEPS, Scenario};
use crate::sets::Sets;

/// Time during which fan-out sets may break in a calm run, in nanoseconds.
const SETS_BREAK_UNTIL_NS: u64 = 1_000_000;

/// No process restarts in calm runs, so all are in their first life.
const INCARNATION: u64 = 1;

/// Runs a seed under a profile.
///
/// # Errors
/// Returns a [`NodeError`] if the scenario is invalid, which a drawn one never is.
pub fn run_seed(seed: u64, profile: Profile, sets: Sets, mutant: Mutant) -> Result<RunReport, NodeError> {
    Ok(record_seed(seed, profile, sets, mutant, Record::Nothing)?.0)
}

/// Runs a seed with a given scenario, under a profile.
///
/// # Errors
/// Returns an error under the same conditions as [`run_seed`].
///
/// # Panics
/// Panics if the groups and clients of the scenario are not a valid [`Topology`].
pub fn run_scenario_under(
    seed: u64,
    scenario: &Scenario,
    profile: Profile,
    mutant: Mutant,
) -> Result<RunReport, NodeError> {
    Ok(faulty_run::run(seed, scenario, profile, mutant, Record::Nothing)?.0)
}

/// Runs a seed with a given scenario.
///
/// # Errors
/// Returns an error under the same conditions as [`run_seed`].
///
/// # Panics
/// Panics if the groups and clients of the scenario are not a valid [`Topology`].
pub fn run_scenario(seed: u64, scenario: &Scenario, mutant: Mutant) -> Result<RunReport, NodeError> {
    Ok(run(seed, scenario, mutant, Record::Nothing)?.0)
}

/// Runs a seed and records its events.
///
/// # Errors
/// Returns an error under the same conditions as [`run_seed`].
pub fn record_seed(
    seed: u64,
    profile: Profile,
    sets: Sets,
    mutant: Mutant,
    record: Record,
) -> Result<(RunReport, Recorded), NodeError> {
    let scenario = Scenario::draw_under(seed, profile).choose(seed, sets);
    match profile {
        Profile::Calm => run(seed, &scenario, mutant, record),
        _ => faulty_run::run(seed, &scenario, profile, mutant, record),
    }
}

fn run(seed: u64, scenario: &Scenario, mutant: Mutant, record: Record) -> Result<(RunReport, Recorded), NodeError> {
    let topology =
        Arc::new(Topology::new(&scenario.groups, scenario.clients).expect("drawn clusters are within the limits"));
    let world = record.world(SimConfig {
        mix: scenario.mix.clone(),
        faults: scenario.set_faults(seed, SETS_BREAK_UNTIL_NS),
        ..SimConfig::new(topology.processes(), seed, scenario.network.clone())
    });
    let history = RefCell::new(History::new(&topology, record));
    let shared = Rc::new(Shared { world, history });
    let mut actors = Vec::new();
    for process in (0..topology.processes() as u16).map(ProcessId) {
        actors.push(Some(actor(process, seed, scenario, mutant, &topology, &shared)?));
    }
    let finished = drive(&shared, &mut actors, u64::from(scenario.clients));
    Ok(judge(shared, actors, finished))
}

fn actor(
    me: ProcessId,
    seed: u64,
    scenario: &Scenario,
    mutant: Mutant,
    topology: &Arc<Topology>,
    shared: &Rc<Shared>,
) -> Result<Actor, NodeError> {
    let fabric = shared.world.fabric(me);
    let salt = seed ^ 0x5743_454e_544f_5221;
    let (limits, shared) = (scenario.limits, Rc::clone(shared));
    match topology.role(me) {
        Some(ProcessRole::Client(client)) => {
            shared.world.name(me, &format!("c{}", client.0));
            let mut node = Client::with_mutant(fabric, topology.clone(), client, limits, (salt, INCARNATION), mutant)?;
            node.record_operations();
            let load = Load::new(seed, client, scenario, topology);
            Ok(Actor::Client(ClientActor { client: node, me, load, shared }))
        }
        _ => {
            let window = limits.window;
            let config =
                ReplicaConfig { variant: scenario.variant, mutant, ..ReplicaConfig::new(topology.clone(), me, window) };
            let mut member = Member::new(fabric, config, limits, salt, INCARNATION)?;
            member.record_operations();
            shared.world.name(me, &format!("g{} {me}", member.replica().group().0 + 1));
            let clients = topology.clients() as u16;
            Ok(Actor::Member(MemberActor { member, me, clients, shared }))
        }
    }
}

/// Runs until every message is delivered by all destinations, until no event is left, or until a limit is reached (M9:
/// within a bounded number of steps). Returns whether all messages were delivered.
fn drive(shared: &Shared, actors: &mut [Option<Actor>], clients: u64) -> bool {
    let mut sent_all = vec![false; actors.len()];
    let (mut left, mut expected, mut steps) = (clients, 0, 0_u64);
    let out_of_steps = std::cell::Cell::new(false);
    let stopped = shared.world.run(actors, DEADLINE_NS, |process, actor| {
        steps += 1;
        out_of_steps.set(steps > MOST_STEPS);
        if let Actor::Client(client) = actor
            && client.load.left == 0
            && !std::mem::replace(&mut sent_all[process.index()], true)
        {
            left -= 1;
            expected += client.load.expected;
        }
        out_of_steps.get() || (left == 0 && shared.history.borrow().deliveries >= expected)
    });
    stopped && !out_of_steps.get()
}

fn judge(shared: Rc<Shared>, actors: Vec<Option<Actor>>, finished: bool) -> (RunReport, Recorded) {
    let now = shared.world.now_ns();
    let mut run = RunReport {
        finished,
        virtual_ns: now,
        faults: shared.world.fault_counts(),
        sets: shared.world.set_counts(),
        ..RunReport::default()
    };
    for actor in actors.iter().flatten() {
        let counts = match actor {
            Actor::Member(actor) => {
                shared.history.borrow_mut().memory(now, actor.me, &actor.member.memory_use());
                actor.member.counts()
            }
            Actor::Client(actor) => {
                run.messages += actor.client.submitted();
                actor.client.counts()
            }
        };
        run.rejected += counts.rejected;
        run.writes += counts.protocol_writes();
    }
    drop(actors);
    run.steps = shared.world.steps();
    let Shared { world, history } = Rc::into_inner(shared).expect("the actors are dropped");
    let history = history.into_inner();
    run.deliveries = history.deliveries;
    let (report, transcript) = history.finish();
    run.report = report;
    let recorded = Recorded::of(&world, transcript, &run.end(), run.violated());
    (run, recorded)
}
