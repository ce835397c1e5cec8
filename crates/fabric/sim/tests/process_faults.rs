//! One fault at a time, as its victims and their peers observe it.

mod common;

use common::{SimBed, bed};
use stentor_fabric::memory::Ordering;
use stentor_fabric::{
    Access, Completion, Event, Fabric, ProcessId, Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec, RemoteRegion,
    RemoteSpan, Service, Source, Span, Status, Verb, WorkRequest,
};
use stentor_fabric_conformance::Testbed;
use stentor_fabric_sim::{Delay, Fault, NetworkModel, SimFabric};

const A: ProcessId = ProcessId(0);
const B: ProcessId = ProcessId(1);
const RETRY_NS: u64 = 1_000_000;

/// Two connected processes. B has a region for A.
struct Pair {
    bed: SimBed,
    a: QpId,
    b: QpId,
    region: RegionId,
    local: RegionId,
    remote: RemoteRegion,
}

fn join(fabric: &mut SimFabric, peer: ProcessId) -> (QpId, RegionId, RegionId) {
    let me = fabric.me();
    let region = fabric.register(RegionSpec { purpose: Purpose(1), writer: peer, bytes: 64 }).unwrap();
    let local = fabric.register(RegionSpec { purpose: Purpose(2), writer: me, bytes: 64 }).unwrap();
    fabric.grant(region, peer, Access::Atomic).unwrap();
    (fabric.connect(peer, Service(0), QpConfig::reliable(16, 16)).unwrap(), region, local)
}

fn pair(model: &NetworkModel) -> Pair {
    let mut bed = bed(2, 3, model);
    let (a, _, local) = join(bed.fabric(A), B);
    let (b, region, _) = join(bed.fabric(B), A);
    bed.world.advance(100_000);
    let remote = bed.fabric(A).resolve(B, Purpose(1)).unwrap();
    let mut pair = Pair { bed, a, b, region, local, remote };
    assert_eq!(pair.events(A), [Event::Connected { qp: a, peer: B }]);
    assert_eq!(pair.events(B), [Event::Connected { qp: b, peer: A }]);
    pair
}

impl Pair {
    fn post(&mut self, id: u64, verb: Verb<'_>) {
        let qp = self.a;
        let fabric = self.bed.fabric(A);
        fabric.post(qp, WorkRequest { id, verb, signalled: true }).unwrap();
        fabric.flush();
    }

    fn write(&mut self, value: u64) {
        let target = RemoteSpan { region: self.remote, offset: 0 };
        self.post(value, Verb::Write { source: Source::Inline(&value.to_ne_bytes()), target });
    }

    fn pass(&mut self, ns: u64) {
        self.bed.world.advance(ns);
    }

    fn events(&mut self, process: ProcessId) -> Vec<Event> {
        std::iter::from_fn(|| self.bed.fabric(process).next_event()).collect()
    }

    fn statuses(&mut self) -> Vec<(u64, Status)> {
        let mut out = [Completion::BLANK; 16];
        let count = self.bed.fabric(A).poll(&mut out);
        out[..count].iter().map(|completion| (completion.id, completion.status)).collect()
    }

    fn seen(&mut self) -> u64 {
        let region = self.region;
        self.bed.fabric(B).memory(region)[0].load(Ordering::Acquire)
    }
}

#[test]
fn crash_loses_memory_and_peers_notice_after_their_retries() {
    let mut pair = pair(&NetworkModel::calm());
    pair.bed.world.crash(B);
    pair.write(1);
    pair.write(2);
    pair.pass(RETRY_NS / 2);
    assert_eq!((pair.statuses(), pair.bed.fabric(A).state(QpId(0))), (vec![], QpState::Ready));
    pair.pass(RETRY_NS);
    assert_eq!(pair.statuses(), [(1, Status::RetryExceeded), (2, Status::Flushed)]);
    assert_eq!(pair.events(A), [Event::Disconnected { qp: pair.a, peer: B }]);
    let dead = pair.bed.fabric(B);
    assert!(dead.next_event().is_none());
    assert_eq!(dead.register(RegionSpec { purpose: Purpose(9), writer: A, bytes: 64 }).ok(), None);
}

#[test]
fn a_restarted_process_has_empty_memory_and_the_old_keys_are_dead() {
    let mut pair = pair(&NetworkModel::calm());
    pair.write(7);
    pair.pass(20_000);
    assert_eq!(pair.statuses(), [(7, Status::Success)]);
    let mut fresh = pair.bed.world.restart(B);
    let (_, region, _) = join(&mut fresh, A);
    pair.pass(2 * RETRY_NS);
    assert_eq!(pair.events(A), [Event::Disconnected { qp: pair.a, peer: B }]);
    pair.bed.fabric(A).reset(QpId(0)).unwrap();
    pair.pass(100_000);
    assert_eq!(pair.events(A), [Event::Connected { qp: pair.a, peer: B }]);
    assert_eq!(fresh.memory(region)[0].load(Ordering::Acquire), 0);
    let old = std::mem::replace(&mut pair.remote, pair.bed.fabric(A).resolve(B, Purpose(1)).unwrap());
    assert_ne!(old.key, pair.remote.key);
    pair.write(8);
    pair.pass(20_000);
    assert_eq!(fresh.memory(region)[0].load(Ordering::Acquire), 8);
    pair.remote = old;
    pair.write(9);
    pair.pass(20_000);
    assert_eq!(pair.statuses(), [(8, Status::Success), (9, Status::RemoteAccess)]);
    assert_eq!(fresh.memory(region)[0].load(Ordering::Acquire), 8);
}

#[test]
fn crash_at_a_post_transmits_only_a_prefix_of_the_posts() {
    let mut landed = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let model = NetworkModel::calm();
        let mut pair = Pair { bed: bed(2, seed, &model), ..pair(&model) };
        let (a, _, _) = join(pair.bed.fabric(A), B);
        let (_, region, _) = join(pair.bed.fabric(B), A);
        pair.pass(100_000);
        (pair.a, pair.region) = (a, region);
        pair.remote = pair.bed.fabric(A).resolve(B, Purpose(1)).unwrap();
        pair.bed.world.inject(0, Fault::CrashAtPost { process: A, post: 3 });
        pair.pass(0);
        for value in 1..=6_u64 {
            let target = RemoteSpan { region: pair.remote, offset: 0 };
            let verb = Verb::Write { source: Source::Inline(&value.to_ne_bytes()), target };
            pair.bed.fabric(A).post(a, WorkRequest { id: value, verb, signalled: true }).unwrap();
        }
        pair.bed.fabric(A).flush();
        pair.pass(50_000);
        assert!(!pair.bed.world.is_up(A));
        landed.insert(pair.seen());
    }
    assert_eq!(landed.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn a_stalled_process_does_not_run_but_its_nic_serves_its_memory() {
    let mut pair = pair(&NetworkModel::calm());
    let begin = pair.bed.world.now_ns();
    pair.bed.world.inject(begin, Fault::Stall { process: B, for_ns: 500_000 });
    pair.pass(1);
    pair.write(5);
    let local = Span { region: pair.local, offset: 0, bytes: 8 };
    pair.post(6, Verb::Read { local, remote: RemoteSpan { region: pair.remote, offset: 0 } });
    let mut first_step = None;
    while let Some(due) = pair.bed.world.next(begin + 1_000_000) {
        if let stentor_fabric_sim::Due::Step { process: B, now_ns } = due {
            first_step.get_or_insert(now_ns);
        }
    }
    assert_eq!(first_step, Some(begin + 500_000));
    assert_eq!(pair.statuses(), [(5, Status::Success), (6, Status::Success)]);
    let local = pair.local;
    assert_eq!(pair.bed.fabric(A).memory(local)[0].load(Ordering::Acquire), 5);
}

#[test]
fn a_short_partition_only_delays() {
    let mut pair = pair(&NetworkModel::calm());
    let now = pair.bed.world.now_ns();
    pair.bed.world.inject(now, Fault::Partition { side: vec![A], one_way: false, for_ns: RETRY_NS / 2 });
    pair.pass(1);
    for value in 1..=3 {
        pair.write(value);
    }
    pair.pass(RETRY_NS / 4);
    assert_eq!((pair.seen(), pair.statuses()), (0, vec![]));
    pair.pass(RETRY_NS / 2);
    assert_eq!(pair.seen(), 3);
    assert_eq!(pair.statuses(), [(1, Status::Success), (2, Status::Success), (3, Status::Success)]);
    pair.pass(2 * RETRY_NS);
    assert_eq!((pair.events(A), pair.events(B)), (vec![], vec![]), "nobody was suspected");
}

#[test]
fn a_long_one_way_partition_of_the_answers_fails_a_write_that_landed() {
    let mut pair = pair(&NetworkModel::calm());
    let now = pair.bed.world.now_ns();
    pair.bed.world.inject(now, Fault::Cut { from: B, to: A, for_ns: 3 * RETRY_NS });
    pair.pass(1);
    pair.write(4);
    pair.pass(2 * RETRY_NS);
    assert_eq!(pair.seen(), 4, "the way to B is open");
    assert_eq!(pair.statuses(), [(4, Status::RetryExceeded)], "a suspicion, and a false one");
    // B notices that the queue pair broke. After resets both ends work again.
    assert_eq!(pair.events(B), [Event::Disconnected { qp: pair.b, peer: A }]);
    let (a, b) = (pair.a, pair.b);
    pair.bed.fabric(A).reset(a).unwrap();
    pair.bed.fabric(B).reset(b).unwrap();
    pair.pass(RETRY_NS / 2);
    assert_eq!(pair.bed.fabric(A).state(a), QpState::Connecting, "not through a partition");
    pair.pass(RETRY_NS);
    assert_eq!(pair.bed.fabric(A).state(a), QpState::Ready);
}

#[test]
fn planned_faults_do_not_happen_after_stop_faults() {
    let mut pair = pair(&NetworkModel::calm());
    let now = pair.bed.world.now_ns();
    pair.bed.world.inject(now, Fault::Partition { side: vec![B], one_way: false, for_ns: u64::MAX / 2 });
    pair.bed.world.inject(now + 10, Fault::Crash(A));
    pair.pass(1);
    pair.write(1);
    pair.bed.world.stop_faults();
    pair.pass(50_000);
    assert!(pair.bed.world.is_up(A));
    assert_eq!((pair.seen(), pair.statuses()), (1, vec![(1, Status::Success)]));
}

#[test]
fn a_clock_jumps_for_one_process_only() {
    let pair = pair(&NetworkModel::uniform(1_000));
    let world = &pair.bed.world;
    let now = world.now_ns();
    world.inject(now, Fault::ClockJump { process: B, by_ns: -50_000 });
    world.wake_at(A, now + 10);
    world.wake_at(B, now + 10);
    let mut clocks = Vec::new();
    while let Some(stentor_fabric_sim::Due::Step { process, now_ns }) = world.next(now + 10) {
        clocks.push((process, now_ns));
    }
    assert_eq!(clocks, [(A, now + 10), (B, now + 10 - 50_000)]);
}

#[test]
fn bandwidth_and_nic_time_delay_messages() {
    let mut model = NetworkModel::uniform(1_000);
    (model.nic_ns, model.ps_per_byte) = (100, 1_000);
    let mut pair = pair(&model);
    // Each of three writes of 8 bytes takes 100 ns in the NIC, 8 ns on the link, and 1000 ns of propagation.
    for value in 1..=3 {
        pair.write(value);
    }
    for (pass, seen) in [(1_107, 0), (1, 1), (99, 1), (1, 2), (99, 2), (1, 3)] {
        pair.pass(pass);
        assert_eq!(pair.seen(), seen);
    }
}

#[test]
fn success_may_precede_visibility_but_not_for_later_reads() {
    let mut model = NetworkModel::uniform(1_000);
    (model.landing, model.early_completions) = (Delay::exactly(100_000), true);
    let mut pair = pair(&model);
    pair.write(9);
    pair.pass(2_000);
    assert_eq!((pair.statuses(), pair.seen()), (vec![(9, Status::Success)], 0), "early");
    let local = Span { region: pair.local, offset: 0, bytes: 8 };
    pair.post(10, Verb::Read { local, remote: RemoteSpan { region: pair.remote, offset: 0 } });
    let add = Verb::FetchAdd {
        local: Span { offset: 8, ..local },
        remote: RemoteSpan { region: pair.remote, offset: 0 },
        add: 1,
    };
    pair.post(11, add);
    pair.pass(103_000);
    assert_eq!(pair.statuses(), [(10, Status::Success), (11, Status::Success)]);
    let words =
        pair.bed.fabric(A).memory(pair.local)[..2].iter().map(|w| w.load(Ordering::Acquire)).collect::<Vec<_>>();
    assert_eq!(words, [9, 9]);
    pair.pass(200_000);
    assert_eq!(pair.seen(), 10);
}

#[test]
fn early_reuse_of_a_source_is_visible() {
    let mut model = NetworkModel::calm();
    model.late_source_reads = stentor_fabric_sim::MILLION;
    let mut pair = pair(&model);
    let local = pair.local;
    pair.bed.fabric(A).memory(local)[0].store(1, Ordering::Release);
    let span = Span { region: local, offset: 0, bytes: 8 };
    pair.post(1, Verb::Write { source: Source::Region(span), target: RemoteSpan { region: pair.remote, offset: 0 } });
    pair.bed.fabric(A).memory(local)[0].store(2, Ordering::Release);
    pair.pass(10_000);
    assert_eq!(pair.seen(), 2, "the mistake of the caller shows");
}
