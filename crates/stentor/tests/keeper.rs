//! Keepers on shared memory: members campaign when the election names them, and never otherwise.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stentor::ClusterConfig;
use stentor::runtime::{Keeper, Member, Plan, ShmFabric, stateless};
use stentor_election::{Change, Heartbeat, Scripted};
use stentor_fabric::ProcessId;
use stentor_multicast::Step;

const CLUSTER: &str = r#"
cluster = "CLUSTER"
fabric = "shm"
[election]
kind = "heartbeat"
timeout_min_ms = 50
timeout_max_ms = 100
[limits]
message_bytes = 4096
window = 64
clients = 1
[[group]]
id = "g1"
process = [ { id = "g1.1", address = "127.0.0.1:7101" }, { id = "g1.2", address = "127.0.0.1:7102" }, { id = "g1.3", address = "127.0.0.1:7103" } ]
"#;
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Three members in one thread.
struct Group<K> {
    plan: Plan,
    directory: Directory,
    members: Vec<Option<(Member<ShmFabric>, K)>>,
    start: Instant,
}

impl<K> Group<K> {
    fn new(name: &str, keeper: impl Fn(&Plan, ProcessId) -> K) -> Self {
        let text = CLUSTER.replace("CLUSTER", name);
        let plan = Plan::new(ClusterConfig::parse(Path::new("cluster.toml"), &text).expect("valid")).expect("possible");
        let directory = Directory(std::env::temp_dir().join(format!("stentor-{name}-{}", std::process::id())));
        let mut group = Group { plan, directory, members: vec![None, None, None], start: Instant::now() };
        (0..3).for_each(|at| group.begin(at, &keeper));
        group
    }

    fn begin(&mut self, at: usize, keeper: impl Fn(&Plan, ProcessId) -> K) {
        let me = ProcessId(at as u16);
        let member = self.plan.joining(me, self.directory.0.clone()).expect("starts");
        self.members[at] = Some((member, keeper(&self.plan, me)));
    }

    fn round(&mut self, mut keep: impl FnMut(&mut K, Duration, &mut Member<ShmFabric>)) {
        for (member, keeper) in self.members.iter_mut().flatten() {
            let now = self.start.elapsed();
            member.housekeep();
            member.step(now, &mut stateless(|_| ()));
            keep(keeper, now, member);
        }
    }

    fn leader(&self) -> Option<usize> {
        let leads = |at: &usize| self.members[*at].as_ref().is_some_and(|(member, _)| member.replica().is_leader());
        (0..3).find(leads)
    }
}

#[test]
fn a_dead_leader_is_replaced_and_comes_back_as_a_follower() {
    let keeper = |plan: &Plan, me| Keeper::heartbeat(plan, me).expect("sound times");
    let mut group = Group::new("keeper-heartbeat", keeper);
    let until = |group: &mut Group<Keeper<Heartbeat>>, what: &str, done: &dyn Fn(&Group<_>) -> bool| {
        let since = Instant::now();
        while !done(group) {
            assert!(since.elapsed() < PATIENCE, "{what}");
            group.round(|keeper, now, member| keeper.round(now, member));
        }
        since.elapsed()
    };
    until(&mut group, "the group begins its life", &|group| group.leader().is_some());
    let named = |group: &Group<Keeper<Heartbeat>>| {
        group.leader().is_some_and(|at| group.members[at].as_ref().is_some_and(|(_, keeper)| keeper.is_named()))
    };
    until(&mut group, "the election names who leads", &named);
    // A group that lives and has nothing to do falls silent: what is said once is not answered for ever.
    let pause = |group: &mut Group<Keeper<Heartbeat>>| {
        let since = Instant::now();
        until(group, "time passes", &|_| since.elapsed() > Duration::from_millis(200));
        group.members.iter().flatten().map(|(member, _)| member.counts().writes(Step::Letter)).sum::<u64>()
    };
    let before = pause(&mut group);
    let letters = pause(&mut group) - before;
    assert!(letters < 20, "{letters} letters in 200 ms");
    let old = group.leader().expect("just seen");
    group.members[old] = None;
    let took = until(&mut group, "another leads", &|group| group.leader().is_some());
    println!("{took:?} from the death to the next leader");
    group.begin(old, keeper);
    until(&mut group, "it is taken in", &|group| {
        group.leader().is_some() && group.members.iter().flatten().all(|(member, _)| !member.replica().is_joining())
    });
}

#[test]
fn members_campaign_when_they_are_named_and_never_otherwise() {
    let second = ProcessId(1);
    let when = Duration::from_secs(2);
    let script = [(when, Change::Leader { epoch: 7, process: second })];
    let mut group = Group::new("keeper-scripted", |plan: &Plan, me| {
        let members: Vec<ProcessId> = plan.topology().members(stentor::runtime::GroupId(0)).collect();
        let tick = Duration::from_millis(5);
        Keeper::new(Scripted::new(script), me, &members, tick, Duration::from_millis(100))
    });
    let mut first = false;
    while group.start.elapsed() < PATIENCE && group.leader() != Some(1) {
        group.round(|keeper, now, member| keeper.poll(now, member));
        first |= group.leader() == Some(0);
        assert!(group.start.elapsed() >= when || group.leader() != Some(1), "nobody was named yet");
        assert_ne!(group.leader(), Some(2), "it is never named");
    }
    assert!(first && group.leader() == Some(1), "{first} {:?}", group.leader());
}
