//! Answers of a node to operators of the same host, in various situations of the node.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stentor::config::FabricKind;
use stentor::operator::{Answer, Question, Standing, ask};
use stentor::runtime::{ClusterRuntime, find};
use stentor::{CallError, ClientErrorKind, Cluster, ClusterConfig, NodeHandle, Refused, StartErrorKind, Why};
use stentor_fabric::ProcessId;
use stentor_testutil::{TempDir, median};

use crate::nodes::{Manner, PANIC, Sum};
use crate::until::until;

/// Returns the sockets of a process of a cluster on this host.
fn sockets(directory: &TempDir, meeting: &str, process: u16) -> Vec<PathBuf> {
    stentor_host::all_beside(directory, meeting, ProcessId(process)).expect("the directory is this user's")
}

fn show(paths: &[PathBuf]) -> Option<Standing> {
    match ask(paths, &Question::Show).ok()?? {
        Answer::Standing(standing) => Some(*standing),
        other => panic!("{other:?}"),
    }
}

/// An idle node sleeps for tens of milliseconds.
#[test]
fn an_idle_node_answers_an_operator_at_once() {
    let directory = TempDir::new();
    let cluster = Cluster::builder("asked").directory(&directory).group("g", [("ga", "127.0.0.1:7101")]);
    let node = cluster.build().expect("a valid cluster").node("ga", Sum::default()).spawn().expect("the node starts");
    let paths = until("it listens", || Some(sockets(&directory, "asked", 0)).filter(|paths| !paths.is_empty()));
    until("it leads", || show(&paths).filter(|standing| standing.leads));
    // After a second without work the node is idle.
    std::thread::sleep(Duration::from_millis(1500));
    let answered = [(); 15].map(|()| {
        std::thread::sleep(Duration::from_millis(30));
        let since = Instant::now();
        show(&paths).expect("the node answers");
        since.elapsed().as_secs_f64() * 1e3
    });
    let median = median(answered);
    assert!(median < 5.0, "{median} ms: {answered:?}");
    drop(node);
}

/// Returns the name of the cluster's directory of sockets, the only one in the directory.
fn meeting(directory: &TempDir) -> String {
    let mut entries = std::fs::read_dir(directory.join(""))
        .expect("the entry can be read")
        .map(|entry| entry.expect("the entry can be read"));
    let meeting = entries.find(|entry| entry.path().is_dir()).expect("the nodes run");
    meeting.file_name().into_string().expect("UTF-8")
}

/// On `roce` the path of the socket outlives the member, so the node listens at the same path again.
#[test]
fn a_node_answers_operators_again_after_a_panic() {
    for fabric in [FabricKind::Shm, FabricKind::Roce] {
        let (directory, keys) = (TempDir::new(), TempDir::new());
        std::fs::write(keys.join("key"), "0123456789abcdef0123456789abcdef\n").expect("the key can be written");
        let net = std::process::id() % 250 + 1;
        let members = ["a", "b", "c"].iter().zip(1..).map(|(name, n)| (*name, format!("127.165.{net}.{n}:7101")));
        let builder = Cluster::builder(&format!("over-{fabric}")).fabric(fabric).directory(&directory);
        let builder = builder.election(Duration::from_millis(400)..=Duration::from_millis(800));
        let builder = builder.key(&format!("file:{}", keys.join("key").display())).group("g", members);
        let cluster = builder.build().expect("a valid cluster");
        let manners: [Arc<Manner>; 3] = std::array::from_fn(|_| Arc::default());
        let _nodes: [NodeHandle<Sum>; 3] = std::array::from_fn(|at| {
            manners[at].has_sessions.store(true, Ordering::Relaxed);
            let machine = Sum { manner: Arc::clone(&manners[at]), ..Sum::default() };
            cluster.node(["a", "b", "c"][at], machine).spawn().expect("the node starts")
        });
        let standing = |at: usize| show(&sockets(&directory, &meeting(&directory), at as u16));
        let leader = until("one leads", || (0..3).find(|at| standing(*at).is_some_and(|standing| standing.leads)));
        let socket = || {
            let paths = sockets(&directory, &meeting(&directory), leader as u16);
            paths
                .iter()
                .filter_map(|path| path.metadata().ok())
                .map(|socket| (socket.ino(), socket.ctime_nsec()))
                .collect::<Vec<_>>()
        };
        let before = socket();
        manners[leader].panics.store(true, Ordering::Relaxed);
        let client = cluster.client().connect().expect("the client connects");
        client
            .call(cluster.group("g").expect("the group is in the configuration"), &PANIC.to_le_bytes())
            .wait()
            .expect("two apply it");
        // The machine may be poisoned for too short a time to be seen.
        until("it listens again", || Some(socket()).filter(|now| !now.is_empty() && *now != before));
        let again = until("it answers, and is taken in", || standing(leader).filter(|standing| !standing.joining));
        assert_eq!((again.id.as_str(), again.pid), (["a", "b", "c"][leader], std::process::id()));
    }
}

/// A program may run several members, each of which describes itself.
#[test]
fn members_of_one_program_are_distinct_and_duplicates_are_refused() {
    let directory = TempDir::new();
    let file = directory.join("cluster.toml");
    let member = |n| format!("{{ id = \"m.{n}\", address = \"127.0.0.{n}:7101\" }}");
    let text = format!(
        "cluster = \"told-apart-{}\"\nfabric = \"shm\"\n[election]\nkind = \"heartbeat\"\n[[group]]\nid = \"g\"\nprocess = [ {} ]\n",
        std::process::id(),
        [1, 2, 3].map(member).join(", ")
    );
    std::fs::write(&file, text).expect("the configuration can be written");
    let cluster = Cluster::load(&file).expect("a valid cluster");
    let start = |name: &str| cluster.node(name, Sum::default()).start();
    let nodes = ["m.1", "m.2", "m.3"].map(|name| start(name).expect("the node starts"));
    let config = ClusterConfig::load(&file).expect("a valid configuration");
    let plan = ClusterRuntime::new(config).expect("the configuration is possible").with_file(&file);
    for process in 0..3 {
        let found = find(&plan, ProcessId(process));
        assert_eq!(found.len(), 1, "{found:?}");
        // The paths must be those of the member itself.
        let sockets = found[0].paths();
        let is_its = |path: &PathBuf| path.to_string_lossy().contains(&format!("-m.{}.", process + 1));
        assert!(!sockets.is_empty() && sockets.iter().all(is_its), "{sockets:?}");
    }
    let error = start("m.2").map(drop).expect_err("the node runs already");
    assert_eq!(error.kind(), StartErrorKind::AlreadyRunning);
    let text = error.to_string();
    let file = file.canonicalize().expect("the configuration file exists");
    assert!(text.contains(&format!("is running already, as pid {}, with configuration", std::process::id())), "{text}");
    assert!(error.remedy().contains(&format!("`stentor stop --config {} --directory ", file.display())), "{text}");
    assert!(error.remedy().contains("--id m.2`"), "{text}");
    drop(nodes);
}

/// Two of three members lose their memory, and the group continues with the state of the third.
#[test]
fn clients_of_a_reset_group_get_an_error_and_reconnect() {
    let directory = TempDir::new();
    let members = ["a", "b", "c"].iter().zip(1..).map(|(name, n)| (*name, format!("127.0.0.{n}:7101")));
    let cluster = Cluster::builder("reset").directory(&directory).group("g", members).build().expect("a valid cluster");
    let start = |name| {
        let machine = Sum::default();
        machine.manner.has_sessions.store(true, Ordering::Relaxed);
        cluster.node(name, machine).spawn().expect("the node starts")
    };
    let nodes = ["a", "b", "c"].map(|name| (name, start(name)));
    let (client, group) = (
        cluster.client().connect().expect("the client connects"),
        cluster.group("g").expect("the group is in the configuration"),
    );
    client.call(group, &5_u64.to_le_bytes()).wait().expect("the command is applied");
    let standing = |at: u16| show(&sockets(&directory, &meeting(&directory), at));
    until("all have applied it", || (0..3).all(|at| standing(at).is_some_and(|it| it.delivered >= 2)).then_some(()));
    let mut left = None;
    for (name, node) in nodes {
        if name == "b" {
            left = Some(node);
        } else {
            drop(node.stop().expect("the node ran until it was stopped"));
        }
    }
    let _again = ["a", "c"].map(start);
    let pending = client.call(group, &7_u64.to_le_bytes());
    let ends = until("it is alone", || standing(1).map(|it| it.ends).filter(|ends| !ends.is_empty()));
    let paths = || sockets(&directory, &meeting(&directory), 1);
    let reset = Question::Reset { ends, empty: false };
    until("the next incarnation", || {
        let _ = ask(&paths(), &reset);
        standing(1).filter(|it| it.leads && it.incarnation.starts_with("2-"))
    });
    // The error depends on when the client noticed the loss of the members.
    let told = pending.wait().expect_err("the command was in flight to the previous history");
    let is_told = matches!(&told, CallError::Unknown(_, Why::GroupReset(of)) | CallError::NotApplied(Refused::GroupReset(of)) if *of == group);
    assert!(is_told, "{told:?}");
    let refused = client.call(group, &9_u64.to_le_bytes()).wait().expect_err("the client has to connect again");
    assert!(matches!(refused, CallError::NotApplied(Refused::GroupReset(of)) if of == group), "{refused:?}");
    let session = client.leave().expect("its session lives on");
    let refused = cluster.client().session(session).connect().expect_err("the session used the history before");
    assert_eq!(refused.kind(), ClientErrorKind::GroupReset, "{refused}");
    assert!(refused.to_string().contains("a group was reset"), "{refused}");
    let client = cluster.client().connect().expect("the client connects");
    client.call(group, &1_u64.to_le_bytes()).wait().expect("the command is applied");
    let sum = left.expect("the node was not stopped").inspect(|sum| sum.sum);
    assert_eq!(sum.expect("the node runs"), 6, "the state was kept");
}
