//! The messages of a running node on standard error.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stentor::config::FabricKind;
use stentor::operator::Elects as _;
use stentor::runtime::{
    ClockNotice, Clocks, ClusterRuntime, FabricDiagnostics, Histories, HistoryNotice, Member, find, first_state,
    hindrance_beside_missing, hindrance_remedy, looked_in, told_hindrance,
};
use stentor_fabric::ProcessId;
use stentor_multicast::{Ballot, Contradiction, GroupId, Hindrance, ProcessRole, Replica};
use stentor_support::live::{MEND_NAME, Refusals, Repeats, Troubles, Waiting, key_in_words, whereabouts};
use stentor_support::{Failure, Level, Output};

use super::elsewhere::runs_here;
use super::hindrance;
use super::keeping::Keeping;
use super::loss::{Loss, stopped};
use super::majority::{Change, Majority, Own, Seen, Shape};
use super::transfers::Began;

/// Interval at which the other members are observed.
const LOOK: Duration = Duration::from_millis(100);
/// Time, once all members exist, within which they must connect to each other and join their groups. After that, this
/// process warns.
const CONNECTING: Duration = Duration::from_secs(3);
/// Shortest pause of this process that is reported.
const PAUSE: Duration = Duration::from_secs(2);
/// Maximum number of missing members for which the reason is looked up.
const EXPLAINED: usize = 8;

/// Another member.
struct Peer {
    process: ProcessId,
    /// Present or last pid of the member on this host.
    pid: Option<i32>,
    here: bool,
    /// `true` if the member appeared before.
    seen: bool,
}

/// A member that appeared, disappeared or changed its pid between two checks.
struct Turn {
    process: ProcessId,
    here: bool,
    /// `true` if the member appeared before.
    seen: bool,
    /// The member's present pid on this host.
    now: Option<i32>,
    /// The member's previous pid on this host.
    before: Option<i32>,
}

/// Members that a process without its group's state waits for.
#[derive(Default, PartialEq, Eq)]
struct Waits {
    /// Members that have the state. They cannot pass it on, because a majority has no memory.
    remember: Vec<ProcessId>,
    forgot: usize,
    absent: Vec<ProcessId>,
    /// Absent members whose host names cannot be resolved.
    unknown: Vec<ProcessId>,
    /// Reason why the group does not begin even if all its members are connected and have no memory.
    hindrance: Option<Hindrance>,
}

/// Reports changes of the group, and remembers what was reported so that nothing is repeated at every look.
pub(super) struct Talk {
    plan: Arc<ClusterRuntime>,
    output: Output,
    name: String,
    peers: Vec<Peer>,
    /// The group of this process.
    group: Option<GroupId>,
    majority: Majority,
    /// Members that were silent at the last look, and how long each had been silent.
    silent: BTreeMap<ProcessId, Duration>,
    silences: Repeats<ProcessId>,
    /// Time at which the majority was lost, or `None` while there is one.
    lack: Option<Instant>,
    /// Schedule of the reports that there is no majority.
    lacks: Repeats<()>,
    ready: bool,
    stranded: bool,
    /// `true` once this process was asked to end.
    stopping: bool,
    /// The reason why the group waits, the start of the wait, and whether it was reported.
    waits: (Waits, Instant, bool),
    /// Ballot that was reported last.
    ballot: Ballot,
    joining: bool,
    refusals: Refusals,
    /// Processes with other histories of groups, as they were last reported.
    contradictions: Vec<(ProcessId, Contradiction)>,
    waiting: RefCell<Waiting>,
    /// Directory where the processes of this host meet.
    directory: PathBuf,
    troubles: Troubles,
    clocks: Clocks,
    histories: Histories,
    looked: Instant,
    /// Last time at which a member appeared or disappeared.
    changed: Instant,
    began: Began,
}

impl Talk {
    /// Creates the reporter. `directory` is where the processes of this host meet.
    pub(super) fn new(plan: &Arc<ClusterRuntime>, me: ProcessId, output: Output, directory: PathBuf) -> Self {
        let topology = plan.topology();
        let members = (0..topology.all_members() as u16).map(ProcessId).filter(|process| *process != me);
        let group = match topology.role(me) {
            Some(ProcessRole::Member { group, .. }) => Some(group),
            _ => None,
        };
        let own = group.into_iter().flat_map(|group| topology.members(group)).filter(|process| *process != me);
        let needed = group.map_or(1, |group| topology.majority(group) as usize);
        Talk {
            plan: Arc::clone(plan),
            output,
            name: plan.name(me).to_owned(),
            peers: members.map(|process| Peer { process, pid: None, here: false, seen: false }).collect(),
            group,
            majority: Majority::new(own, needed, plan.config().election_times().max),
            silent: BTreeMap::new(),
            silences: Repeats::default(),
            lack: None,
            lacks: Repeats::default(),
            ready: false,
            stranded: false,
            stopping: false,
            waits: (Waits::default(), Instant::now(), false),
            ballot: Ballot::NONE,
            joining: true,
            refusals: Refusals::with_key(plan.file().and_then(|file| key_in_words(plan.config(), file))),
            contradictions: Vec::new(),
            waiting: RefCell::new(Waiting::default()),
            directory,
            troubles: Troubles::default(),
            clocks: Clocks::default(),
            histories: Histories::default(),
            looked: Instant::now(),
            changed: Instant::now(),
            began: Began::default(),
        }
    }

    /// Observes the group while a member has nothing to do.
    pub(super) fn idle<F: FabricDiagnostics>(&mut self, now: Duration, member: &mut Member<F>, keeper: &Keeping) {
        // A connected member is not ready while it has no current ballot. It may still be receiving its group's state.
        let connects = !self.ready && member.is_connected() && member.replica().counts_in().is_some();
        if connects {
            self.ready = true;
            let leads = if member.replica().is_leader() { ", leads its group" } else { "" };
            self.say(&format!("ready{leads}; all members are connected"));
        }
        let (output, name) = (self.output, &self.name);
        let named = |process| self.plan.name(process).to_owned();
        self.refusals.take(member.fabric_mut(), named, |text| output.log(Level::Warn, name, text));
        self.troubles.report(member.fabric_mut(), |text| output.log(Level::Warn, name, text));
        // Look at once when all are connected, so that a member that is lost right afterwards has been seen.
        if connects || self.looked.elapsed() >= LOOK {
            self.look_around(now, member, keeper);
        }
    }

    /// Observes all other members.
    fn look_around<F: FabricDiagnostics>(&mut self, now: Duration, member: &Member<F>, keeper: &Keeping) {
        let late = self.looked.elapsed() > CONNECTING / 3;
        self.looked = Instant::now();
        let fabric = member.fabric();
        let see = |process| {
            let (heard, stands) = (keeper.heard(process), keeper.stands(process));
            Seen { here: fabric.sees(process), heard, stands }
        };
        let change = self.majority.look(now, own(member.replica()), see);
        let told = self.look(|process| (fabric.sees(process), fabric.pid_of(process)), member.is_connected());
        self.tell_of_the_majority(change, told);
        self.tell_of_silence();
        let (plan, output, me) = (&self.plan, self.output, &self.name);
        let say = |text: &str| output.log(Level::Warn, me, text);
        self.troubles.report_expelled(member.expelled(), |process| plan.name(process), say);
        let clocks = self.clocks.look(now, member.physical_clock(), keeper.stands_back(), &self.plan);
        clocks.into_iter().for_each(|said| self.tell(&said));
        let histories = self.histories.look(member.replica(), &self.plan);
        histories.iter().for_each(|notice| self.tell_history(notice));
        let is_known = |process| fabric.unresolved(process).is_none();
        self.tell_what_the_group_waits_for(member.replica(), late, is_known);
        self.tell_of_contradictions(member.contradictions().collect());
        if !self.ready {
            let absent: Vec<_> = self.peers.iter().filter(|peer| !peer.here).map(|peer| peer.process).collect();
            let whom = || absent.iter().map(|at| whereabouts(&self.plan, *at, fabric.unresolved(*at))).collect();
            let meets = match self.plan.config().fabric() {
                // Processes that were started with different directories do not find each other. The directory in the
                // message lets an operator see that.
                FabricKind::Shm => format!(" (sockets in {})", looked_in(&self.directory)),
                _ => String::new(),
            };
            let why = || {
                let why = absent.iter().take(EXPLAINED).filter_map(|process| self.why_absent(*process));
                why.fold(meets, |text, why| format!("{text}; {why}"))
            };
            let said = self.waiting.borrow_mut().look_and_explain(self.looked, whom, why);
            said.iter().for_each(|text| self.warn(text));
        }
    }

    /// Logs connections that are refused because their ends know different histories of a group.
    fn tell_of_contradictions(&mut self, now: Vec<(ProcessId, Contradiction)>) {
        if now == self.contradictions {
            return;
        }
        for (process, why) in now.iter().filter(|one| !self.contradictions.contains(one)) {
            let group = self.plan.group_name(why.group);
            self.warn(&hindrance::contradicted(why, self.plan.name(*process), group));
        }
        self.contradictions = now;
    }

    /// Returns why a member is missing, as far as it is known: it was refused, or it runs on this host without
    /// connecting.
    fn why_absent(&self, process: ProcessId) -> Option<String> {
        let name = self.plan.name(process);
        let refused = self.refusals.last_of(process, Instant::now()).map(|refused| format!("{name} {refused}"));
        let runs = runs_here(&self.plan, process, &self.directory);
        match (refused, runs) {
            (Some(refused), Some(runs)) => Some(format!("{refused}; it runs on this host {}", runs.as_what)),
            (None, Some(runs)) => Some(format!("{name} runs on this host {}: {}", runs.as_what, runs.why)),
            (refused, None) => refused,
        }
    }

    /// Reports what the group waits for if so many members have no memory of it that no member can join. The group then
    /// begins only when no member has memory. `late` is `true` if this process did not run for a while, and may have
    /// missed what others published meanwhile. `is_known` returns whether the host name of a process can be resolved.
    fn tell_what_the_group_waits_for(&mut self, replica: &Replica, late: bool, is_known: impl Fn(ProcessId) -> bool) {
        let waits = self.group_waits(replica, is_known);
        if late || waits != self.waits.0 {
            self.waits = (waits, Instant::now(), false);
        } else if waits != Waits::default() && !self.waits.2 && self.waits.1.elapsed() > CONNECTING {
            let text = self.told_waits(&waits, replica.group());
            self.warn(&text);
            self.waits.2 = true;
        }
    }

    fn group_waits(&self, replica: &Replica, is_known: impl Fn(ProcessId) -> bool) -> Waits {
        let (group, topology) = (replica.group(), self.plan.topology());
        let forgot: Vec<_> = replica.also_without_memory().collect();
        let me = |process: &ProcessId| self.plan.name(*process) == self.name;
        let others = topology.members(group).filter(|process| !me(process) && !forgot.contains(process));
        let others: Vec<_> = others.collect();
        if !replica.is_joining() || others.len() as u32 >= topology.majority(group) {
            return Waits::default();
        }
        let is_here = |process: &ProcessId| self.peers.iter().any(|peer| peer.process == *process && peer.here);
        let (here, absent): (Vec<_>, Vec<_>) = others.into_iter().partition(is_here);
        if absent.is_empty() && !here.is_empty() {
            return Waits { forgot: forgot.len() + 1, remember: here, ..Waits::default() };
        }
        let (absent, unknown) = absent.into_iter().partition(|process| is_known(*process));
        Waits { absent, unknown, hindrance: hindrance_beside_missing(replica), ..Waits::default() }
    }

    fn told_waits(&self, waits: &Waits, group: GroupId) -> String {
        let names = |all: &[ProcessId]| all.iter().map(|at| self.plan.name(*at)).collect::<Vec<_>>().join(", ");
        let name = self.plan.group_name(group);
        let hindered = waits.hindrance.as_ref().map(|hindrance| {
            let why = told_hindrance(hindrance, |process| self.plan.name(process));
            (why, hindrance_remedy(hindrance, name, |process| self.plan.name(process)).unwrap_or_default())
        });
        let (begins, also) = match &hindered {
            Some((why, remedy)) if waits.absent.is_empty() && waits.unknown.is_empty() => {
                return format!("all members of {name} have no memory of it, and it does not begin: {why}; {remedy}");
            }
            // The group would not begin even if all its members were connected.
            Some((why, remedy)) => {
                ("does not begin before all its members are there", format!("; and {why}: {remedy}"))
            }
            None => ("begins when all its members are there", String::new()),
        };
        if !waits.remember.is_empty() {
            return format!(
                "{} of {} members of {name} have no memory of it, so nobody is taken in: stop {} and start it anew, then {name} \
                 begins from nothing; or `stentor group reset --group {name}` goes on with the state that is left",
                waits.forgot,
                self.plan.topology().size(group),
                names(&waits.remember)
            );
        }
        let known = waits.absent.iter().take(EXPLAINED).map(|process| (*process, self.why_absent(*process)));
        let known: Vec<_> = known.collect();
        let is_explained = |process: &ProcessId| known.iter().any(|(at, why)| at == process && why.is_some());
        let start: Vec<_> = waits.absent.iter().copied().filter(|process| !is_explained(process)).collect();
        let start = (!start.is_empty()).then(|| format!("start {}", names(&start)));
        let why = known.iter().filter_map(|(_, why)| why.clone());
        let mend = (!waits.unknown.is_empty()).then(|| {
            let all: Vec<_> = waits.unknown.iter().map(|process| whereabouts(&self.plan, *process, None)).collect();
            format!("the host name of {} cannot be resolved here: {MEND_NAME}", all.join(", "))
        });
        let all: Vec<_> = start.into_iter().chain(why).chain(mend).collect();
        format!("{name} {begins}: {}{also}", all.join("; "))
    }

    /// Returns the failure that ends this process: no other process has ever accepted it, and most other processes will
    /// never accept it.
    pub(super) fn final_word(&mut self) -> Option<Failure> {
        let Talk { refusals, peers, plan, name, .. } = self;
        if peers.iter().any(|peer| peer.seen) {
            return None;
        }
        let is_member = |process: ProcessId| peers.iter().any(|peer| peer.process == process);
        let file = plan.file().map_or(String::new(), |file| format!(", {}", file.display()));
        refusals.final_word(peers.len() / 2 + 1, is_member, &format_args!("{name}{file}"))
    }

    /// Reports a change of the group's leader. The check is cheap if there was no change.
    pub(super) fn epoch<F: FabricDiagnostics>(&mut self, member: &Member<F>) {
        let replica = member.replica();
        if self.ballot == replica.ballot() && self.joining == replica.is_joining() {
            return;
        }
        if !replica.is_joining() && self.joining {
            self.tell_history(&first_state(replica, &self.plan));
        }
        (self.ballot, self.joining) = (replica.ballot(), replica.is_joining());
        let leader = self.plan.name(self.ballot.leader());
        self.say(&format!("epoch {}: {leader} leads", self.ballot.number()));
    }

    /// Reports transfers of the state. The check is cheap if there are none.
    pub(super) fn transfers<F: FabricDiagnostics>(&mut self, member: &mut Member<F>) {
        while let Some(report) = member.take_transfer_report() {
            let (level, text) = self.began.text(&report, self.plan.name(report.peer));
            self.output.log(level, &self.name, &text);
        }
    }

    fn tell(&self, said: &ClockNotice) {
        match said {
            ClockNotice::Warn(text) => self.warn(text),
            ClockNotice::Info(text) => self.say(text),
        }
    }

    fn tell_history(&self, notice: &HistoryNotice) {
        if notice.is_warning { self.warn(&notice.text) } else { self.say(&notice.text) }
    }

    pub(super) fn say(&self, text: &str) {
        self.output.log(Level::Info, &self.name, text);
    }

    /// Reports that the history has ended although this process continues.
    pub(super) fn unrecorded(&self, failure: &Failure) {
        self.output.log(Level::Error, &self.name, &failure.while_going_on());
    }

    fn warn(&self, text: &str) {
        self.output.log(Level::Warn, &self.name, text);
    }

    /// Reports that a signal or `stentor stop` has asked this process to end.
    pub(super) fn stopping(&mut self, signal: &str) {
        if !std::mem::replace(&mut self.stopping, true) {
            self.say(&format!("told to stop by {signal}"));
        }
    }

    /// Reports that this process did not run for a while.
    pub(super) fn paused(&self, pause: Duration) {
        if pause >= PAUSE {
            self.warn(&format!(
                "this process did not run for {} s: it was stopped, its host was very busy, or nobody read its output",
                pause.as_secs()
            ));
        }
    }

    /// Checks which members exist, and reports changes. Returns whether a report said that this process's group has no
    /// majority.
    fn look(&mut self, look: impl Fn(ProcessId) -> (bool, Option<i32>), connected: bool) -> bool {
        let mut turns = Vec::new();
        for Peer { process, pid, here, seen } in &mut self.peers {
            let (before, (is_here, now)) = (*pid, look(*process));
            if (is_here, now.or(before)) != (*here, before) {
                turns.push(Turn { process: *process, here: is_here, seen: *seen, now, before });
                (*pid, *here, *seen) = (now.or(before), is_here, true);
            }
        }
        // All changes are collected before any is reported. If two members end at once, the report about the first one
        // then does not claim that a majority is left.
        let told = turns.iter().any(|turn| !turn.here && self.is_own(turn.process)) && self.lacks_majority();
        turns.into_iter().for_each(|turn| self.tell_of(&turn));
        let all_here = self.peers.iter().all(|peer| peer.here);
        if !self.ready && !connected && !self.stranded && all_here && self.changed.elapsed() > CONNECTING {
            self.stranded = true;
            self.warn("all members are there, but not all connect: look at their logs");
        }
        told
    }

    fn tell_of(&mut self, turn: &Turn) {
        let Turn { process, here, seen, now, before } = *turn;
        self.changed = Instant::now();
        if here {
            self.refusals.is_there(process);
        }
        let name = self.plan.name(process);
        match here {
            true if seen => {
                let pid = now.map_or(String::new(), |pid| format!(", as pid {pid}"));
                self.say(&format!("{name} is there again{pid}{}", self.again(process)));
            }
            false if seen || before.is_some() => {
                let (in_order, lacks) =
                    (self.is_own(process) && self.majority.stopped_in_order(process), self.lacks(process));
                let what = match (in_order, before) {
                    (true, None) => format!("{name} was stopped in order"),
                    (true, Some(pid)) => format!("{name}, pid {pid}, was stopped in order"),
                    (false, None) => format!("lost {name}"),
                    (false, Some(pid)) => format!("lost {name}, pid {pid}"),
                };
                if self.stopping {
                    self.say(&what);
                } else {
                    let level = if in_order && !lacks { Level::Info } else { Level::Warn };
                    self.output.log(level, &self.name, &format!("{what}; {}", self.consequence(process)));
                    if lacks && self.is_own(process) {
                        self.lack.get_or_insert(self.looked);
                    }
                }
            }
            _ => {}
        }
    }

    /// Reports changes of the majority of this process's group, and from time to time that it is still missing. `told`
    /// is `true` if a line about a dead member has already reported the loss.
    fn tell_of_the_majority(&mut self, change: Option<Change>, told: bool) {
        let Some(group) = self.group else { return };
        let (name, size) = (self.plan.group_name(group), self.plan.topology().size(group));
        let (working, needed) = (self.majority.working(), self.needed());
        let counts = format!("{working} of its {size} members answer, {needed} have to");
        let now = self.looked;
        if !self.majority.is_lost() {
            let lasted = self.lack.take().map_or(0, |since| now.saturating_duration_since(since).as_secs());
            if change == Some(Change::Back) {
                self.lacks.is_over(|()| true);
                self.say(&format!("{name} has its majority again: {counts}; it had none for {lasted} s"));
            }
            return;
        }
        let since = *self.lack.get_or_insert(now);
        if self.stopping || self.lacks.happened((), now).is_none() || told {
            return;
        }
        let remedy = self.loss().map_or_else(String::new, |loss| loss.remedy());
        self.warn(&match change {
            Some(Change::Lost) => {
                format!("{name} has lost its majority: {counts}, and nothing is delivered; {remedy}")
            }
            _ => {
                let lasted = now.saturating_duration_since(since).as_secs();
                format!("{name} has had no majority for {lasted} s: {counts}, and nothing is delivered; {remedy}")
            }
        });
    }

    /// Reports members of this process's group that exist but are silent, and members that answer again.
    fn tell_of_silence(&mut self) {
        let silent: BTreeMap<_, _> = self.majority.silent().collect();
        for (process, silence) in std::mem::take(&mut self.silent) {
            if silent.contains_key(&process) {
                continue;
            }
            self.silences.is_over(|of| *of == process);
            if self.peers.iter().any(|peer| peer.process == process && peer.here) {
                self.say(&format!("{} answers again after {} s", self.plan.name(process), silence.as_secs()));
            }
        }
        let now = self.looked;
        for (process, silence) in &silent {
            // While there is no majority, the lines about the lost majority name the silent members.
            if self.silences.happened(*process, now).is_some() && !self.majority.is_lost() && !self.stopping {
                self.warn(&self.told_silence(*process, *silence));
            }
        }
        self.silent = silent;
    }

    fn told_silence(&self, process: ProcessId, silence: Duration) -> String {
        let pid = self.pid_of(process);
        let name = self.plan.name(process);
        let who = pid.map_or_else(|| name.to_owned(), |pid| format!("{name} (pid {pid})"));
        let (seconds, why) = (silence.as_secs(), stopped(&[pid]));
        let goes_on = match self.loss() {
            Some(loss) if loss.remembers => {
                let working = self.majority.working();
                format!("; {} goes on: {working} of its {} members answer", loss.group, loss.others.len() + 1)
            }
            _ => String::new(),
        };
        format!("{who} is there and has been silent for {seconds} s: {why}{goes_on}")
    }

    /// Returns the pid of a member on this host. Fabrics between hosts do not know the pid, so it is read from the lock
    /// of the member's seat.
    fn pid_of(&self, process: ProcessId) -> Option<i32> {
        let peer = self.peers.iter().find(|peer| peer.process == process)?;
        let found = || find(&self.plan, process).into_iter().find(|found| found.is_same).map(|found| found.pid());
        peer.pid.or_else(found).filter(|pid| *pid > 0)
    }

    /// Returns this process's view of its group.
    fn loss(&self) -> Option<Loss<'_>> {
        let plan = &*self.plan;
        let group = plan.group_name(self.group?);
        let pid = |process, shape| match shape {
            Shape::Silent { .. } => self.pid_of(process),
            _ => None,
        };
        let others = self.majority.shapes().map(|(process, shape)| (plan.name(process), shape, pid(process, shape)));
        let certain = plan.config().fabric() == FabricKind::Shm;
        let (remembers, needed) = (self.majority.remembers(), self.needed());
        Some(Loss { group, me: &self.name, remembers, others: others.collect(), needed, certain })
    }

    /// Returns whether this process's group has no majority, as far as this process knows.
    fn lacks_majority(&self) -> bool {
        self.loss().is_some_and(|loss| loss.working() < loss.needed)
    }

    /// Returns whether the group of a member has no majority, as far as this process knows.
    fn lacks(&self, process: ProcessId) -> bool {
        if self.is_own(process) {
            return self.lacks_majority();
        }
        self.strength(process).is_some_and(|(_, here, _, majority)| here < majority)
    }

    fn is_own(&self, process: ProcessId) -> bool {
        self.group.is_some_and(|group| self.plan.topology().members(group).any(|member| member == process))
    }

    fn needed(&self) -> usize {
        self.group.map_or(1, |group| self.plan.topology().majority(group) as usize)
    }

    /// Counts the members of a member's group. Returns the group's name, the number of its members that exist, its
    /// size, and the size of a majority.
    fn strength(&self, process: ProcessId) -> Option<(&str, usize, usize, usize)> {
        let topology = self.plan.topology();
        let Some(ProcessRole::Member { group, .. }) = topology.role(process) else { return None };
        let name = self.plan.group_name(group);
        let is_here = |member: &ProcessId| {
            self.plan.name(*member) == self.name || self.peers.iter().any(|peer| peer.process == *member && peer.here)
        };
        let here = topology.members(group).filter(is_here).count();
        Some((name, here, topology.size(group), topology.majority(group) as usize))
    }

    /// Returns a clause about a majority of a group's members that run again, if this member completes that majority,
    /// and an empty text otherwise. The members may have no memory of the group.
    fn again(&self, process: ProcessId) -> String {
        match self.strength(process) {
            Some((name, here, size, majority)) if here == majority => {
                format!(
                    "; {here} of the {size} members of {name} run again, a majority; `stentor leader show` says whether it works"
                )
            }
            _ => String::new(),
        }
    }

    /// Describes the consequence of a member's end. This process does not know whether members of other groups have
    /// their group's state.
    fn consequence(&self, process: ProcessId) -> String {
        let Some((name, here, size, majority)) = self.strength(process) else { return String::new() };
        let start = format!("start {} again with the same command", self.plan.name(process));
        let Some(loss) = self.loss().filter(|_| self.is_own(process)) else {
            return if here >= majority {
                format!(
                    "{here} of the {size} members of {name} are there, a majority; `stentor leader show` says whether it works; {start}"
                )
            } else {
                format!(
                    "{name} has lost its majority: {here} of its {size} members are there, {majority} have to, and nothing is \
                     delivered; {start}; `stentor leader show` says what else has to be done"
                )
            };
        };
        let (working, remedy) = (loss.working(), loss.remedy());
        if working >= majority {
            return format!("{name} goes on: {working} of its {size} members are there, {majority} have to; {start}");
        }
        if !loss.remembers {
            return remedy;
        }
        let has = if loss.others.iter().all(|(_, shape, _)| *shape == Shape::Gone) { "are there" } else { "work" };
        let loses = if self.lack.is_some() { "still has no majority" } else { "has lost its majority" };
        format!(
            "{name} {loses}: {working} of its {size} members {has}, {majority} have to, and nothing is delivered; {remedy}"
        )
    }
}

fn own(replica: &Replica) -> Own {
    match replica.counts_in() {
        Some(_) => Own::Ballot,
        None if replica.is_joining() => Own::Nothing,
        None => Own::State,
    }
}
