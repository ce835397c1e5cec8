//! Embedded clients when their node or their handles end, when the node starts over or lags, and while the node sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stentor::config::Limits;
use stentor::{
    CallError, Client, ClientErrorKind, Cluster, FabricKind, Group, NodeHandle, Refused, StateMachine, Status, Turn,
    Why,
};
use stentor_testutil::{TempDir, median};

use crate::embedded::{NAMES, cluster, command};
use crate::log::{Log, numbers, until};
use crate::nodes::{Manner, PANIC, Sum};

/// Time limit: less than the timeout of a client, and more than any call here takes.
const SOON: Duration = Duration::from_secs(8);

/// A group of three in one process.
struct Trio<S> {
    cluster: Cluster,
    nodes: Vec<Option<NodeHandle<S>>>,
    _directory: TempDir,
}

impl<S: StateMachine> Trio<S> {
    fn new(name: &str, fabric: FabricKind, net: u8, machine: impl Fn(usize) -> S) -> Trio<S> {
        let directory = TempDir::new();
        let cluster = cluster(name, fabric, net, &directory);
        let mut trio = Trio { cluster, nodes: vec![None, None, None], _directory: directory };
        (0..3).for_each(|at| trio.start(at, machine(at)));
        trio
    }

    fn start(&mut self, at: usize, machine: S) {
        self.nodes[at] = Some(self.cluster.node(NAMES[at], machine).spawn().expect("the node starts"));
    }

    fn group(&self) -> Group {
        self.cluster.group("g1").expect("the group is in the configuration")
    }

    fn node(&self, at: usize) -> &NodeHandle<S> {
        self.nodes[at].as_ref().expect("the node runs")
    }

    fn connect(&self, at: usize) -> Client {
        self.node(at).client().connect().expect("the client connects")
    }

    fn status(&self, at: usize) -> Status {
        self.node(at).status().expect("the node runs")
    }

    /// Waits until all running members have joined. Returns the leader.
    fn leader(&self) -> usize {
        until("a leader", || {
            let stands = |at: &usize| self.nodes[*at].as_ref().map(|_| self.status(*at));
            let all = (0..3).filter_map(|at| stands(&at)).all(|status| !status.joining);
            (0..3).find(|at| all && stands(at).is_some_and(|status| status.leads))
        })
    }

    fn stop(&mut self, at: usize) -> S {
        self.nodes[at].take().expect("the node runs").stop().expect("the node ran until it was stopped")
    }
}

/// Returns whether a call ended because its client had ended.
fn is_of_the_end(error: &CallError) -> bool {
    matches!(error, CallError::NotApplied(Refused::ClientEnded) | CallError::Unknown(_, Why::ClientEnded))
}

/// Calls until a call fails. Returns the number of applied calls and the error.
fn call_until_it_ends(client: &Client, group: Group, caller: usize) -> (u64, CallError) {
    for number in 0.. {
        match client.call(group, &command(caller, number)).wait() {
            Ok(answer) => assert_eq!(numbers(answer.bytes()).0, 1, "once"),
            Err(error) => return (number, error),
        }
    }
    unreachable!("numbers do not end")
}

fn node_stops_under_calls(name: &str, fabric: FabricKind, net: u8) {
    let mut trio = Trio::new(name, fabric, net, |_| Log::default());
    let (group, at) = (trio.group(), trio.leader());
    let client = trio.connect(at);
    let callers = [0, 1, 2, 3].map(|caller| {
        let client = client.clone();
        thread::spawn(move || call_until_it_ends(&client, group, caller))
    });
    until("calls are under way", || (trio.status(at).commands > 50).then_some(()));
    let since = Instant::now();
    trio.stop(at);
    let ended = callers.map(|caller| caller.join().expect("no caller panics"));
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    assert!(ended.iter().all(|(_, error)| is_of_the_end(error)), "{ended:?}");
    // The other members apply every command that was answered, and at most one unanswered command of each caller.
    let second = trio.leader();
    let answered: u64 = ended.iter().map(|(applied, _)| applied).sum();
    until("the new leader applies them", || (trio.status(second).commands >= answered).then_some(()));
    let mut log = trio.stop(second).0;
    let all = log.len() as u64;
    log.sort();
    log.dedup();
    assert_eq!(log.len() as u64, all, "each once");
    assert!((answered..=answered + 4).contains(&all), "{all} applied, {answered} answered");
    assert!(client.failure().is_none(), "it ended in order");
    client.close().expect("the client has ended already");
}

#[test]
fn calls_end_with_a_reason_when_their_node_stops() {
    node_stops_under_calls("ends-shm", FabricKind::Shm, 11);
}

#[test]
fn calls_end_with_a_reason_when_their_node_stops_on_roce() {
    node_stops_under_calls("ends-roce", FabricKind::Roce, 12);
}

#[test]
fn a_node_without_a_majority_stops_and_ends_waiting_calls() {
    let mut trio = Trio::new("ends-alone", FabricKind::Shm, 13, |_| Log::default());
    let (group, at) = (trio.group(), trio.leader());
    let client = trio.connect(at);
    client.call(group, b"first").wait().expect("the command is applied");
    for other in (0..3).filter(|other| *other != at) {
        drop(trio.nodes[other].take());
    }
    until("nobody else", || trio.status(at).others.iter().all(|other| !other.connected).then_some(()));
    let waits = [0, 1].map(|number| client.call(group, &command(9, number)));
    thread::sleep(Duration::from_millis(100));
    let since = Instant::now();
    trio.stop(at);
    for call in waits {
        let error = call.wait().expect_err("no member can apply the command");
        assert!(is_of_the_end(&error), "{error:?}");
    }
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}

fn node_starts_again(name: &str, fabric: FabricKind, net: u8) {
    let mut trio = Trio::new(name, fabric, net, |_| Log::default());
    let (group, at) = (trio.group(), (trio.leader() + 1) % 3);
    let old = trio.connect(at);
    for life in 0..3 {
        let client = if life == 0 { old.clone() } else { trio.connect(at) };
        let answer = client.call(group, &command(life, 0)).wait().expect("the command is applied");
        assert_eq!(numbers(answer.bytes()), (1, life as u64 + 1));
        trio.stop(at);
        trio.start(at, Log::default());
        let ended = client.call(group, b"late").wait().expect_err("the client has ended");
        assert!(is_of_the_end(&ended), "{ended:?}");
    }
    let ended = old.prepare(group, b"late").wait().expect_err("the client has ended");
    assert!(is_of_the_end(&ended), "{ended:?}");
}

#[test]
fn a_restarted_node_has_clients_again() {
    node_starts_again("again-shm", FabricKind::Shm, 14);
}

#[test]
fn a_restarted_node_has_clients_again_on_roce() {
    node_starts_again("again-roce", FabricKind::Roce, 15);
}

/// Returns the behaviours of three machines that add.
fn sums() -> [Arc<Manner>; 3] {
    [(); 3].map(|()| {
        let manner = Arc::<Manner>::default();
        manner.has_sessions.store(true, Ordering::Relaxed);
        manner
    })
}

fn node_starts_over(name: &str, fabric: FabricKind, net: u8) {
    let manners = sums();
    let trio = Trio::new(name, fabric, net, |at| Sum { manner: Arc::clone(&manners[at]), ..Sum::default() });
    let (group, at) = (trio.group(), (trio.leader() + 1) % 3);
    let client = trio.connect(at);
    manners[at].panics.store(true, Ordering::Relaxed);
    let called = Arc::new(AtomicU64::new(0));
    let caller = {
        let (client, called) = (client.clone(), Arc::clone(&called));
        thread::spawn(move || {
            for number in (1..=10).chain([PANIC]).chain(1..=300) {
                client.call(group, &u64::to_le_bytes(number)).wait().expect("the command is applied");
                called.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(5));
            }
        })
    };
    until("it is poisoned", || trio.status(at).poisoned);
    manners[at].panics.store(false, Ordering::Relaxed);
    until("it has recovered", || trio.status(at).poisoned.is_none().then_some(()));
    until("it has joined", || (!trio.status(at).joining).then_some(()));
    assert!(called.load(Ordering::Relaxed) < 311, "calls were under way");
    caller.join().expect("all commands are answered");
    let state = |at: usize| trio.node(at).inspect(|sum| (sum.count, sum.order)).expect("the node runs");
    until("all agree", || (state(0) == state(1) && state(1) == state(2)).then_some(()));
    assert_eq!(state(at).0, 311, "each once");
    if fabric == FabricKind::Shm {
        // With an embedded client, the node sleeps on a set of descriptors, which must include the new member's fabric.
        ends_a_sleep(|| drop(trio.status(at)));
    }
    client.close().expect("the client ends in order");
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn a_client_survives_the_restart_of_its_node_after_a_panic() {
    node_starts_over("over-shm", FabricKind::Shm, 16);
}

#[test]
fn a_client_survives_the_restart_of_its_node_after_a_panic_on_roce() {
    node_starts_over("over-roce", FabricKind::Roce, 17);
}

#[test]
fn a_client_of_a_lagging_member_is_answered_by_the_others() {
    let manners = sums();
    let trio = Trio::new("lags", FabricKind::Shm, 18, |at| Sum { manner: Arc::clone(&manners[at]), ..Sum::default() });
    let (group, at) = (trio.group(), (trio.leader() + 1) % 3);
    let client = trio.connect(at);
    let before = trio.status(at).commands;
    manners[at].once_ms.store(10_000, Ordering::Relaxed);
    let since = Instant::now();
    for number in 1..=20 {
        client.call(group, &u64::to_le_bytes(number)).wait().expect("the command is applied");
    }
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    let status = trio.status(at);
    assert_eq!((status.commands, manners[at].once_ms.load(Ordering::Relaxed)), (before, 0), "{status:?}");
}

/// Groups of one member each in one process, with a given number of client ids.
struct Pair {
    cluster: Cluster,
    nodes: [NodeHandle<Log>; 2],
    _directory: TempDir,
}

impl Pair {
    fn new(name: &str, clients: u16) -> Pair {
        let directory = TempDir::new();
        let limits = Limits { clients, ..Limits::default() };
        let builder = Cluster::builder(name).directory(&*directory).limits(limits);
        let builder = builder.group("g1", [("a", "127.0.0.1:7101")]).group("g2", [("x", "127.0.1.1:7101")]);
        let cluster = builder.build().expect("a valid cluster");
        let nodes = ["a", "x"].map(|name| cluster.node(name, Log::default()).spawn().expect("the node starts"));
        Pair { cluster, nodes, _directory: directory }
    }

    fn group(&self, name: &str) -> Group {
        self.cluster.group(name).expect("the group is in the configuration")
    }
}

#[test]
fn a_client_without_handles_ends_after_its_calls_and_frees_its_id() {
    let pair = Pair::new("handles", 1);
    let (group, [node, _other]) = (pair.group("g1"), pair.nodes);
    let since = Instant::now();
    for round in 0..5 {
        // The last answer may arrive before the node has ended the client and freed its id, which is the only one.
        let client = until("the client id is free", || node.client().connect().ok());
        let clone = client.clone();
        // Nobody waits for this call.
        drop(client.call(group, &command(0, round)));
        let call = client.call(group, &command(1, round));
        drop((client, clone));
        call.wait().expect("the command is applied without the client");
    }
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    assert_eq!(node.stop().expect("the node ran until it was stopped").0.len(), 10);
}

/// Calls `ask` repeatedly on an idle node, and checks that the answers are fast.
fn ends_a_sleep(ask: impl Fn()) {
    let answered = [(); 5].map(|()| {
        // After a second without work the node is idle, and sleeps for tens of milliseconds.
        thread::sleep(Duration::from_millis(1300));
        let since = Instant::now();
        ask();
        since.elapsed().as_secs_f64() * 1e3
    });
    let median = median(answered);
    assert!(median < 5.0, "{median} ms: {answered:?}");
}

#[test]
fn a_call_wakes_an_idle_node() {
    let pair = Pair::new("wakes", 1);
    let (group, client) = (pair.group("g1"), pair.nodes[0].client().connect().expect("the client connects"));
    ends_a_sleep(|| drop(client.call(group, b"next").wait().expect("the command is applied")));
}

/// If the stopping node did not end the session, the other node's group would keep it for 30 s.
#[test]
fn a_stopping_node_ends_the_sessions_of_its_clients() {
    let pair = Pair::new("farewell", 2);
    let (group, [node, other]) = (pair.group("g2"), pair.nodes);
    let client = node.client().groups(group).connect().expect("the client connects");
    client.call(group, b"first").wait().expect("the command is applied");
    let session = client.session();
    node.stop().expect("the node ran until it was stopped");
    let gone = other.client().groups(group).session(session).connect().expect_err("the session has ended");
    assert_eq!(gone.kind(), ClientErrorKind::SessionGone, "{gone}");
}

#[test]
fn a_turned_node_ends_its_clients_when_it_stops() {
    let directory = TempDir::new();
    let cluster = Cluster::builder("turned").directory(&*directory).group("g1", [("a", "127.0.0.1:7101")]);
    let cluster = cluster.group("g2", [("x", "127.0.1.1:7101")]).build().expect("a valid cluster");
    let other = cluster.node("x", Log::default()).spawn().expect("the node starts");
    let mut node = cluster.node("a", Log::default()).start().expect("the node starts");
    let builder = node.client();
    let connecting = thread::spawn(move || builder.connect().expect("the client connects"));
    while !connecting.is_finished() {
        let _ = node.turn().expect("the node still runs");
    }
    let client = connecting.join().expect("the client connects");
    other.stop().expect("the node ran until it was stopped");
    let waits = client.call(cluster.group("g2").unwrap(), b"waits");
    node.stopper().stop();
    until("it stops", || (node.turn().expect("the node still runs") == Turn::Stopped).then_some(()));
    for call in [waits, client.call(cluster.group("g1").unwrap(), b"late")] {
        let ended = call.wait().expect_err("the client has ended");
        assert!(is_of_the_end(&ended), "{ended:?}");
    }
    client.close().expect("the client has ended already");
}

#[test]
fn a_command_of_an_embedded_client_follows_observed_positions() {
    /// Difference between the clocks, in nanoseconds: less than their bound.
    const LEAP: u64 = 800_000_000;
    let pair = Pair::new("observes", 2);
    let (ahead, behind) = (pair.group("g1"), pair.group("g2"));
    let clients = [0, 1].map(|at: usize| pair.nodes[at].client().connect().expect("the client connects"));
    let call = |at: usize, group| clients[at].call(group, b"one").wait().expect("the command is applied").position();
    let mut far = call(0, ahead);
    far.time += LEAP;
    clients[0].observe(far).expect("clocks may be so far apart");
    let told = call(0, ahead);
    assert!(told > far);
    assert!(call(0, behind) > told, "the session has heard of it");
    clients[1].observe(told).expect("clocks may be so far apart");
    assert!(call(1, behind) > told);
}
