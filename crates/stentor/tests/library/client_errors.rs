//! Errors of clients, nodes and configurations, and the fate of the session when a client ends.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stentor::config::{FabricKind, Limits};
use stentor::{
    CallError, Client, ClientErrorKind, Cluster, ConfigErrorKind, NodeErrorKind, NodeHandle, NotSent, Refused, Session,
    StartErrorKind, Ticket, Why,
};
use stentor_testutil::TempDir;

use crate::log::{Log, numbers, until};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn cluster(name: &str, limits: Limits, directory: &TempDir) -> Cluster {
    let silence = Duration::from_millis(400)..=Duration::from_millis(800);
    let members = NAMES.iter().zip(1..).map(|(name, n)| (*name, format!("127.0.0.{n}:7101")));
    let builder = Cluster::builder(name).limits(limits).election(silence).directory(directory);
    builder.group("g1", members).build().expect("a valid cluster")
}

fn nodes(cluster: &Cluster) -> Vec<NodeHandle<Log>> {
    NAMES.map(|name| cluster.node(name, Log::default()).spawn().expect("the node starts")).into()
}

/// Returns a cluster on `roce` with a key file of its own, which contains `key`.
fn keyed(key: u8, directory: &TempDir, network: u8) -> Cluster {
    let path = directory.join(format!("{key}.key"));
    std::fs::write(&path, [key; 32]).expect("the key is written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("it is the file of this user");
    let address = |n: usize| format!("127.{}.{network}.{n}:7101", 64 + std::process::id() % 128);
    let members = NAMES.iter().zip(1..).map(|(name, n)| (*name, address(n)));
    let builder = Cluster::builder("keyed").fabric(FabricKind::Roce).key(&format!("file:{}", path.display()));
    builder.group("g1", members).directory(directory).build().expect("a valid cluster")
}

#[test]
fn client_with_another_key_learns_who_refuses_it_and_does_not_wait() {
    let directory = TempDir::new();
    let [cluster, other] = [1, 2].map(|key| keyed(key, &directory, 21));
    let nodes = nodes(&cluster);
    cluster.client().connect().expect("the nodes have the same key");
    let since = Instant::now();
    let error = other.client().patience(Duration::from_secs(60)).connect().expect_err("the nodes have another key");
    assert!(since.elapsed() < Duration::from_secs(30), "waiting does not help");
    assert_eq!((error.kind(), error.is_retryable()), (ClientErrorKind::Refused, false), "{error}");
    let text = error.to_string();
    for part in ["a at 127.", " and c at 127.", "they have another key than this process", "waiting does not help"] {
        assert!(text.contains(part), "{text}");
    }
    drop(nodes);
}

#[test]
fn client_connects_although_one_member_has_another_key() {
    let directory = TempDir::new();
    let [cluster, other] = [1, 2].map(|key| keyed(key, &directory, 22));
    let (nodes_turn, over) = (AtomicBool::new(true), AtomicBool::new(false));
    let start = |name| cluster.node(name, Log::default()).start().expect("the node starts");
    let mut nodes = ["a", "b"].map(start);
    let third = cluster.node("c", Log::default()).spawn().expect("the node starts");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The time is limited, because a test that fails does not set `over`.
            let since = Instant::now();
            while !over.load(Ordering::Relaxed) && since.elapsed() < Duration::from_secs(90) {
                if nodes_turn.load(Ordering::Relaxed) {
                    for node in &mut nodes {
                        let _ = node.turn().expect("the node continues");
                    }
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        cluster.client().connect().expect("the nodes have the same key");
        third.stop().expect("the node stops in order");
        nodes_turn.store(false, Ordering::Relaxed);
        let stranger = other.node("c", Log::default()).spawn().expect("the node starts");
        let brief = cluster.client().patience(Duration::from_secs(2)).connect().expect_err("only `c` answers");
        assert_eq!(brief.kind(), ClientErrorKind::Unreachable, "{brief}");
        assert!(brief.to_string().contains("the last connection was refused: c at 127."), "{brief}");
        let connects = scope.spawn(|| cluster.client().patience(Duration::from_secs(60)).connect());
        // By then `c` has refused the client for long enough, but the other members may still answer.
        std::thread::sleep(Duration::from_millis(1500));
        nodes_turn.store(true, Ordering::Relaxed);
        let connected = connects.join().expect("the client's thread has ended");
        over.store(true, Ordering::Relaxed);
        connected.expect("a majority has the key");
        drop(stranger);
    });
}

#[test]
fn client_errors_have_kinds() {
    let directory = TempDir::new();
    let cluster = cluster("error-kinds", Limits { clients: 2, sessions: 1, ..Limits::DEFAULT }, &directory);
    let kind = |client: Result<Client, stentor::ClientError>| {
        let error = client.expect_err("the client is refused");
        let passes = [ClientErrorKind::Unreachable, ClientErrorKind::NoPlace, ClientErrorKind::TooManySessions]
            .contains(&error.kind());
        assert_eq!(error.is_retryable(), passes, "{error}");
        error.kind()
    };
    let brief = cluster.client().patience(Duration::from_millis(300));
    assert_eq!(kind(brief.clone().connect()), ClientErrorKind::Unreachable);
    assert_eq!(Session::from_bytes(b"none").expect_err("the bytes are no session").kind(), ClientErrorKind::Argument);
    assert_eq!(Ticket::from_bytes(b"none").expect_err("the bytes are no ticket").kind(), ClientErrorKind::Argument);

    let _nodes = nodes(&cluster);
    let first = cluster.client().connect().expect("the client connects");
    let session = first.session();
    assert_eq!(kind(cluster.client().connect()), ClientErrorKind::TooManySessions);
    let second = cluster.client().session(session.clone()).connect().expect("the client resumes the session");
    let since = Instant::now();
    assert_eq!(kind(brief.connect()), ClientErrorKind::NoPlace);
    assert!(since.elapsed() >= Duration::from_millis(300), "it waits for a place");
    // The next client is patient, so it gets the place of a client that ends meanwhile.
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        second.close().expect("the client ends in order");
        drop(first);
    });
    let gone = cluster.client().session(session).connect().expect_err("the session has ended");
    ends.join().expect("the client has ended");
    assert_eq!((gone.kind(), gone.is_retryable()), (ClientErrorKind::SessionGone, false), "{gone}");
    assert!(gone.to_string().contains("connect without the session"), "{gone}");
}

#[test]
fn sizes_without_room_for_a_session_have_their_own_kind() {
    let directory = TempDir::new();
    let cluster = cluster("error-limits", Limits { reply_bytes: 0, ..Limits::DEFAULT }, &directory);
    let error = cluster.client().patience(Duration::ZERO).connect().expect_err("there are no replies");
    assert_eq!(error.kind(), ClientErrorKind::Limits);
}

#[test]
fn node_errors_have_kinds() {
    let directory = TempDir::new();
    let cluster = cluster("error-nodes", Limits::DEFAULT, &directory);
    let kind =
        |name: &str| cluster.node(name, Log::default()).start().map(drop).expect_err("the node does not start").kind();
    assert_eq!(kind("nobody"), StartErrorKind::Configuration);
    let node = cluster.node("a", Log::default()).spawn().expect("the node starts");
    assert_eq!(kind("a"), StartErrorKind::AlreadyRunning);
    assert_eq!(node.hand_over("b").expect_err("the node does not lead").kind(), NodeErrorKind::NotHandedOver);
    node.stopper().stop();
    until("its end", || node.has_ended().then_some(()));
    assert_eq!(node.status().expect_err("the node has ended").kind(), NodeErrorKind::Gone);
}

#[test]
fn configuration_errors_have_kinds() {
    let directory = TempDir::new();
    let file = directory.join("cluster.toml");
    let kind = || Cluster::load(&file).expect_err("the configuration is refused").kind();
    assert_eq!(kind(), ConfigErrorKind::Absent);
    std::fs::write(&file, "cluster = \"c\"\n").expect("the configuration can be written");
    assert_eq!(kind(), ConfigErrorKind::Invalid);
    let cluster = cluster("error-files", Limits::DEFAULT, &directory);
    assert_eq!(cluster.group("g9").expect_err("the name is unknown").kind(), ConfigErrorKind::UnknownGroup);
}

/// A `main` that returns an error prints its `Debug`.
#[test]
fn debug_equals_display_with_the_remedy() {
    fn check(error: &dyn std::error::Error, remedy: &str) {
        let (debug, display) = (format!("{error:?}"), error.to_string());
        assert_eq!(debug, display);
        assert!(display.contains(remedy), "{display}");
    }
    let directory = TempDir::new();
    let cluster = cluster("error-texts", Limits::DEFAULT, &directory);
    let group = cluster.group("g1").expect("the group is in the configuration");
    let error = cluster.client().patience(Duration::ZERO).connect().expect_err("no member runs");
    check(&error, &error.remedy());
    assert!(error.remedy().contains("leader show") && error.remedy().contains("NodeHandle::status"), "{error}");
    let error = cluster.node("nobody", Log::default()).start().map(drop).expect_err("the name is unknown");
    check(&error, &error.remedy());
    assert!(error.to_string().contains("Cluster::members") && !error.to_string().contains("config check"), "{error}");
    let node = cluster.node("a", Log::default()).spawn().expect("the node starts");
    let error = node.hand_over("b").expect_err("the node does not lead");
    check(&error, error.remedy());
    let error = cluster.group("g9").expect_err("the name is unknown");
    check(&error, &error.remedy());
    let error = cluster.broadcast("a").start().map(drop).expect_err("there is no [neb]");
    check(&error, &error.remedy());
    let connecting = stentor::Channel::connect("nowhere").directory(&directory).patience(Duration::from_millis(10));
    let error = connecting.open().map(drop).expect_err("no process listens");
    check(&error, &error.remedy());
    let unavailable = Refused::Unavailable(group);
    check(&unavailable, "NodeHandle::status");
    check(&Why::NotAsked(unavailable), "NodeHandle::status");
    check(&CallError::NotApplied(unavailable), "NodeHandle::status");
    check(&CallError::ReplyTooLong(group), "raise `reply_bytes`");
    check(&NotSent::Full, "send again");
}

/// The member waits for the other clocks for four times the clock bound, which is hours here.
#[test]
fn a_group_without_time_is_reported() {
    let directory = TempDir::new();
    let file = directory.join("cluster.toml");
    let text = format!(
        "cluster = \"no-time-{}\"\nfabric = \"shm\"\n[limits]\nclock_bound_ms = 3600000\n\
         [[group]]\nid = \"g1\"\nprocess = [ {{ id = \"a\", address = \"127.0.0.1:7001\" }} ]\n\
         [[group]]\nid = \"g2\"\nprocess = [ {{ id = \"x\", address = \"127.0.0.1:7002\" }} ]\n",
        std::process::id()
    );
    std::fs::write(&file, text).expect("the configuration can be written");
    let cluster = Cluster::load(&file).expect("a valid cluster").in_directory(directory.join("sockets"));
    let _node = cluster.node("a", Log::default()).spawn().expect("the node starts");
    let group = cluster.group("g1").expect("the group is in the configuration");
    let patience = Duration::from_secs(2);
    let error =
        cluster.client().groups(group).patience(patience).connect().expect_err("the client cannot learn the time");
    assert_eq!(error.kind(), ClientErrorKind::Unreachable);
    assert!(
        error.to_string().contains("the clock of group g1 is behind") && error.remedy().contains("clocks"),
        "{error}"
    );
}

#[test]
fn a_leaving_client_keeps_its_session_and_tickets() {
    let directory = TempDir::new();
    let cluster = cluster("client-leaves", Limits::DEFAULT, &directory);
    let _nodes = nodes(&cluster);
    let group = cluster.group("g1").expect("the group is in the configuration");
    let first = cluster.client().connect().expect("the client connects");
    let clone = first.clone();
    let prepared = first.prepare(group, b"once").wait().expect("the command gets its number");
    let ticket = prepared.ticket();
    let call = prepared.send();
    let session = first.leave().expect("the client leaves in order");
    assert_eq!(numbers(call.wait().expect("calls in flight are awaited").bytes()), (1, 1));
    let refused = clone.call(group, b"late").wait().expect_err("the client has left");
    assert_eq!(refused, CallError::NotApplied(Refused::ClientEnded));
    // Neither another clone nor the last drop ends the session that was left.
    clone.close().expect("the client has left in order");
    let session = Session::from_bytes(&session.to_bytes()).expect("its own bytes");
    let second = cluster.client().session(session).connect().expect("the client resumes the session");
    assert_eq!(numbers(second.resolve(&ticket).wait().expect("the command was applied").bytes()), (1, 1));

    let clone = second.clone();
    second.close().expect("the client ends in order");
    assert_eq!(clone.leave().expect_err("its session has ended").kind(), ClientErrorKind::SessionGone);
}

#[test]
fn a_leaving_local_client_keeps_its_session() {
    let directory = TempDir::new();
    let cluster = cluster("local-leaves", Limits::DEFAULT, &directory);
    let _nodes = nodes(&cluster);
    let group = cluster.group("g1").expect("the group is in the configuration");
    let mut first = cluster.client().connect_local().expect("the client connects");
    let request = first.submit(group, b"once").expect("the command is sent");
    let ticket = first.ticket(request).expect("the command is in flight");
    let mut ended = false;
    while !ended {
        let _ = first.turn(|_, _| ended = true).expect("the client still runs");
    }
    let session = first.leave();
    let second = cluster.client().session(session).connect().expect("the client resumes the session");
    assert_eq!(numbers(second.resolve(&ticket).wait().expect("the command was applied").bytes()), (1, 1));
}

#[test]
fn a_session_expires_after_its_ttl() {
    let directory = TempDir::new();
    let cluster = cluster("client-ttl", Limits::DEFAULT, &directory);
    for time in [Duration::from_millis(1999), Duration::from_millis(600_001), Duration::MAX] {
        let error = cluster.client().session_ttl(time).connect().expect_err("the time to live is out of range");
        assert_eq!(error.kind(), ClientErrorKind::Argument);
        assert!(error.to_string().contains("from 2 s to 600 s"), "{error}");
    }
    let _nodes = nodes(&cluster);
    let group = cluster.group("g1").expect("the group is in the configuration");
    let brief = cluster.client().session_ttl(Duration::from_secs(2)).connect().expect("the client connects");
    // The session is renewed while the client runs.
    std::thread::sleep(Duration::from_secs(3));
    brief.call(group, b"x").wait().expect("the session is alive");
    let session = brief.leave().expect("the client leaves in order");
    std::thread::sleep(Duration::from_millis(2500));
    let gone = cluster.client().session(session).connect().expect_err("the session has expired");
    assert_eq!(gone.kind(), ClientErrorKind::SessionGone, "{gone}");
}
