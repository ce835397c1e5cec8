//! What a running node tells on standard error.

use std::time::{Duration, Instant};

use stentor::runtime::{Hosted, Member, Plan};
use stentor_fabric::ProcessId;
use stentor_multicast::{Ballot, GroupId, Place, Replica};

use super::keeping::Keeping;
use super::majority::{Change, Majority, Own, Seen};
use crate::failure::Failure;
use crate::live::{MEND_NAME, Refusals, Repeats, Waiting, whereabouts};
use crate::output::{Level, Output};

/// How often the other members are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How long members that are all there may take to connect, and to be taken in by their group.
const CONNECTING: Duration = Duration::from_secs(3);

/// Another member.
struct Peer {
    process: ProcessId,
    /// As which process of the system it is here, or was.
    pid: Option<i32>,
    here: bool,
    /// It was here before.
    seen: bool,
}

/// What was said: nothing is said twice in a row.
pub(super) struct Talk<'a> {
    plan: &'a Plan,
    output: Output,
    name: &'a str,
    peers: Vec<Peer>,
    /// The own group.
    group: Option<GroupId>,
    majority: Majority,
    ready: bool,
    stranded: bool,
    /// It was told to end.
    stopping: bool,
    /// What the group waits for, since when, and whether that was said.
    waits: (String, Instant, bool),
    /// The ballot that was told last.
    ballot: Ballot,
    joining: bool,
    refusals: Refusals,
    waiting: Waiting,
    /// Where processes meet.
    meets: String,
    troubles: Repeats<String>,
    looked: Instant,
    /// When a member came or went last.
    changed: Instant,
}

impl<'a> Talk<'a> {
    /// `meets` follows who is waited for, and says where processes meet.
    pub(super) fn new(plan: &'a Plan, me: ProcessId, output: Output, meets: String) -> Self {
        let topology = plan.topology();
        let members = (0..topology.all_members() as u16).map(ProcessId).filter(|process| *process != me);
        let group = match topology.place(me) {
            Some(Place::Member { group, .. }) => Some(group),
            _ => None,
        };
        let own = group.into_iter().flat_map(|group| topology.members(group)).filter(|process| *process != me);
        let needed = group.map_or(1, |group| topology.majority(group) as usize);
        Talk {
            plan,
            output,
            name: plan.name(me),
            peers: members.map(|process| Peer { process, pid: None, here: false, seen: false }).collect(),
            group,
            majority: Majority::new(own, needed, plan.config().election_times().max),
            ready: false,
            stranded: false,
            stopping: false,
            waits: (String::new(), Instant::now(), false),
            ballot: Ballot::NONE,
            joining: true,
            refusals: Refusals::default(),
            waiting: Waiting::new(),
            meets,
            troubles: Repeats::default(),
            looked: Instant::now(),
            changed: Instant::now(),
        }
    }

    /// Looks at a member that has nothing to do.
    pub(super) fn idle<F: Hosted>(&mut self, now: Duration, member: &mut Member<F>, keeper: &Keeping) {
        // Connected is not enough: who has not its group's state yet takes over what the others deliver meanwhile.
        let connects = !self.ready && member.is_connected() && member.replica().counts_in().is_some();
        if connects {
            self.ready = true;
            let leads = if member.replica().is_leader() { ", leads its group" } else { "" };
            self.say(&format!("ready{leads}; all members are connected"));
        }
        let (output, name) = (self.output, self.name);
        let named = |process| self.plan.name(process).to_owned();
        self.refusals.take(member.fabric_mut(), named, |text| output.log(Level::Warn, name, text));
        if let Some(trouble) = member.fabric_mut().next_trouble()
            && let Some(times) = self.troubles.happened(trouble.clone(), Instant::now())
        {
            self.warn(&format!("{trouble}{times}"));
        }
        // Whoever is lost right after that was there.
        if connects || self.looked.elapsed() >= LOOK {
            let late = self.looked.elapsed() > CONNECTING / 3;
            self.looked = Instant::now();
            let fabric = member.fabric();
            let see = |process| {
                let (heard, stands) = (keeper.heard(process), keeper.stands(process));
                Seen { here: fabric.sees(process), heard, stands }
            };
            let change = self.majority.look(now, own(member.replica()), see);
            let told = self.look(|process| (fabric.sees(process), fabric.pid_of(process)), member.is_connected());
            self.tell_of_the_majority(change.filter(|change| !told || *change != Change::Lost));
            let is_known = |process| fabric.unresolved(process).is_none();
            self.tell_what_the_group_waits_for(member.replica(), late, is_known);
            if !self.ready {
                let absent = || self.peers.iter().filter(|peer| !peer.here);
                let whom = || {
                    let where_is = |peer: &Peer| whereabouts(self.plan, peer.process, fabric.unresolved(peer.process));
                    absent().map(where_is).collect()
                };
                let said = self.waiting.look(self.looked, whom);
                said.iter().for_each(|text| self.warn(&format!("{text}{}", self.meets)));
            }
        }
    }

    /// A majority of the group has no memory of it: then nobody is taken in until all have none. `late`: this process did
    /// not run for a while, and may not have heard what others said meanwhile. `is_known`: the host name of a process leads to
    /// an address.
    fn tell_what_the_group_waits_for(&mut self, replica: &Replica, late: bool, is_known: impl Fn(ProcessId) -> bool) {
        let (group, topology) = (replica.group(), self.plan.topology());
        let forgot: Vec<_> = replica.also_without_memory().collect();
        let me = |process: &ProcessId| self.plan.name(*process) == self.name;
        let others = topology.members(group).filter(|process| !me(process) && !forgot.contains(process));
        let others: Vec<_> = others.collect();
        let waits = if !replica.is_joining() || others.len() as u32 >= topology.majority(group) {
            String::new()
        } else {
            let is_here = |process: &ProcessId| self.peers.iter().any(|peer| peer.process == *process && peer.here);
            let (here, absent): (Vec<_>, Vec<_>) = others.into_iter().partition(is_here);
            let name = self.plan.config().groups()[usize::from(group.0)].id();
            let names = |all: &[ProcessId]| all.iter().map(|at| self.plan.name(*at)).collect::<Vec<_>>().join(", ");
            match (absent.as_slice(), here.as_slice()) {
                ([], []) => String::new(),
                ([], here) => format!(
                    "{} of {} members of {name} have no memory of it, so nobody is taken in: stop {} and start it anew, \
                     then {name} begins from nothing",
                    forgot.len() + 1,
                    topology.size(group),
                    names(here)
                ),
                (absent, _) => {
                    format!("{name} begins when all its members are there: {}", self.to_do(absent, is_known))
                }
            }
        };
        if late || waits != self.waits.0 {
            self.waits = (waits, Instant::now(), false);
        } else if !waits.is_empty() && !self.waits.2 && self.waits.1.elapsed() > CONNECTING {
            self.warn(&waits);
            self.waits.2 = true;
        }
    }

    /// What brings absent members here.
    fn to_do(&self, absent: &[ProcessId], is_known: impl Fn(ProcessId) -> bool) -> String {
        let names = |all: &[ProcessId]| all.iter().map(|at| self.plan.name(*at)).collect::<Vec<_>>().join(", ");
        let (known, unknown): (Vec<_>, Vec<_>) = absent.iter().copied().partition(|process| is_known(*process));
        let start = (!known.is_empty()).then(|| format!("start {}", names(&known)));
        let mend = (!unknown.is_empty()).then(|| {
            let all: Vec<_> = unknown.iter().map(|process| whereabouts(self.plan, *process, None)).collect();
            format!("the host name of {} cannot be resolved here: {MEND_NAME}", all.join(", "))
        });
        start.into_iter().chain(mend).collect::<Vec<_>>().join("; ")
    }

    /// Why there is no point in going on: nobody has ever let this process in, and most others never will.
    pub(super) fn final_word(&self) -> Option<Failure> {
        if self.peers.iter().any(|peer| peer.seen) {
            return None;
        }
        let is_member = |process: ProcessId| self.peers.iter().any(|peer| peer.process == process);
        let file = self.plan.file().map_or(String::new(), |file| format!(", {}", file.display()));
        self.refusals.final_word(self.peers.len() / 2 + 1, is_member, &format_args!("{}{file}", self.name))
    }

    /// Looks whether the group has another leader. Cheap if not.
    pub(super) fn epoch<F: Hosted>(&mut self, member: &Member<F>) {
        let replica = member.replica();
        if self.ballot == replica.ballot() && self.joining == replica.is_joining() {
            return;
        }
        if !replica.is_joining() && self.joining && replica.delivered() > 0 {
            self.say(&format!("taken in by its group, which has delivered {}", replica.delivered()));
        }
        (self.ballot, self.joining) = (replica.ballot(), replica.is_joining());
        let leader = self.plan.name(self.ballot.leader());
        self.say(&format!("epoch {}: {leader} leads", self.ballot.number()));
    }

    pub(super) fn name_of(&self, process: ProcessId) -> &str {
        self.plan.name(process)
    }

    pub(super) fn say(&self, text: &str) {
        self.output.log(Level::Info, self.name, text);
    }

    /// The history ended before this process.
    pub(super) fn unrecorded(&self, failure: &Failure) {
        self.output.log(Level::Error, self.name, &failure.while_going_on());
    }

    fn warn(&self, text: &str) {
        self.output.log(Level::Warn, self.name, text);
    }

    /// This process was told to end by a signal.
    pub(super) fn stopping(&mut self, signal: &str) {
        if !std::mem::replace(&mut self.stopping, true) {
            self.say(&format!("told to stop by {signal}"));
        }
    }

    /// Looks who is there. Returns whether it said that the own group has lost its majority.
    fn look(&mut self, look: impl Fn(ProcessId) -> (bool, Option<i32>), connected: bool) -> bool {
        let mut told = false;
        for at in 0..self.peers.len() {
            let Peer { process, pid: old, here: was, seen } = self.peers[at];
            let (here, pid) = look(process);
            if (here, pid.or(old)) == (was, old) {
                continue;
            }
            self.changed = Instant::now();
            self.peers[at] = Peer { process, pid: pid.or(old), here, seen: true };
            if here {
                self.refusals.is_there(process);
            }
            let name = self.plan.name(process);
            let (consequence, again) = (|| self.consequence(process), || self.again(process));
            told |= !here && self.is_own(process) && self.majority.working() < self.needed();
            match (here, old, pid) {
                (false, Some(old), _) => self.warn(&format!("lost {name}, pid {old}; {}", consequence())),
                (false, None, _) if seen => self.warn(&format!("lost {name}; {}", consequence())),
                (true, _, Some(new)) if seen => self.say(&format!("{name} was started again, as pid {new}{}", again())),
                (true, _, None) if seen => self.say(&format!("{name} is there again{}", again())),
                _ => {}
            }
        }
        let all_here = self.peers.iter().all(|peer| peer.here);
        if !self.ready && !connected && !self.stranded && all_here && self.changed.elapsed() > CONNECTING {
            self.stranded = true;
            self.warn("all members are there, but not all connect: look at what they say");
        }
        told
    }

    /// Says what became of the majority of the own group.
    fn tell_of_the_majority(&self, change: Option<Change>) {
        let Some((change, group)) = change.zip(self.group) else { return };
        let (name, size) = (self.plan.config().groups()[usize::from(group.0)].id(), self.plan.topology().size(group));
        let (working, needed) = (self.majority.working(), self.needed());
        match change {
            Change::Lost => self.warn(&format!(
                "{name} has lost its majority: {working} of its {size} members answer, {needed} have to, and nothing is delivered \
                 until then{}",
                self.idle_members()
            )),
            Change::Back => self.say(&format!(
                "{name} has its majority again: {working} of its {size} members answer, {needed} have to"
            )),
        }
    }

    /// Those whose processes are there and which do not help, with what to do.
    fn idle_members(&self) -> String {
        let idle: Vec<_> = self.majority.idle().map(|process| self.plan.name(process)).collect();
        match idle.as_slice() {
            [] => String::new(),
            names => format!(
                "; there, and silent or without the group's state: {} (stopped? `ps` there, `kill -CONT`; `stentor leader show` \
                 says more)",
                names.join(", ")
            ),
        }
    }

    fn is_own(&self, process: ProcessId) -> bool {
        self.group.is_some_and(|group| self.plan.topology().members(group).any(|member| member == process))
    }

    fn needed(&self) -> usize {
        self.group.map_or(1, |group| self.plan.topology().majority(group) as usize)
    }

    /// Counts the members of a member's group: the group's name, members that are there, its size, and its majority.
    fn strength(&self, process: ProcessId) -> Option<(&str, usize, usize, usize)> {
        let topology = self.plan.topology();
        let Some(Place::Member { group, .. }) = topology.place(process) else { return None };
        let name = self.plan.config().groups()[usize::from(group.0)].id();
        let is_here = |member: &ProcessId| {
            self.plan.name(*member) == self.name || self.peers.iter().any(|peer| peer.process == *member && peer.here)
        };
        let here = topology.members(group).filter(is_here).count();
        Some((name, here, topology.size(group), topology.majority(group) as usize))
    }

    /// Says that as many members of a group run again as a majority has, if that is due to this member. They may have no
    /// memory of it.
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

    /// What it means that a member is gone. Of members of other groups it is not known here whether they have their state.
    fn consequence(&self, process: ProcessId) -> String {
        let Some((name, here, size, majority)) = self.strength(process) else { return String::new() };
        let is_own = self.is_own(process);
        let working = if is_own { self.majority.working() } else { here };
        if working >= majority && is_own {
            return format!(
                "{name} goes on: {working} of its {size} members are there, {majority} have to; start it again with the same command"
            );
        }
        if working >= majority {
            return format!(
                "{here} of the {size} members of {name} are there, a majority; `stentor leader show` says whether it works; start it \
                 again with the same command"
            );
        }
        let without =
            if is_own && !self.majority.remembers() { "; this process waits for the group's state itself" } else { "" };
        let (idle, has) = if is_own { (self.idle_members(), "work") } else { (String::new(), "are there") };
        let has = if idle.is_empty() && without.is_empty() { "are there" } else { has };
        format!(
            "{name} has lost its majority: {working} of its {size} members {has}, {majority} have to, and nothing is delivered \
             until then{idle}{without}; start it again with the same command"
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
