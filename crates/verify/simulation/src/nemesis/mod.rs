//! The nemesis: faults of processes, links and elections in a run, according to a plan drawn from the seed and limited
//! by a budget.
//!
//! In each group, at most f = ⌊(n − 1)/2⌋ members are down or without memory at once. A crash that would exceed this is
//! omitted and counted, and so is a [`Fault::Stop`] that would stop more members of a group. Only the losses of memory
//! in profile [`Profile::Forgets`] exceed it. Partitions, stalls and elections have no budget, because they must never
//! violate a property. When the faults stop, all links heal, all processes restart except clients whose ids no process
//! takes over, and the election names one final leader of each group.
//!
//! The election reports whatever the nemesis wants. After a crash it names another leader after some time, as a real
//! election would. It also suspects leaders that are up, names processes that are down, and changes its choice. A
//! process that a partition keeps from receiving packets receives no election updates.

mod budget;
mod elect;
mod fault;
mod loss;
mod plan;
mod profile;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Fault as SimFault, World};
use stentor_multicast::{ClientId, GroupId, ProcessRole, Topology};

use crate::chance::Chance;
use budget::{Budget, Health};
pub use elect::Told;
pub use fault::{Fault, NemesisCounts, Planned, Target};
use plan::UNTIL_NS;
pub use profile::Profile;

/// Minimum and maximum time until an election detects the loss of a leader, in nanoseconds.
const MISSED_NS: (u64, u64) = (20_000, 150_000);
/// Maximum time until a process learns of a new leader, in nanoseconds.
const HEARD_NS: u64 = 20_000;
/// Time until the client id of a superseded process is taken over, in nanoseconds.
const SUPERSEDED_NS: u64 = 50_000;
/// The stream of random choices of the nemesis. Clients have the streams 1, 2 and so on.
const STREAM: u64 = 500;
/// The stream of random choices of the cuts between clients and groups. Each plan has its own stream, so that a change
/// of one plan leaves the others unchanged.
const STREAM_OF_CUTS: u64 = 501;
/// The stream of random choices of the cuts between a client and one member.
const STREAM_OF_LATE_LINKS: u64 = 502;
/// The stream of random choices of stopped processes.
const STREAM_OF_STOPS: u64 = 503;
/// The stream of random choices of groups that are silent while clients crash and restart.
const STREAM_OF_SILENCES: u64 = 504;
/// The stream of random choices of whole groups that lose their memory.
const STREAM_OF_LOSSES: u64 = 505;

/// An action of the nemesis.
#[derive(Clone, Debug)]
enum Act {
    Fault(Fault),
    /// The election reports to the whole group that this process leads.
    Name(GroupId, ProcessId),
    /// The election names another leader if this process still leads.
    Depose(GroupId, ProcessId),
    /// The election names another leader if the current one is down, without memory or stopped.
    Watch(GroupId),
    Flap {
        group: GroupId,
        period_ns: u64,
        until_ns: u64,
    },
    Restart(ProcessId),
}

/// The nemesis's view of a process.
struct Victim {
    health: Health,
    /// Time from the next crash to the restart.
    back_after_ns: Option<u64>,
    /// The earliest time of a restart, in nanoseconds.
    absent_until_ns: u64,
    /// Time until which the process receives no packets, in nanoseconds.
    deaf_until_ns: u64,
    /// Time until which the process is stopped by a [`Fault::Stop`], in nanoseconds.
    stopped_until_ns: u64,
    /// `true` if a crash at a post is scheduled.
    at_post: bool,
    /// `true` if no process takes over the client id after a crash.
    gone: bool,
}

/// The nemesis's view of a group's leadership.
struct Reign {
    epoch: Rc<Cell<u64>>,
    leader: ProcessId,
    /// `true` if a leader was named and none has been ready since.
    recovering: bool,
}

/// The nemesis of one run.
pub struct Nemesis {
    world: World,
    topology: Arc<Topology>,
    chance: Chance,
    agenda: BTreeMap<(u64, u64), Act>,
    serial: u64,
    budget: Budget,
    victims: Vec<Victim>,
    reigns: Vec<Reign>,
    elections: Vec<Told>,
    counts: NemesisCounts,
    /// The faults that occurred, as text.
    log: Vec<String>,
    stopped: bool,
    /// Time until which a group is silent, in nanoseconds.
    silent_until_ns: u64,
    /// `true` if clients whose ids would not be taken over restart when the faults stop.
    fills_places: bool,
    /// `true` if whole groups may lose their memory.
    forgets: bool,
}

impl Nemesis {
    /// Time by which the faults of a drawn plan have stopped, in nanoseconds.
    pub const UNTIL_NS: u64 = UNTIL_NS;

    /// Creates the nemesis with the plan of a seed.
    ///
    /// # Panics
    /// Never panics, because members come first in a topology.
    #[must_use]
    pub fn new(seed: u64, profile: Profile, topology: &Arc<Topology>, world: &World) -> Self {
        let mut chance = Chance::new(seed, STREAM);
        let mut plan = plan::draw(&mut chance, profile, topology);
        plan.extend(plan::late_links(&mut Chance::new(seed, STREAM_OF_LATE_LINKS), profile, topology));
        plan.extend(plan::stops(&mut Chance::new(seed, STREAM_OF_STOPS), profile, topology));
        plan.extend(plan::cut_client(&mut Chance::new(seed, STREAM_OF_CUTS), profile, topology));
        plan.extend(plan::silence_group(&mut Chance::new(seed, STREAM_OF_SILENCES), profile, topology));
        plan.extend(loss::draw(&mut Chance::new(seed, STREAM_OF_LOSSES), profile, topology));
        let reigns: Vec<Reign> = topology.group_ids().map(|group| Reign::new(topology, group)).collect();
        let election = |member: u16| match topology.role(ProcessId(member)) {
            Some(ProcessRole::Member { group, .. }) => {
                Told::new(ProcessId(member), &reigns[usize::from(group.0)].epoch)
            }
            _ => unreachable!("members come first"),
        };
        let elections = (0..topology.all_members() as u16).map(election).collect();
        let victim = || Victim {
            health: Health::Well,
            back_after_ns: None,
            absent_until_ns: 0,
            deaf_until_ns: 0,
            stopped_until_ns: 0,
            at_post: false,
            gone: false,
        };
        let mut nemesis = Nemesis {
            world: world.clone(),
            topology: Arc::clone(topology),
            chance,
            agenda: BTreeMap::new(),
            serial: 0,
            budget: Budget::new(topology),
            victims: (0..topology.processes()).map(|_| victim()).collect(),
            reigns,
            elections,
            counts: NemesisCounts::default(),
            log: Vec::new(),
            stopped: false,
            silent_until_ns: 0,
            fills_places: false,
            forgets: profile == Profile::Forgets,
        };
        for planned in plan {
            nemesis.plan(planned.at_ns, Act::Fault(planned.fault));
        }
        nemesis
    }

    /// Schedules cuts of some leaders from their groups and from most clients, long enough for other leaders to be
    /// named. `chance` draws the times.
    pub(crate) fn part_leaders(&mut self, chance: &mut Chance) {
        for _ in 0..chance.between(0, 3) {
            let (for_ns, group) = (chance.between(300_000, 900_000), chance.between(0, self.reigns.len() as u64 - 1));
            let at_ns = chance.between(plan::FROM_NS, Nemesis::UNTIL_NS - for_ns);
            let except = ClientId(chance.between(0, self.topology.clients() as u64 - 1) as u16);
            self.plan(at_ns, Act::Fault(Fault::PartLeader { group: GroupId(group as u16), except, for_ns }));
        }
    }

    /// Ensures that every client id is taken over by the end.
    pub fn fill_places(&mut self) {
        self.fills_places = true;
    }

    /// Returns a member's election.
    ///
    /// # Panics
    /// Panics if the process is not a member.
    #[must_use]
    pub fn election(&self, member: ProcessId) -> Told {
        self.elections[member.index()].clone()
    }

    /// Returns the time of the next action, in nanoseconds.
    #[must_use]
    pub fn next_at(&self) -> Option<u64> {
        self.agenda.keys().next().map(|(at, _)| *at)
    }

    /// Returns the counts of faults so far.
    #[must_use]
    pub fn counts(&self) -> NemesisCounts {
        self.counts
    }

    /// Returns the log of faults so far, as text.
    #[must_use]
    pub fn log(&self) -> &[String] {
        &self.log
    }

    /// Returns whether the faults have stopped.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.stopped
    }

    /// Performs the next action. The caller must first process all earlier events of the world.
    pub fn act(&mut self) {
        let Some(((now, _), act)) = self.agenda.pop_first() else { return };
        match act {
            Act::Fault(fault) => self.fault(now, &fault),
            Act::Name(group, leader) => self.name(now, group, leader),
            Act::Depose(group, leader) => {
                if self.reign(group).leader == leader
                    && let Some(other) = self.somebody(group, Some(leader))
                {
                    self.counts.false_suspicions += u64::from(self.health(leader) == Health::Well);
                    self.name(now, group, other);
                }
            }
            Act::Watch(group) => {
                let leader = self.reign(group).leader;
                let gone = matches!(self.health(leader), Health::Down | Health::Memoryless);
                let missed = gone || self.stands(now, leader);
                if let Some(other) = self.somebody(group, None).filter(|_| missed) {
                    self.name(now, group, other);
                }
            }
            Act::Flap { group, period_ns, until_ns } => self.flap(now, group, period_ns, until_ns),
            Act::Restart(process) => self.restart(now, process),
        }
    }

    fn plan(&mut self, at_ns: u64, act: Act) {
        self.serial += 1;
        self.agenda.insert((at_ns, self.serial), act);
    }

    fn note(&mut self, now: u64, what: std::fmt::Arguments<'_>) {
        self.log.push(format!("{:.1} µs: {what}", now as f64 / 1e3));
    }

    fn reign(&self, group: GroupId) -> &Reign {
        &self.reigns[usize::from(group.0)]
    }

    fn health(&self, process: ProcessId) -> Health {
        self.victims[process.index()].health
    }

    fn set(&mut self, process: ProcessId, health: Health) {
        self.victims[process.index()].health = health;
        if process.index() < self.topology.all_members() {
            self.budget.set(process, health);
        }
    }

    fn group_of(&self, process: ProcessId) -> Option<GroupId> {
        match self.topology.role(process) {
            Some(ProcessRole::Member { group, .. }) => Some(group),
            _ => None,
        }
    }

    fn leads(&self, process: ProcessId) -> bool {
        self.group_of(process).is_some_and(|group| self.reign(group).leader == process)
    }

    /// Returns a random member that is up, has its group's state and is not stopped, other than `but`.
    fn somebody(&mut self, group: GroupId, but: Option<ProcessId>) -> Option<ProcessId> {
        let members = self.topology.members(group).filter(|member| Some(*member) != but);
        let now = self.world.now_ns();
        let is_well = |member: &ProcessId| self.health(*member) == Health::Well && !self.stands(now, *member);
        let well: Vec<ProcessId> = members.filter(is_well).collect();
        (!well.is_empty()).then(|| self.chance.pick(&well))
    }

    fn resolve(&self, target: Target) -> ProcessId {
        match target {
            Target::Process(process) => process,
            Target::Leader(group) => self.reign(group).leader,
        }
    }

    fn fault(&mut self, now: u64, fault: &Fault) {
        match *fault {
            Fault::Crash { who, back_after_ns } => {
                let who = self.resolve(who);
                if self.doom(who, back_after_ns) {
                    self.world.inject(now, SimFault::Crash(who));
                }
            }
            Fault::CrashAtPost { who, post, back_after_ns } => {
                let who = self.resolve(who);
                if self.doom(who, back_after_ns) {
                    self.victims[who.index()].at_post = true;
                    self.note(now, format_args!("{who} will crash at post {post}"));
                    self.world.inject(now, SimFault::CrashAtPost { process: who, post });
                }
            }
            Fault::ClientCrashAfterWrite { client, write, back_after_ns } => {
                let process = self.topology.client_process(client);
                if self.health(process) == Health::Well {
                    self.set(process, Health::Doomed);
                    self.victims[process.index()].back_after_ns = back_after_ns;
                    self.victims[process.index()].gone = back_after_ns.is_none() && !self.fills_places;
                    self.note(now, format_args!("client {} will crash at write {write}", client.0));
                    self.world.inject(now, SimFault::CrashAtPost { process, post: write });
                }
            }
            Fault::CutClient { client, group, for_ns } => self.cut_client(now, client, group, for_ns),
            Fault::CutMember { client, member, for_ns } => {
                self.counts.late_links += 1;
                self.note(now, format_args!("nothing gets from client {} to {member} for {for_ns} ns", client.0));
                let from = self.topology.client_process(client);
                self.world.inject(now, SimFault::Cut { from, to: member, for_ns });
            }
            Fault::PartLeader { group, except, for_ns } => self.part_leader(now, group, except, for_ns),
            Fault::Cut { from, to, for_ns } => self.cut(now, from, to, for_ns),
            Fault::Isolate { who, for_ns } => {
                let who = self.resolve(who);
                self.counts.isolations += 1;
                self.note(now, format_args!("{who} is isolated for {for_ns} ns"));
                self.world.inject(now, SimFault::Partition { side: vec![who], one_way: false, for_ns });
                self.deafen(now, who, for_ns);
            }
            Fault::Stall { who, for_ns } => self.stall(now, who, for_ns),
            Fault::Lose { who, back_after_ns } => {
                self.lose_memory(now, who, back_after_ns);
            }
            Fault::Survive { who, for_ns } => {
                self.counts.survivors_silent += 1;
                self.note(now, format_args!("{who} remembers, and does not run for {for_ns} ns"));
                self.world.inject(now, SimFault::Stall { process: who, for_ns });
            }
            Fault::Silence { group, for_ns } => self.silence(now, group, for_ns),
            Fault::Stop { who, for_ns } => self.stop_process(now, who, for_ns),
            Fault::Suspect { group, leader } => {
                let last = self.reign(group).leader;
                self.counts.false_suspicions += u64::from(last != leader && self.health(last) == Health::Well);
                self.counts.dead_leaders_named +=
                    u64::from(matches!(self.health(leader), Health::Down | Health::Memoryless));
                self.name(now, group, leader);
            }
            Fault::Flap { group, period_ns, for_ns } => {
                self.note(now, format_args!("the election of group {} flaps for {for_ns} ns", group.0));
                self.flap(now, group, period_ns, now + for_ns);
            }
            Fault::HandOver { group, to } => {
                if self.health(to) == Health::Well && !self.stands(now, to) && self.reign(group).leader != to {
                    self.counts.hand_overs += 1;
                    self.name(now, group, to);
                }
            }
        }
    }

    /// Stalls a process for some time.
    fn stall(&mut self, now: u64, who: Target, for_ns: u64) {
        let who = self.resolve(who);
        *(if self.leads(who) { &mut self.counts.slow_leaders } else { &mut self.counts.stalled_followers }) += 1;
        self.note(now, format_args!("{who} does not run for {for_ns} ns"));
        self.world.inject(now, SimFault::Stall { process: who, for_ns });
        self.maybe_deposed(now, who, for_ns);
    }

    /// Stops a process for a long time, unless more than a minority of its group would be stopped.
    fn stop_process(&mut self, now: u64, who: Target, for_ns: u64) {
        let who = self.resolve(who);
        let stands = |process: ProcessId| self.victims[process.index()].stopped_until_ns > now;
        let several = (0..self.victims.len() as u16).any(|process| stands(ProcessId(process)));
        if let Some(group) = self.group_of(who) {
            let standing = self.topology.members(group).filter(|member| *member == who || stands(*member)).count();
            if self.topology.size(group) - standing < self.topology.majority(group) as usize {
                self.counts.beyond_the_budget += 1;
                return;
            }
            let leads = self.leads(who);
            *(if leads { &mut self.counts.leaders_stopped } else { &mut self.counts.followers_stopped }) += 1;
            if leads {
                let missed = now + self.chance.between(MISSED_NS.0, MISSED_NS.1);
                self.plan(missed, Act::Depose(group, who));
            }
        } else {
            self.counts.clients_stopped += 1;
        }
        self.counts.several_stopped += u64::from(several);
        self.note(now, format_args!("{who} is stopped for {for_ns} ns"));
        let until = &mut self.victims[who.index()].stopped_until_ns;
        // A second stop does not shorten the first one.
        *until = (*until).max(now + for_ns);
        self.world.inject(now, SimFault::Stall { process: who, for_ns });
    }

    /// Returns whether a process is stopped.
    #[must_use]
    pub fn stands(&self, now: u64, process: ProcessId) -> bool {
        self.victims[process.index()].stopped_until_ns > now
    }

    /// Returns whether any client is stopped.
    #[must_use]
    pub fn client_stands(&self, now: u64) -> bool {
        (0..self.topology.clients() as u16)
            .any(|client| self.stands(now, self.topology.client_process(ClientId(client))))
    }

    /// Returns whether this member may crash. If it may, this call counts it as failed.
    fn doom(&mut self, who: ProcessId, back_after_ns: Option<u64>) -> bool {
        if !self.budget.allows(who, &self.topology) {
            self.counts.beyond_the_budget += 1;
            return false;
        }
        self.set(who, Health::Doomed);
        self.victims[who.index()].back_after_ns = back_after_ns;
        true
    }

    /// Crashes a process independent of the budget, so that it loses its memory, and schedules its restart. Returns
    /// whether the process was up.
    fn lose_memory(&mut self, now: u64, who: ProcessId, back_after_ns: u64) -> bool {
        let victim = &mut self.victims[who.index()];
        victim.absent_until_ns = now + back_after_ns;
        if victim.health == Health::Down {
            return false;
        }
        self.counts.memories_lost += 1;
        self.set(who, Health::Doomed);
        let victim = &mut self.victims[who.index()];
        (victim.back_after_ns, victim.gone) = (Some(back_after_ns), false);
        self.world.inject(now, SimFault::Crash(who));
        true
    }

    /// Restarts a process that ended because its group, or a group to which it multicast, continues without its state.
    /// Returns whether the process was up.
    pub fn lose(&mut self, now: u64, who: ProcessId) -> bool {
        self.note(now, format_args!("{who} ends: a group continues without its state"));
        self.counts.clients_told_of_resets += u64::from(self.group_of(who).is_none());
        self.lose_memory(now, who, SUPERSEDED_NS)
    }

    /// Adds a line to the log.
    pub fn say(&mut self, now: u64, what: &str) {
        self.note(now, format_args!("{what}"));
    }

    fn silence(&mut self, now: u64, group: GroupId, for_ns: u64) {
        self.counts.silent_groups += 1;
        self.note(now, format_args!("no member of group {} runs for {for_ns} ns", group.0));
        for process in self.topology.members(group) {
            self.world.inject(now, SimFault::Stall { process, for_ns });
        }
        self.silent_until_ns = self.silent_until_ns.max(now + for_ns);
    }

    fn cut_client(&mut self, now: u64, client: ClientId, group: GroupId, for_ns: u64) {
        self.counts.clients_cut_off += 1;
        self.note(now, format_args!("nothing gets from client {} to group {} for {for_ns} ns", client.0, group.0));
        let from = self.topology.client_process(client);
        for to in self.topology.members(group) {
            self.world.inject(now, SimFault::Cut { from, to, for_ns });
        }
    }

    fn part_leader(&mut self, now: u64, group: GroupId, except: ClientId, for_ns: u64) {
        let leader = self.reign(group).leader;
        self.counts.leaders_parted += 1;
        let (group, client) = (group.0, except.0);
        self.note(
            now,
            format_args!("{leader} is parted from group {group} and all clients but {client} for {for_ns} ns"),
        );
        let clients = (0..self.topology.clients() as u16).map(ClientId).filter(|client| *client != except);
        let clients = clients.map(|client| self.topology.client_process(client));
        let members = self.topology.members(GroupId(group)).filter(|member| *member != leader);
        for other in members.chain(clients) {
            for (from, to) in [(leader, other), (other, leader)] {
                self.world.inject(now, SimFault::Cut { from, to, for_ns });
            }
        }
        self.deafen(now, leader, for_ns);
    }

    fn cut(&mut self, now: u64, from: Option<Target>, to: Option<Target>, for_ns: u64) {
        let (from, to) = (from.map(|from| self.resolve(from)), to.map(|to| self.resolve(to)));
        let all = (0..self.topology.processes() as u16).map(ProcessId);
        let fault = match (from, to) {
            (Some(from), Some(to)) if from == to => return,
            (Some(from), Some(to)) => {
                self.counts.cut_links += 1;
                SimFault::Cut { from, to, for_ns }
            }
            (Some(from), None) => {
                self.counts.mute_leaders += 1;
                SimFault::Partition { side: vec![from], one_way: true, for_ns }
            }
            (None, Some(to)) => {
                self.counts.deaf_leaders += 1;
                SimFault::Partition { side: all.filter(|other| *other != to).collect(), one_way: true, for_ns }
            }
            (None, None) => return,
        };
        self.note(now, format_args!("nothing gets from {from:?} to {to:?} for {for_ns} ns"));
        self.world.inject(now, fault);
        match (from, to) {
            (Some(mute), None) => self.maybe_deposed(now, mute, for_ns),
            (None, Some(deaf)) => self.deafen(now, deaf, for_ns),
            _ => {}
        }
    }

    /// Records that a process receives no packets for some time.
    fn deafen(&mut self, now: u64, who: ProcessId, for_ns: u64) {
        let until = &mut self.victims[who.index()].deaf_until_ns;
        *until = (*until).max(now + for_ns);
        self.maybe_deposed(now, who, for_ns);
    }

    /// Lets the election notice, with some probability, that a leader cannot be reached.
    fn maybe_deposed(&mut self, now: u64, who: ProcessId, for_ns: u64) {
        if let Some(group) = self.group_of(who).filter(|group| self.reign(*group).leader == who)
            && self.chance.between(0, 2) > 0
        {
            let at = now + self.chance.between(0, for_ns);
            self.plan(at, Act::Depose(group, who));
        }
    }

    /// Names a leader. Every member of the group learns it after some time.
    fn name(&mut self, now: u64, group: GroupId, leader: ProcessId) {
        self.note(now, format_args!("{leader} is named leader of group {}", group.0));
        let reign = &mut self.reigns[usize::from(group.0)];
        reign.leader = leader;
        reign.recovering = true;
        for member in self.topology.clone().members(group) {
            self.tell(now, member, Some(leader));
        }
        let missed = now + self.chance.between(MISSED_NS.0, MISSED_NS.1);
        self.plan(missed, Act::Watch(group));
    }

    fn tell(&mut self, now: u64, member: ProcessId, leader: Option<ProcessId>) {
        let at = now.max(self.victims[member.index()].deaf_until_ns) + self.chance.between(0, HEARD_NS);
        self.elections[member.index()].tell(at, leader);
        self.world.wake_at(member, at);
    }

    fn flap(&mut self, now: u64, group: GroupId, period_ns: u64, until_ns: u64) {
        if now >= until_ns {
            if let Some(leader) = self.somebody(group, None) {
                self.name(now, group, leader);
            }
            return;
        }
        let members: Vec<ProcessId> = self.topology.members(group).collect();
        let (told, anybody) = (self.chance.pick(&members), self.chance.pick(&members));
        let leader = match self.chance.between(0, 7) {
            0 => None,
            1..=3 => Some(told),
            _ => Some(anybody),
        };
        self.counts.flaps += 1;
        self.reigns[usize::from(group.0)].recovering = true;
        self.tell(now, told, leader);
        self.plan(now + period_ns, Act::Flap { group, period_ns, until_ns });
    }

    fn restart(&mut self, now: u64, process: ProcessId) {
        let at = self.victims[process.index()].absent_until_ns;
        if self.health(process) == Health::Down && now < at {
            self.plan(at, Act::Restart(process));
        } else if self.health(process) == Health::Down {
            self.world.inject(now, SimFault::Restart(process));
        }
    }

    /// Records that a process crashed.
    pub fn crashed(&mut self, now: u64, process: ProcessId) {
        self.note(now, format_args!("{process} crashed"));
        if let Some(group) = self.group_of(process) {
            let leads = self.leads(process);
            let at_post = std::mem::take(&mut self.victims[process.index()].at_post);
            self.counts.member_crashes_at_a_post += u64::from(at_post);
            *(if leads { &mut self.counts.leader_crashes } else { &mut self.counts.follower_crashes }) += 1;
            self.counts.double_crashes += u64::from(self.budget.failed(process, &self.topology) > 1);
            self.counts.crashes_during_recovery += u64::from(self.reign(group).recovering);
            if leads {
                let missed = now + self.chance.between(MISSED_NS.0, MISSED_NS.1);
                self.plan(missed, Act::Watch(group));
            }
        } else {
            self.counts.client_crashes += 1;
            self.counts.clients_gone += u64::from(self.victims[process.index()].gone);
        }
        self.set(process, Health::Down);
        if let Some(after) = self.victims[process.index()].back_after_ns.take() {
            self.plan(now + after, Act::Restart(process));
        }
    }

    /// Records that a client process learnt that it is superseded. The process ends, and the next one follows 50 µs
    /// later.
    pub fn superseded(&mut self, now: u64, client: ProcessId) {
        self.note(now, format_args!("{client} is superseded"));
        self.counts.clients_superseded += 1;
        self.set(client, Health::Doomed);
        let victim = &mut self.victims[client.index()];
        (victim.back_after_ns, victim.gone) = (Some(SUPERSEDED_NS), false);
        self.world.inject(now, SimFault::Crash(client));
    }

    /// Records that a client process multicasts its first message.
    pub fn begun(&mut self, now: u64) {
        self.counts.clients_begun_beside_a_silent_group += u64::from(now < self.silent_until_ns);
    }

    /// Returns whether the process of a client id is down, and no other process will take over the id.
    #[must_use]
    pub fn is_gone(&self, client: ProcessId) -> bool {
        let victim = &self.victims[client.index()];
        victim.health == Health::Down && victim.gone
    }

    /// Records that a process is up again, without memory.
    pub fn restarted(&mut self, now: u64, process: ProcessId) {
        self.note(now, format_args!("{process} is back"));
        let Some(group) = self.group_of(process) else {
            self.set(process, Health::Well);
            return;
        };
        self.counts.member_restarts += 1;
        self.set(process, Health::Memoryless);
        self.elections[process.index()].forget();
        let leader = self.reign(group).leader;
        self.tell(now, process, Some(leader));
    }

    /// Records that a process has its group's state again.
    pub fn synced(&mut self, now: u64, process: ProcessId, under_load: bool) {
        self.note(now, format_args!("{process} has its group's state"));
        self.counts.rejoins_under_load += u64::from(under_load);
        self.set(process, Health::Well);
        if let Some(group) = self.group_of(process).filter(|_| self.forgets) {
            // Possibly no member was up when the election last chose a leader.
            let at = now + self.chance.between(MISSED_NS.0, MISSED_NS.1);
            self.plan(at, Act::Watch(group));
        }
    }

    /// Records that a leader is ready.
    pub fn ready(&mut self, now: u64, group: GroupId, leader: ProcessId) {
        self.note(now, format_args!("{leader} leads group {}", group.0));
        let reign = &mut self.reigns[usize::from(group.0)];
        reign.recovering &= reign.leader != leader;
    }

    /// Stops the faults: partitions heal, each group gets a final leader, and crashed processes restart, except clients
    /// whose ids no process takes over.
    pub fn stop(&mut self, now: u64) {
        self.stopped = true;
        self.agenda.clear();
        self.world.stop_faults();
        self.note(now, format_args!("the faults stop"));
        for at in 0..self.victims.len() {
            let process = ProcessId(at as u16);
            (self.victims[at].deaf_until_ns, self.victims[at].stopped_until_ns) = (0, 0);
            match self.victims[at].health {
                Health::Doomed => {
                    (self.victims[at].at_post, self.victims[at].gone) = (false, false);
                    self.set(process, Health::Well);
                }
                // This client id is not taken over.
                Health::Down if self.victims[at].gone => {}
                Health::Down => {
                    let back = now + self.chance.between(0, MISSED_NS.1);
                    self.plan(back, Act::Restart(process));
                }
                Health::Well | Health::Memoryless => {}
            }
        }
        for group in self.topology.clone().group_ids() {
            if let Some(leader) = self.somebody(group, None) {
                let at = now + self.chance.between(0, MISSED_NS.1);
                self.plan(at, Act::Name(group, leader));
            }
        }
    }
}

impl Reign {
    fn new(topology: &Topology, group: GroupId) -> Self {
        let first = topology.first_ballot(group);
        Reign { epoch: Rc::new(Cell::new(first.number())), leader: first.leader(), recovering: false }
    }
}
