//! The nemesis alone, against processes that only write. It injects every fault that it claims, within its budget.

use std::sync::Arc;
use std::time::Duration;

use stentor_election::{Audit, Change, Election};
use stentor_fabric::{
    Access, Fabric, ProcessId, Purpose, QpConfig, QpId, QpState, RegionSpec, RemoteSpan, Service, Source, Verb,
    WorkRequest,
};
use stentor_fabric_sim::{Due, NetworkModel, SimConfig, SimFabric, World};
use stentor_multicast::{ClientId, Topology};
use stentor_simulation::{Nemesis, NemesisCounts, Profile, Told};

/// Time that a restarted process spends without memory, in nanoseconds.
const WITHOUT_MEMORY_NS: u64 = 40_000;
const PAUSE_NS: u64 = 10_000;

/// A process that writes to its neighbour and polls its election.
struct Process {
    fabric: SimFabric,
    qp: QpId,
    next: ProcessId,
    election: Option<(Told, Audit)>,
    named: Option<Change>,
    synced_at: Option<u64>,
}

struct Bed {
    world: World,
    topology: Arc<Topology>,
    nemesis: Nemesis,
    processes: Vec<Option<Process>>,
    most_failed: Vec<usize>,
    /// `true` after a client ended because a group continues without its state.
    told: bool,
}

impl Bed {
    fn new(seed: u64, profile: Profile) -> Bed {
        let topology = Arc::new(Topology::new(&[3, 5, 1], 2).expect("a possible cluster"));
        let network = NetworkModel { retry_ns: 200_000, ..NetworkModel::adversarial() };
        let world = World::new(SimConfig::new(topology.processes(), seed, network));
        let nemesis = Nemesis::new(seed, profile, &topology, &world);
        let mut bed = Bed { world, topology, nemesis, processes: Vec::new(), most_failed: vec![0; 3], told: false };
        for process in 0..bed.topology.processes() as u16 {
            let fabric = bed.world.fabric(ProcessId(process));
            let process = bed.process(fabric, None);
            bed.processes.push(Some(process));
        }
        bed
    }

    fn process(&self, mut fabric: SimFabric, synced_at: Option<u64>) -> Process {
        let (me, count) = (fabric.me(), self.topology.processes() as u16);
        let (next, last) = (ProcessId((me.0 + 1) % count), ProcessId((me.0 + count - 1) % count));
        let spec = RegionSpec { purpose: Purpose(1), writer: last, bytes: 64 };
        let region = fabric.register(spec).expect("a region");
        fabric.grant(region, last, Access::Write).expect("a grant");
        for peer in [last, next] {
            fabric.connect(peer, Service(1), QpConfig::reliable(64, 0)).expect("a queue pair");
        }
        let election = (me.index() < self.topology.all_members()).then(|| (self.nemesis.election(me), Audit::new(me)));
        Process { fabric, qp: QpId(1), next, election, named: None, synced_at }
    }

    fn run(&mut self) -> NemesisCounts {
        loop {
            if !self.nemesis.has_stopped() && self.world.now_ns() > Nemesis::UNTIL_NS + 1_000_000 {
                self.nemesis.stop(self.world.now_ns());
            }
            let until = if self.nemesis.has_stopped() { 8_000_000 } else { Nemesis::UNTIL_NS + 1_000_001 };
            let acts = self.nemesis.next_at().filter(|at| *at <= until);
            match self.world.next(acts.unwrap_or(until)) {
                Some(due) => self.due(&due),
                None if acts.is_some() => self.nemesis.act(),
                None if self.nemesis.has_stopped() => return self.nemesis.counts(),
                None => self.world.advance(until - self.world.now_ns()),
            }
            self.count_failed();
        }
    }

    fn due(&mut self, due: &Due) {
        match due {
            Due::Step { process, now_ns } => {
                let worked = self.step(*process, *now_ns);
                self.world.stepped(*process, worked);
                self.world.wake_at(*process, now_ns + PAUSE_NS);
            }
            Due::Crashed(process) => {
                self.processes[process.index()] = None;
                self.nemesis.crashed(self.world.now_ns(), *process);
            }
            Due::Restart(process) => {
                let fabric = self.world.restart(*process);
                let now = self.world.now_ns();
                let member = process.index() < self.topology.all_members();
                self.nemesis.restarted(now, *process);
                if !member {
                    // No protocol delays a client of this test, so it begins at once.
                    self.nemesis.begun(now);
                }
                let process = self.process(fabric, member.then_some(now + WITHOUT_MEMORY_NS));
                let at = process.fabric.me().index();
                self.processes[at] = Some(process);
            }
        }
    }

    fn step(&mut self, at: ProcessId, now: u64) -> bool {
        let Some(process) = &mut self.processes[at.index()] else { return false };
        while process.fabric.next_event().is_some() {}
        if process.fabric.state(process.qp) == QpState::Ready
            && let Some(region) = process.fabric.resolve(process.next, Purpose(1))
        {
            let verb = Verb::Write { source: Source::Inline(&[7; 8]), target: RemoteSpan { region, offset: 0 } };
            // A full queue is emptied by the next poll.
            let _ = process.fabric.post(process.qp, WorkRequest { id: 1, verb, signalled: true });
            process.fabric.flush();
        }
        let mut completions = [stentor_fabric::Completion::BLANK; 8];
        process.fabric.poll(&mut completions);
        if let Some((election, audit)) = &mut process.election {
            while let Some(change) = election.poll(Duration::from_nanos(now)) {
                audit.check(change).expect("the rules of the stream");
                process.named = Some(change);
            }
        }
        if process.synced_at.is_some_and(|synced_at| now >= synced_at) {
            process.synced_at = None;
            self.nemesis.synced(now, at, true);
        }
        false
    }

    /// Counts the members of each group that are down or without memory. When for the first time this count includes
    /// all members of a group, a client ends, because a group continues without its state.
    fn count_failed(&mut self) {
        for group in self.topology.group_ids() {
            let failed = self.topology.members(group).filter(|member| {
                let process = &self.processes[member.index()];
                process.as_ref().is_none_or(|process| process.synced_at.is_some())
            });
            let failed = failed.count();
            let most = &mut self.most_failed[usize::from(group.0)];
            *most = (*most).max(failed);
            if failed == self.topology.size(group) && !std::mem::replace(&mut self.told, true) {
                self.nemesis.lose(self.world.now_ns(), self.topology.client_process(ClientId(0)));
            }
        }
    }
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn every_claim_happens_and_no_budget_is_exceeded() {
    for profile in Profile::ALL {
        let mut counts = NemesisCounts::default();
        let mut most = [0; 3];
        for seed in 0..30 {
            let mut bed = Bed::new(seed, profile);
            counts.add(&bed.run());
            for (most, failed) in most.iter_mut().zip(&bed.most_failed) {
                *most = (*most).max(*failed);
            }
            for (at, process) in bed.processes.iter().enumerate() {
                let gone = bed.nemesis.is_gone(ProcessId(at as u16));
                assert_eq!(process.is_none(), gone, "seed {seed}: only clients that never restart are down");
            }
            for group in bed.topology.group_ids() {
                let named = bed.topology.members(group).map(|member| {
                    let named = bed.processes[member.index()].as_ref().and_then(|process| process.named);
                    named.map(|change| match change {
                        Change::Leader { process, .. } => process,
                        other => panic!("seed {seed}: {member} last received {other}"),
                    })
                });
                let mut named: Vec<Option<ProcessId>> = named.collect();
                named.dedup();
                assert_eq!(named.len(), 1, "seed {seed}: one leader of {group:?} in the end: {:#?}", bed.nemesis.log());
            }
        }
        let named = counts.named();
        let unseen: Vec<_> = profile
            .claims()
            .into_iter()
            .filter(|claim| named.iter().any(|(name, count)| name == claim && *count == 0))
            .collect();
        println!("{profile}: {counts:?}; most failed at once: {most:?}");
        assert!(unseen.is_empty(), "{profile}: {unseen:?} of {counts:?}");
        if profile == Profile::Forgets {
            // This profile makes whole groups lose their memory.
            continue;
        }
        assert!(most[0] <= 1 && most[1] <= 2 && most[2] == 0, "{profile}: {most:?}");
        let crashes =
            matches!(profile, Profile::Failover | Profile::All | Profile::Rejoins | Profile::Clocks | Profile::States);
        assert_eq!(most[1] == 2, crashes, "{profile}: two of five fail at once: {most:?}");
    }
}

#[test]
fn a_seed_is_deterministic() {
    for seed in [3, 4] {
        let (mut one, mut other) = (Bed::new(seed, Profile::All), Bed::new(seed, Profile::All));
        assert_eq!(one.run(), other.run());
        assert_eq!(one.nemesis.log(), other.nemesis.log());
        assert!(!one.nemesis.log().is_empty());
    }
}
