//! The conductor injects the faults, keeps the board, looks for hangs, and brings the cluster to rest at the end.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use serde::Serialize;
use stentor::operator::{Question, Standing};
use stentor::runtime::{ClientId, ClusterRuntime, Recorder, now_ns};
use stentor_fabric::ProcessId;
use stentor_support::Failure;
use stentor_support::live::{HistoryFile, Interrupt};

use super::board::{Board, State};
use super::clients::Clients;
use super::clock::Looks;
use super::fleet::Fleet;
use super::hang::{LIMIT_MS, Waiting, is_hang, stands_still};
use super::poller::{MemberAddress, MemberPoller};
use super::schedule::{self, Order, Schedule, Step};
use super::{PLACE, Script};
use crate::args::{ChaosPlant, Fault};

/// The time between two looks.
const TICK: Duration = Duration::from_millis(5);
/// The time within which all members and clients must have joined.
const BEGIN_MS: u64 = 60_000;
/// The time within which a member must become ready, and the whole cluster must come to rest.
const RETURN_MS: u64 = 30_000;
/// The time within which a member must end.
const END_MS: u64 = 20_000;
/// The longest time to wait until the cluster comes to rest after an interruption or a failure.
const HURRY_MS: u64 = 10_000;
/// Members record remote operations only in lives that begin before this time, because these records are most of a
/// history.
const OPERATIONS_MS: u64 = 60_000;
/// Time after which a member with a wrong clock must have stopped leading, if its group has had a majority of sound
/// members for the whole time.
const STEPS_BACK_MS: u64 = 4_000;
/// Time for which other members may still use a reading from before a clock was corrected, in multiples of the clock
/// bound. They use the later of the last two readings, and readings arrive once in eight bounds.
const REMEMBERED: u64 = 9;
/// Beginning of the message in which a member reports its own wrong clock.
const NAMED: &str = "the clock of this host is";
/// The time between two progress lines, on a terminal and elsewhere.
const LINE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
/// Time for which the mutant `hang` waits for traffic, in milliseconds.
const PLANT_MS: u64 = 1000;

/// The action that ends a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Resume,
    Start,
    Mend,
    MendLoss,
    MendClock,
}

/// A failure that the run found: a hang, a member that does not return, a wrong clock without its consequences, a
/// cluster that does not come to rest, or a process that ended.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Trouble {
    /// The kind of failure: `message`, `member`, `clock`, `rest` or `process`.
    pub(super) kind: &'static str,
    pub(super) what: String,
    pub(super) groups: Vec<String>,
    /// Each member with its state, its own status and its last lines of standard error.
    pub(super) members: Vec<Witness>,
}

/// The state of a member at the time of a failure.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Witness {
    id: String,
    state: &'static str,
    cut: bool,
    lossy: bool,
    wrong_clock: bool,
    /// The member's own status; `null` if it does not answer.
    standing: Option<Standing>,
    said: Vec<String>,
}

impl Witness {
    /// Returns the member's state as one line.
    pub(super) fn line(&self) -> String {
        let Witness { id, state, cut, lossy, wrong_clock, standing, said } = self;
        let cut = if *cut { ", cut" } else { "" };
        let lossy = if *lossy { ", lossy" } else { "" };
        let wrong = if *wrong_clock { ", wrong clock" } else { "" };
        let stands = standing.as_ref().map_or_else(
            || "does not answer".to_owned(),
            |it| {
                let joining = if it.joining { ", joining" } else { "" };
                let leads = if it.leads { "leads" } else { "does not lead" };
                format!(
                    "{leads}{joining}, epoch {} of {}, delivered {}, {} undelivered",
                    it.epoch, it.leader, it.delivered, it.undelivered
                )
            },
        );
        format!(
            "{id} ({state}{cut}{lossy}{wrong}): {stands}; last said: {}",
            said.last().map_or("nothing", String::as_str)
        )
    }
}

/// The outcome of a run.
#[derive(Default)]
pub(super) struct RunOutcome {
    pub(super) faults: BTreeMap<&'static str, u64>,
    pub(super) refused_moves: u64,
    /// Number of injected wrong clocks that were off by more than the bound.
    pub(super) wrong_clocks: u64,
    /// Number of clocks off by more than the bound that their members have reported.
    pub(super) named_clocks: u64,
    pub(super) begun: u64,
    pub(super) ended: u64,
    pub(super) longest_gap_ms: u64,
    pub(super) longest_return_ms: u64,
    pub(super) trouble: Option<Trouble>,
    pub(super) interrupted: bool,
    pub(super) complete: bool,
    /// The time during which faults were injected.
    pub(super) fault_seconds: f64,
}

/// The next fault, which waits for its time and its precondition.
struct Next {
    step: Step,
    at: u64,
}

pub(super) struct Conductor<'a> {
    script: &'a Script<'a>,
    plan: &'a ClusterRuntime,
    clients: &'a dyn Clients,
    interrupt: &'a Interrupt,
    fleet: Fleet<'a>,
    board: Board,
    pollers: Vec<MemberPoller>,
    /// For each member, the number of the last query before its process or its network was last restored. Only answers
    /// to later queries make the member ready.
    asked: Vec<u64>,
    /// For each member, the faults that will end, each with the time of its end.
    ends: Vec<Vec<(u64, End)>>,
    /// The history in which crashes are recorded. It is judged with those of the multicast.
    recorder: Option<Recorder<HistoryFile>>,
    looks: Looks,
    schedule: Schedule,
    played: RunOutcome,
    /// Time until which other members may use a reading from before a clock was corrected, by group.
    remembered: Vec<u64>,
    /// The faults so far, one per line.
    log: String,
    line: Instant,
}

impl<'a> Conductor<'a> {
    /// Starts the members and waits until they and the clients have joined.
    pub(super) fn begin(
        script: &'a Script<'a>,
        clients: &'a dyn Clients,
        interrupt: &'a Interrupt,
    ) -> Result<Self, Failure> {
        let (plan, scene) = (&script.scene.plan, script.scene);
        let names: Vec<_> =
            (0..plan.topology().all_members() as u16).map(|n| plan.name(ProcessId(n)).to_owned()).collect();
        let sizes: Vec<_> = plan.topology().group_ids().map(|group| plan.topology().members(group).count()).collect();
        let path = scene.history("conductor", 1);
        // The history only reports crashes of other processes and its own end, so the id of any client will do.
        let me = plan.topology().client_process(ClientId(0));
        let recorder = if script.args.service { None } else { Some(HistoryFile::record(plan, me, &path)?) };
        let poller = |n| {
            MemberPoller::open(MemberAddress {
                sockets: scene.sockets(),
                meeting: plan.meeting_name(),
                process: ProcessId(n),
            })
        };
        let mut conductor = Conductor {
            script,
            plan,
            clients,
            interrupt,
            fleet: Fleet::start(scene, script, &names)?,
            board: Board::new(&sizes),
            pollers: (0..names.len() as u16).map(poller).collect::<Result<_, _>>()?,
            asked: vec![0; names.len()],
            ends: vec![Vec::new(); names.len()],
            recorder,
            looks: Looks::begin(),
            schedule: Schedule::new(script.seed, &script.faults, script.bounds),
            played: RunOutcome::default(),
            remembered: vec![0; sizes.len()],
            log: String::new(),
            line: Instant::now(),
        };
        while !(conductor.board.is_whole() && clients.are_in()) {
            let now = conductor.look()?;
            if interrupt.came() {
                return Err(Failure::run(
                    "interrupted before all members and clients had joined",
                    PLACE,
                    "start it again",
                ));
            }
            if now > BEGIN_MS {
                let what = format_args!(
                    "not all members and clients have joined after {} s: {}",
                    BEGIN_MS / 1000,
                    conductor.states()
                );
                let remedy = "give the command more processors, or report this as a bug";
                return Err(Failure::run(what, scene.path().display(), remedy));
            }
        }
        script.output.note("all members and clients have joined; the faults begin");
        Ok(conductor)
    }

    /// Injects faults until the time is over, a failure is found or a signal arrives. Then brings the cluster to rest.
    pub(super) fn play(mut self) -> Result<RunOutcome, Failure> {
        let from = self.clients.clock().now();
        let length = (self.script.args.minutes * 60_000.0) as u64;
        let step = self.schedule.draw();
        let mut next = Next { at: from + step.pause_ms, step };
        while self.clients.clock().now() < from + length && self.played.trouble.is_none() && !self.interrupt.came() {
            let ended = self.round(&mut next, from);
            self.note(ended);
        }
        self.played.fault_seconds = (self.clients.clock().now() - from) as f64 / 1000.0;
        self.played.interrupted = self.interrupt.came();
        self.rest()?;
        self.played.begun = self.clients.begun();
        self.played.ended = self.clients.ended();
        let moves = self.pollers.iter().map(MemberPoller::moves).collect::<Vec<_>>();
        self.played.refused_moves = moves.iter().map(|(_, refused, _)| refused).sum();
        self.played.faults.insert(schedule::name(Fault::Move), moves.iter().map(|(moved, ..)| moved).sum());
        self.clients.end()?;
        let killed = self.fleet.end_all(Duration::from_millis(END_MS));
        if !killed.is_empty() && self.played.trouble.is_none() {
            let what = format!("did not end within {} s of SIGTERM: {}", END_MS / 1000, killed.join(", "));
            self.played.trouble = Some(Trouble { kind: "process", what, groups: Vec::new(), members: Vec::new() });
        }
        let path = self.script.scene.path();
        if let Some(recorder) = &mut self.recorder {
            let complete = if self.played.complete { recorder.complete() } else { Ok(()) };
            complete.and_then(|()| recorder.flush()).map_err(|error| Failure::cannot_write(path, &error))?;
        }
        if let Some(trouble) = &self.played.trouble {
            let text = serde_json::to_string_pretty(trouble).expect("the trouble has string keys");
            self.script.scene.write("trouble.json", text + "\n")?;
        }
        Ok(self.played)
    }

    fn round(&mut self, next: &mut Next, from: u64) -> Result<(), Failure> {
        let now = self.look()?;
        if self.script.args.plant == Some(ChaosPlant::Hang) {
            if now > from + PLANT_MS && self.played.faults.is_empty() {
                self.plant()?;
            }
        } else if now >= next.at
            && let Some(order) = next.step.meant(&self.board, &self.leaders())
        {
            self.apply(now, order)?;
            let step = self.schedule.draw();
            *next = Next { at: now + step.pause_ms, step };
        }
        self.line();
        Ok(())
    }

    /// Records a failure as trouble, so that the rest of the run can still be judged.
    fn note(&mut self, ended: Result<(), Failure>) {
        if let Err(failure) = ended
            && self.played.trouble.is_none()
        {
            let members = self.witnesses();
            self.played.trouble = Some(Trouble { kind: "process", what: failure.what, groups: Vec::new(), members });
        }
    }

    /// Stops all members of the first group except one, without recording it on the board.
    fn plant(&mut self) -> Result<(), Failure> {
        self.played.faults.insert(schedule::name(Fault::Stop), 1);
        self.board.of(0).skip(1).try_for_each(|member| self.fleet.stop(member))
    }

    /// Checks every member and client once. Returns the time.
    fn look(&mut self) -> Result<u64, Failure> {
        std::thread::sleep(TICK);
        let now = self.looks.look(self.clients.clock());
        self.clients.check()?;
        let board = &self.board;
        let gone = self.fleet.find_gone(|member| board.members()[member].state == State::Ending)?;
        if let Some((member, failure)) = gone {
            self.crashed(member)?;
            self.board.set(now, member, State::Killed);
            return Err(failure);
        }
        self.end_faults(now)?;
        self.welcome(now);
        self.find_hangs(now);
        self.find_wrong_leaders(now);
        Ok(now)
    }

    /// Ends the faults whose time is over.
    fn end_faults(&mut self, now: u64) -> Result<(), Failure> {
        for member in 0..self.ends.len() {
            if self.board.members()[member].state == State::Ending && self.fleet.has_ended(member)? {
                self.crashed(member)?;
                self.board.set(now, member, State::Killed);
                // The pause until the next start begins when the process has ended.
                self.ends[member].iter_mut().for_each(|(at, _)| *at += now);
            }
            if self.board.members()[member].state == State::Ending {
                continue;
            }
            let over: Vec<_> = self.ends[member].extract_if(.., |(at, _)| *at <= now).collect();
            over.into_iter().try_for_each(|(_, end)| self.end_fault(now, member, end))?;
        }
        Ok(())
    }

    fn end_fault(&mut self, now: u64, member: usize, end: End) -> Result<(), Failure> {
        match end {
            End::Resume => {
                self.fleet.resume(member)?;
                self.board.set(now, member, State::Returning);
            }
            End::Start => {
                self.pollers[member].renew();
                self.fleet.restart(member, now < OPERATIONS_MS)?;
                self.board.set(now, member, State::Restarting);
            }
            End::Mend => {
                self.board.set_cut(now, member, false);
                self.board.set(now, member, State::Returning);
                self.disturb(member, 0, Vec::new(), Vec::new());
            }
            End::MendClock => {
                self.find_unnamed(now, member);
                self.fleet.set_clock(member, None)?;
                let it = &self.board.members()[member];
                if it.wrong.is_some() {
                    self.remembered[it.group] = now + REMEMBERED * self.script.bounds.clock_ms;
                }
                self.board.set_wrong(now, member, false);
                return Ok(());
            }
            End::MendLoss => {
                self.board.set_lossy(member, false);
                self.disturb(member, 0, Vec::new(), Vec::new());
            }
        }
        self.asked[member] = self.pollers[member].asked();
        Ok(())
    }

    /// Marks each member that is starting, restarting or returning as ready if it has its group's state and the
    /// requested network faults. Unless this is its first start, all clients must also count it for flow control.
    fn welcome(&mut self, now: u64) {
        for member in 0..self.pollers.len() {
            let it = &self.board.members()[member];
            if !it.state.is_coming() {
                continue;
            }
            let (first, since) = (it.state == State::Starting, it.since);
            let said = self.pollers[member].standing(self.fleet.pid(member), self.asked[member]);
            // Clients join only once all members are ready.
            let counts = first || self.clients.count_on(member);
            if said.is_some_and(|said| !said.joining) && self.pollers[member].is_done() && counts {
                if !first {
                    self.played.longest_return_ms = self.played.longest_return_ms.max(now - since);
                }
                self.board.set(now, member, State::Ready);
            }
        }
    }

    fn find_hangs(&mut self, now: u64) {
        if self.played.trouble.is_some() {
            return;
        }
        let all = self.clients.waiting();
        for (text, waiting) in &all {
            let still = stands_still(now, waiting, self.board.good());
            self.played.longest_gap_ms = self.played.longest_gap_ms.max(still.unwrap_or(0));
            if is_hang(still) {
                let first = self.tell_waiting(text, waiting);
                let mut what = format!("{first}, for {LIMIT_MS} ms in which each had a connected majority");
                // In the order of a common group, the message may wait for a message of another client.
                for (other, waiting) in all.iter().filter(|(other, _)| other != text) {
                    let ms = now.saturating_sub(waiting.since);
                    what += &format!("; {}, for {ms} ms", self.tell_waiting(other, waiting));
                }
                let groups = waiting.to.iter().map(|group| self.group(*group)).collect();
                self.trouble("message", what, groups);
                return;
            }
        }
        let most = |state: State| match state {
            State::Ending => Some(END_MS),
            State::Restarting | State::Returning => Some(RETURN_MS),
            _ => None,
        };
        let late = (0..).zip(self.board.members()).find_map(|(member, it): (usize, _)| {
            let late = most(it.state).is_some_and(|most| now.saturating_sub(it.since) > most);
            late.then(|| (member, it.state.name(), (now - it.since) / 1000, it.group))
        });
        if let Some((member, state, seconds, group)) = late {
            let what = format!("`{}` is {state} for {seconds} s", self.name(member));
            let groups = vec![self.group(group)];
            self.trouble("member", what, groups);
        }
    }

    /// Records as a failure that a leader's clock has been wrong for too long although another member could lead.
    fn find_wrong_leaders(&mut self, now: u64) {
        if self.played.trouble.is_some() {
            return;
        }
        let long = |since: Option<u64>| since.is_some_and(|since| now.saturating_sub(since) > STEPS_BACK_MS);
        let leads = (0..).zip(self.board.members()).find(|(member, it): &(usize, _)| {
            let leads = || self.pollers[*member].fresh(self.fleet.pid(*member)).is_some_and(|said| said.leads);
            it.state == State::Ready && long(it.wrong) && long(self.board.good()[it.group]) && leads()
        });
        if let Some((member, group)) = leads.map(|(member, it)| (member, it.group)) {
            let what = format!(
                "`{}` still leads after its clock was wrong for {STEPS_BACK_MS} ms in which a majority of others was ready",
                self.name(member)
            );
            let groups = vec![self.group(group)];
            self.trouble("clock", what, groups);
        }
    }

    /// Records as a failure that a member of the multicast has not reported its wrong clock, although it was ready all
    /// the time. (Members of a service are not checked for this.)
    fn find_unnamed(&mut self, now: u64, member: usize) {
        let it = &self.board.members()[member];
        let Some(wrong) = it.wrong.filter(|wrong| it.is_ready_since(*wrong)) else { return };
        if self.script.args.service || now.saturating_sub(wrong) < STEPS_BACK_MS || self.played.trouble.is_some() {
            return;
        }
        if self.fleet.said(member).iter().any(|line| line.contains(NAMED)) {
            self.played.named_clocks += 1;
        } else {
            let (group, ms) = (self.group(it.group), now - wrong);
            let what = format!("`{}` has not reported its clock, which was wrong for {ms} ms", self.name(member));
            self.trouble("clock", what, vec![group]);
        }
    }

    /// Describes what a client waits for, and at which groups.
    fn tell_waiting(&self, text: &str, waiting: &Waiting) -> String {
        let to = waiting.to.iter().map(|group| self.group(*group)).collect::<Vec<_>>().join(", ");
        format!("{text}, to {to}")
    }

    fn trouble(&mut self, kind: &'static str, what: String, groups: Vec<String>) {
        let members = self.witnesses();
        self.played.trouble = Some(Trouble { kind, what, groups, members });
    }

    /// Returns the present state of every member.
    fn witnesses(&self) -> Vec<Witness> {
        let members = (0..).zip(self.board.members());
        let witness = |(member, it): (usize, &super::board::Member)| {
            Witness {
                id: self.name(member).to_owned(),
                state: it.state.name(),
                cut: it.cut,
                lossy: it.lossy,
                wrong_clock: it.wrong.is_some(),
                // Only answers of the last second count.
                standing: self.pollers[member].fresh(self.fleet.pid(member)),
                said: self.fleet.last_words(member),
            }
        };
        members.map(witness).collect()
    }

    fn name(&self, member: usize) -> &'a str {
        self.plan.name(ProcessId(member as u16))
    }

    fn group(&self, group: usize) -> String {
        self.plan.config().groups()[group].id().to_owned()
    }

    fn states(&self) -> String {
        let all = self.board.members().iter().enumerate();
        all.map(|(member, it)| format!("{} {}", self.name(member), it.state.name())).collect::<Vec<_>>().join(", ")
    }

    /// Returns the leader of each group: of the members that claim to lead, the one in the highest epoch.
    fn leaders(&self) -> Vec<Option<usize>> {
        let said = |member: usize| Some((self.pollers[member].fresh(self.fleet.pid(member))?, member));
        let leader = |group| {
            let leads = self.board.of(group).filter_map(said).filter(|(standing, _)| standing.leads);
            leads.max_by_key(|(standing, _)| standing.epoch).map(|(_, member)| member)
        };
        (0..self.board.groups()).map(leader).collect()
    }

    fn apply(&mut self, now: u64, order: Order) -> Result<(), Failure> {
        let Order { mut step, member } = order;
        if now < self.remembered[self.board.members()[member].group] {
            step.skew = step.skew.within(self.script.bounds.clock_ms);
        }
        step.skew = step.skew.of_a_process(self.fleet.age_ms(member), self.script.bounds.clock_ms);
        self.log(Order { step, member })?;
        let mut end = |end| self.ends[member].push((now + step.ms, end));
        match step.fault {
            Fault::Kill => {
                end(End::Start);
                self.ends[member].retain(|(_, end)| matches!(end, End::Start | End::MendClock));
                self.fleet.kill(member)?;
                self.crashed(member)?;
                self.board.set(now, member, State::Killed);
            }
            Fault::Restart => {
                // The time of the next start counts from the end of the process.
                self.ends[member].retain(|(_, end)| *end == End::MendClock);
                self.ends[member].iter_mut().for_each(|(at, _)| *at = at.saturating_sub(now));
                self.ends[member].push((step.ms, End::Start));
                self.fleet.end(member)?;
                self.board.set(now, member, State::Ending);
            }
            Fault::Stop => {
                end(End::Resume);
                self.fleet.stop(member)?;
                self.board.set(now, member, State::Stopped);
            }
            Fault::Cut => {
                end(End::Mend);
                self.ends[member].retain(|(_, end)| *end != End::MendLoss);
                self.board.set_lossy(member, false);
                self.board.set_cut(now, member, true);
                self.cut(member, step.cut)?;
            }
            Fault::Loss => {
                end(End::MendLoss);
                self.board.set_lossy(member, true);
                self.disturb(member, step.loss_ppm, Vec::new(), Vec::new());
            }
            Fault::Clock => {
                end(End::MendClock);
                self.fleet.set_clock(member, Some(step.skew))?;
                let wrong = step.skew.is_wrong(self.script.bounds.clock_ms);
                self.board.set_wrong(now, member, wrong);
                self.played.wrong_clocks += u64::from(wrong);
            }
            Fault::Client => {
                if !self.clients.kill(step.client(), step.ms)? {
                    return Ok(());
                }
            }
            Fault::Move => {
                let leader = self.leaders()[self.board.members()[member].group];
                let to = self.name(member);
                leader.into_iter().for_each(|leader| self.pollers[leader].hand_over(to));
                // The move counts only when the leader confirms it.
                return Ok(());
            }
        }
        *self.played.faults.entry(schedule::name(step.fault)).or_default() += 1;
        Ok(())
    }

    /// Logs a fault, for the analysis of a failure. Its time is on the clock of the histories.
    fn log(&mut self, Order { step, member }: Order) -> Result<(), Failure> {
        let target = if step.fault == Fault::Client { "a client" } else { self.name(member) };
        let (fault, at, lasts_ms) = (schedule::name(step.fault), now_ns(), step.ms);
        let skew = (step.fault == Fault::Clock).then_some((step.skew.ahead_ms, step.skew.rate_ppm));
        let line = serde_json::json!({"at": at, "fault": fault, "target": target, "ms": lasts_ms, "skew": skew});
        self.log += &format!("{line}\n");
        self.script.scene.write("faults.txt", &self.log).map(drop)
    }

    fn cut(&mut self, member: usize, cut: schedule::Cut) -> Result<(), Failure> {
        let args = self.script.args;
        let places = if args.service { self.plan.config().limits().clients } else { args.clients };
        let clients = (0..places).map(|client| self.plan.topology().client_process(ClientId(client)));
        let members = (0..self.pollers.len() as u16).map(ProcessId).filter(|other| other.index() != member);
        let others: Vec<_> = members.chain(clients).collect();
        let chosen = match cut.other {
            Some(word) => vec![others[(word % others.len() as u64) as usize]],
            None => others,
        };
        let address = |process| self.plan.address(process);
        let addresses = chosen.into_iter().map(address).collect::<Result<Vec<_>, _>>();
        let addresses = addresses.map_err(|error| Failure::usage(error, PLACE, "correct the configuration"))?;
        let (from, to) = if cut.inward { (addresses, Vec::new()) } else { (Vec::new(), addresses) };
        self.disturb(member, 0, from, to);
        Ok(())
    }

    fn disturb(&mut self, member: usize, drop_ppm: u32, from: Vec<std::net::IpAddr>, to: Vec<std::net::IpAddr>) {
        self.pollers[member].want(Question::Faults { drop_ppm, from, to });
    }

    /// Records that the member has lost its memory, for whatever reason its process ended.
    fn crashed(&mut self, member: usize) -> Result<(), Failure> {
        let (process, life) = (ProcessId(member as u16), self.fleet.life(member));
        let path = self.script.scene.history(self.plan.name(process), life);
        // The process was killed before it began a history, or this run has none.
        let Some(recorder) = self.recorder.as_mut().filter(|_| path.exists()) else { return Ok(()) };
        let written = recorder.crash(now_ns(), process, life.into()).and_then(|()| recorder.flush());
        written.map_err(|error| Failure::cannot_write(&path, &error))
    }

    /// Ends all faults. Waits, for a limited time, until every member is back and has delivered as much as the other
    /// members of its group, and no message or call is outstanding.
    fn rest(&mut self) -> Result<(), Failure> {
        let now = self.clients.clock().now();
        for member in 0..self.ends.len() {
            let ending = self.board.members()[member].state == State::Ending;
            self.ends[member].iter_mut().for_each(|(at, _)| *at = if ending { 0 } else { now });
        }
        self.clients.drain();
        let failed = self.played.trouble.is_some();
        let patience = if failed || self.played.interrupted { HURRY_MS } else { RETURN_MS };
        loop {
            let ended = self.look().map(drop);
            let fatal = ended.is_err();
            self.note(ended);
            let now = self.clients.clock().now() - now;
            if self.board.is_whole() && self.clients.outstanding() == 0 && now > 500 && self.is_level() {
                self.played.complete = true;
                return Ok(());
            }
            if fatal || (!failed && self.played.trouble.is_some()) {
                return Ok(());
            }
            if now > patience {
                if !failed && !self.played.interrupted {
                    let left = self.clients.outstanding();
                    let what = format!(
                        "not at rest {} s after the last fault: {left} {} have not ended; {}",
                        patience / 1000,
                        self.script.what(),
                        self.states()
                    );
                    let groups = (0..self.board.groups()).map(|group| self.group(group)).collect();
                    self.trouble("rest", what, groups);
                }
                return Ok(());
            }
            self.line();
        }
    }

    /// Returns whether the members of each group have delivered the same number of messages.
    fn is_level(&self) -> bool {
        let said = |member: usize| self.pollers[member].standing(self.fleet.pid(member), 0);
        (0..self.board.groups()).all(|group| {
            let mut far = self.board.of(group).map(|member| said(member).map(|standing| standing.delivered));
            let first = far.next().flatten();
            first.is_some() && far.all(|other| other == first)
        })
    }

    /// Prints a progress line from time to time.
    fn line(&mut self) {
        let pause = LINE[usize::from(!std::io::stderr().is_terminal())];
        if self.line.elapsed() < pause || self.script.output.is_json() {
            return;
        }
        self.line = Instant::now();
        let unsound = self.board.members().iter().enumerate().filter(|(_, it)| !it.is_sound() || it.lossy);
        let unsound = unsound.map(|(member, it)| {
            let state = if it.wrong.is_some() {
                "with a wrong clock"
            } else if it.cut {
                "cut"
            } else if it.lossy {
                "lossy"
            } else {
                it.state.name()
            };
            format!("{} {state}", self.name(member))
        });
        let unsound: Vec<_> = unsound.collect();
        let faults: Vec<_> = self.played.faults.iter().map(|(name, n)| format!("{n} {name}")).collect();
        self.script.output.note(&format!(
            "{:4} s  {} {}, {} ended, longest wait {} ms; {}; now: {}",
            self.clients.clock().now() / 1000,
            self.clients.begun(),
            self.script.what(),
            self.clients.ended(),
            self.played.longest_gap_ms,
            if faults.is_empty() { "no faults yet".to_owned() } else { faults.join(", ") },
            if unsound.is_empty() { "all sound".to_owned() } else { unsound.join(", ") }
        ));
    }
}
