//! A node on its fabric. The code above this module does not know the fabric's type: it makes at most one call of a
//! trait object per round.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stentor_fabric::{Idle, ProcessId, WaitMode};
use stentor_host::StandingSeat;
use stentor_multicast::{
    self as multicast, Application, ClientId, Delivered, GroupId, Member, Replica, RestoreError, StateReader,
};
use stentor_session::{Answers, Reads, ReplyRecord};

use super::apply::Looks;
use super::clients::{Clients, Turner};
use super::error::Problem;
use super::hooks::{Hooks, Round, Voice, Wish};
use super::machine::Machine;
use super::mailbox::Mailbox;
use super::observers::{Observers, Stands};
use super::poison::{Poison, Sight};
use super::reports::Reports;
use super::sleeper::Sleeper;
use super::{MemberStatus, NodeError, Status, Turn};
use crate::Position;
use crate::client::Embedded;
use crate::operator::{Elects, Operator};
use crate::runtime::{
    Applied, ClusterFabric, ClusterRuntime, FabricDiagnostics, Goodbye, MemberLoop, RunError, StartError, Stop,
};
use crate::state_machine::StateMachine;

/// Interval between the notices to the clients of a halted group.
const LOOK: Duration = Duration::from_millis(100);
/// Longest sleep if the fabric has no descriptor to wait on.
const BLIND: Duration = Duration::from_millis(1);

/// The operations of a node, independent of its fabric's type.
pub(super) trait Host<S>: Send {
    /// Runs the node until `stop`, or until `flag` is set.
    fn run(&mut self, stop: &Stop, flag: &AtomicBool) -> Result<(), NodeError>;
    fn turn(&mut self, stop: &Stop) -> Result<Turn, NodeError>;
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    fn status(&self) -> Status;
    /// Answers pending looks at the machine, if it is on this thread.
    fn answer(&self);
    fn looks(&self) -> Looks<S>;
    fn into_machine(self: Box<Self>) -> Result<S, NodeError>;
    fn hand_over(&mut self, to: &str) -> Result<(), NodeError>;
    /// Accepts an embedded client, which the node then runs.
    fn adopt(&mut self, client: Box<dyn Embedded>);
}

/// A request of another thread to a node.
pub(super) type Request<S> = Box<dyn FnOnce(&mut dyn Host<S>) + Send>;

/// The mailbox for requests to a node.
pub(super) type Requests<S> = Mailbox<Request<S>>;

/// Closes the mailbox when it is dropped.
struct EndOfRequests<S>(Requests<S>);

impl<S> Drop for EndOfRequests<S> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Creates the member, at the start of the node and when it starts over.
pub(super) type StartMember<F> = Box<dyn Fn() -> Result<Member<F>, StartError> + Send>;

/// A member with its election and its state machine.
pub(super) struct Hosted<F: FabricDiagnostics, S, H: Hooks> {
    plan: Arc<ClusterRuntime>,
    me: ProcessId,
    group: GroupId,
    /// The endpoint that answers commands of operators, from this host and from others. It is declared before `member`
    /// and `place`: one of those two owns the directory of the endpoint's socket, and must be dropped later.
    operator: Operator,
    /// The member. `None` while the node starts over.
    member: Option<Member<F>>,
    start: StartMember<F>,
    machine: Machine<S>,
    observers: Observers,
    answers: Answers,
    reads: Reads,
    poison: Poison,
    reports: Reports,
    wait: WaitMode,
    turns: MemberLoop,
    hooks: H,
    election: H::Election,
    /// The receiver of the node's messages.
    voice: Voice,
    mailbox: EndOfRequests<S>,
    clients: Clients,
    turner: Turner,
    sleeper: Sleeper,
    leaving: Leaving,
    /// The directory entry through which commands of `stentor` on this host reach the node, on fabrics that create no
    /// entry.
    place: Option<StandingSeat>,
    /// Time at which the next notices to the clients of a halted group are due.
    next_notice: Duration,
    /// `true` if the caller may have slept on the descriptor since the last round.
    sleeps: bool,
    /// `true` if the node has ended.
    has_ended: bool,
}

/// The application of the member: the state machine, and the hooks, which see each delivery after the machine.
struct Watched<'a, S, H> {
    machine: &'a mut Machine<S>,
    hooks: &'a mut H,
    /// `true` if a client waits for the reply to a message that this step delivered.
    is_awaited: bool,
}

impl<'a, S, H> Watched<'a, S, H> {
    fn new(machine: &'a mut Machine<S>, hooks: &'a mut H) -> Self {
        Watched { machine, hooks, is_awaited: false }
    }
}

impl<S: StateMachine, H: Hooks> Application for Watched<'_, S, H> {
    #[inline]
    fn deliver(&mut self, delivered: &Delivered<'_>) {
        let command = self.machine.deliver(delivered);
        self.hooks.delivered(delivered, command);
        self.is_awaited |= delivered.enveloped;
    }

    /// Hands over commands whose replies clients wait for. Other commands wait until the round ends: their clients wait
    /// for the credits that the step sends next, and waking the apply thread would delay these.
    #[inline]
    fn end_deliveries(&mut self) {
        if self.is_awaited {
            self.machine.hand_over();
        }
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.machine.has_room()
    }

    fn freeze(&mut self) -> Box<dyn multicast::Frozen> {
        self.hooks.freezes();
        self.machine.freeze()
    }

    /// Restores a state. A failure is recorded in the machine's progress, and ends the node.
    fn restore_from(&mut self, number: u64, state: &mut StateReader<'_>) -> Result<(), RestoreError> {
        self.machine.restore(number, std::iter::from_fn(|| state.next_chunk()).collect());
        // A machine on a thread of its own has not begun the restoration yet.
        if self.machine.progress().failure().is_none() {
            self.hooks.restored(number);
        }
        Ok(())
    }
}

/// The next time entry of a group that this node leads. A time entry is due when a session ends or a timer fires.
struct Due {
    /// `true` if a time entry was ordered. It is sent with the next step.
    is_ordered: bool,
    /// Time until the next time entry is due. [`Duration::MAX`] if none is known to be due, or if one is due now.
    in_so_long: Duration,
}

impl Default for Due {
    fn default() -> Self {
        Due { is_ordered: false, in_so_long: Duration::MAX }
    }
}

/// Orders a time entry if this member leads and the machine reports that something is due. Nothing is ordered before
/// the machine has applied all deliveries, because one of them may be that entry.
#[inline]
fn order_what_is_due<F: ClusterFabric, S: StateMachine, H: Hooks>(
    member: &mut Member<F>,
    app: &mut Watched<'_, S, H>,
    now: Duration,
) -> Due {
    let Some(due) = app.machine.progress().due(member.applied()) else { return Due::default() };
    let Some(time) = member.group_time(now) else { return Due::default() };
    if time < due {
        return Due { in_so_long: Duration::from_nanos(due - time), ..Due::default() };
    }
    let is_ordered = member.order_time(due.saturating_sub(1), app).is_some();
    Due { is_ordered, ..Due::default() }
}

/// Passes the reads that can be answered now to the machine. Orders a time entry if a read requires a later time than
/// the group has reached. Returns whether there was any work.
#[inline]
fn answer_reads<F: ClusterFabric, S: StateMachine, H: Hooks>(
    reads: &mut Reads,
    now: Duration,
    member: &mut Member<F>,
    app: &mut Watched<'_, S, H>,
) -> bool {
    let origin = member.replica().origin_of(member.applied());
    let machine = &mut *app.machine;
    let answered = reads.look(member, (now, machine.has_room_for_queries()), |read| machine.read(&read, origin));
    let Some(time) = reads.early() else { return answered };
    member.order_time(time, app).is_some() | answered
}

/// Exchanges reports with the other members, and acts on the conclusions. Returns whether a version entry was ordered.
#[inline]
fn compare_reports<F: ClusterFabric, S: StateMachine, H: Hooks>(
    reports: &mut Reports,
    (now, plan, voice): (Duration, &ClusterRuntime, &Voice),
    member: &mut Member<F>,
    app: &mut Watched<'_, S, H>,
) -> bool {
    let Some(found) = reports.round(now, member, app.machine.marks()) else { return false };
    for (process, place) in &found.differ {
        voice(log::Level::Error, &differs(plan.name(*process), *place));
    }
    if let Some(place) = found.outvoted_at
        && !app.machine.progress().is_ill()
        && let Some(applied) = app.machine.progress().applied()
    {
        voice(log::Level::Error, &outvoted(place));
        app.machine.give_up(Position { index: place, ..applied });
    }
    member.set_version_goal(found.goal, app)
}

/// Describes that another member's state machine differs from this one's.
#[cold]
fn differs(name: &str, place: u64) -> String {
    format!(
        "the state machine of {name} has replied otherwise than this one, or has another digest, at place {place} or before: one of them \
         depends on more than the state, the context and the command, or the two programs differ; mend the state machine"
    )
}

/// Describes that this member's state machine was outvoted.
#[cold]
fn outvoted(place: u64) -> String {
    format!(
        "its state machine differs from those of a majority of the group, which agree, at place {place} or before, and is poisoned: the node \
         takes the state of the others; mend the state machine, which depends on more than the state, the context and the command"
    )
}

/// The progress of a node that was asked to stop.
#[derive(Default)]
struct Leaving {
    goodbye: Goodbye,
    /// The member to which the node hands over, once this was logged.
    heir: Option<ProcessId>,
    /// `true` if the node ends now. Before that, the node usually hands over its leadership, and waits until the other
    /// members can have read that it leaves.
    done: bool,
}

impl<F: ClusterFabric + Send, S: StateMachine, H: Hooks> Hosted<F, S, H> {
    pub(super) fn new(
        plan: &Arc<ClusterRuntime>,
        (mut member, start): (Member<F>, StartMember<F>),
        (machine, observers): (Machine<S>, Observers),
        wait: WaitMode,
        (mailbox, turner, sleeper): (Requests<S>, Turner, Sleeper),
        place: Option<StandingSeat>,
        mut hooks: H,
    ) -> Result<Self, StartError> {
        let me = member.fabric().me();
        let group = member.replica().group();
        let voice = hooks.voice(plan.name(me));
        sleeper.set(member.fabric().waker());
        let operator = listen(&member, place.as_ref(), &voice);
        let election = hooks.election(plan, me)?;
        hooks.started(plan, &mut member);
        Ok(Hosted {
            operator,
            place,
            hooks,
            election,
            voice,
            plan: Arc::clone(plan),
            me,
            group,
            member: Some(member),
            start,
            machine,
            observers,
            answers: Answers::new(plan.topology().clients()),
            reads: Reads::default(),
            poison: Poison::default(),
            reports: Reports::new(S::VERSION, me, plan.topology().members(group)),
            wait,
            turns: MemberLoop::new(wait),
            mailbox: EndOfRequests(mailbox),
            clients: Clients::default(),
            turner,
            sleeper,
            leaving: Leaving::default(),
            next_notice: Duration::ZERO,
            sleeps: false,
            has_ended: false,
        })
    }

    /// Runs one round; see [`MemberLoop::round`]. Returns whether there was any work, and how long the node may sleep
    /// if there was none.
    #[inline]
    fn round(&mut self, stop: &Stop) -> Result<(bool, Duration), NodeError> {
        let Hosted {
            plan,
            me,
            member,
            machine,
            answers,
            reads,
            turns,
            hooks,
            election,
            voice,
            leaving,
            operator,
            reports,
            ..
        } = self;
        let Some(member) = member else { return self.begin_again(stop) };
        machine.begin_round(|replies| answers.send(member, replies.iter()));
        let poisoned = machine.progress().poisoned();
        let poisoned_at = poisoned.map(|at| at.index);
        election.set_applied(Applied { commands: machine.progress().commands(), poisoned: poisoned_at });
        let (mut since_start, mut asked, mut due) = (Duration::ZERO, false, Due::default());
        let mut app = Watched::new(machine, hooks);
        let round = |member: &mut Member<F>, app: &mut Watched<'_, S, H>, now: Duration, _: bool| {
            since_start = now;
            due = order_what_is_due(member, app, now);
            election.round(now, member, |text| voice(log::Level::Info, text));
            asked = operator.round(now, plan, member, election);
            let round = Round { now, plan, me: *me, member, election, operator, leaves: stop.is_stopped() };
            let wish = app.hooks.round(round);
            if wish != Wish::GoOn || operator.ends() {
                stop.stop();
            }
            if wish == Wish::End {
                leaving.done = true;
            } else if stop.is_stopped() {
                let (may_end, is_said) = (election.leave(now, member), leaving.goodbye.is_said(now));
                if election.heir() != leaving.heir {
                    leaving.heir = election.heir();
                    leaving.heir.into_iter().for_each(|heir| hands_over(plan, heir, voice));
                }
                leaving.done = may_end && is_said;
            }
        };
        let done = turns.round(member, &mut app, round);
        let again = answers.look(member, |client| machine.say_again(client));
        let mut app = Watched::new(machine, hooks);
        let read = answer_reads(reads, since_start, member, &mut app)
            | compare_reports(reports, (since_start, plan, voice), member, &mut app);
        machine.end_round(|replies| answers.send(member, replies.iter()));
        let goes_on = again || read || member.has_unflushed() || due.is_ordered;
        let (worked, longest) = done.map_err(|error| self.ended(error))?;
        let longest = longest.min(due.in_so_long);
        let worked = worked || goes_on || asked;
        self.admit_observers();
        if let Some(error) = self.machine.progress().failure() {
            return Err(self.ended(RunError::Restore(self.me, error)));
        }
        self.look_at_poison(stop, since_start, poisoned);
        let worked = self.serve(stop) | worked;
        if !worked && self.machine.is_about_to_return() {
            // The apply thread may need this processor.
            std::thread::yield_now();
            return Ok((true, longest));
        }
        Ok((worked, longest))
    }

    /// Drops the member if the machine is poisoned and the group can spare the node: the next round starts over.
    /// Notifies clients if the group is halted.
    #[inline]
    fn look_at_poison(&mut self, stop: &Stop, now: Duration, poisoned: Option<Position>) {
        if !stop.is_stopped() && self.starts_over(now, poisoned) {
            // The connections end here, like those of a process that dies.
            self.operator.close();
            self.member = None;
            self.clients.forget_member();
        }
        if let Some(at) = poisoned
            && now >= self.next_notice
        {
            self.next_notice = now + LOOK;
            self.send_halt_notices(at);
        }
    }

    /// Hands the connections of observers to the thread that serves them.
    #[inline]
    fn admit_observers(&mut self) {
        while let Some(line) = self.operator.next_observer() {
            let replica = self.member.as_ref().map(Member::replica);
            let leads = replica.is_some_and(Replica::is_leader);
            let joins = replica.is_none_or(Replica::is_joining);
            if let Err(error) = self.observers.admit(line, Stands { leads, joins }) {
                (self.voice)(log::Level::Warn, &format!("cannot serve an observer: {error}"));
            }
        }
    }

    /// Carries out the requests of other threads, and runs the embedded clients. Returns whether the clients had any
    /// work.
    #[inline]
    fn serve(&mut self, stop: &Stop) -> bool {
        for request in self.mailbox.0.take() {
            request(self);
        }
        if stop.is_stopped() {
            self.clients.close();
        }
        self.clients.turn()
    }

    /// Returns whether the node starts over. `at` is the command at which its machine is poisoned, if it is.
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

    /// Begins again like a process without memory: the group admits the node, and its machine restores the state of
    /// another member. A node that was asked to stop ends instead.
    #[cold]
    fn begin_again(&mut self, stop: &Stop) -> Result<(bool, Duration), NodeError> {
        if stop.is_stopped() {
            self.leaving.done = true;
            return Ok((true, Duration::ZERO));
        }
        let name = self.plan.name(self.me).to_owned();
        (self.voice)(log::Level::Info, "starts over, and takes the state of the others");
        let failed = |error| NodeError { name: name.clone(), problem: Problem::StartOver(Box::new(error)) };
        let mut member = (self.start)().map_err(failed)?;
        self.election = self.hooks.election(&self.plan, self.me).map_err(failed)?;
        self.hooks.started(&self.plan, &mut member);
        self.turns = MemberLoop::new(self.wait);
        (self.next_notice, self.sleeps) = (Duration::ZERO, false);
        self.machine.start_over();
        self.answers = Answers::new(self.plan.topology().clients());
        self.reads = Reads::default();
        self.reports = Reports::new(S::VERSION, self.me, self.plan.topology().members(self.group));
        self.sleeper.set(member.fabric().waker());
        self.operator = listen(&member, self.place.as_ref(), &self.voice);
        self.member = Some(member);
        Ok((true, Duration::ZERO))
    }

    /// Notifies all clients, if the group is halted. A notice that finds no room is dropped: the next interval repeats
    /// all of them.
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

    /// Returns the first command at which a machine of the group is poisoned, if the machines of a majority are: then
    /// the group is halted.
    fn halted(&self, own: Option<Position>) -> Option<u64> {
        let topology = self.plan.topology();
        let mark = |process: ProcessId| {
            if process == self.me { own.map(|at| at.index) } else { self.election.poisoned(process) }
        };
        let panicked = topology.members(self.group).filter_map(mark).count();
        let first = topology.members(self.group).filter_map(mark).min();
        first.filter(|_| panicked >= topology.majority(self.group) as usize)
    }

    /// Pauses after a round; see [`MemberLoop::pause`]. With embedded clients, the node sleeps on the descriptors of
    /// all.
    fn pause(&mut self, worked: bool, longest: Duration) -> Result<(), NodeError> {
        let Some(member) = &mut self.member else { return Ok(()) };
        if self.clients.is_empty() {
            return self.turns.pause(member, worked, longest).map_err(|error| self.ended(error));
        }
        match self.turns.idle(member, worked) {
            Idle::Poll => Ok(()),
            Idle::Arm => {
                self.clients.arm();
                Ok(())
            }
            Idle::Sleep => {
                if let Some(longest) = self.may_sleep(longest)? {
                    let slept = self.clients.sleep(longest);
                    slept.map_err(|error| self.cannot_wait(error))?;
                }
                self.woken()
            }
        }
    }

    /// Returns for how long the node may sleep, and creates the descriptor for that. Returns `None` if it must not
    /// sleep.
    fn may_sleep(&mut self, longest: Duration) -> Result<Option<Duration>, NodeError> {
        let member = self.member.as_ref().and_then(|member| member.fabric().descriptor());
        let longest = if member.is_some() { longest } else { longest.min(BLIND) };
        let watched = self.clients.watch(member);
        watched.map_err(|error| self.cannot_wait(error))?;
        Ok(self.clients.may_sleep(longest))
    }

    /// Processes the events that made the descriptors readable, after a sleep on them.
    fn woken(&mut self) -> Result<(), NodeError> {
        self.clients.woken();
        let Some(member) = &mut self.member else { return Ok(()) };
        self.turns.woken(member).map_err(|error| self.ended(error))
    }

    fn cannot_wait(&self, error: rustix::io::Errno) -> NodeError {
        self.ended(RunError::Wait(stentor_fabric::WaitError::System(error.to_string())))
    }

    /// Ends the node's activity and drops pending requests. The program may keep the `Node` value for longer.
    fn end(&mut self) {
        // The operator closes first: the hooks may take long, and an operator's question would wait for them.
        self.operator.close();
        if !std::mem::replace(&mut self.has_ended, true) {
            self.hooks.ended(self.member.as_mut());
        }
        self.clients.end();
        self.observers.close();
        self.mailbox.0.close();
    }

    fn run_until(&mut self, stop: &Stop, flag: &AtomicBool) -> Result<(), NodeError> {
        while !self.leaving.done {
            if flag.load(Ordering::Acquire) {
                stop.stop();
            }
            let (worked, longest) = self.round(stop)?;
            self.pause(worked, longest)?;
        }
        Ok(())
    }

    fn turn_once(&mut self, stop: &Stop) -> Result<Turn, NodeError> {
        if self.leaving.done {
            return Ok(Turn::Stopped);
        }
        if std::mem::take(&mut self.sleeps) {
            self.woken()?;
        }
        loop {
            let (worked, longest) = self.round(stop)?;
            if self.leaving.done {
                return Ok(Turn::Stopped);
            }
            let Some(member) = &mut self.member else { return Ok(Turn::Busy) };
            match self.turns.idle(member, worked) {
                Idle::Poll => return Ok(Turn::Busy),
                // Run another round at once. If nodes that share an event loop returned after arming, they would take
                // turns in arming and keep the loop awake.
                Idle::Arm => self.clients.arm(),
                Idle::Sleep => {
                    self.sleeps = true;
                    let longest = self.may_sleep(longest)?;
                    return Ok(longest.map_or(Turn::Busy, |longest| Turn::Idle(Instant::now() + longest)));
                }
            }
        }
    }

    fn ended(&self, error: RunError) -> NodeError {
        NodeError { name: self.plan.name(self.me).to_owned(), problem: Problem::Ended(error) }
    }
}

/// Logs to which member a stopping node hands over.
#[cold]
fn hands_over(plan: &ClusterRuntime, heir: ProcessId, voice: &Voice) {
    voice(log::Level::Info, &format!("told to stop: hands over to {}", plan.name(heir)));
}

/// Listens for operators at the directory entry through which commands of `stentor` on this host reach the node. A
/// failure is logged, and the node runs without an operator socket.
fn listen<F: ClusterFabric>(member: &Member<F>, place: Option<&StandingSeat>, voice: &Voice) -> Operator {
    let at = member.fabric().operator_socket().or_else(|| place.map(StandingSeat::beside));
    Operator::listen(at.as_ref(), &member.fabric().waker()).unwrap_or_else(|error| {
        let why = "`stentor leader` and `stentor stop` cannot ask this process: cannot listen for them";
        voice(log::Level::Warn, &format!("{why}: {error}"));
        Operator::default()
    })
}

impl<F: ClusterFabric + Send, S: StateMachine, H: Hooks> Host<S> for Hosted<F, S, H> {
    fn run(&mut self, stop: &Stop, flag: &AtomicBool) -> Result<(), NodeError> {
        self.turner.note();
        let ended = self.run_until(stop, flag);
        self.end();
        ended
    }

    fn turn(&mut self, stop: &Stop) -> Result<Turn, NodeError> {
        self.turner.note();
        let turned = self.turn_once(stop);
        if !matches!(turned, Ok(Turn::Busy | Turn::Idle(_))) {
            self.end();
        }
        turned
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.clients.descriptor().or_else(|| self.member.as_ref()?.fabric().descriptor())
    }

    fn adopt(&mut self, client: Box<dyn Embedded>) {
        self.clients.add(client);
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
            version: self.reports.version_of(process),
            differs_at: self.reports.differs_at(process),
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
            version: machine.progress().version(),
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
