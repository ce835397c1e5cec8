//! Errors of clients, nodes and configurations: a program decides by their kind.

use std::time::Duration;

use stentor::config::Limits;
use stentor::{
    Client, ClientErrorKind, Cluster, ConfigErrorKind, NodeErrorKind, NodeHandle, Session, StartErrorKind, Ticket,
};
use stentor_testutil::TempDir;

#[path = "common/log.rs"]
mod log;

use log::{Log, numbers, until};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn cluster(name: &str, limits: Limits, directory: &TempDir) -> Cluster {
    let silence = Duration::from_millis(400)..=Duration::from_millis(800);
    let members = NAMES.iter().zip(1..).map(|(name, n)| (*name, format!("127.0.0.{n}:7101")));
    let builder = Cluster::builder(name).limits(limits).election(silence).directory(directory);
    builder.group("g1", members).build().expect("a sound cluster")
}

fn nodes(cluster: &Cluster) -> Vec<NodeHandle<Log>> {
    NAMES.map(|name| cluster.node(name, Log::default()).spawn().expect("it starts")).into()
}

#[test]
fn an_error_of_a_client_has_a_kind_to_decide_by() {
    let directory = TempDir::new();
    let cluster = cluster("error-kinds", Limits { clients: 2, sessions: 1, ..Limits::DEFAULT }, &directory);
    let kind = |client: Result<Client, stentor::ClientError>| client.expect_err("it is not let in").kind();
    let brief = cluster.client().patience(Duration::from_millis(300));
    assert_eq!(kind(brief.connect()), ClientErrorKind::Unreachable);
    assert_eq!(Session::from_bytes(b"none").expect_err("it is none").kind(), ClientErrorKind::Argument);
    assert_eq!(Ticket::from_bytes(b"none").expect_err("it is none").kind(), ClientErrorKind::Argument);

    let _nodes = nodes(&cluster);
    let first = cluster.client().connect().expect("it is let in");
    let session = first.session();
    assert_eq!(kind(cluster.client().connect()), ClientErrorKind::TooManySessions);
    let second = cluster.client().session(session.clone()).connect().expect("it takes the session up");
    assert_eq!(kind(cluster.client().connect()), ClientErrorKind::NoPlace);
    drop(first);
    second.close().expect("it ends in order");
    let gone = until("a place", || {
        let gone = cluster.client().session(session.clone()).connect().expect_err("the session has ended");
        (gone.kind() != ClientErrorKind::NoPlace).then_some(gone)
    });
    assert_eq!(gone.kind(), ClientErrorKind::SessionGone, "{gone}");
    assert!(gone.to_string().contains("connect without it"), "{gone}");
}

#[test]
fn sizes_that_leave_no_room_for_a_session_are_a_kind_of_their_own() {
    let directory = TempDir::new();
    let cluster = cluster("error-limits", Limits { reply_bytes: 0, ..Limits::DEFAULT }, &directory);
    let error = cluster.client().patience(Duration::ZERO).connect().expect_err("nobody is answered");
    assert_eq!(error.kind(), ClientErrorKind::Limits);
}

#[test]
fn an_error_of_a_node_has_a_kind_to_decide_by() {
    let directory = TempDir::new();
    let cluster = cluster("error-nodes", Limits::DEFAULT, &directory);
    let kind = |name: &str| cluster.node(name, Log::default()).start().map(drop).expect_err("it does not start").kind();
    assert_eq!(kind("nobody"), StartErrorKind::Configuration);
    let node = cluster.node("a", Log::default()).spawn().expect("it starts");
    assert_eq!(kind("a"), StartErrorKind::AlreadyRunning);
    assert_eq!(node.hand_over("b").expect_err("it does not lead").kind(), NodeErrorKind::NotHandedOver);
    node.stopper().stop();
    until("its end", || node.has_ended().then_some(()));
    assert_eq!(node.status().expect_err("it has ended").kind(), NodeErrorKind::Gone);
}

#[test]
fn an_error_of_a_configuration_has_a_kind_to_decide_by() {
    let directory = TempDir::new();
    let file = directory.join("cluster.toml");
    let kind = || Cluster::load(&file).expect_err("it is refused").kind();
    assert_eq!(kind(), ConfigErrorKind::Absent);
    std::fs::write(&file, "cluster = \"c\"\n").expect("it can be written");
    assert_eq!(kind(), ConfigErrorKind::Invalid);
    let cluster = cluster("error-files", Limits::DEFAULT, &directory);
    assert_eq!(cluster.group("g9").expect_err("there is none").kind(), ConfigErrorKind::UnknownGroup);
}
