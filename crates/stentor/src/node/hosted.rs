//! A node on its fabric. Above this nobody knows the type of the fabric: one call of a trait object for each round.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stentor_election::Heartbeat;
use stentor_fabric::{Idle, ProcessId, WaitMode};
use stentor_multicast::{ClientId, GroupId, Hindrance, Member, Replica};
use stentor_session::{Answers, ReplyRecord};

use super::apply::Looks;
use super::changes::{Changes, Shape, Sight as GroupSight};
use super::error::Problem;
use super::machine::Machine;
use super::mailbox::Mailbox;
use super::poison::{Poison, Sight};
use super::{MemberStatus, NodeError, Position, Status, Turn};
use crate::runtime::{
    Applied, ClusterRuntime, ElectionDriver, FabricDiagnostics, GivenUp, Goodbye, MemberLoop, Presence, RunError,
    StartError, Stop, TransferOutcome, TransferReport, TransferRole, first_state, told_hindrance,
};
use crate::state_machine::StateMachine;

/// How often news of the fabric are logged.
const LOOK: Duration = Duration::from_millis(100);
/// The longest sleep where nobody can wait for what lands.
const BLIND: Duration = Duration::from_millis(1);

/// A node, whatever its fabric.
pub(super) trait Host<S>: Send {
    fn run(&mut self, stop: &Stop) -> Result<(), NodeError>;
    fn turn(&mut self, stop: &Stop) -> Result<Turn, NodeError>;
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    fn status(&self) -> Status;
    /// Answers who looks at the machine, if that is on this thread.
    fn answer(&self);
    fn looks(&self) -> Looks<S>;
    fn into_machine(self: Box<Self>) -> Result<S, NodeError>;
    fn hand_over(&mut self, to: &str) -> Result<(), NodeError>;
}

/// What other threads ask of a node.
pub(super) type Request<S> = Box<dyn FnOnce(&mut dyn Host<S>) + Send>;

/// Where they leave it.
pub(super) type Requests<S> = Mailbox<Request<S>>;

/// Makes the member, at the start of the node and when it starts over.
pub(super) type StartMember<F> = Box<dyn Fn() -> Result<Member<F>, StartError> + Send>;

/// A member with its election and its machine.
pub(super) struct Hosted<F: FabricDiagnostics, S> {
    plan: Arc<ClusterRuntime>,
    me: ProcessId,
    group: GroupId,
    /// `None` between two lives, while the node starts over.
    member: Option<Member<F>>,
    start: StartMember<F>,
    machine: Machine<S>,
    answers: Answers,
    poison: Poison,
    wait: WaitMode,
    turns: MemberLoop,
    election: ElectionDriver<Heartbeat>,
    mailbox: Requests<S>,
    leaving: Leaving,
    next_look: Duration,
    /// What was logged of the group.
    changes: Changes,
    /// Whether the caller may have slept on the descriptor since the last round.
    sleeps: bool,
}

/// The end of a node that was told to stop.
#[derive(Default)]
struct Leaving {
    goodbye: Goodbye,
    /// Whether the others have had the time to read that it leaves.
    done: bool,
}

impl<F: FabricDiagnostics + Send, S: StateMachine> Hosted<F, S> {
    pub(super) fn new(
        plan: &Arc<ClusterRuntime>,
        member: Member<F>,
        start: StartMember<F>,
        machine: Machine<S>,
        wait: WaitMode,
        mailbox: Requests<S>,
    ) -> Result<Self, StartError> {
        let me = member.fabric().me();
        let group = member.replica().group();
        let others = plan.topology().members(group).filter(|process| *process != me).map(|process| plan.name(process));
        let others: Vec<_> = others.collect();
        log::info!(
            "{}: starts as a member of {} of cluster {}, with {}",
            plan.name(me),
            plan.group_name(group),
            plan.config().cluster(),
            others.join(", ")
        );
        member.fabric().carrier().iter().for_each(|line| log::info!("{}: {line}", plan.name(me)));
        Ok(Hosted {
            election: ElectionDriver::heartbeat(plan, me)?,
            plan: Arc::clone(plan),
            me,
            group: member.replica().group(),
            member: Some(member),
            start,
            machine,
            answers: Answers::new(plan.topology().clients()),
            poison: Poison::default(),
            wait,
            turns: MemberLoop::new(wait),
            mailbox,
            leaving: Leaving::default(),
            next_look: Duration::ZERO,
            changes: Changes::new(plan.config().election_times().max),
            sleeps: false,
        })
    }

    /// One round; see [`MemberLoop::round`].
    #[inline]
    fn round(&mut self, stop: &Stop) -> Result<(bool, Duration), NodeError> {
        let Hosted { plan, me, member, machine, answers, turns, election, leaving, next_look, changes, .. } = self;
        let Some(member) = member else { return self.begin_again(stop) };
        machine.begin_round(|replies| answers.send(member, replies.iter()));
        let poisoned = machine.progress().poisoned();
        let poisoned_at = poisoned.map(|at| at.index);
        election.set_applied(Applied { commands: machine.progress().commands(), poisoned: poisoned_at });
        let (mut since_start, mut looks) = (Duration::ZERO, false);
        let round = |member: &mut Member<F>, now: Duration, _: bool| {
            since_start = now;
            election.watch(|process| Presence::of(member.fabric(), process));
            election.round(now, member);
            if stop.is_stopped() {
                let (may_end, is_said) = (election.leave(now, member), leaving.goodbye.is_said(now));
                leaving.done = may_end && is_said;
            }
            if now >= *next_look {
                *next_look = now + LOOK;
                looks = true;
                tell(plan, *me, member);
                if !stop.is_stopped() {
                    tell_of_group(plan, *me, member, election, changes, now);
                }
            }
        };
        let done = turns.round(member, machine, round);
        let again = answers.look(member, |client| machine.say_again(client));
        machine.end_round(|replies| answers.send(member, replies.iter()));
        let goes_on = again || member.has_unflushed();
        let (worked, longest) = done.map_err(|error| self.ended(error))?;
        let worked = worked || goes_on;
        if let Some(error) = self.machine.progress().failure() {
            return Err(self.ended(RunError::Restore(self.me, error)));
        }
        if !stop.is_stopped() && self.starts_over(since_start, poisoned) {
            // Its connections end here, as those of a process that dies.
            self.member = None;
        }
        if looks && let Some(at) = poisoned {
            self.send_halt_notices(at);
        }
        for request in self.mailbox.take() {
            request(self);
        }
        if !worked && self.machine.is_about_to_return() {
            // The apply thread may need this processor.
            std::thread::yield_now();
            return Ok((true, longest));
        }
        Ok((worked, longest.min(self.machine.longest_sleep())))
    }

    /// Returns whether the node, whose machine is poisoned `at` a command, starts over.
    #[inline]
    fn starts_over(&mut self, now: Duration, at: Option<Position>) -> bool {
        let Hosted { plan, me, group, member, poison, election, .. } = self;
        let (Some(member), topology) = (member, plan.topology()) else { return false };
        poison.starts_over(now, at, || {
            let is_beyond = |process: &ProcessId| {
                let applied = at.is_some_and(|at| election.delivered(*process) >= at.index);
                *process != *me && applied && member.is_connected_to(*process) && election.poisoned(*process).is_none()
            };
            let beyond = topology.members(*group).filter(is_beyond).count();
            Sight { beyond, majority: topology.majority(*group) as usize, leads: member.replica().is_leader() }
        })
    }

    /// Begins again as a process without memory: the group takes it in, and its machine gets the state of the others.
    #[cold]
    fn begin_again(&mut self, stop: &Stop) -> Result<(bool, Duration), NodeError> {
        if stop.is_stopped() {
            self.leaving.done = true;
            return Ok((true, Duration::ZERO));
        }
        let name = self.plan.name(self.me).to_owned();
        log::info!("{name}: starts over, and takes the state of the others");
        let failed = |error| NodeError { name: name.clone(), problem: Problem::StartOver(Box::new(error)) };
        let member = (self.start)().map_err(failed)?;
        let election = ElectionDriver::heartbeat(&self.plan, self.me);
        self.election = election.map_err(|error| failed(error.into()))?;
        self.turns = MemberLoop::new(self.wait);
        (self.next_look, self.changes) = (Duration::ZERO, Changes::new(self.plan.config().election_times().max));
        self.sleeps = false;
        self.machine.start_over();
        self.answers = Answers::new(self.plan.topology().clients());
        self.member = Some(member);
        Ok((true, Duration::ZERO))
    }

    /// Tells all clients, if the group is halted. A notice for which there is no room is sent at the next look, as all are.
    #[cold]
    fn send_halt_notices(&mut self, own: Position) {
        let (Some(index), clients) = (self.halted(Some(own)), self.plan.topology().clients() as u16) else { return };
        let Some(member) = &mut self.member else { return };
        let mut record = Vec::new();
        ReplyRecord::halt_notice(index).write(&mut record);
        for client in (0..clients).map(ClientId) {
            let _ = member.reply(client, &[&record]);
        }
    }

    /// Returns the command at which the group is halted: the machines of a majority have panicked.
    fn halted(&self, own: Option<Position>) -> Option<u64> {
        let topology = self.plan.topology();
        let mark = |process: ProcessId| {
            if process == self.me { own.map(|at| at.index) } else { self.election.poisoned(process) }
        };
        let panicked = topology.members(self.group).filter_map(mark).count();
        let first = topology.members(self.group).filter_map(mark).min();
        first.filter(|_| panicked >= topology.majority(self.group) as usize)
    }

    fn ended(&self, error: RunError) -> NodeError {
        NodeError { name: self.plan.name(self.me).to_owned(), problem: Problem::Ended(error) }
    }
}

/// Logs what the fabric and the transfers of state have to tell.
fn tell<F: FabricDiagnostics>(plan: &ClusterRuntime, me: ProcessId, member: &mut Member<F>) {
    let name = plan.name(me);
    while let Some(refusal) = member.fabric_mut().next_refusal() {
        log::warn!("{name}: {}", refusal.tell(|process| plan.name(process).to_owned()));
    }
    while let Some(trouble) = member.fabric_mut().next_trouble() {
        log::warn!("{name}: {trouble}");
    }
    while let Some(report) = member.take_transfer_report() {
        let (level, text) = told(&report, plan.name(report.peer));
        log::log!(level, "{name}: {text}");
    }
}

/// Logs what changed in the group.
fn tell_of_group<F: FabricDiagnostics>(
    plan: &ClusterRuntime,
    me: ProcessId,
    member: &Member<F>,
    election: &ElectionDriver<Heartbeat>,
    changes: &mut Changes,
    now: Duration,
) {
    let (replica, name) = (member.replica(), plan.name(me));
    let sight = sight(plan, me, member, election);
    for (level, text) in changes.look(now, sight, || first_state(replica, plan)) {
        log::log!(level, "{name}: {text}");
    }
}

fn sight<'a, F: FabricDiagnostics>(
    plan: &'a ClusterRuntime,
    me: ProcessId,
    member: &Member<F>,
    election: &ElectionDriver<Heartbeat>,
) -> GroupSight<'a> {
    let (replica, topology) = (member.replica(), plan.topology());
    let (group, joining) = (replica.group(), replica.is_joining());
    let shows_memory = |process| {
        election.election().stands(process) || election.delivered(process) > 0 || election.poisoned(process).is_some()
    };
    let shape = |process: ProcessId| match joining {
        _ if !member.fabric().sees(process) => Shape::Gone,
        true if replica.also_without_memory().any(|other| other == process) => Shape::Without,
        // A member with memory says what it has applied, or that it would lead.
        false if !shows_memory(process) => Shape::Without,
        _ => Shape::There,
    };
    let others = topology.members(group).filter(|process| *process != me);
    let hindrance = replica.hindrance().filter(|hindrance| joining && !matches!(hindrance, Hindrance::Missing(_)));
    GroupSight {
        me: plan.name(me),
        group: plan.group_name(group),
        majority: topology.majority(group) as usize,
        joining,
        epoch: replica.ballot().number(),
        leader: plan.name(replica.ballot().leader()),
        leads: replica.is_leader(),
        others: others.map(|process| (plan.name(process), shape(process))).collect(),
        hindrance: hindrance.map(|hindrance| hindered(&hindrance, plan)),
    }
}

/// What keeps a group from beginning, and what to do. An operator cannot reach a node of a library: its processes are all there is.
fn hindered(hindrance: &Hindrance, plan: &ClusterRuntime) -> String {
    let why = told_hindrance(hindrance, |process| plan.name(process));
    match hindrance {
        Hindrance::Remembered { by, .. } => {
            format!("{why}; stop {} and start it anew, if it has nothing that is needed", plan.name(*by))
        }
        Hindrance::Missing(_) => why,
        Hindrance::Operator => {
            format!("{why}; set total_loss = \"begin\" in the configuration of all processes, and start them anew")
        }
    }
}

/// Returns what to say of a transfer of state. What needs somebody to look is a warning.
fn told(report: &TransferReport, peer: &str) -> (log::Level, String) {
    let TransferReport { position, bytes, .. } = report;
    let what = match report.role {
        TransferRole::Donor => format!("gives {peer} its state after {position} commands"),
        TransferRole::Receiver => format!("takes {peer}'s state after {position} commands"),
    };
    match report.outcome {
        TransferOutcome::Began => (log::Level::Info, what),
        TransferOutcome::Resumed => (log::Level::Info, format!("{what}: goes on after a broken connection")),
        TransferOutcome::Complete => (log::Level::Info, format!("{what}: complete, {bytes} bytes")),
        TransferOutcome::GivenUp(why) => {
            let passes = matches!(why, GivenUp::Abandoned | GivenUp::LeaderChanged);
            let level = if passes { log::Level::Info } else { log::Level::Warn };
            (level, format!("{what}: given up after {bytes} bytes: {why}"))
        }
    }
}

impl<F: FabricDiagnostics + Send, S: StateMachine> Host<S> for Hosted<F, S> {
    fn run(&mut self, stop: &Stop) -> Result<(), NodeError> {
        while !self.leaving.done {
            let (worked, longest) = self.round(stop)?;
            let Some(member) = &mut self.member else { continue };
            let paused = self.turns.pause(member, worked, longest);
            paused.map_err(|error| self.ended(error))?;
        }
        Ok(())
    }

    fn turn(&mut self, stop: &Stop) -> Result<Turn, NodeError> {
        if self.leaving.done {
            return Ok(Turn::Stopped);
        }
        if std::mem::take(&mut self.sleeps)
            && let Some(member) = &mut self.member
        {
            self.turns.woken(member).map_err(|error| self.ended(error))?;
        }
        loop {
            let (worked, longest) = self.round(stop)?;
            if self.leaving.done {
                return Ok(Turn::Stopped);
            }
            let Some(member) = &mut self.member else { return Ok(Turn::Busy) };
            match self.turns.idle(member, worked) {
                Idle::Poll => return Ok(Turn::Busy),
                // Another round at once. Nodes of one loop that took turns in arming would keep it awake.
                Idle::Arm => {}
                Idle::Sleep => {
                    self.sleeps = true;
                    let longest = if self.descriptor().is_some() { longest } else { longest.min(BLIND) };
                    return Ok(Turn::Idle(Instant::now() + longest));
                }
            }
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.member.as_ref()?.fabric().descriptor()
    }

    fn status(&self) -> Status {
        let Hosted { plan, me, member, election, machine, .. } = self;
        let replica = member.as_ref().map(Member::replica);
        let taken_in = replica.filter(|replica| !replica.is_joining());
        let other = |process| MemberStatus {
            name: plan.name(process).to_owned(),
            connected: member.as_ref().is_some_and(|member| member.is_connected_to(process)),
            commands: election.delivered(process),
            poisoned: election.poisoned(process),
        };
        let (commands, poisoned) = (machine.progress().commands(), machine.progress().poisoned());
        Status {
            name: plan.name(*me).to_owned(),
            joining: taken_in.is_none(),
            leader: taken_in.map(|replica| plan.name(replica.ballot().leader()).to_owned()),
            leads: replica.is_some_and(Replica::is_leader),
            applied: machine.progress().applied(),
            commands,
            queued: member.as_ref().map_or(0, |member| member.applied().saturating_sub(commands)),
            poisoned,
            halted: self.halted(poisoned),
            others: plan.topology().members(self.group).filter(|process| process != me).map(other).collect(),
        }
    }

    fn answer(&self) {
        self.machine.answer();
    }

    fn looks(&self) -> Looks<S> {
        self.machine.looks().clone()
    }

    fn into_machine(self: Box<Self>) -> Result<S, NodeError> {
        let Hosted { machine, plan, me, .. } = *self;
        let failed = |problem| NodeError { name: plan.name(me).to_owned(), problem };
        let applier = machine.stop().map_err(|left| failed(Problem::Slow(left)))?;
        let poisoned = applier.progress().poisoned();
        applier.into_machine().ok_or_else(|| failed(Problem::Panicked(poisoned)))
    }

    fn hand_over(&mut self, to: &str) -> Result<(), NodeError> {
        let failed = |why| NodeError {
            name: self.plan.name(self.me).to_owned(),
            problem: Problem::HandOver { to: to.to_owned(), why },
        };
        let group = self.group;
        let mut members = self.plan.topology().members(group).filter(|process| *process != self.me);
        let process = members.find(|process| self.plan.name(*process) == to).ok_or_else(|| failed(None))?;
        self.election.hand_over(process).map_err(|why| failed(Some(why)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_that_is_given_up_says_why_and_is_a_warning_if_somebody_must_look() {
        let told = |outcome| {
            told(&TransferReport { role: TransferRole::Donor, peer: ProcessId(1), position: 7, bytes: 9, outcome }, "b")
        };
        let (level, text) = told(TransferOutcome::GivenUp(GivenUp::TooLarge { bytes: 11, limit: 10 }));
        assert_eq!(level, log::Level::Warn);
        assert!(
            text.starts_with("gives b its state after 7 commands: given up after 9 bytes: ") && text.contains("11")
        );
        assert!(!text.contains("TooLarge"), "{text}");
        assert_eq!(told(TransferOutcome::GivenUp(GivenUp::LeaderChanged)).0, log::Level::Info);
        assert_eq!(told(TransferOutcome::Began).0, log::Level::Info);
    }
}
