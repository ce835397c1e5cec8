//! Random runs: a phase with faults, then a phase without faults in which everything must be delivered.

use std::collections::HashMap;

use stentor_multicast::{GroupId, Mutant, Replica, Variant};
use stentor_testutil::SplitMix64;

use super::cluster::Cluster;
use super::judge::{complete, safe};
use super::net::Wire;

/// A random generator that draws schedules and messages.
pub(super) struct Random(SplitMix64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(SplitMix64(seed))
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

pub(super) struct Run {
    pub(super) cluster: Cluster,
    pub(super) random: Random,
    /// Weight with which each wire is drawn.
    speeds: HashMap<Wire, u64>,
    messages: u64,
    faults: u64,
    steps: u64,
    pub(super) window: u64,
    /// Number of time entries that are still to be ordered.
    times: u64,
    /// Groups that must order a time entry when the faults are over.
    last_times: Vec<u16>,
    /// Members that do not run for a while.
    pub(super) silent: Vec<u16>,
}

impl Run {
    pub(super) fn new(sizes: &[usize], variant: Variant, mutant: Mutant, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let window = [1_u32, 2, 4][random.below(3) as usize];
        let messages = 2 + random.below(9);
        let faults = 1 + random.below(8);
        let cluster = Cluster::new(sizes, 3, (variant, window, mutant));
        Run {
            cluster,
            random,
            speeds: HashMap::new(),
            messages,
            faults,
            steps: 0,
            window: window.into(),
            times: 0,
            last_times: Vec::new(),
            silent: Vec::new(),
        }
    }

    /// Creates a run in which leaders order time entries.
    fn with_times(sizes: &[usize], variant: Variant, mutant: Mutant, seed: u64) -> Self {
        let mut run = Run::new(sizes, variant, mutant, seed);
        (run.times, run.last_times) = (3 + run.random.below(10), (0..sizes.len() as u16).collect());
        run
    }

    fn run(&mut self) -> Result<(), String> {
        let mut steps = 0;
        while (self.messages > 0 || self.faults > 0 || self.times > 0) && steps < 3000 {
            steps += 1;
            self.move_on()?;
        }
        self.cure()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        safe(&self.cluster.logs(), &self.cluster.sent)
    }

    /// Runs one step of the phase with faults.
    fn move_on(&mut self) -> Result<(), String> {
        self.steps += 1;
        match self.random.below(100) {
            0..=4 if self.faults > 0 => {
                self.faults -= 1;
                self.fault()?;
            }
            5..=12 if self.messages > 0 => self.submit(),
            13..=16 => {
                let process = self.any();
                self.cluster.tick(process)?;
            }
            17..=22 if self.times > 0 => {
                let (process, after) = (self.any(), self.random.below(50));
                if after % 3 == 0 {
                    return self.cluster.set_version_goal(process, after as u32 / 8);
                }
                self.times -= u64::from(self.cluster.order_time(process, after, false)?);
            }
            _ => {
                let until = self.random.one_in(400).then(|| self.random.below(4) as usize);
                self.take(until)?;
            }
        }
        Ok(())
    }

    pub(super) fn any(&mut self) -> u16 {
        self.random.below(self.cluster.members.len() as u64) as u16
    }

    fn submit(&mut self) {
        let groups = self.cluster.topology.groups() as u64;
        let set = 1 + self.random.below((1 << groups) - 1);
        let to: Vec<u16> = (0..groups as u16).filter(|group| set >> group & 1 == 1).collect();
        let client = self.random.below(3) as u16;
        let until = self.random.one_in(12).then(|| self.random.below(5) as usize);
        if self.cluster.submit(client, &to, until) {
            self.messages -= 1;
        }
    }

    /// Passes a message in flight to its receiver. Returns whether there was one that did not have to wait. With
    /// `until`, the receiver crashes in the middle of the resulting writes, if its group tolerates the crash.
    pub(super) fn take(&mut self, until: Option<usize>) -> Result<bool, String> {
        let mut filled = self.cluster.net.filled();
        while !filled.is_empty() {
            let mut weights = Vec::new();
            for wire in &filled {
                let random = &mut self.random;
                weights.push(*self.speeds.entry(*wire).or_insert_with(|| [1, 8, 64][random.below(3) as usize]));
            }
            let mut at = self.random.below(weights.iter().sum());
            let drawn = weights.iter().position(|weight| {
                let here = at < *weight;
                at = at.saturating_sub(*weight);
                here
            });
            let wire = filled.swap_remove(drawn.unwrap_or(0));
            let process = wire.receiver();
            if !self.cluster.is_up(process) || self.silent.contains(&process) {
                continue;
            }
            let crash = until.filter(|_| self.may_fail(process));
            let before = self.cluster.deliveries;
            if !self.cluster.take(wire, crash)? {
                continue;
            }
            if self.cluster.deliveries > before {
                self.check()?;
            }
            if crash.is_some() {
                self.cluster.crash(process);
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Returns whether the group of a process stays within its fault budget without it.
    fn may_fail(&self, process: u16) -> bool {
        let group = self.cluster.members[usize::from(process)].group;
        let size = self.cluster.topology.size(group);
        let failed = self.cluster.failed(group);
        let counts = self.cluster.members[usize::from(process)].replica.as_ref().is_some_and(|r| !r.is_joining());
        failed + usize::from(counts) <= (size - 1) / 2
    }

    pub(super) fn fault(&mut self) -> Result<(), String> {
        let process = self.any();
        match self.random.below(10) {
            0..=2 if self.cluster.is_up(process) && self.may_fail(process) => self.cluster.crash(process),
            3..=4 => {
                let down: Vec<u16> =
                    (0..self.cluster.members.len() as u16).filter(|process| !self.cluster.is_up(*process)).collect();
                if let Some(process) = down.first() {
                    self.cluster.restart(*process)?;
                }
            }
            5..=6 => {
                let until = self.random.one_in(4).then(|| self.random.below(4) as usize);
                let crash = until.filter(|_| self.may_fail(process));
                self.cluster.campaign(process, crash)?;
                if crash.is_some() {
                    self.cluster.crash(process);
                }
            }
            7..=8 => {
                let other = self.any();
                if process != other && self.cluster.is_up(process) && self.cluster.is_up(other) {
                    self.cluster.reconnect(process, other)?;
                }
            }
            _ => {
                let client = self.random.below(3) as u16;
                let group = self.cluster.members[usize::from(process)].group;
                if self.cluster.uncounted_in(client, group) < (self.cluster.topology.size(group) - 1) / 2 {
                    self.cluster.cut_client(client, process);
                }
            }
        }
        self.check()
    }

    /// Restarts all members that are down, processes all messages in flight, makes a member of each group without a
    /// leader campaign, and ticks all members.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        for process in 0..self.cluster.members.len() as u16 {
            if !self.cluster.is_up(process) {
                self.cluster.restart(process)?;
            }
        }
        while self.take(None)? {
            self.steps += 1;
        }
        self.elect()?;
        (0..self.cluster.members.len() as u16).try_for_each(|process| self.cluster.tick(process))
    }

    /// Ends the faults: members that are down restart, and within a bounded number of rounds all messages that must be
    /// delivered are delivered.
    pub(super) fn cure(&mut self) -> Result<(), String> {
        self.cluster.note(|| "the faults are over".to_owned());
        self.silent.clear();
        for process in 0..self.cluster.members.len() as u16 {
            if !self.cluster.is_up(process) {
                self.cluster.restart(process)?;
            }
        }
        for round in 0..60 {
            let mut left = 100_000;
            while self.take(None)? {
                self.steps += 1;
                left -= 1;
                if left == 0 {
                    return Err("the cluster does not come to rest".to_owned());
                }
            }
            self.check()?;
            if self.done().is_ok() && round > 2 {
                if self.last_times.is_empty() {
                    return Ok(());
                }
                self.order_last_times()?;
            }
            if round % 6 == 3 {
                self.elect()?;
            }
            for process in 0..self.cluster.members.len() as u16 {
                self.cluster.tick(process)?;
            }
        }
        if self.last_times.is_empty() { self.done() } else { Err("no time entry is ordered".to_owned()) }
    }

    /// Makes leaders that continue to lead order one more time entry.
    fn order_last_times(&mut self) -> Result<(), String> {
        for process in 0..self.cluster.members.len() as u16 {
            let group = self.cluster.members[usize::from(process)].group.0;
            if self.last_times.contains(&group) && self.cluster.order_time(process, 1_000, true)? {
                self.last_times.retain(|other| *other != group);
            }
        }
        Ok(())
    }

    /// Makes a member of each group without a leader campaign, as a correct election does.
    fn elect(&mut self) -> Result<(), String> {
        for group in 0..self.cluster.topology.groups() as u16 {
            let members: Vec<u16> = self.cluster.topology.members(GroupId(group)).map(|process| process.0).collect();
            let replica = |process: u16| self.cluster.members[usize::from(process)].replica.as_ref();
            let newest = members.iter().filter_map(|process| replica(*process)).map(Replica::promised).max();
            let led = members
                .iter()
                .any(|process| replica(*process).is_some_and(|r| r.is_leader() && Some(r.ballot()) == newest));
            let ready = members.iter().find(|process| replica(**process).is_some_and(|r| !r.is_joining()));
            if !led && let Some(process) = ready.copied() {
                self.cluster.campaign(process, None)?;
            }
        }
        Ok(())
    }

    fn done(&self) -> Result<(), String> {
        let members = self.cluster.members.iter().enumerate();
        let up: Vec<_> = members.map(|(process, member)| (process as u16, member.group, &member.log)).collect();
        complete(&self.cluster.topology, &up, &self.cluster.logs(), &self.cluster.sent)
    }
}

const CLUSTERS: [&[usize]; 6] = [&[3], &[3, 3], &[1, 3], &[5], &[2, 3], &[3, 3, 3]];

#[cfg(feature = "plants")]
fn first_flaw(make: Make, sizes: &[usize], mutant: Mutant, seeds: std::ops::Range<u64>) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| make(sizes, Variant::V2, mutant, seed).run().err().map(|flaw| (seed, flaw)))
}

/// A function that creates a run from group sizes, variant, mutant and seed.
type Make = fn(&[usize], Variant, Mutant, u64) -> Run;

/// Runs every cluster with one variant until `steps` are done.
fn walk(variant: Variant, steps: u64) {
    walk_as(Run::new, variant, steps);
}

fn walk_as(make: Make, variant: Variant, steps: u64) {
    let steps = std::env::var("STENTOR_WALK_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(steps);
    for sizes in CLUSTERS {
        let (mut done, mut seed, mut deliveries, mut versions) = (0, 0, 0, 0);
        while done < steps {
            let mut run = make(sizes, variant, Mutant::None, seed);
            if let Err(flaw) = run.run() {
                let mut again = make(sizes, variant, Mutant::None, seed);
                again.cluster.tracing = true;
                let _ = again.run();
                let tail = again.cluster.trace.len().saturating_sub(4000);
                let path = std::env::temp_dir().join(format!("stentor-walk-{variant:?}.txt"));
                std::fs::write(&path, again.cluster.trace[tail..].join("\n")).expect("the trace can be written");
                panic!("{sizes:?} {variant:?} seed {seed}: {flaw}; the run is in {}", path.display());
            }
            (done, seed, deliveries) = (done + run.steps, seed + 1, deliveries + run.cluster.deliveries);
            versions += run.cluster.version_entries();
        }
        let orders_times = make(sizes, variant, Mutant::None, 0).times > 0;
        assert_eq!(orders_times, versions > 0, "{sizes:?}: version entries are delivered where groups order entries");
        eprintln!(
            "walk {sizes:?} {variant:?}: {seed} runs, {done} steps, {deliveries} deliveries, {versions} of version entries"
        );
    }
}

#[test]
fn v2_survives_faults() {
    walk(Variant::V2, 150_000);
}

#[test]
fn v1_survives_faults() {
    walk(Variant::V1, 50_000);
}

#[test]
fn time_entries_survive_faults() {
    walk_as(Run::with_times, Variant::V2, 100_000);
}

#[test]
fn time_entries_of_v1_survive_faults() {
    walk_as(Run::with_times, Variant::V1, 30_000);
}

/// Different seeds lead to different runs, and the same seed leads to the same run.
#[test]
fn runs_differ() {
    let run = |seed| {
        let mut run = Run::new(&[3, 3], Variant::V2, Mutant::None, seed);
        run.run().expect("the run violates nothing");
        (run.steps, run.cluster.deliveries)
    };
    assert_ne!(run(1), run(2));
    assert_eq!(run(1), run(1), "a run is decided by its seed");
}

/// Finds these mutants. Other tests of this folder find mutants that need a more specific failure.
#[cfg(feature = "plants")]
#[test]
fn mutants_are_found() {
    let mutants = [
        Mutant::AnyVectorIsDense,
        Mutant::FirstPromiseOnly,
        Mutant::CounterBeforeBallot,
        Mutant::StateWithoutBodies,
        Mutant::NotProposedAgain,
        Mutant::TimestampsNotRepeated,
        Mutant::FirstTimestampKept,
        Mutant::VectorNotRepeated,
        Mutant::JoinWithoutBallot,
        Mutant::NotFenced,
        Mutant::QuorumOfConnected,
        Mutant::WaitsForAll,
        Mutant::AckWithoutBody,
        Mutant::VectorUnblocks,
        Mutant::NotBeforeIgnored,
        Mutant::ShareOfAll,
        Mutant::TimeEntryAwaited,
        Mutant::EntryAtOnce,
    ];
    for mutant in mutants {
        let clusters = [&[3][..], &[3, 3], &[3, 3, 3]];
        let of_entries = matches!(mutant, Mutant::TimeEntryAwaited | Mutant::EntryAtOnce);
        let make = if of_entries { Run::with_times } else { Run::new };
        let found = clusters
            .into_iter()
            .find_map(|sizes| first_flaw(make, sizes, mutant, 0..4000).map(|(seed, flaw)| (sizes, seed, flaw)));
        let Some((sizes, seed, flaw)) = found else { panic!("{mutant:?} is not found") };
        eprintln!("walk {mutant:?}: found in {sizes:?} with seed {seed}: {flaw}");
    }
}

/// A leader delivers the last message of a client's share when its ballot begins, and gets no input afterwards.
#[test]
fn messages_waiting_for_a_share_proceed_when_a_ballot_begins() {
    Run::new(&[3], Variant::V2, Mutant::None, 1155).run().expect("the run delivers everything");
}
