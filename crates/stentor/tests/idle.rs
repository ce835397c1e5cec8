//! Measures the cost of an idle cluster in processor time, which hardly depends on the load of the machine.

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use stentor::runtime::{ClusterRuntime, ElectionDriver, Member, Stop, WaitMode, run_member, stateless};
use stentor_fabric::{Fabric, ProcessId};
use stentor_fabric_roce::{NetConfig, RoceConfig, RoceFabric};

use common::cluster;

const MEMBERS: u16 = 3;
/// Time that members have to enter their idle mode.
const SETTLED: Duration = Duration::from_secs(3);
/// Time for which the idle members are measured.
const MEASURED: Duration = Duration::from_secs(4);

fn plan(name: &str) -> ClusterRuntime {
    cluster(name, 1, "", "clients = 1")
}

/// Returns the processor time of this thread.
fn processor_time() -> Duration {
    let path = "/proc/thread-self/schedstat";
    let text = std::fs::read_to_string(path).expect("the kernel counts a thread's time (CONFIG_SCHED_INFO)");
    let first = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(first.unwrap_or_else(|| panic!("{path}: {text:?}")))
}

/// The measurements of one member.
#[derive(Debug, Clone, Copy)]
struct Used {
    /// Share of one processor, in thousandths.
    permille: f64,
    /// Longest time without progress of another member's heartbeat.
    silence: Duration,
}

/// Runs one idle member. The first member whose measurement ended a second ago stops all members.
fn idle<F: Fabric>(plan: &ClusterRuntime, me: ProcessId, mut member: Member<F>, stop: &Stop) -> Used {
    let mut keeper = ElectionDriver::heartbeat(plan, me).expect("the election driver starts");
    let (mut from, mut to, mut silence) = (None, None, Duration::ZERO);
    let round = |member: &mut Member<F>, now: Duration, _: bool| {
        keeper.round(now, member);
        if now >= SETTLED && to.is_none() {
            let (begun, _) = *from.get_or_insert_with(|| (now, processor_time()));
            let others = (0..MEMBERS).map(ProcessId).filter(|other| *other != me);
            let ages = others.filter_map(|other| keeper.heard(other)).map(|heard| now.saturating_sub(heard));
            silence = ages.fold(silence, Duration::max);
            if now - begun >= MEASURED {
                to = Some((now, processor_time()));
            }
        } else if now >= SETTLED + MEASURED + Duration::from_secs(1) {
            stop.stop();
        }
    };
    run_member(&mut member, WaitMode::ADAPTIVE, stop, &mut stateless(|_| ()), round).expect("the member runs");
    let (Some((begun, before)), Some((ended, after))) = (from, to) else { panic!("{me} was not measured") };
    Used { permille: (after - before).as_secs_f64() / (ended - begun).as_secs_f64() * 1000.0, silence }
}

/// Runs idle members and returns their measurements, the cheapest member first.
fn measure<F: Fabric>(plan: &ClusterRuntime, make: impl Fn(ProcessId) -> Member<F> + Sync) -> Vec<Used> {
    let stop = Stop::default();
    let mut used: Vec<Used> = thread::scope(|scope| {
        let (stop, make) = (&stop, &make);
        let members: Vec<_> =
            (0..MEMBERS).map(ProcessId).map(|me| scope.spawn(move || idle(plan, me, make(me), stop))).collect();
        members.into_iter().map(|member| member.join().expect("a member")).collect()
    });
    used.sort_by(|a, b| a.permille.total_cmp(&b.permille));
    println!("{used:?}");
    used
}

/// Asserts that members use at most a hundredth of a processor, and that no heartbeat is late.
///
/// A run counts with the median of its three members, and the median of three runs is compared. The third run is left
/// out if the first two agree.
fn assert_cheap<F: Fabric>(plan: &ClusterRuntime, make: impl Fn(ProcessId) -> Member<F> + Sync) {
    let (mut cheap, mut costly) = (0, Vec::new());
    while cheap < 2 {
        let used = measure(plan, &make);
        let patience = plan.config().election_times().min;
        assert!(used.iter().all(|used| used.silence < patience), "a heartbeat was late: {used:?}");
        if used[1].permille <= 10.0 {
            cheap += 1;
        } else {
            costly.push(used);
        }
        assert!(costly.len() < 2, "thousandths of a processor: {costly:?}");
    }
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn idle_members_on_shared_memory_cost_hardly_anything() {
    let directory: PathBuf = std::env::temp_dir().join(format!("stentor-idle-{}", std::process::id()));
    let plan = plan("idle-shm");
    assert_cheap(&plan, |me| plan.member(me, directory.clone()).expect("the member starts"));
    let _ = std::fs::remove_dir_all(&directory);
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn idle_members_on_roce_cost_hardly_anything() {
    let plan = plan("idle-roce");
    let second = 64 + (std::process::id() % 128) as u8;
    let address = |n: u16| Some(SocketAddr::new(Ipv4Addr::new(127, second, 77, n as u8 + 1).into(), 4791));
    assert_cheap(&plan, |me| {
        let net = NetConfig::new(plan.config().cluster(), me, (0..=MEMBERS).map(address).collect());
        let net = net.key(*b"a key of this test").fingerprint(plan.config().fingerprint());
        plan.member_on(RoceFabric::start(net, RoceConfig::default()).expect("the fabric starts"), me)
            .expect("the member starts")
    });
}
