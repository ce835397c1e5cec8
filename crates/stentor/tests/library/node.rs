//! Nodes: in one process, on threads, in an event loop, and after one has ended.

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stentor::config::FabricKind;
use stentor::runtime::WaitMode;
use stentor::{Cluster, ConfigError, Node, NodeError, NodeHandle, StartError, Status, Stopper, Turn};
use stentor_testutil::{TempDir, median};

use crate::nodes::{LONG, Sum, send};
use crate::until::until;

/// Returns a cluster of one group.
fn cluster(name: &str, directory: &Path) -> Cluster {
    crate::nodes::cluster(name, directory, &["g"])
}

/// The members of the cluster's group.
const MEMBERS: [&str; 3] = ["ga", "gb", "gc"];

fn sum_of(handle: &NodeHandle<Sum>) -> u64 {
    handle.inspect(|machine| machine.sum).expect("the node runs")
}

fn leads(status: &Status) -> bool {
    status.leads && !status.joining
}

#[test]
fn a_group_survives_its_leader_and_readmits_it_with_the_state() {
    let directory = TempDir::new();
    let cluster = cluster("nodes", &directory);
    let spawn = |name| cluster.node(name, Sum::default()).spawn().expect("the node starts");
    let mut nodes: Vec<NodeHandle<Sum>> = MEMBERS.iter().map(|name| spawn(name)).collect();
    let leader =
        |nodes: &[NodeHandle<Sum>]| nodes.iter().position(|node| node.status().is_ok_and(|status| leads(&status)));
    let first = until("a leader", || leader(&nodes));
    assert_eq!(send(&cluster, &directory, 0, 1..=100, LONG), 100);
    until("all have applied", || nodes.iter().all(|node| sum_of(node) == 5050).then_some(()));
    let stopped = nodes.remove(first);
    let left = stopped.stop().expect("the node ran until it was stopped");
    assert_eq!((left.sum, left.senders), (5050, vec!["c0".to_owned()]));
    let second = until("another leader", || leader(&nodes));
    assert_eq!(send(&cluster, &directory, 0, 101..=200, LONG), 100);
    until("both have applied", || nodes.iter().all(|node| sum_of(node) == 20_100).then_some(()));
    nodes.push(spawn(MEMBERS[first]));
    until("the state came", || (sum_of(&nodes[2]) == 20_100).then_some(()));
    let status = until("it is back, and connected to both", || {
        let status = nodes[2].status().expect("the node runs");
        (!status.joining && status.others.iter().all(|other| other.connected)).then_some(status)
    });
    assert_eq!(status.commands, 200);
    let all = nodes[second].status().expect("the node runs");
    // A member can lead only once it has published that it is eligible.
    until("it hands over", || nodes[second].hand_over(&status.name).ok());
    until("the third leads", || nodes[2].status().is_ok_and(|status| leads(&status)).then_some(()));
    let error = nodes[second].hand_over("nobody").expect_err("there is no such member");
    assert!(error.to_string().starts_with(&all.name) && error.to_string().contains("another member"), "{error}");
    assert!(!error.remedy().is_empty());
}

#[test]
fn an_inspect_that_panics_or_calls_its_node_is_harmless() {
    let directory = TempDir::new();
    let node = Arc::new(cluster("looks", &directory).node("ga", Sum::default()).spawn().expect("the node starts"));
    let looked = catch_unwind(AssertUnwindSafe(|| node.inspect(|_| panic!("as requested"))));
    assert!(looked.is_err(), "the caller panics");
    assert_eq!(sum_of(&node), 0, "and the node goes on");
    let own = Arc::clone(&node);
    let looked = node.inspect(move |_| (own.status().map(drop), own.inspect(|_| ()))).expect("the node runs");
    assert!(looked.0.is_ok(), "the protocol goes on meanwhile");
    let error = looked.1.expect_err("the inner inspect would wait for itself");
    assert!(error.to_string().contains("own thread") && error.remedy().contains("another thread"), "{error}");
}

#[test]
fn nodes_and_handles_can_be_sent_and_handles_be_shared() {
    fn is_send<T: Send>() {}
    fn is_shared<T: Send + Sync + 'static>() {}
    is_send::<Node<Sum>>();
    is_shared::<NodeHandle<std::cell::Cell<u8>>>();
    is_shared::<Stopper>();
    is_shared::<Cluster>();
    is_shared::<NodeError>();
    is_shared::<StartError>();
    is_shared::<ConfigError>();
}

/// Turns all nodes, and sleeps if none is busy. Returns whether it slept.
fn turn_all(nodes: &mut [Node<Sum>], mut stopped: impl FnMut(usize)) -> bool {
    let mut until = None;
    for (at, node) in nodes.iter_mut().enumerate() {
        match node.turn().expect("the node still runs") {
            Turn::Busy => until = Some(Instant::now()),
            Turn::Idle(longest) => until = Some(until.map_or(longest, |until: Instant| until.min(longest))),
            Turn::Stopped => stopped(at),
        }
    }
    let timeout = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
    if timeout.is_zero() {
        return false;
    }
    let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.as_nanos().min(999_999_999) as i64 };
    let mut descriptors: Vec<_> =
        nodes.iter().map(|node| PollFd::from_borrowed_fd(node.as_fd(), PollFlags::IN)).collect();
    poll(&mut descriptors, Some(&timeout)).expect("the descriptors can be polled");
    true
}

#[test]
fn a_connection_does_not_keep_idle_nodes_awake_on_roce() {
    let directory = TempDir::new();
    let key = directory.join("key");
    std::fs::write(&key, [7; 32]).expect("the key is written");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("its own file");
    let address = |n: usize| format!("127.{}.11.{}:7101", 64 + std::process::id() % 128, n + 1);
    let members = MEMBERS.iter().zip(0..).map(|(name, n)| (*name, address(n)));
    let builder = Cluster::builder("rest").fabric(FabricKind::Roce).key(&format!("file:{}", key.display()));
    let cluster = builder.group("g", members).directory(&*directory).build().expect("a valid cluster");
    let start =
        |name: &&str| cluster.node(name, Sum::default()).wait(WaitMode::BLOCK).start().expect("the node starts");
    let mut nodes: Vec<_> = MEMBERS.iter().map(start).collect();
    let mut sleeps_in = |time: Duration| {
        let (since, mut sleeps) = (Instant::now(), 0);
        while since.elapsed() < time {
            sleeps += u32::from(turn_all(&mut nodes, |_| ()));
        }
        sleeps
    };
    until("they rest", || (sleeps_in(Duration::from_millis(200)) < 30).then_some(()));
    // The connections are made at times that are unrelated to those of the nodes.
    let connect = move |n: usize| {
        std::thread::sleep(Duration::from_millis(37));
        TcpStream::connect(address(n % 3)).expect("the node listens")
    };
    let connections = std::thread::spawn(move || (0..20).map(connect).collect::<Vec<_>>());
    let sleeps = sleeps_in(Duration::from_millis(800));
    drop(connections.join().expect("all connections were made"));
    assert!(sleeps < 1000, "{sleeps}");
}

#[test]
fn nodes_turn_in_the_event_loop_of_the_caller_and_stop() {
    let directory = TempDir::new();
    let cluster = cluster("loop", &directory);
    let start =
        |name: &&str| cluster.node(name, Sum::default()).wait(WaitMode::BLOCK).start().expect("the node starts");
    let mut nodes: Vec<_> = MEMBERS.iter().map(start).collect();
    let (mut slept, since) = (0, Instant::now());
    let mut stopped = [false; 3];
    while !stopped.iter().all(|stopped| *stopped) {
        assert!(since.elapsed() < Duration::from_secs(60), "{nodes:?}");
        slept += u32::from(turn_all(&mut nodes, |node| stopped[node] = true));
        let all = nodes.iter().map(|node| node.status()).collect::<Vec<_>>();
        if all.iter().any(leads) && all.iter().all(|status| !status.joining) {
            nodes.iter().for_each(|node| node.stopper().stop());
        }
    }
    assert!(slept > 0, "an idle node lets its loop sleep");
    assert!(nodes.iter_mut().all(|node| node.turn().is_ok_and(|turn| turn == Turn::Stopped)));
    assert_eq!(nodes[0].inspect(|machine| machine.sum).expect("the machine has not panicked"), 0);
}

#[test]
fn a_flag_stops_a_node_in_order_at_any_time() {
    let directory = TempDir::new();
    let cluster = cluster("flag", &directory);
    let flag = Arc::new(AtomicBool::new(false));
    let run = |name: &&str| {
        let mut node = cluster.node(name, Sum::default()).wait(WaitMode::BLOCK).start().expect("starts");
        let (stopper, flag) = (node.stopper(), Arc::clone(&flag));
        (stopper, std::thread::spawn(move || node.run_until(&flag).map(|()| node.status())))
    };
    let mut nodes: Vec<_> = MEMBERS.iter().map(run).collect();
    assert_eq!(send(&cluster, &directory, 0, 1..=10, LONG), 10, "they run");
    // A stopper still stops one node alone.
    let (stopper, thread) = nodes.remove(0);
    stopper.stop();
    until("one has stopped", || thread.is_finished().then_some(()));
    thread.join().expect("it did not panic").expect("it stopped in order");
    assert!(nodes.iter().all(|(_, thread)| !thread.is_finished()), "the flag is not set");
    // The others sleep by now, and the flag wakes nobody.
    std::thread::sleep(Duration::from_millis(300));
    flag.store(true, Ordering::Relaxed);
    until("all have stopped", || nodes.iter().all(|(_, thread)| thread.is_finished()).then_some(()));
    for (_, thread) in nodes {
        let status = thread.join().expect("it did not panic").expect("it stopped in order");
        assert_eq!(status.commands, 10);
    }
    let mut late = cluster.node("ga", Sum::default()).start().expect("the place is free again");
    late.run_until(&flag).expect("it leaves at once");
}

#[test]
fn an_idle_node_stays_idle_when_turned() {
    let directory = TempDir::new();
    let cluster = cluster("idle", &directory);
    let mode = WaitMode { spins: 0, yields: 0, sleep: true };
    let mut node = cluster.node("ga", Sum::default()).wait(mode).start().expect("the node starts");
    let turns: Vec<_> = (0..200).map(|_| node.turn().expect("the node still runs")).collect();
    let idle = turns.iter().filter(|turn| matches!(turn, Turn::Idle(_))).count();
    assert!(idle > 150, "a loop with two nodes sleeps only when both are idle: {idle} of 200");
}

#[test]
fn start_errors_name_reason_and_remedy() {
    let directory = TempDir::new();
    let cluster = cluster("errors", &directory);
    let error = cluster.node("d", Sum::default()).start().expect_err("there is no such process");
    assert!(error.to_string().starts_with("d does not start: there is no process `d`"), "{error}");
    let error = cluster.node("c0", Sum::default()).start().expect_err("the name is that of a client");
    assert!(error.to_string().contains("is not a member of a group") && !error.remedy().is_empty(), "{error}");
    assert!(error.to_string().ends_with(&error.remedy()), "{error}");
    let simulated = Cluster::builder("errors").fabric(FabricKind::Sim).group("g", [("a", "127.0.0.1:7101")]);
    let error = simulated
        .build()
        .expect("a valid cluster")
        .node("a", Sum::default())
        .start()
        .expect_err("the fabric of simulations runs no node");
    assert!(error.to_string().contains("fabric `sim`"), "{error}");
    let node = cluster.node("ga", Sum::default()).start().expect("the node starts");
    let error = cluster.node("ga", Sum::default()).start().expect_err("the node runs already");
    assert!(error.to_string().contains("is running already") && error.remedy().contains("stop"), "{error}");
    drop(node);
}

/// An idle node sleeps for tens of milliseconds. A request wakes it.
#[test]
fn an_idle_node_answers_at_once() {
    let directory = TempDir::new();
    let cluster = Cluster::builder("rest").directory(&directory).group("g", [("ga", "127.0.0.1:7101")]);
    let cluster = cluster.build().expect("a valid cluster");
    let node = cluster.node("ga", Sum::default()).spawn().expect("the node starts");
    until("it leads", || node.status().is_ok_and(|status| leads(&status)).then_some(()));
    // After a second without work the node is idle.
    std::thread::sleep(Duration::from_millis(1500));
    let answered = [(); 15].map(|()| {
        std::thread::sleep(Duration::from_millis(30));
        let since = Instant::now();
        node.status().expect("the node runs");
        since.elapsed().as_secs_f64() * 1e3
    });
    let median = median(answered);
    assert!(median < 5.0, "{median} ms: {answered:?}");
}
