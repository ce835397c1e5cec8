//! The log of a node: its start, the members that its group waits for, the leader, the loss of a majority's memory, and
//! a reset.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use log::{Level, LevelFilter, Metadata, Record};
use stentor::operator::{Answer, Question, ask};
use stentor::{Cluster, NodeHandle};
use stentor_fabric::ProcessId;
use stentor_testutil::TempDir;

#[path = "common/log.rs"]
mod state;
#[path = "common/until.rs"]
mod until;

use state::{Log, numbers, until};

/// A logger that keeps all lines.
struct Capture(Mutex<Vec<(Level, String)>>);

static CAPTURE: Capture = Capture(Mutex::new(Vec::new()));

impl log::Log for Capture {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        self.lines().push((record.level(), record.args().to_string()));
    }

    fn flush(&self) {}
}

impl Capture {
    fn lines(&self) -> std::sync::MutexGuard<'_, Vec<(Level, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, level: Level, start: &str) -> bool {
        self.lines().iter().any(|(of, line)| *of == level && line.starts_with(start))
    }

    fn until(&self, level: Level, start: &str) {
        until(start, || self.has(level, start).then_some(()));
    }

    /// Removes all lines, so that later ones can be distinguished.
    fn clear(&self) {
        self.lines().clear();
    }
}

#[test]
fn node_logs_missing_members_the_leader_and_the_loss_of_memory() {
    log::set_logger(&CAPTURE).expect("no other logger is set");
    log::set_max_level(LevelFilter::Info);
    let directory = TempDir::new();
    let silence = Duration::from_millis(400)..=Duration::from_millis(800);
    let members = ["a", "b", "c"].iter().zip(1..).map(|(name, n)| (*name, format!("127.0.0.{n}:7101")));
    let builder = Cluster::builder("node-log").election(silence).directory(&directory);
    let cluster = builder.group("g1", members).build().expect("a valid cluster");
    let spawn =
        |name: &str| -> NodeHandle<Log> { cluster.node(name, Log::default()).spawn().expect("the node starts") };

    let a = spawn("a");
    CAPTURE.until(Level::Info, "a: starts as a member of g1 of cluster node-log, with b, c");
    CAPTURE.until(Level::Warn, "a: waits for members b, c: g1 begins when all its members are there");
    let (b, c) = (spawn("b"), spawn("c"));
    for name in ["a", "b", "c"] {
        CAPTURE.until(Level::Info, &format!("{name}: g1 begins from nothing"));
    }
    let told = |start: &str| CAPTURE.lines().iter().filter(|(_, line)| line.contains(start)).count();
    until("all members know the leader", || (told(": leads g1") == 1 && told(": follows ") >= 2).then_some(()));

    let group = cluster.group("g1").expect("the group is in the configuration");
    let client = cluster.client().connect().expect("the client connects");
    let before = CAPTURE.lines().len();
    (0..500_u64).for_each(|number| {
        let answer = client.call(group, &number.to_le_bytes()).wait().expect("the command is applied");
        assert_eq!(numbers(answer.bytes()).0, 1);
    });
    let after = CAPTURE.lines().len();
    assert!(after < before + 10, "nothing is logged per message: {:?}", CAPTURE.lines());
    client.close().expect("the client ends in order");

    assert!(!CAPTURE.lines().iter().any(|(_, line)| line.contains("lost its majority")), "{:?}", CAPTURE.lines());
    CAPTURE.clear();
    drop([b, c].map(|node| node.stop().expect("the node ran until it was stopped")));
    CAPTURE.until(Level::Warn, "a: g1 has lost its majority: 1 of its 3 members");
    let (b, c) = (spawn("b"), spawn("c"));
    CAPTURE.until(
        Level::Warn,
        "b: 2 of 3 members of g1 have no memory of it, so nobody is taken in: stop a and start it anew, then g1 begins from \
         nothing; or `stentor group reset --group g1` goes on with the state that is left",
    );
    CAPTURE.until(
        Level::Warn,
        "a: g1 has lost its majority: 1 of its 3 members have its state and are there, 2 have to, and nothing is \
                                delivered; b, c without memory; ",
    );
    // This is the remedy that the line names.
    drop(a.stop());
    let a = spawn("a");
    CAPTURE.until(Level::Info, "a: starts as a member of g1");
    until("the group starts again", || (told(": g1 begins from nothing") == 3).then_some(()));
    a_reset_is_logged(&cluster, &directory, [a, b, c]);
}

/// Two members lose their memory, and an operator resets the group, which continues with the state of the third.
fn a_reset_is_logged(cluster: &Cluster, directory: &TempDir, [a, b, c]: [NodeHandle<Log>; 3]) {
    let spawn =
        |name: &str| -> NodeHandle<Log> { cluster.node(name, Log::default()).spawn().expect("the node starts") };
    let client = cluster.client().connect().expect("the client connects");
    client
        .call(cluster.group("g1").expect("the group is in the configuration"), &7_u64.to_le_bytes())
        .wait()
        .expect("the command is applied");
    client.close().expect("the client ends in order");
    CAPTURE.clear();
    drop([b, c].map(|node| node.stop().expect("the node ran until it was stopped")));
    CAPTURE.until(Level::Warn, "a: g1 has lost its majority: 1 of its 3 members");
    let (b, c) = (spawn("b"), spawn("c"));
    CAPTURE.until(Level::Warn, "b: 2 of 3 members of g1 have no memory of it");
    let asked = |question: &Question| {
        let paths = stentor_host::all_beside(directory, "node-log", ProcessId(0))
            .expect("the sockets' directory belongs to this user");
        ask(&paths, question).expect("the node answers").expect("the node listens")
    };
    let Answer::Standing(standing) = asked(&Question::Show) else { panic!("no standing") };
    assert_eq!(asked(&Question::Reset { ends: standing.ends, empty: false }), Answer::Moving);
    CAPTURE.until(Level::Warn, "a: an operator reset g1: it goes on in incarnation ");
    for name in ["b", "c"] {
        CAPTURE.until(Level::Info, &format!("{name}: taken in by its group, which has delivered "));
    }
    drop((a, b, c));
}
