//! What a running node tells on standard error.

use std::time::{Duration, Instant};

use stentor::runtime::{Hosted, Member, Plan};
use stentor_fabric::ProcessId;
use stentor_multicast::{Ballot, Place, Replica};

use crate::output::Output;

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
    ready: bool,
    stranded: bool,
    /// What the group waits for, since when, and whether that was said.
    waits: (String, Instant, bool),
    /// The ballot that was told last.
    ballot: Ballot,
    joining: bool,
    refusal: String,
    looked: Instant,
    /// When a member came or went last.
    changed: Instant,
}

impl<'a> Talk<'a> {
    pub(super) fn new(plan: &'a Plan, me: ProcessId, output: Output) -> Self {
        let members = (0..plan.topology().all_members() as u16).map(ProcessId).filter(|process| *process != me);
        Talk {
            plan,
            output,
            name: plan.name(me),
            peers: members.map(|process| Peer { process, pid: None, here: false, seen: false }).collect(),
            ready: false,
            stranded: false,
            waits: (String::new(), Instant::now(), false),
            ballot: Ballot::NONE,
            joining: true,
            refusal: String::new(),
            looked: Instant::now(),
            changed: Instant::now(),
        }
    }

    /// Looks at a member that has nothing to do.
    pub(super) fn idle<F: Hosted>(&mut self, member: &mut Member<F>) {
        // Connected is not enough: who has not its group's state yet takes over what the others deliver meanwhile.
        let connects = !self.ready && member.is_connected() && member.replica().counts_in().is_some();
        if connects {
            self.ready = true;
            let leads = if member.replica().is_leader() { ", leads its group" } else { "" };
            self.say(&format!("ready{leads}; all members are connected"));
        }
        while let Some(refusal) = member.fabric_mut().next_refusal() {
            if refusal != self.refusal {
                self.say(&format!("refused a connection: {refusal}"));
                self.refusal = refusal;
            }
        }
        if let Some(trouble) = member.fabric_mut().next_trouble() {
            self.say(&trouble);
        }
        // Whoever is lost right after that was there.
        if connects || self.looked.elapsed() >= LOOK {
            let late = self.looked.elapsed() > CONNECTING / 3;
            self.looked = Instant::now();
            let fabric = member.fabric();
            self.look(|process| (fabric.sees(process), fabric.pid_of(process)), member.is_connected());
            self.tell_what_the_group_waits_for(member.replica(), late);
        }
    }

    /// A majority of the group has no memory of it: then nobody is taken in until all have none. `late`: this process did
    /// not run for a while, and may not have heard what others said meanwhile.
    fn tell_what_the_group_waits_for(&mut self, replica: &Replica, late: bool) {
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
                (absent, _) => format!("{name} begins when all its members are there: start {}", names(absent)),
            }
        };
        if late || waits != self.waits.0 {
            self.waits = (waits, Instant::now(), false);
        } else if !waits.is_empty() && !self.waits.2 && self.waits.1.elapsed() > CONNECTING {
            self.say(&waits);
            self.waits.2 = true;
        }
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
        self.output.note(&format!("{}: {text}", self.name));
    }

    fn look(&mut self, look: impl Fn(ProcessId) -> (bool, Option<i32>), connected: bool) {
        for at in 0..self.peers.len() {
            let Peer { process, pid: old, here: was, seen } = self.peers[at];
            let (here, pid) = look(process);
            if (here, pid.or(old)) == (was, old) {
                continue;
            }
            self.changed = Instant::now();
            self.peers[at] = Peer { process, pid: pid.or(old), here, seen: true };
            let name = self.plan.name(process);
            let consequence = || self.consequence(process);
            match (here, old, pid) {
                (false, Some(old), _) => self.say(&format!("lost {name}, pid {old}; {}", consequence())),
                (false, None, _) if seen => self.say(&format!("lost {name}; {}", consequence())),
                (true, _, Some(new)) if seen => self.say(&format!("{name} was started again, as pid {new}")),
                (true, _, None) if seen => self.say(&format!("{name} is there again")),
                _ => {}
            }
        }
        let all_here = self.peers.iter().all(|peer| peer.here);
        if !self.ready && !connected && !self.stranded && all_here && self.changed.elapsed() > CONNECTING {
            self.stranded = true;
            self.say("all members are there, but not all connect: look at what they say");
        }
    }

    /// What it means that a member is gone.
    fn consequence(&self, process: ProcessId) -> String {
        let Some(Place::Member { group, .. }) = self.plan.topology().place(process) else { return String::new() };
        let name = self.plan.config().groups()[usize::from(group.0)].id();
        format!("{name} goes on while it has a majority; start it again with the same command")
    }
}
