//! Nodes as a user runs them: in one process, on threads, in an event loop, and after one is gone.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stentor::config::FabricKind;
use stentor::runtime::{ClientId, ClusterRuntime, GroupId, Housekeeper, WaitMode, client_round};
use stentor::{
    Cluster, ConfigError, Context, Frozen, Node, NodeError, NodeHandle, Reply, StartError, StateMachine, Status,
    Stopper, Turn,
};
use stentor_fabric::Backoff;
use stentor_testutil::TempDir;

/// Adds what is multicast.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
struct Sum {
    sum: u64,
    last_time: u64,
    senders: Vec<String>,
}

impl StateMachine for Sum {
    type Frozen = Sum;

    fn apply(&mut self, at: &Context<'_>, command: &[u8], _: &mut Reply) {
        assert_ne!(command, b"panic", "as it was told");
        assert!(at.time() >= self.last_time && at.position().index > 0);
        self.last_time = at.time();
        self.sum += u64::from_le_bytes(command.try_into().expect("eight bytes"));
        if self.senders.iter().all(|sender| sender != at.sender()) {
            self.senders.push(at.sender().to_owned());
        }
    }

    fn freeze(&self) -> Sum {
        self.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut words = [0; 16];
        from.read_exact(&mut words)?;
        let [sum, last_time] = [0, 8].map(|at| u64::from_le_bytes(words[at..at + 8].try_into().expect("eight bytes")));
        let mut senders = String::new();
        from.read_to_string(&mut senders)?;
        *self = Sum { sum, last_time, senders: senders.split_terminator(' ').map(str::to_owned).collect() };
        Ok(())
    }
}

impl Frozen for Sum {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.sum.to_le_bytes())?;
        out.write_all(&self.last_time.to_le_bytes())?;
        self.senders.iter().try_for_each(|sender| write!(out, "{sender} "))
    }
}

const NAMES: [&str; 3] = ["a", "b", "c"];

fn cluster(name: &str, directory: &Path) -> Cluster {
    let members = NAMES.iter().zip(1..).map(|(name, n)| (*name, format!("127.0.0.1:710{n}")));
    let silence = Duration::from_millis(400)..=Duration::from_millis(800);
    Cluster::builder(name).group("g", members).election(silence).directory(directory).build().expect("a sound cluster")
}

fn until<T>(what: &str, mut is: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = is() {
            return found;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "waits for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Multicasts these numbers, and waits until a majority has each.
fn send(cluster: &Cluster, directory: &Path, numbers: impl Iterator<Item = u64>) {
    let members =
        NAMES.iter().zip(1..).map(|(name, n)| format!("{{ id = \"{name}\", address = \"127.0.0.1:710{n}\" }}"));
    let members: Vec<_> = members.collect();
    let text = format!(
        "cluster = \"{}\"\nfabric = \"shm\"\n[election]\nkind = \"heartbeat\"\ntimeout_min_ms = 400\ntimeout_max_ms = 800\n\
         [[group]]\nid = \"g\"\nprocess = [ {} ]\n",
        cluster.name(),
        members.join(", ")
    );
    let config = stentor::ClusterConfig::parse(Path::new("same.toml"), &text).expect("valid");
    let plan = ClusterRuntime::new(config).expect("possible");
    let mut client = plan.client(ClientId(0), directory.to_owned()).expect("starts");
    let (mut backoff, mut housekeeper) = (Backoff::new(WaitMode::ADAPTIVE), Housekeeper::default());
    let (since, to) = (Instant::now(), [GroupId(0)]);
    let mut numbers = numbers.peekable();
    while numbers.peek().is_some() || client.outstanding() > 0 {
        while let Some(number) = numbers.peek()
            && client.is_connected(&to)
            && client.submit(&to, &number.to_le_bytes(), true).is_ok()
        {
            numbers.next();
        }
        client_round(&mut client, &mut backoff, &mut housekeeper, false).expect("waits");
        assert!(since.elapsed() < Duration::from_secs(60), "stuck with {} outstanding", client.outstanding());
    }
}

fn sum_of(handle: &NodeHandle<Sum>) -> u64 {
    handle.inspect(|machine| machine.sum).expect("it runs")
}

fn leads(status: &Status) -> bool {
    status.leads && !status.joining
}

#[test]
fn a_group_goes_on_without_its_leader_and_takes_it_in_again_with_the_state() {
    let directory = TempDir::new();
    let cluster = cluster("nodes", &directory);
    let spawn = |name| cluster.node(name, Sum::default()).spawn().expect("starts");
    let mut nodes: Vec<NodeHandle<Sum>> = NAMES.iter().map(|name| spawn(name)).collect();
    let leader =
        |nodes: &[NodeHandle<Sum>]| nodes.iter().position(|node| node.status().is_ok_and(|status| leads(&status)));
    let first = until("a leader", || leader(&nodes));
    send(&cluster, &directory, 1..=100);
    until("all have applied", || nodes.iter().all(|node| sum_of(node) == 5050).then_some(()));
    let stopped = nodes.remove(first);
    let left = stopped.stop().expect("it runs until it is stopped");
    assert_eq!((left.sum, left.senders), (5050, vec!["c0".to_owned()]));
    let second = until("another leader", || leader(&nodes));
    send(&cluster, &directory, 101..=200);
    until("both have applied", || nodes.iter().all(|node| sum_of(node) == 20_100).then_some(()));
    nodes.push(spawn(NAMES[first]));
    until("the state came", || (sum_of(&nodes[2]) == 20_100).then_some(()));
    let status = until("it is back, and connected to both", || {
        let status = nodes[2].status().expect("it runs");
        (!status.joining && status.others.iter().all(|other| other.connected)).then_some(status)
    });
    assert_eq!(status.commands, 200);
    let all = nodes[second].status().expect("it runs");
    // A member leads only once it has told that it would.
    until("it hands over", || nodes[second].hand_over(&status.name).ok());
    until("the third leads", || nodes[2].status().is_ok_and(|status| leads(&status)).then_some(()));
    let error = nodes[second].hand_over("nobody").expect_err("there is no such member");
    assert!(error.to_string().starts_with(&all.name) && error.to_string().contains("no other member"), "{error}");
    assert!(!error.remedy().is_empty());
}

#[test]
fn a_look_that_panics_or_asks_the_node_itself_harms_nobody() {
    let directory = TempDir::new();
    let node = Arc::new(cluster("looks", &directory).node("a", Sum::default()).spawn().expect("starts"));
    let looked = catch_unwind(AssertUnwindSafe(|| node.inspect(|_| panic!("as it was told"))));
    assert!(looked.is_err(), "whoever looks panics");
    assert_eq!(sum_of(&node), 0, "and the node goes on");
    let own = Arc::clone(&node);
    let looked = node.inspect(move |_| (own.status().map(drop), own.inspect(|_| ()))).expect("it runs");
    assert!(looked.0.is_ok(), "the protocol goes on meanwhile");
    let error = looked.1.expect_err("it would wait for itself");
    assert!(error.to_string().contains("its own thread") && error.remedy().contains("another thread"), "{error}");
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

/// Turns all, and sleeps if none is busy. Returns whether it slept.
fn turn_all(nodes: &mut [Node<Sum>], mut stopped: impl FnMut(usize)) -> bool {
    let mut until = None;
    for (at, node) in nodes.iter_mut().enumerate() {
        match node.turn().expect("it goes on") {
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
    poll(&mut descriptors, Some(&timeout)).expect("sleeps");
    true
}

#[test]
fn a_connection_wakes_nodes_at_rest_on_roce_and_does_not_keep_them_awake() {
    let directory = TempDir::new();
    let key = directory.join("key");
    std::fs::write(&key, [7; 32]).expect("writes");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("its own file");
    let address = |n: usize| format!("127.{}.11.{}:7101", 64 + std::process::id() % 128, n + 1);
    let members = NAMES.iter().zip(0..).map(|(name, n)| (*name, address(n)));
    let builder = Cluster::builder("rest").fabric(FabricKind::Roce).key(&format!("file:{}", key.display()));
    let cluster = builder.group("g", members).directory(&*directory).build().expect("a sound cluster");
    let start = |name: &&str| cluster.node(name, Sum::default()).wait(WaitMode::BLOCK).start().expect("starts");
    let mut nodes: Vec<_> = NAMES.iter().map(start).collect();
    let mut sleeps_in = |time: Duration| {
        let (since, mut sleeps) = (Instant::now(), 0);
        while since.elapsed() < time {
            sleeps += u32::from(turn_all(&mut nodes, |_| ()));
        }
        sleeps
    };
    until("they rest", || (sleeps_in(Duration::from_millis(200)) < 30).then_some(()));
    // At moments that have nothing to do with those of the nodes.
    let connect = move |n: usize| {
        std::thread::sleep(Duration::from_millis(37));
        TcpStream::connect(address(n % 3)).expect("it listens")
    };
    let connections = std::thread::spawn(move || (0..20).map(connect).collect::<Vec<_>>());
    let sleeps = sleeps_in(Duration::from_millis(800));
    drop(connections.join().expect("all were made"));
    assert!(sleeps < 1000, "{sleeps}");
}

#[test]
fn nodes_turn_in_an_event_loop_of_the_callers_and_stop() {
    let directory = TempDir::new();
    let cluster = cluster("loop", &directory);
    let start = |name: &&str| cluster.node(name, Sum::default()).wait(WaitMode::BLOCK).start().expect("starts");
    let mut nodes: Vec<_> = NAMES.iter().map(start).collect();
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
    assert_eq!(nodes[0].inspect(|machine| machine.sum).expect("it has not panicked"), 0);
}

#[test]
fn a_node_that_is_idle_stays_idle_when_it_is_turned_again() {
    let directory = TempDir::new();
    let cluster = cluster("idle", &directory);
    let mode = WaitMode { spins: 0, yields: 0, sleep: true };
    let mut node = cluster.node("a", Sum::default()).wait(mode).start().expect("starts");
    let turns: Vec<_> = (0..200).map(|_| node.turn().expect("it goes on")).collect();
    let idle = turns.iter().filter(|turn| matches!(turn, Turn::Idle(_))).count();
    assert!(idle > 150, "a loop with two nodes sleeps only when both are idle: {idle} of 200");
}

#[test]
fn what_does_not_start_says_why_and_what_to_do() {
    let directory = TempDir::new();
    let cluster = cluster("errors", &directory);
    let error = cluster.node("d", Sum::default()).start().expect_err("there is no such process");
    assert!(error.to_string().starts_with("d does not start: there is no process `d`"), "{error}");
    let error = cluster.node("c0", Sum::default()).start().expect_err("that is a client");
    assert!(error.to_string().contains("is not a member of a group") && !error.remedy().is_empty(), "{error}");
    assert!(error.to_string().ends_with(&error.remedy()), "{error}");
    let simulated = Cluster::builder("errors").fabric(FabricKind::Sim).group("g", [("a", "127.0.0.1:7101")]);
    let error =
        simulated.build().expect("a sound cluster").node("a", Sum::default()).start().expect_err("nobody runs there");
    assert!(error.to_string().contains("fabric `sim`"), "{error}");
    let node = cluster.node("a", Sum::default()).start().expect("starts");
    let error = cluster.node("a", Sum::default()).start().expect_err("it runs already");
    assert!(error.to_string().contains("is running already") && error.remedy().contains("stop"), "{error}");
    drop(node);
}
