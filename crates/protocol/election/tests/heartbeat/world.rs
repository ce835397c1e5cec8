//! A group of processes that read each other's memory, step by step. A step is one microsecond.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use stentor_election::{Audit, Beat, Change, Claim, Election, Heartbeat, HeartbeatConfig, Kind, Mutant};
use stentor_fabric::ProcessId;

/// Parameters of the group.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) members: usize,
    /// Steps between two polls of one process.
    pub(crate) interval: u64,
    pub(crate) timeout_min: u64,
    pub(crate) timeout_max: u64,
    pub(crate) quorum: Option<usize>,
    /// Age of a reading, in steps.
    pub(crate) latency: usize,
    /// `true` if processes still know after a crash under which epochs they led.
    pub(crate) stable: bool,
    pub(crate) mutant: Mutant,
}

impl Setup {
    pub(crate) fn new(members: usize, mutant: Mutant) -> Self {
        Setup { members, interval: 1, timeout_min: 4, timeout_max: 64, quorum: None, latency: 1, stable: false, mutant }
    }
}

struct Node {
    heartbeat: Option<Heartbeat>,
    incarnation: u64,
    /// Beats that the others read, newest last.
    memory: VecDeque<Beat>,
    audit: Audit,
    log: Vec<(u64, Change)>,
    stopped_until: u64,
    /// Offset of the process's clock.
    clock: u64,
    /// Steps between two polls of the process.
    pace: u64,
    polled: u64,
}

pub(crate) struct World {
    setup: Setup,
    nodes: Vec<Node>,
    /// `cut[reader][owner]` is `true` if the reader cannot read the owner.
    cut: Vec<Vec<bool>>,
    reigns: BTreeSet<(u64, ProcessId)>,
    pub(crate) now: u64,
    pub(crate) broken: Option<String>,
}

const NOTHING: Beat = Beat { incarnation: 0, counter: 0, claim: 0, doubt: 0, stands: 0, sees: 0 };

impl World {
    /// Creates a group in which no process runs yet.
    pub(crate) fn empty(setup: Setup) -> Self {
        let node = |n: usize| Node {
            heartbeat: None,
            incarnation: 0,
            memory: std::iter::repeat_n(NOTHING, setup.latency + 1).collect(),
            audit: Audit::new(ProcessId(n as u16)),
            log: Vec::new(),
            stopped_until: 0,
            clock: 0,
            pace: setup.interval,
            polled: n as u64 % setup.interval,
        };
        World {
            nodes: (0..setup.members).map(node).collect(),
            cut: vec![vec![false; setup.members]; setup.members],
            reigns: BTreeSet::new(),
            now: 0,
            broken: None,
            setup,
        }
    }

    /// Creates a group whose processes start at once, and runs it for four longest timeouts, which suffice to elect a
    /// leader.
    pub(crate) fn settled(setup: Setup) -> Self {
        let mut world = World::empty(setup);
        (0..world.nodes.len()).for_each(|n| world.start(n));
        world.run(4 * world.setup.timeout_max);
        world
    }

    /// Starts a new life of a process.
    pub(crate) fn start(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        node.incarnation += 1;
        let members: Vec<_> = (0..self.setup.members as u16).map(ProcessId).collect();
        let micros = Duration::from_micros;
        let mut config = HeartbeatConfig::new(members[n], &members, micros(self.setup.interval));
        config.incarnation = node.incarnation;
        (config.timeout_min, config.timeout_max) = (micros(self.setup.timeout_min), micros(self.setup.timeout_max));
        (config.quorum, config.mutant) = (self.setup.quorum, self.setup.mutant);
        if self.setup.stable {
            let own = self.reigns.iter().filter(|(_, process)| *process == members[n]);
            config.floor = own.map(|(epoch, _)| *epoch).max().unwrap_or(0);
        }
        node.heartbeat = Some(Heartbeat::new(config).expect("a valid configuration"));
        node.audit = Audit::new(members[n]);
        node.log.clear();
    }

    pub(crate) fn crash(&mut self, n: usize) {
        self.nodes[n].heartbeat = None;
    }

    pub(crate) fn runs(&self, n: usize) -> bool {
        self.nodes[n].heartbeat.is_some()
    }

    /// Stops scheduling the process for `steps` steps; the clock continues.
    pub(crate) fn stop_for(&mut self, n: usize, steps: u64) {
        self.nodes[n].stopped_until = self.now + steps;
    }

    pub(crate) fn jump_clock(&mut self, n: usize, steps: u64) {
        self.nodes[n].clock = self.nodes[n].clock.wrapping_add(steps);
    }

    pub(crate) fn pace(&mut self, n: usize, steps: u64) {
        self.nodes[n].pace = steps;
    }

    /// Sets whether `reader` can read `owner`.
    pub(crate) fn link(&mut self, reader: usize, owner: usize, works: bool) {
        self.cut[reader][owner] = !works;
    }

    pub(crate) fn isolate(&mut self, n: usize, works: bool) {
        for other in 0..self.nodes.len() {
            self.link(n, other, works);
            self.link(other, n, works);
        }
    }

    pub(crate) fn heartbeat(&mut self, n: usize) -> Option<&mut Heartbeat> {
        self.nodes[n].heartbeat.as_mut()
    }

    /// Overwrites the newest beat of a process.
    pub(crate) fn scribble(&mut self, n: usize, beat: Beat) {
        *self.nodes[n].memory.back_mut().expect("a newest beat") = beat;
    }

    pub(crate) fn memory(&self, n: usize) -> Beat {
        *self.nodes[n].memory.back().expect("a newest beat")
    }

    pub(crate) fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            self.step();
        }
    }

    pub(crate) fn step(&mut self) {
        self.now += 1;
        for n in 0..self.nodes.len() {
            let node = &self.nodes[n];
            let due = node.stopped_until <= self.now && self.now >= node.polled + node.pace;
            if due && self.runs(n) {
                self.read_all(n);
                self.poll(n);
            }
            let node = &mut self.nodes[n];
            let newest = node.heartbeat.as_ref().filter(|_| due).map(Heartbeat::beat);
            let newest = newest.unwrap_or(*node.memory.back().expect("a newest beat"));
            node.memory.pop_front();
            node.memory.push_back(newest);
        }
    }

    fn read_all(&mut self, n: usize) {
        for owner in 0..self.nodes.len() {
            if owner != n && !self.cut[n][owner] {
                let beat = *self.nodes[owner].memory.front().expect("an old beat");
                if let Some(heartbeat) = &mut self.nodes[n].heartbeat {
                    // Invalid beats are refused; other tests check that.
                    let _ = heartbeat.observe(ProcessId(owner as u16), &beat);
                }
            }
        }
    }

    fn poll(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        node.polled = self.now;
        let Some(heartbeat) = &mut node.heartbeat else { return };
        let clock = Duration::from_micros(self.now.wrapping_add(node.clock));
        while let Some(change) = heartbeat.poll(clock) {
            if let Err(error) = node.audit.check(change) {
                self.broken.get_or_insert(format!("step {}: p{n}: {error}; {change} after {:?}", self.now, node.log));
            }
            node.log.push((self.now, change));
            if let Change::Leader { epoch, process } = change
                && usize::from(process.0) == n
                && !self.reigns.insert((epoch, process))
            {
                self.broken.get_or_insert(format!("step {}: {process} leads twice under epoch {epoch}", self.now));
            }
        }
    }

    /// Returns the leader in the view of one process.
    pub(crate) fn leader(&self, n: usize) -> Option<(u64, ProcessId)> {
        self.nodes[n].audit.leader()
    }

    pub(crate) fn log(&self, n: usize) -> &[(u64, Change)] {
        &self.nodes[n].log
    }

    /// Returns the number of reigns that began, in all lives together.
    pub(crate) fn reigns(&self) -> usize {
        self.reigns.len()
    }

    /// Returns the leader on which all running processes agree.
    pub(crate) fn agreed(&self) -> Option<(u64, ProcessId)> {
        let mut running = (0..self.nodes.len()).filter(|n| self.runs(*n));
        let leader = self.leader(running.next()?)?;
        (running.all(|n| self.leader(n) == Some(leader)) && self.runs(leader.1.0.into())).then_some(leader)
    }

    /// Runs until all running processes agree on a leader. Returns the number of steps.
    pub(crate) fn until_agreed(&mut self, at_most: u64) -> Result<u64, String> {
        let begin = self.now;
        while self.agreed().is_none() {
            if self.now - begin >= at_most {
                let views: Vec<_> = (0..self.nodes.len()).map(|n| (self.runs(n), self.leader(n))).collect();
                return Err(format!("no common leader after {at_most} steps: {views:?}"));
            }
            self.step();
        }
        Ok(self.now - begin)
    }

    /// Checks that no rule has been broken so far.
    pub(crate) fn check_rules(&self) -> Result<(), String> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// Returns the changes of all processes in their present lives since a step.
    pub(crate) fn changes_since(&self, step: u64) -> Vec<(usize, u64, Change)> {
        let of = |n: usize| self.log(n).iter().filter(move |(at, _)| *at > step).map(move |(at, c)| (n, *at, *c));
        (0..self.nodes.len()).flat_map(of).collect()
    }
}

/// Returns a settled claim as a word.
pub(crate) fn claim(epoch: u64, process: u16) -> u64 {
    Claim { epoch, kind: Kind::Settled, process: ProcessId(process) }.to_word()
}
