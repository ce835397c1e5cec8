//! The apply thread of nodes: machines that are slow, that panic, and that are frozen and restored under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use stentor::{ApplyThread, CallError, Cluster, Group, NodeHandle, Refused, Status, Why};
use stentor_testutil::TempDir;

use crate::nodes::{LONG, Manner, PANIC, Sum, cluster, send};
use crate::until::until;

/// The nodes of one cluster in this process, and the behaviour of their machines.
struct Bed {
    cluster: Cluster,
    directory: TempDir,
    nodes: Vec<Option<NodeHandle<Sum>>>,
    manners: Vec<Arc<Manner>>,
    queue: (usize, usize),
    on: ApplyThread,
}

impl Bed {
    fn new(name: &str, groups: &[&str], queue: (usize, usize), on: ApplyThread) -> Bed {
        let directory = TempDir::new();
        let cluster = cluster(name, &directory, groups);
        let manners: Vec<Arc<Manner>> = (0..3 * groups.len()).map(|_| Arc::default()).collect();
        let mut bed = Bed { cluster, directory, nodes: Vec::new(), manners, queue, on };
        for at in 0..bed.manners.len() {
            let node = bed.spawn(at);
            bed.nodes.push(Some(node));
        }
        for group in 0..groups.len() {
            bed.leader(group);
        }
        bed
    }

    fn spawn(&self, at: usize) -> NodeHandle<Sum> {
        let mut names = self.cluster.groups().flat_map(|group| self.cluster.members(group));
        let name = names.nth(at).expect("each group has three members");
        let machine = Sum { manner: Arc::clone(&self.manners[at]), ..Sum::default() };
        let (commands, bytes) = self.queue;
        let node = self.cluster.node(name, machine).apply_on(self.on).apply_queue(commands, bytes);
        node.spawn().expect("the node starts")
    }

    fn node(&self, at: usize) -> &NodeHandle<Sum> {
        self.nodes[at].as_ref().expect("the node runs")
    }

    fn status(&self, at: usize) -> Status {
        self.node(at).status().expect("the node runs")
    }

    /// Waits until all members of a group have joined, and returns the leader.
    fn leader(&self, group: usize) -> usize {
        let members = 3 * group..3 * group + 3;
        until("a leader", || {
            let stands = |at: &usize| self.nodes[*at].as_ref().map(|node| node.status().expect("the node runs"));
            let all = members.clone().filter_map(|at| stands(&at)).all(|status| !status.joining);
            members.clone().find(|at| all && stands(at).is_some_and(|status| status.leads))
        })
    }

    fn counts(&self, at: usize) -> u64 {
        self.status(at).commands
    }

    fn state(&self, at: usize) -> (u64, u64, u64) {
        self.node(at).inspect(|machine| (machine.sum, machine.count, machine.order)).expect("the node runs")
    }

    fn agree(&self, members: &[usize], count: u64) {
        until("all have applied", || members.iter().all(|at| self.counts(*at) == count).then_some(()));
        let states: Vec<_> = members.iter().map(|at| self.state(*at)).collect();
        assert!(states.windows(2).all(|two| two[0] == two[1]) && states[0].1 == count, "{states:?}");
    }

    /// Multicasts these numbers to a group from another thread, until a majority has each of them or `gives_up` has
    /// passed. Returns the number of messages that a majority has.
    fn send(
        &self,
        group: u16,
        numbers: impl Iterator<Item = u64> + Send + 'static,
        gives_up: Duration,
    ) -> JoinHandle<u64> {
        let (cluster, directory) = (self.cluster.clone(), self.directory.to_owned());
        thread::spawn(move || send(&cluster, &directory, group, numbers, gives_up))
    }
}

fn own(name: &str) -> Bed {
    Bed::new(name, &["g"], (1024, 4 << 20), ApplyThread::Own)
}

#[test]
fn a_slow_command_changes_no_leader_and_stops_no_heartbeat() {
    let bed = own("slow");
    let leader = bed.leader(0);
    bed.manners.iter().for_each(|manner| manner.once_ms.store(2000, Ordering::Relaxed));
    let sent = bed.send(0, 1..=10, LONG);
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(1800) {
        for at in 0..3 {
            let status = bed.status(at);
            assert!(status.others.iter().all(|other| other.connected), "{status:?}");
            assert_eq!((status.leads, status.commands), (at == leader, 0), "{:?}: {status:?}", since.elapsed());
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert!((0..3).any(|at| bed.status(at).queued > 0), "it was delivered");
    assert_eq!(sent.join().expect("the sending thread does not panic"), 10);
    bed.agree(&[0, 1, 2], 10);
}

#[test]
fn slow_machines_slow_clients_and_lose_nothing() {
    let mut bed = Bed::new("allslow", &["g"], (4, 4 << 20), ApplyThread::Own);
    bed.manners.iter().for_each(|manner| manner.each_us.store(500, Ordering::Relaxed));
    let since = Instant::now();
    let sent = bed.send(0, 1..=1000, LONG);
    let queued = until("it is under way", || (0..3).map(|at| bed.status(at).queued).max().filter(|queued| *queued > 2));
    assert!(queued <= 4, "{queued} wait");
    assert_eq!(sent.join().expect("the sending thread does not panic"), 1000);
    assert!(since.elapsed() > Duration::from_millis(200), "clients wait for slow machines");
    bed.agree(&[0, 1, 2], 1000);
    let state = bed.state(0);
    let stopped =
        bed.nodes[1].take().expect("the node runs").stop().expect("the node applies all that was delivered to it");
    assert_eq!((stopped.sum, stopped.count, stopped.order), state);
}

#[test]
fn inspect_waits_for_one_command_and_not_for_the_queue() {
    let bed = own("looks");
    bed.manners[0].each_us.store(20_000, Ordering::Relaxed);
    let sent = bed.send(0, 1..=200, LONG);
    until("many wait", || (bed.status(0).queued > 50).then_some(()));
    let since = Instant::now();
    let seen = bed.state(0);
    assert!(seen.1 < 150 && since.elapsed() < Duration::from_secs(1), "{seen:?} after {:?}", since.elapsed());
    bed.manners[0].each_us.store(0, Ordering::Relaxed);
    assert_eq!(sent.join().expect("the sending thread does not panic"), 200);
    bed.agree(&[0, 1, 2], 200);
}

#[test]
fn a_lone_panic_is_reported_and_the_machine_is_restored() {
    for (name, on) in [("alone", ApplyThread::Own), ("aloneh", ApplyThread::Protocol)] {
        let bed = Bed::new(name, &["g"], (1024, 4 << 20), on);
        let leader = bed.leader(0);
        bed.manners[leader].panics.store(true, Ordering::Relaxed);
        let sent = bed.send(0, (1..=100).chain([PANIC]).chain(1..=100), LONG);
        let poisoned = until("it is poisoned", || bed.status(leader).poisoned);
        assert_eq!(poisoned.index, 101);
        bed.manners[leader].panics.store(false, Ordering::Relaxed);
        assert_eq!(sent.join().expect("the sending thread does not panic"), 201);
        until("it has recovered", || bed.status(leader).poisoned.is_none().then_some(()));
        until("it has joined", || (!bed.status(leader).joining).then_some(()));
        bed.agree(&[0, 1, 2], 201);
        assert!((0..3).all(|at| bed.status(at).halted.is_none()));
    }
}

#[test]
fn a_poisoned_leader_hands_over_and_votes_but_cannot_be_inspected() {
    let mut bed = own("votes");
    let leader = bed.leader(0);
    let (second, third) = ((leader + 1) % 3, (leader + 2) % 3);
    drop(bed.nodes[third].take().expect("the node runs").stop());
    bed.manners[leader].panics.store(true, Ordering::Relaxed);
    bed.send(0, (1..=5).chain([PANIC]), Duration::from_secs(3)).join().expect("the sending thread does not panic");
    until("it is poisoned", || bed.status(leader).poisoned);
    until("the other one leads", || bed.status(second).leads.then_some(()));
    assert_eq!(bed.counts(second), 6, "the poisoned one has voted");
    let named = until("it is named", || bed.status(second).others.iter().find_map(|other| other.poisoned));
    assert_eq!((named, bed.counts(leader)), (6, 5));
    let error = bed.node(leader).inspect(|machine| machine.sum).expect_err("the machine is poisoned");
    assert!(error.to_string().contains("has panicked at command 6; correct"), "{error}");
    thread::sleep(Duration::from_millis(300));
    assert!(bed.status(leader).poisoned.is_some(), "its vote is needed");
    let error = bed.nodes[leader]
        .take()
        .expect("the node runs")
        .stop()
        .err()
        .expect("the machine of a poisoned node is not returned");
    assert!(error.to_string().contains("has panicked at command 6"), "{error}");
}

#[test]
fn a_group_whose_machines_all_panic_halts_and_others_continue() {
    let bed = Bed::new("halts", &["g", "h"], (1024, 4 << 20), ApplyThread::Own);
    bed.manners[..3].iter().for_each(|manner| manner.panics.store(true, Ordering::Relaxed));
    let sent = bed.send(0, (1..=5).chain([PANIC]).chain(1..=5), Duration::from_secs(4));
    for at in 0..3 {
        until("it is halted", || (bed.status(at).halted == Some(6)).then_some(()));
    }
    assert_eq!(bed.send(1, 1..=500, LONG).join().expect("the sending thread does not panic"), 500);
    bed.agree(&[3, 4, 5], 500);
    assert!(sent.join().expect("the sending thread does not panic") <= 11);
    for at in 0..3 {
        let status = bed.status(at);
        assert_eq!((status.halted, status.poisoned.map(|at| at.index), status.commands), (Some(6), Some(6), 5));
    }
    assert_eq!((3..6).filter(|at| bed.status(*at).halted.is_some()).count(), 0);
    bed.leader(0);
}

#[test]
fn calls_to_a_halted_group_fail_and_other_calls_are_applied() {
    let bed = Bed::new("halted", &["g", "h"], (1024, 4 << 20), ApplyThread::Own);
    bed.manners.iter().for_each(|manner| manner.has_sessions.store(true, Ordering::Relaxed));
    bed.manners[..3].iter().for_each(|manner| manner.panics.store(true, Ordering::Relaxed));
    let [g, h] = ["g", "h"].map(|name| bed.cluster.group(name).expect("the group is in the configuration"));
    let client = bed.cluster.client().connect().expect("the client connects");
    let call = |to: &[Group], number: u64| client.call(to, &number.to_le_bytes());
    let before: Vec<_> = (0..20).map(|number| call(&[g], number)).collect();
    let poison = call(&[g], PANIC);
    let after: Vec<_> = (0..20).map(|number| call(&[g], number)).collect();
    let ticket = until("a ticket", || poison.ticket());
    before.into_iter().for_each(|call| drop(call.wait().expect("the command precedes the panic")));
    let halted = Why::Halted(g);
    assert!(matches!(poison.wait(), Err(CallError::Unknown(_, why)) if why == halted));
    for call in after {
        let error = call.wait().expect_err("the machines have panicked before it");
        assert!(
            matches!(&error, CallError::Unknown(_, why) if *why == halted)
                || matches!(&error, CallError::NotApplied(Refused::Halted(group)) if *group == g),
            "{error}"
        );
    }
    let since = Instant::now();
    for to in [&[g][..], &[g, h]] {
        let error = call(to, 1).wait().expect_err("the group is halted");
        assert!(matches!(error, CallError::NotApplied(Refused::Halted(group)) if group == g), "{error}");
    }
    let error = client.resolve(&ticket).wait().expect_err("no member can answer now");
    assert!(matches!(error, CallError::Unknown(_, Why::NotAsked(Refused::Halted(group))) if group == g), "{error}");
    for number in 0..100 {
        call(&[h], number).wait().expect("the other group goes on");
    }
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    // A client that connects later gets the same error.
    let later = bed.cluster.client().groups(h).connect().expect("the client connects");
    later.call(h, &1_u64.to_le_bytes()).wait().expect("the other group continues");
    let error = later.call(g, &1_u64.to_le_bytes()).wait().expect_err("the group is halted");
    assert!(matches!(error, CallError::NotApplied(Refused::Halted(group)) if group == g), "{error}");
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn a_member_restarted_under_load_reaches_the_same_state() {
    for (name, queue, on) in [
        ("again", (1024, 4 << 20), ApplyThread::Own),
        ("tiny", (2, 64), ApplyThread::Own),
        ("here", (8, 64), ApplyThread::Protocol),
    ] {
        let mut bed = Bed::new(name, &["g"], queue, on);
        bed.manners.iter().for_each(|manner| manner.each_us.store(50, Ordering::Relaxed));
        let ends = Arc::new(AtomicBool::new(false));
        let goes_on = Arc::clone(&ends);
        let sent = bed.send(0, (1..).take_while(move |_| !goes_on.load(Ordering::Relaxed)), LONG);
        for _ in 0..3 {
            let before = bed.counts(1);
            until("it goes on", || (bed.counts(1) > before + 50).then_some(()));
            bed.nodes[2].take().expect("the node runs").stop().expect("the machine is returned");
            bed.nodes[2] = Some(bed.spawn(2));
            until("it is back", || (!bed.status(2).joining).then_some(()));
        }
        ends.store(true, Ordering::Relaxed);
        bed.agree(&[0, 1, 2], sent.join().expect("the sending thread does not panic"));
    }
}

#[test]
fn a_node_stops_in_every_state() {
    let directory = TempDir::new();
    let cluster = cluster("stops", &directory, &["g"]);
    // A lone member joins forever.
    let node = cluster.node("ga", Sum::default()).spawn().expect("the node starts");
    assert_eq!(node.stop().expect("the machine is returned").count, 0);
    let mut bed = own("stopst");
    bed.manners[1].each_us.store(2000, Ordering::Relaxed);
    let sent = bed.send(0, 1..=300, LONG);
    let delivered = until("some wait", || {
        let status = bed.status(1);
        (status.queued > 20).then_some(status.commands + status.queued)
    });
    let stopped =
        bed.nodes[1].take().expect("the node runs").stop().expect("the node applies all that was delivered to it");
    assert!(stopped.count >= delivered, "{} of {delivered}", stopped.count);
    assert_eq!(sent.join().expect("the sending thread does not panic"), 300);
    bed.agree(&[0, 2], 300);
    let node = bed.cluster.node("gb", Sum::default()).start().expect("the node starts");
    assert_eq!(node.into_machine().expect("a node that has applied nothing returns its machine").count, 0);
}
