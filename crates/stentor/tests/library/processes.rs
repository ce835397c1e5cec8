//! Nodes as processes that are killed and stopped under load: no command is lost or applied twice, even if the client
//! dies.
//!
//! The nodes and a client are this test program, started again with a role.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use stentor::{CallError, Cluster, Refused, Session, Ticket};
use stentor_testutil::TempDir;

use crate::log::{Log, numbers, until};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Environment variable with the role of a process that this program starts.
const ROLE: &str = "STENTOR_TEST_ROLE";
const DIRECTORY: &str = "STENTOR_TEST_DIRECTORY";

fn cluster(directory: &Path) -> Cluster {
    let silence = Duration::from_millis(400)..=Duration::from_millis(800);
    let members = NAMES.iter().zip(1..).map(|(name, n)| (*name, format!("127.0.0.{n}:7101")));
    let builder = Cluster::builder("processes").election(silence).directory(directory).group("g", members);
    builder.build().expect("a valid cluster")
}

/// A process, which is killed when this is dropped.
struct Process(Child);

impl Process {
    fn start(role: &str, directory: &Path) -> Process {
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "processes::a_process_takes_its_role", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(DIRECTORY, directory)
            .stdout(Stdio::null())
            .spawn();
        Process(child.expect("this program can be started again"))
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, signal).expect("the process runs, and is a child of this one");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The entry point of the processes of this test. In the test run itself it does nothing, because it has no role.
#[test]
fn a_process_takes_its_role() {
    let (Ok(role), Some(directory)) = (std::env::var(ROLE), std::env::var_os(DIRECTORY)) else { return };
    let directory = Path::new(&directory);
    let cluster = cluster(directory);
    match role.strip_prefix("client ") {
        Some(first) => client(&cluster, directory, first.parse().expect("a number")),
        None => node(&cluster, directory, &role),
    }
}

/// Runs a node until it is killed. It creates a file when it has joined, because it does not count for a majority
/// before.
fn node(cluster: &Cluster, directory: &Path, name: &str) {
    let node = cluster.node(name, Log::default()).spawn().expect("the node starts");
    until("it takes part", || node.status().ok().filter(|status| !status.joining));
    replace(&directory.join(name), b"takes part");
    while !node.has_ended() {
        thread::sleep(Duration::from_millis(50));
    }
    panic!("it ended: {:?}", node.status());
}

/// Starts a node, and waits until it has joined.
fn started(name: &str, directory: &Path) -> Process {
    let said = directory.join(name);
    let _ = std::fs::remove_file(&said);
    let process = Process::start(name, directory);
    until("it takes part", || said.exists().then_some(()));
    process
}

/// Sends commands with increasing numbers, beginning with `first`, forever. It stores the session and, before each
/// call, the ticket. A later process needs both to continue.
fn client(cluster: &Cluster, directory: &Path, first: u64) {
    let (session, ticket) = (directory.join("session"), directory.join("ticket"));
    let group = cluster.group("g").expect("the group is in the configuration");
    let builder = cluster.client().patience(Duration::from_secs(30));
    let builder = match std::fs::read(&session) {
        Ok(bytes) => builder.session(Session::from_bytes(&bytes).expect("its own bytes")),
        Err(_) => builder,
    };
    let client = builder.connect().expect("the client connects");
    replace(&session, &client.session().to_bytes());
    let mut number = first;
    if let Ok(bytes) = std::fs::read(&ticket) {
        let (unsure, bytes) = bytes.split_first_chunk::<8>().expect("a number");
        let unsure = u64::from_le_bytes(*unsure);
        let ticket = Ticket::from_bytes(bytes).expect("its own bytes");
        match client.resolve(&ticket).wait() {
            Ok(answer) => {
                assert_eq!(numbers(answer.bytes()).0, 1);
                number = unsure + 1;
            }
            // The command is not applied, and never will be, so the same number is used again.
            Err(CallError::NotApplied(Refused::Closed)) => number = unsure,
            Err(other) => panic!("{other}"),
        }
    }
    loop {
        let prepared = client.prepare(group, &number.to_le_bytes()).wait().expect("the command gets its number");
        replace(&ticket, &[&number.to_le_bytes()[..], &prepared.ticket().to_bytes()].concat());
        let answer = prepared.send().wait().expect("a member leads again before the time of the call is over");
        assert_eq!(numbers(answer.bytes()), (1, number), "lost or doubled");
        replace(&directory.join("done"), &number.to_le_bytes());
        number += 1;
    }
}

/// Replaces a file atomically.
fn replace(file: &Path, bytes: &[u8]) {
    let new = file.with_extension("new");
    std::fs::write(&new, bytes).and_then(|()| std::fs::rename(&new, file)).expect("the directory can be written");
}

fn done(directory: &Path) -> u64 {
    let bytes = std::fs::read(directory.join("done")).unwrap_or_default();
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Waits until the client has made some more calls.
fn goes_on(directory: &Path) -> u64 {
    let before = done(directory);
    until("the client goes on", || Some(done(directory)).filter(|now| *now > before + 20))
}

#[test]
fn no_command_is_lost_or_doubled_when_processes_are_killed_or_stopped() {
    let directory = TempDir::new();
    let mut nodes: BTreeMap<_, _> = NAMES.iter().map(|name| (*name, Process::start(name, &directory))).collect();
    let mut client = Process::start("client 1", &directory);
    goes_on(&directory);
    for round in 0..9 {
        let name = NAMES[round % 3];
        match round % 2 {
            0 => {
                nodes.remove(name);
                goes_on(&directory);
                nodes.insert(name, started(name, &directory));
            }
            _ => {
                nodes[name].signal(Signal::STOP);
                goes_on(&directory);
                nodes[name].signal(Signal::CONT);
            }
        }
        if round % 3 == 2 {
            drop(client);
            client = Process::start("client 1", &directory);
        }
        goes_on(&directory);
    }
    drop(client);
    let since = Instant::now();
    let (cluster, group) = (cluster(&directory), "g");
    let client = cluster.client().patience(Duration::from_secs(30)).connect().expect("the client connects");
    let last = client
        .call(cluster.group(group).expect("the group is in the configuration"), b"last")
        .wait()
        .expect("the command is applied");
    // One more command may have been applied, whose answer the dead client did not see.
    let (times, length) = numbers(last.bytes());
    let expected = done(&directory) + 1;
    assert!(times == 1 && (expected..=expected + 1).contains(&length), "{length} of {expected} commands");
    assert!(since.elapsed() < Duration::from_secs(30));
}
