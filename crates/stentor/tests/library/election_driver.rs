//! Election drivers on shared memory: members campaign if the election names them, and never otherwise.

use std::time::{Duration, Instant};

use stentor::runtime::{ClusterRuntime, ElectionDriver, Member, ShmFabric, stateless};
use stentor_election::{Change, Heartbeat, Scripted};
use stentor_fabric::{Fabric as _, ProcessId};
use stentor_multicast::Step;
use stentor_testutil::TempDir;

use crate::common::cluster;

/// Time limit: longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Three members in one thread.
struct Group<K> {
    plan: ClusterRuntime,
    directory: TempDir,
    members: Vec<Option<(Member<ShmFabric>, K)>>,
    start: Instant,
    /// Offsets of the wall clocks of the members' hosts, if they have wall clocks.
    ahead: Option<[Duration; 3]>,
}

/// True time at the start, in nanoseconds since 1970.
const BEGIN_NS: u64 = 1_795_000_000_000_000_000;
const YEAR: Duration = Duration::from_secs(365 * 86_400);

impl<K> Group<K> {
    fn new(name: &str, keeper: impl Fn(&ClusterRuntime, ProcessId) -> K) -> Self {
        Self::with_times(name, [50, 100], keeper)
    }

    /// Creates a group with these timeouts, in milliseconds.
    fn with_times(name: &str, [min, max]: [u32; 2], keeper: impl Fn(&ClusterRuntime, ProcessId) -> K) -> Self {
        let times = format!("timeout_min_ms = {min}\ntimeout_max_ms = {max}");
        let plan = cluster(name, 1, &times, "clients = 1");
        let directory = TempDir::new();
        let mut group = Group { plan, directory, members: vec![None, None, None], start: Instant::now(), ahead: None };
        (0..3).for_each(|at| group.begin(at, &keeper));
        group
    }

    fn begin(&mut self, at: usize, keeper: impl Fn(&ClusterRuntime, ProcessId) -> K) {
        let me = ProcessId(at as u16);
        let member = self
            .plan
            .joining_on(self.plan.shm(me, self.directory.to_path_buf()).expect("the fabric starts"), me)
            .expect("the member starts");
        self.members[at] = Some((member, keeper(&self.plan, me)));
    }

    fn round(&mut self, mut keep: impl FnMut(&mut K, Duration, &mut Member<ShmFabric>)) {
        for (at, (member, keeper)) in
            self.members.iter_mut().enumerate().filter_map(|(at, held)| Some((at, held.as_mut()?)))
        {
            let now = self.start.elapsed();
            if let Some(ahead) = &self.ahead {
                let wall = BEGIN_NS + now.as_nanos() as u64 + ahead[at].as_nanos() as u64;
                member.tell_wall_clock(now, wall).expect("a valid clock");
            }
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
    let keeper = |plan: &ClusterRuntime, me| ElectionDriver::heartbeat(plan, me).expect("valid times");
    let mut group = Group::new("keeper-heartbeat", keeper);
    let until = |group: &mut Group<ElectionDriver<Heartbeat>>, what: &str, done: &dyn Fn(&Group<_>) -> bool| {
        let since = Instant::now();
        while !done(group) {
            assert!(since.elapsed() < PATIENCE, "{what}");
            group.round(|keeper, now, member| keeper.round(now, member));
        }
        since.elapsed()
    };
    until(&mut group, "the group begins its life", &|group| group.leader().is_some());
    let named = |group: &Group<ElectionDriver<Heartbeat>>| {
        group.leader().is_some_and(|at| group.members[at].as_ref().is_some_and(|(_, keeper)| keeper.is_named()))
    };
    until(&mut group, "the election names who leads", &named);
    // The members of an idle group send each other few messages: they do not keep answering each other.
    let pause = |group: &mut Group<ElectionDriver<Heartbeat>>| {
        let since = Instant::now();
        until(group, "time passes", &|_| since.elapsed() > Duration::from_millis(200));
        group.members.iter().flatten().map(|(member, _)| member.counts().writes(Step::PeerMessage)).sum::<u64>()
    };
    let before = pause(&mut group);
    let letters = pause(&mut group) - before;
    assert!(letters < 20, "{letters} messages in 200 ms");
    let old = group.leader().expect("a member leads");
    group.members[old] = None;
    let took = until(&mut group, "a new leader", &|group| group.leader().is_some());
    println!("{took:?} from the death to the next leader");
    group.begin(old, keeper);
    until(&mut group, "it has joined", &|group| {
        group.leader().is_some() && group.members.iter().flatten().all(|(member, _)| !member.replica().is_joining())
    });
}

/// The first leader of a group is on a host whose clock is a year ahead. The election replaces it by a member with a
/// right clock, and it is not eligible until its own clock is right. The new leader's time is right.
#[test]
fn a_member_whose_clock_is_off_does_not_lead_while_another_can() {
    let keeper = |plan: &ClusterRuntime, me| ElectionDriver::heartbeat(plan, me).expect("valid times");
    let mut group = Group::new("keeper-clocks", keeper);
    group.ahead = Some([YEAR, Duration::ZERO, Duration::from_millis(1)]);
    group.until("one with a right clock leads", |group| matches!(group.leader(), Some(1 | 2)));
    let stands_back = |group: &Group<ElectionDriver<Heartbeat>>| {
        group
            .members
            .iter()
            .map(|held| held.as_ref().is_some_and(|(_, keeper)| keeper.stands_back()))
            .collect::<Vec<_>>()
    };
    let leader = group.leader().expect("a member leads");
    group.until("its time runs", |group| {
        let (member, _) = group.members[leader].as_ref().expect("the member runs");
        member.physical_clock().time(group.start.elapsed().as_nanos() as u64).is_some()
    });
    let (member, _) = group.members[leader].as_ref().expect("the member runs");
    let now = group.start.elapsed().as_nanos() as u64;
    let away = member.physical_clock().time(now).expect("the clock has a time").abs_diff(BEGIN_NS + now);
    assert!(away < 1_000_000_000, "{away} ns");
    assert_eq!(stands_back(&group), [true, false, false]);
    group.ahead = Some([Duration::ZERO; 3]);
    group.until("its clock is mended", |group| !stands_back(group)[0]);
    // All three clocks differ. The median clock counts as right, and when its member dies another one leads, whatever
    // its clock shows.
    group.ahead = Some([Duration::ZERO, YEAR, 2 * YEAR]);
    group.until("the one in the middle leads", |group| group.leader() == Some(1));
    group.members[1] = None;
    group.until("a new leader", |group| group.leader().is_some());
}

#[test]
fn members_campaign_when_they_are_named_and_never_otherwise() {
    let second = ProcessId(1);
    let when = Duration::from_secs(2);
    let script = [(when, Change::Leader { epoch: 7, process: second })];
    let mut group = Group::new("keeper-scripted", |plan: &ClusterRuntime, me| {
        let members: Vec<ProcessId> = plan.topology().members(stentor::runtime::GroupId(0)).collect();
        let tick = Duration::from_millis(5);
        ElectionDriver::new(Scripted::new(script), me, &members, tick, Duration::from_millis(100))
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

/// Timeouts in milliseconds that no test waits for.
const LONG: [u32; 2] = [15_000, 30_000];

impl Group<ElectionDriver<Heartbeat>> {
    fn young(name: &str) -> Self {
        let mut group =
            Group::with_times(name, LONG, |plan, me| ElectionDriver::heartbeat(plan, me).expect("valid times"));
        group.until("the election names who leads", |group| {
            let leads = |(member, keeper): &(Member<ShmFabric>, ElectionDriver<_>)| {
                member.replica().is_leader() && keeper.is_named()
            };
            group.members.iter().flatten().any(leads)
        });
        group
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Duration {
        let since = Instant::now();
        while !done(self) {
            assert!(since.elapsed() < PATIENCE / 2, "{what}");
            self.round(|keeper, now, member| keeper.round(now, member));
        }
        since.elapsed()
    }
}

/// A member with its group's state is eligible as soon as the election has named a leader. It need not wait for a
/// timeout.
#[test]
fn leader_that_dies_early_is_replaced_without_a_timeout() {
    let mut group = Group::young("keeper-young");
    // The members need time to read each other's heartbeats: a hundredth of the timeout.
    let since = Instant::now();
    group.until("time passes", |_| since.elapsed() > Duration::from_millis(150));
    let old = group.leader().expect("a member leads");
    group.members[old] = None;
    let took = group.until("a new leader", |group| group.leader().is_some());
    println!("{took:?} from the death to the next leader");
}

/// A returning member takes part in elections at once, and deposes nobody.
#[test]
fn rejoined_member_keeps_the_leader_and_can_succeed_it() {
    let mut group = Group::young("keeper-back");
    let leader = group.leader().expect("a member leads");
    let others: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    for other in others {
        group.members[other] = None;
        group.begin(other, |plan, me| ElectionDriver::heartbeat(plan, me).expect("valid times"));
        group.until("it has joined", |group| {
            group.members[other].as_ref().is_some_and(|(member, _)| !member.replica().is_joining())
        });
        let since = Instant::now();
        group.until("time passes", |_| since.elapsed() > Duration::from_millis(150));
        assert_eq!(group.leader(), Some(leader), "nobody deposes it");
    }
    group.members[leader] = None;
    group.until("one that came back leads", |group| group.leader().is_some());
}

#[test]
fn leaving_leader_hands_over_first() {
    let mut group = Group::young("keeper-leaves");
    let since = Instant::now();
    group.until("time passes", |_| since.elapsed() > Duration::from_millis(150));
    let old = group.leader().expect("a member leads");
    let me = ProcessId(old as u16);
    let (since, mut may_end) = (Instant::now(), false);
    while !may_end {
        assert!(since.elapsed() < PATIENCE / 2, "it does not end");
        group.round(|keeper, now, member| {
            keeper.round(now, member);
            may_end |= member.fabric().me() == me && keeper.leave(now, member);
        });
    }
    let (member, keeper) = group.members[old].as_ref().expect("the member runs");
    assert!(
        keeper.heir().is_some() && Some(member.replica().ballot().leader()) == keeper.heir(),
        "{:?}",
        keeper.heir()
    );
    group.members[old] = None;
    assert!(group.leader().is_some(), "another leads before it ends");
}

#[test]
fn last_member_ends_without_waiting_for_an_heir() {
    let mut group = Group::young("keeper-last");
    let leader = group.leader().expect("a member leads");
    (0..3).filter(|at| *at != leader).for_each(|at| group.members[at] = None);
    let since = Instant::now();
    group.until("they are missed", |group| {
        let (member, _) = group.members[leader].as_ref().expect("the member runs");
        (0..3).all(|at| at == leader || !member.is_connected_to(ProcessId(at as u16)))
    });
    let mut may_end = false;
    group.round(|keeper, now, member| may_end = keeper.leave(now, member));
    assert!(may_end, "{:?}", since.elapsed());
}
