//! A run under a fault profile. In its first phase faults occur; in its second phase none occur, and all messages must
//! be delivered.

mod candidate;
mod client;
pub(crate) mod member;
mod operator;
mod phases;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Due, SimConfig, World};
use stentor_multicast::{ClientId, Counts, GroupId, Mutant, NodeError, ProcessRole, Topology};

use crate::actor::Load;
use crate::catch_ups;
use crate::clocks::{self, Clocks};
use crate::histories::Histories;
use crate::history::History;
use crate::nemesis::{Nemesis, Profile};
use crate::progress::Progress;
use crate::record::{Record, Recorded};
use crate::report::{LONGEST_GAP_NS, RunReport};
use crate::scenario::Scenario;
use crate::transfers::TransferCounts;
pub(crate) use candidate::Candidate;
use client::ClientActor;
use member::MemberActor;
use operator::Operator;
pub(crate) use phases::Phases;
pub use phases::RECOVERY_STEPS;

/// Number of steps between two checks whether all messages are settled.
const UNSETTLED_STEPS: u64 = 64;
/// Maximum number of wrong times in the log.
const FEW: usize = 4;

/// The state that all processes of a run share.
pub(crate) struct Shared {
    pub(crate) world: World,
    pub(crate) history: RefCell<History>,
    pub(crate) progress: RefCell<Progress>,
    pub(crate) nemesis: RefCell<Nemesis>,
    pub(crate) transfers: RefCell<TransferCounts>,
    /// The hosts' clocks, in the profile that has them.
    pub(crate) clocks: Option<RefCell<Clocks>>,
    /// The messages to send, by client.
    pub(crate) loads: Vec<RefCell<Load>>,
    pub(crate) topology: Arc<Topology>,
    pub(crate) scenario: Scenario,
    pub(crate) salt: u64,
    pub(crate) mutant: Mutant,
    /// `true` if a member reported to a client that its id was taken over, although no other process took it and no
    /// timeout permits it.
    pub(crate) superseded_for_nothing: Cell<bool>,
}

enum Actor {
    Member(Box<MemberActor>),
    Client(Box<ClientActor>),
}

/// A run in progress: all its processes and its phase.
struct FaultyRun {
    shared: Rc<Shared>,
    actors: Vec<Option<Actor>>,
    /// The number of each process's current life.
    incarnations: Vec<u64>,
    totals: RunReport,
    phases: Phases,
    /// The operator who resets groups in profile [`Profile::Forgets`]. `None` in all other profiles.
    operator: Option<Operator>,
}

/// Adds the counts of a process, when it crashes or at the end.
fn add(run: &mut RunReport, counts: &Counts) {
    run.rejected += counts.rejected;
    run.writes += counts.protocol_writes();
    run.nemesis.bodies_held_already += counts.held_already;
    run.nemesis.space_credits += counts.space_credits;
    run.nemesis.ring_waits += counts.ring_waits;
}

/// Runs a seed under a profile, and records the requested data.
pub(crate) fn run(
    seed: u64,
    scenario: &Scenario,
    profile: Profile,
    mutant: Mutant,
    record: Record,
) -> Result<(RunReport, Recorded), NodeError> {
    let topology =
        Arc::new(Topology::new(&scenario.groups, scenario.clients).expect("drawn clusters are within the limits"));
    let world = record.world(SimConfig {
        mix: scenario.mix.clone(),
        faults: scenario.set_faults(seed, Nemesis::UNTIL_NS),
        ..SimConfig::new(topology.processes(), seed, scenario.network.clone())
    });
    let loads =
        (0..scenario.clients).map(|client| RefCell::new(Load::new(seed, ClientId(client), scenario, &topology)));
    let shared = Rc::new(Shared {
        history: RefCell::new(History::new(&topology, record)),
        progress: RefCell::new(Progress::new(&topology)),
        nemesis: RefCell::new(Nemesis::new(seed, profile, &topology, &world)),
        transfers: RefCell::default(),
        clocks: Clocks::draw(seed, profile, &topology).map(RefCell::new),
        loads: loads.collect(),
        scenario: scenario.clone(),
        salt: seed ^ 0x5743_454e_544f_5221,
        world,
        topology,
        mutant,
        superseded_for_nothing: Cell::new(false),
    });
    let forgets = profile == Profile::Forgets;
    if forgets {
        shared.history.borrow_mut().histories = Some(Histories::new(&shared.topology));
    }
    let mut faulty = FaultyRun {
        operator: forgets.then(|| Operator::new(seed, &shared)),
        actors: Vec::new(),
        incarnations: vec![1; shared.topology.processes()],
        totals: RunReport::default(),
        phases: Phases::default(),
        shared,
    };
    if scenario.client_timeout_ns.is_none() {
        faulty.shared.nemesis.borrow_mut().fill_places();
    }
    for process in (0..faulty.shared.topology.processes() as u16).map(ProcessId) {
        let actor = faulty.actor(process)?;
        faulty.actors.push(Some(actor));
    }
    let finished = faulty.drive()?;
    Ok(faulty.judge(finished, profile))
}

impl FaultyRun {
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

    /// Runs both phases. Returns whether all messages were delivered in time.
    fn drive(&mut self) -> Result<bool, NodeError> {
        while let Some(due) = self.phases.next(&self.shared.world, &self.shared.nemesis) {
            match due {
                Due::Step { process, now_ns } => {
                    self.step(process, now_ns);
                    match self.phases.recovery_steps() {
                        Some(_) if self.is_through() => return Ok(true),
                        Some(steps) if steps > RECOVERY_STEPS => return Ok(false),
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
        self.phases.stepped();
        self.look_after(process, now_ns);
        if self.phases.recovery_steps().is_none() {
            let excused = self.shared.nemesis.borrow().client_stands(now_ns) || self.gives_state_to_candidate();
            self.shared.progress.borrow_mut().look(now_ns, excused);
        }
        self.shared.world.stepped(process, worked);
    }

    /// Returns whether a candidate for leadership is installing another member's state because the candidate lagged. It
    /// leads as soon as the state is installed.
    fn gives_state_to_candidate(&self) -> bool {
        let gets = |actor: &Actor| match actor {
            Actor::Member(actor) => actor.member.is_aside() && actor.member.replica().is_candidate(),
            Actor::Client(_) => false,
        };
        self.actors.iter().flatten().any(gets)
    }

    /// Records the history of a member after its step, and runs the operator.
    fn look_after(&mut self, process: ProcessId, now_ns: u64) {
        let Some(operator) = &mut self.operator else { return };
        if let Some(Actor::Member(actor)) = &self.actors[process.index()] {
            let replica = actor.member.replica();
            let group = replica.group();
            let began = self.shared.history.borrow_mut().look(process, replica);
            if let Some(origins) = began {
                operator.note_all_begun(&mut self.actors);
                operator.began(now_ns, group, &origins);
            }
        }
        operator.look(now_ns, &mut self.actors);
    }

    /// Returns whether a process remembers a group.
    fn remembers(actor: &Actor, group: GroupId) -> bool {
        match actor {
            Actor::Member(actor) if !actor.has_state() => false,
            Actor::Member(actor) => !actor.member.replica().known_incarnation(group).is_none(),
            Actor::Client(actor) => !actor.client.incarnation(group).is_none(),
        }
    }

    /// Describes what is missing in a run in which groups may lose their memory. Returns `None` if every member is up,
    /// has its group's state and has delivered everything that is left to deliver, and if all members of each group
    /// have delivered equally much.
    fn unsettled(&self) -> Option<String> {
        let topology = &self.shared.topology;
        for group in topology.group_ids() {
            let mut same = None;
            for process in topology.members(group) {
                let Some(Actor::Member(actor)) = &self.actors[process.index()] else {
                    return Some(format!("{process} is down"));
                };
                let replica = actor.member.replica();
                if !actor.has_state() {
                    return Some(format!("{process} has no state"));
                }
                if let Some(open) = replica.undelivered().next() {
                    return Some(format!("{process} has not delivered {open}"));
                }
                let stands = (replica.incarnation(), replica.delivered());
                if *same.get_or_insert(stands) != stands {
                    return Some(format!("{process} differs from other members of its group"));
                }
            }
        }
        self.shared.history.borrow().missing()
    }

    fn is_through(&self) -> bool {
        let nemesis = self.shared.nemesis.borrow();
        let gone = |client| nemesis.is_gone(self.shared.topology.client_process(ClientId(client)));
        let mut loads = (0..).zip(&self.shared.loads);
        let sent = loads.all(|(client, load)| load.borrow().left == 0 || gone(client));
        if self.operator.is_some() {
            return sent && self.phases.steps().is_multiple_of(UNSETTLED_STEPS) && self.unsettled().is_none();
        }
        sent && self.shared.progress.borrow().is_through(&self.shared.topology)
    }

    fn crashed(&mut self, process: ProcessId) {
        let now = self.shared.world.now_ns();
        self.count(process);
        self.actors[process.index()] = None;
        self.shared.history.borrow_mut().crash(now, process);
        self.note_loss_of_all();
        self.shared.progress.borrow_mut().crashed(&self.shared.topology, process);
        self.shared.nemesis.borrow_mut().crashed(now, process);
    }

    /// Notes the case that no process remembers any group.
    fn note_loss_of_all(&mut self) {
        let Some(operator) = &mut self.operator else { return };
        let mut up = self.actors.iter().flatten();
        let mut remembers = |actor| self.shared.topology.group_ids().any(|group| Self::remembers(actor, group));
        operator.counts.forgot_all |= !up.any(&mut remembers);
    }

    fn restart(&mut self, process: ProcessId) -> Result<(), NodeError> {
        // The returned handle to the fabric is dropped because the new actor creates one itself.
        drop(self.shared.world.restart(process));
        self.incarnations[process.index()] += 1;
        self.shared.nemesis.borrow_mut().restarted(self.shared.world.now_ns(), process);
        self.actors[process.index()] = Some(self.actor(process)?);
        Ok(())
    }

    /// Adds the counts of a process to the totals.
    fn count(&mut self, process: ProcessId) {
        match &self.actors[process.index()] {
            Some(Actor::Member(actor)) => {
                add(&mut self.totals, actor.member.counts());
                self.totals.nemesis.members_expelled += actor.member.expulsions();
                catch_ups::add(&mut self.totals.catch_ups, actor.member.replica().catch_ups());
                clocks::add(&mut self.totals.clocks, actor.member.clock_counts());
                if let Some(operator) = &mut self.operator {
                    operator.counts.add(actor.member.replica().settlements());
                }
            }
            Some(Actor::Client(actor)) => {
                add(&mut self.totals, actor.client.counts());
                self.totals.messages += actor.client.submitted();
                self.totals.nemesis.members_expelled_by_clients += actor.client.expulsions();
            }
            None => {}
        }
    }

    fn judge(mut self, finished: bool, profile: Profile) -> (RunReport, Recorded) {
        let now = self.shared.world.now_ns();
        for process in (0..self.actors.len() as u16).map(ProcessId) {
            self.count(process);
            if let Some(Actor::Member(actor)) = &self.actors[process.index()] {
                self.shared.history.borrow_mut().memory(now, process, &actor.member.memory_use());
            }
        }
        let stuck: Vec<String> = if finished { Vec::new() } else { self.actors.iter().flatten().map(stand).collect() };
        let missing = match (finished, &self.operator) {
            (true, _) => None,
            (false, Some(_)) => self.unsettled(),
            (false, None) => self.shared.progress.borrow().missing(&self.shared.topology),
        };
        if let Some(operator) = self.operator.take() {
            self.totals.forgets = operator.counts();
        }
        self.actors.clear();
        let shared = Rc::into_inner(self.shared).expect("the actors are dropped");
        let (longest_gap_ns, until, group) = shared.progress.borrow().longest_gap();
        let mut log = shared.nemesis.borrow().log().to_vec();
        log.extend(missing.map(|missing| format!("in the end: {missing}")));
        log.extend(stuck);
        let (us, at) = (longest_gap_ns as f64 / 1e3, until as f64 / 1e3);
        log.push(format!("group {group} neither delivered nor accepted a message for {us:.1} µs until {at:.1} µs"));
        let (mut wrong_times, mut logical_times) = (0, 0);
        if let Some(clocks) = shared.clocks.map(RefCell::into_inner) {
            (wrong_times, logical_times) = (clocks.wrong.len() as u64, clocks.logical);
            log.extend(clocks.wrong.into_iter().take(FEW));
        }
        let history = shared.history.into_inner();
        let (deliveries, wrong_states) = (history.deliveries, history.wrong_states);
        if let Some(histories) = &history.histories {
            let forgets = &mut self.totals.forgets;
            (forgets.delivered_by_survivors, forgets.delivered_by_nobody) = histories.settled();
        }
        let (report, transcript) = history.finish();
        let nemesis = shared.nemesis.borrow().counts();
        self.totals.nemesis.add(&nemesis);
        let run = RunReport {
            report,
            deliveries,
            wrong_states,
            longest_gap_ns,
            held_up: profile == Profile::Stops && longest_gap_ns > LONGEST_GAP_NS,
            wrong_times,
            logical_times,
            superseded_for_nothing: shared.superseded_for_nothing.get(),
            finished,
            steps: self.phases.steps(),
            virtual_ns: now,
            faults: shared.world.fault_counts(),
            profile,
            sets: shared.world.set_counts(),
            recovery_steps: self.phases.recovery_steps().unwrap_or_default(),
            log,
            transfers: shared.transfers.into_inner(),
            ..self.totals
        };
        let recorded = Recorded::of(&shared.world, transcript, &run.end(), run.violated());
        (run, recorded)
    }
}

/// Describes the state of a process.
fn stand(actor: &Actor) -> String {
    match actor {
        Actor::Member(actor) => {
            let replica = actor.member.replica();
            let open: Vec<String> = replica.undelivered().take(4).map(|id| id.to_string()).collect();
            format!(
                "{} has delivered {} in ballot {}, promised {}; {}{}undelivered: {}",
                actor.me(),
                replica.delivered(),
                replica.ballot(),
                replica.promised(),
                if replica.is_leader() { "leads; " } else { "" },
                if replica.is_candidate() { "campaigns; " } else { "" },
                open.join(" ")
            )
        }
        Actor::Client(actor) => {
            let refused = actor.refused.map(|why| format!("; it cannot multicast: {why}")).unwrap_or_default();
            format!("client {} has {} messages outstanding{refused}", actor.client.id().0, actor.client.outstanding())
        }
    }
}
