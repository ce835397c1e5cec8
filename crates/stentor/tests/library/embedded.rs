//! Clients embedded in nodes: servers that are their own clients, on shared memory and on RoCEv2 with one address for
//! each member.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use stentor::config::Limits;
use stentor::{
    ApplyThread, CallError, Client, ClientErrorKind, Cluster, Context, FabricKind, Group, NodeHandle, Refused, Reply,
    StateMachine, Stateless, Turn, Why,
};
use stentor_testutil::TempDir;

use crate::log::{Log, numbers, until};

pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];
const EACH: u64 = 300;

/// Returns an address in the network of a test. No two concurrent tests have the same network.
fn address(net: u8, n: u8) -> IpAddr {
    Ipv4Addr::new(127, 64 + (std::process::id() % 128) as u8, net, n).into()
}

pub(crate) fn cluster(name: &str, fabric: FabricKind, net: u8, directory: &Path) -> Cluster {
    let key = directory.join("key");
    std::fs::write(&key, "a key of this test, long enough for a cluster").expect("the key is written");
    let silence = Duration::from_millis(400)..=Duration::from_millis(800);
    let builder = Cluster::builder(name).fabric(fabric).election(silence).directory(directory);
    let builder = if fabric == FabricKind::Shm { builder } else { builder.key(&format!("file:{}", key.display())) };
    let members = NAMES.iter().zip(1..).map(|(name, n)| (*name, format!("{}:7101", address(net, n))));
    builder.group("g1", members).build().expect("a valid cluster")
}

/// A group of three in one process, each member with an embedded client.
struct Running {
    cluster: Cluster,
    nodes: Vec<Option<NodeHandle<Log>>>,
    clients: Vec<Client>,
    _directory: TempDir,
}

impl Running {
    fn new(name: &str, fabric: FabricKind, net: u8) -> Running {
        let directory = TempDir::new();
        let cluster = cluster(name, fabric, net, &directory);
        let start = |name: &&str| Some(cluster.node(name, Log::default()).spawn().expect("the node starts"));
        let nodes: Vec<_> = NAMES.iter().map(start).collect();
        let connect = |node: &Option<NodeHandle<Log>>| node.as_ref().expect("the node runs").client().connect();
        let clients = nodes.iter().map(|node| connect(node).expect("the client connects")).collect();
        Running { cluster, nodes, clients, _directory: directory }
    }

    fn group(&self) -> Group {
        self.cluster.group("g1").expect("the group is in the configuration")
    }

    fn leader(&self) -> usize {
        until("a leader", || {
            let leads = |node: &Option<NodeHandle<Log>>| {
                let status = node.as_ref().and_then(|node| node.status().ok());
                status.is_some_and(|status| status.leads && !status.joining)
            };
            self.nodes.iter().position(leads)
        })
    }

    /// Waits until a node has applied a number of commands. An answer does not imply that this member has applied the
    /// call.
    fn wait_for(&self, at: usize, commands: usize) {
        let node = self.nodes[at].as_ref().expect("the node runs");
        let applied = || node.inspect(|log| log.0.len()).expect("the node runs");
        until("it applies all commands", || (applied() >= commands).then_some(()));
    }

    /// Stops a node. Returns its value.
    fn stop(&mut self, at: usize) -> Log {
        self.nodes[at].take().expect("the node runs").stop().expect("the node ran until it was stopped")
    }
}

pub(crate) fn command(client: usize, number: u64) -> Vec<u8> {
    format!("{client} {number}").into_bytes()
}

/// Makes concurrent calls from all clients, and checks the log.
fn all_call(mut running: Running) {
    let group = running.group();
    thread::scope(|scope| {
        for (n, client) in running.clients.iter().enumerate() {
            scope.spawn(move || {
                let one = client.call(group, &command(n, 0)).wait().expect("the command is applied");
                assert_eq!(numbers(one.bytes()).0, 1);
                let calls: Vec<_> = (1..EACH).map(|number| client.call(group, &command(n, number))).collect();
                for call in calls {
                    assert_eq!(numbers(call.wait().expect("the command is applied").bytes()).0, 1, "once");
                }
            });
        }
    });
    for client in std::mem::take(&mut running.clients) {
        client.close().expect("the client ends in order");
    }
    running.wait_for(0, 3 * EACH as usize);
    let mut log = running.stop(0);
    assert_eq!(log.0.len() as u64, 3 * EACH, "each once");
    log.0.sort();
    log.0.dedup();
    assert_eq!(log.0.len() as u64, 3 * EACH, "each");
}

#[test]
fn servers_call_through_embedded_clients() {
    all_call(Running::new("embed-shm", FabricKind::Shm, 1));
}

#[test]
fn servers_on_roce_call_through_embedded_clients_at_one_address() {
    all_call(Running::new("embed-roce", FabricKind::Roce, 2));
}

/// Stops the leader while a client in another node has calls in flight.
fn leader_stops(mut running: Running) {
    let (group, leader) = (running.group(), running.leader());
    let other = (leader + 1) % 3;
    let client = running.clients[other].clone();
    let caller = thread::spawn(move || {
        let calls: Vec<_> = (0..2000).map(|number| client.call(group, &command(other, number))).collect();
        calls
            .into_iter()
            .map(|call| numbers(call.wait().expect("the command is applied").bytes()).0)
            .collect::<Vec<_>>()
    });
    let first = until("some are applied", || {
        let count = running.nodes[leader].as_ref()?.inspect(|log| log.0.len()).ok()?;
        (count > 20).then_some(count)
    });
    assert!(first < 2000, "calls are under way");
    running.stop(leader);
    assert_eq!(caller.join().expect("all commands are answered"), vec![1; 2000]);
    assert!(running.leader() != leader);
    running.wait_for(other, 2000);
    let mut log = running.stop(other);
    assert_eq!(log.0.len(), 2000, "each once");
    log.0.sort();
    log.0.dedup();
    assert_eq!(log.0.len(), 2000, "each");
    // The client that was embedded in the leader's node has ended with the node.
    let ended = running.clients[leader].call(group, b"late").wait();
    assert!(matches!(ended, Err(CallError::NotApplied(Refused::ClientEnded))), "{ended:?}");
}

#[test]
fn calls_of_a_client_in_another_process_outlive_the_leader() {
    leader_stops(Running::new("embed-leader", FabricKind::Shm, 3));
}

#[test]
fn calls_of_a_client_in_another_process_outlive_the_leader_on_roce() {
    leader_stops(Running::new("embed-leader-roce", FabricKind::Roce, 4));
}

/// A machine that calls its own cluster while it applies, and replies with the outcome.
struct Calls(Arc<Mutex<Option<(Client, Group)>>>);

impl StateMachine for Calls {
    type Frozen = Stateless;

    fn apply(&mut self, _: &Context<'_>, command: &[u8], reply: &mut Reply) {
        let client = self.0.lock().expect("no thread panics while it holds the lock").clone();
        if let Some((client, group)) = client.filter(|_| command == b"ask") {
            let why = match client.call(group, b"inner").wait() {
                Err(CallError::NotApplied(Refused::WouldDeadlock)) => "refused",
                Err(CallError::Unknown(_, Why::WouldDeadlock)) => "goes on",
                _ => "waited",
            };
            reply.extend(why.as_bytes());
            let prepared = client.prepare(group, b"inner").wait();
            assert!(matches!(prepared, Err(CallError::NotApplied(Refused::WouldDeadlock))), "{prepared:?}");
            let closed = client.close().expect_err("closing would wait for its own thread");
            assert_eq!(closed.kind(), ClientErrorKind::WouldDeadlock);
        }
    }

    fn freeze(&self) -> Stateless {
        Stateless
    }

    fn restore(&mut self, _: &mut dyn Read) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn waiting_on_an_apply_thread_is_an_error() {
    for (net, thread) in [(5, ApplyThread::Own), (6, ApplyThread::Protocol)] {
        let directory = TempDir::new();
        let cluster = cluster(&format!("embed-apply-{net}"), FabricKind::Shm, net, &directory);
        let own = Arc::new(Mutex::new(None));
        // Only one machine of the group calls.
        let start = |(n, name): (usize, &&str)| {
            let calls = Calls(if n == 0 { Arc::clone(&own) } else { Arc::default() });
            cluster.node(name, calls).apply_on(thread).spawn().expect("the node starts")
        };
        let nodes: Vec<_> = NAMES.iter().enumerate().map(start).collect();
        until("a leader", || nodes.iter().any(|node| node.status().is_ok_and(|status| status.leads)).then_some(()));
        until("the first leads", || {
            let leads = |node: &NodeHandle<Calls>| node.status().is_ok_and(|status| status.leads);
            if let Some(leader) = nodes.iter().position(leads).filter(|at| *at > 0) {
                let _ = nodes[leader].hand_over(NAMES[0]);
            }
            leads(&nodes[0]).then_some(())
        });
        let (client, group) = (nodes[0].client().connect().expect("the client connects"), cluster.group("g1").unwrap());
        *own.lock().unwrap() = Some((client.clone(), group));
        let other = cluster.client().connect().expect("the client connects");
        let since = Instant::now();
        let answer = other.call(group, b"ask").wait().expect("the command is applied");
        let told = String::from_utf8_lossy(answer.bytes()).into_owned();
        assert!(told == "refused" || told == "goes on" && thread == ApplyThread::Own, "{told}");
        assert!(since.elapsed() < Duration::from_secs(5));
        other.call(group, b"more").wait().expect("the group goes on");
        *own.lock().unwrap() = None;
    }
}

#[test]
fn waiting_on_a_turning_thread_is_an_error_and_polling_works() {
    let directory = TempDir::new();
    let cluster = cluster("embed-turn", FabricKind::Shm, 7, &directory);
    let _others: Vec<_> =
        NAMES[1..].iter().map(|name| cluster.node(name, Log::default()).spawn().expect("the node starts")).collect();
    let mut node = cluster.node(NAMES[0], Log::default()).start().expect("the node starts");
    assert_ne!(node.turn().expect("the node still runs"), Turn::Stopped);
    let refused = node.client().connect().expect_err("connecting would wait for its own thread");
    assert_eq!(refused.kind(), ClientErrorKind::WouldDeadlock);
    let builder = node.client();
    let connecting = thread::spawn(move || builder.connect().expect("the client connects"));
    while !connecting.is_finished() {
        turn(&mut node);
    }
    let (client, group) = (connecting.join().expect("the client connects"), cluster.group("g1").unwrap());
    for _ in 0..200 {
        // The node accepts the request to add the client during one of these turns.
        turn(&mut node);
    }
    let refused = client.call(group, b"waits").wait();
    assert!(matches!(refused, Err(CallError::NotApplied(Refused::WouldDeadlock))), "{refused:?}");
    let mut call = Box::pin(client.call(group, b"polled"));
    let answer = until("an answer", || {
        turn(&mut node);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match call.as_mut().poll(&mut context) {
            std::task::Poll::Ready(answer) => Some(answer.expect("the command is applied")),
            std::task::Poll::Pending => None,
        }
    });
    assert_eq!(numbers(answer.bytes()), (1, 1), "what was refused was never sent");
    drop(node);
    let ended = client.call(group, b"late").wait();
    assert!(matches!(ended, Err(CallError::NotApplied(Refused::ClientEnded))), "{ended:?}");
}

/// Runs a round, and the sleep that it requests.
fn turn<S: StateMachine>(node: &mut stentor::Node<S>) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    match node.turn().expect("the node still runs") {
        Turn::Idle(until) => {
            let left = until.saturating_duration_since(Instant::now());
            let time = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            poll(&mut [PollFd::new(node, PollFlags::IN)], Some(&time)).expect("the node's descriptor can be polled");
        }
        Turn::Busy | Turn::Stopped => {}
    }
}

#[test]
fn memory_plan_includes_embedded_clients() {
    let directory = TempDir::new();
    let plan = cluster("embed-plan", FabricKind::Shm, 9, &directory).memory();
    let (member, client) = (
        plan.of(Some(3)).expect("the plan has rows for members"),
        plan.of(None).expect("the plan has rows for clients"),
    );
    assert_eq!(plan.with_embedded(3, 0), Some(member.bytes()));
    assert_eq!(plan.with_embedded(3, 2), Some(member.bytes() + 2 * client.bytes()));
    assert!(client.bytes() > 0 && plan.with_embedded(4, 1).is_none());
    assert!(usize::from(Limits::DEFAULT.clients) >= NAMES.len(), "a client of each member has a place");
}
