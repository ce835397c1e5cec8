//! Tests that the commands of operators reach the nodes of a user's program, the example `counter`, just as they reach
//! `stentor node`.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use stentor::{Cluster, Context, Reply, StateMachine, Stateless};

use crate::support::{Ran, Scratch, ran, stentor};

/// Maximum time for which a test waits for one step.
const PATIENCE: Duration = Duration::from_secs(30);
const NAMES: [&str; 3] = ["g1.1", "g1.2", "g1.3"];

/// A cluster of counters, whose processes are killed at the end of the test.
struct Counters {
    scratch: Scratch,
    nodes: [Option<Child>; 3],
}

impl Drop for Counters {
    fn drop(&mut self) {
        for node in self.nodes.iter_mut().flatten() {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

impl Counters {
    /// Starts the three counters. `net` is a network of loopback addresses that no other test uses.
    fn start(fabric: &str, net: u8) -> Self {
        let (scratch, id) = (Scratch::new(), std::process::id());
        let key = scratch.file("cluster.key", "0123456789abcdef0123456789abcdef\n");
        let key = if fabric == "shm" { String::new() } else { format!("key = \"file:{}\"\n", key.display()) };
        let member = |n: u8| format!("{{ id = \"g1.{n}\", address = \"127.{net}.{}.{n}:7101\" }}", id % 250 + 1);
        let members = [1, 2, 3].map(member).join(", ");
        let text = format!(
            "cluster = \"counters-{fabric}-{id}\"\nfabric = \"{fabric}\"\n{key}[election]\nkind = \"heartbeat\"\n\
             timeout_min_ms = 400\ntimeout_max_ms = 800\n[[group]]\nid = \"g1\"\nprocess = [ {members} ]\n"
        );
        scratch.file("cluster.toml", &text);
        let mut counters = Counters { scratch, nodes: [const { None }; 3] };
        (0..3).for_each(|at| counters.start_node(at));
        counters
    }

    fn directory(&self) -> PathBuf {
        self.scratch.path("")
    }

    fn counter(&self) -> Command {
        let own = std::env::current_exe().expect("this program");
        let built = own.ancestors().nth(2).expect("the test program lies in `deps`").join("examples/counter");
        assert!(built.exists(), "{} is needed: cargo build -p stentor --example counter", built.display());
        let mut command = Command::new(built);
        command.current_dir(self.directory()).env("XDG_RUNTIME_DIR", self.directory());
        command
    }

    fn start_node(&mut self, at: usize) {
        let said = File::create(self.scratch.path(NAMES[at])).unwrap();
        let node = self
            .counter()
            .arg(NAMES[at])
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .expect("the node's program starts");
        self.nodes[at] = Some(node);
    }

    fn kill(&mut self, at: usize) {
        let mut node = self.nodes[at].take().expect("the node runs");
        node.kill().unwrap();
        node.wait().unwrap();
    }

    /// Waits until a node that an operator stopped ends by itself, without an error.
    fn has_ended(&mut self, at: usize) {
        let mut node = self.nodes[at].take().expect("the node was started");
        let since = Instant::now();
        let status = loop {
            if let Some(status) = node.try_wait().unwrap() {
                break status;
            }
            assert!(since.elapsed() < PATIENCE, "{} goes on", NAMES[at]);
            std::thread::sleep(Duration::from_millis(5));
        };
        let said = fs::read_to_string(self.scratch.path(NAMES[at])).unwrap();
        assert!(status.success() && said.is_empty(), "{}: {said}", NAMES[at]);
    }

    fn ask(&self, words: &[&str]) -> Ran {
        let mut command = stentor();
        command.args(words).arg("--config").arg(self.scratch.path("cluster.toml"));
        ran(&command.env("XDG_RUNTIME_DIR", self.directory()).stdin(Stdio::null()).output().unwrap())
    }

    /// Runs `leader show` until its document satisfies `what`, and returns that document.
    fn shows(&self, what: impl Fn(&Value) -> bool) -> Value {
        let since = Instant::now();
        loop {
            let shown = self.ask(&["leader", "show", "--json"]).document("leader-show");
            if what(&shown) {
                return shown;
            }
            assert!(since.elapsed() < PATIENCE, "{shown:#}");
        }
    }

    /// Adds 5 to the counter and returns its new value.
    fn add(&self) -> i64 {
        let added = ran(&self.counter().output().expect("the counter's program runs"));
        assert_eq!(added.code, 0, "{}", added.stderr);
        added.stdout.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
    }
}

fn all_work(shown: &Value) -> bool {
    shown["ok"] == true && shown["groups"][0]["working"].as_array().is_some_and(|working| working.len() == 3)
}

/// Runs the operator's commands against the nodes: they show and move the leadership, refuse a second process with the
/// same name, stop one node, reset a group that has lost its majority, and stop all nodes.
fn operate(fabric: &str, net: u8) {
    let mut counters = Counters::start(fabric, net);
    let shown = counters.shows(all_work);
    for (member, node) in shown["members"].as_array().unwrap().iter().zip(&counters.nodes) {
        assert_eq!(member["pid"], node.as_ref().unwrap().id(), "{shown:#}");
    }
    let to = if shown["groups"][0]["leader"] == "g1.2" { "g1.3" } else { "g1.2" };
    let moved = counters.ask(&["leader", "move", "--to", to, "--json"]);
    assert_eq!(moved.code, 0, "{}", moved.stderr);
    assert_eq!(moved.document("leader-move")["to"], to);
    counters.shows(|shown| shown["groups"][0]["leader"] == to);
    assert_eq!(counters.add(), 5);

    // The program and the command refuse a second process with the same name in the same words.
    let twin = ran(&counters.counter().arg("g1.2").output().unwrap());
    let file = fs::canonicalize(counters.scratch.path("cluster.toml")).unwrap();
    let said = format!("is running already, as pid {}, with configuration", counters.nodes[1].as_ref().unwrap().id());
    let remedy = format!("stop that process (`stentor stop --config {} --directory ", file.display());
    assert!(twin.code == 1 && twin.stderr.contains(&said) && twin.stderr.contains(&remedy), "{}", twin.stderr);
    counters.ask(&["node", "--id", "g1.2"]).refused(&[&said, &remedy]);

    let stopped = counters.ask(&["stop", "--id", "g1.3", "--json"]);
    assert_eq!(stopped.code, 0, "{}{}", stopped.stdout, stopped.stderr);
    assert_eq!(stopped.document("stop")["members"][0]["state"], "stopped");
    counters.has_ended(2);
    counters.start_node(2);
    counters.shows(all_work);

    // A majority loses its memory. The operator resets the group to the state of the third member.
    for at in [0, 1] {
        counters.kill(at);
    }
    for at in [0, 1] {
        counters.start_node(at);
    }
    counters.shows(|shown| {
        let joins = |at: usize| shown["members"][at]["state"] == "joins";
        joins(0) && joins(1) && shown["ok"] == false
    });
    let told = counters.ask(&["group", "reset", "--group", "g1"]);
    let ends = told.stderr.split("--ends ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let ends = ends.unwrap_or_else(|| panic!("the message has the arguments to type: {}", told.stderr));
    let done = counters.ask(&["group", "reset", "--group", "g1", "--ends", ends, "--from", "g1.3", "--json"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(done.document("group-reset")["ended"], ends);
    counters.shows(all_work);
    assert_eq!(counters.add(), 10, "the state is that of g1.3");

    let stopped = counters.ask(&["stop", "--json"]);
    assert_eq!(stopped.code, 0, "{}{}", stopped.stdout, stopped.stderr);
    (0..3).for_each(|at| counters.has_ended(at));
}

#[test]
fn operators_reach_the_nodes_of_a_program_on_shared_memory() {
    operate("shm", 163);
}

#[test]
fn operators_reach_the_nodes_of_a_program_on_roce() {
    operate("roce", 164);
}

/// A state machine without a state.
struct Nothing;

impl StateMachine for Nothing {
    type Frozen = Stateless;

    fn apply(&mut self, _: &Context<'_>, _: &[u8], _: &mut Reply) {}

    fn freeze(&self) -> Stateless {
        Stateless
    }

    fn restore(&mut self, _: &mut dyn Read) -> io::Result<()> {
        Ok(())
    }
}

/// A node closes its control socket before it frees its name. The program keeps the node for a second in between.
#[test]
fn stop_waits_until_the_name_of_the_node_is_free() {
    let (scratch, id) = (Scratch::new(), std::process::id());
    let text = format!(
        "cluster = \"stop-waits-{id}\"\nfabric = \"shm\"\n[[group]]\nid = \"g1\"\n\
         process = [ {{ id = \"g1.1\", address = \"127.0.0.1:7101\" }} ]\n"
    );
    let config = scratch.file("cluster.toml", &text);
    let cluster = Cluster::load(&config).expect("a valid configuration").in_directory(scratch.path(""));
    let mut node = cluster.node("g1.1", Nothing).start().expect("the node starts");
    let is_kept = Arc::new(AtomicBool::new(true));
    let program = {
        let is_kept = Arc::clone(&is_kept);
        std::thread::spawn(move || {
            node.run().expect("the node runs until it is stopped");
            std::thread::sleep(Duration::from_secs(1));
            is_kept.store(false, Ordering::Relaxed);
            drop(node);
        })
    };
    let mut stop = stentor();
    stop.args(["stop", "--json", "--config"]).arg(config).arg("--directory").arg(scratch.path(""));
    let stopped = ran(&stop.stdin(Stdio::null()).output().unwrap());
    assert_eq!(stopped.document("stop")["members"][0]["state"], "stopped", "{}", stopped.stderr);
    assert!(!is_kept.load(Ordering::Relaxed), "the node still has its name");
    program.join().expect("the node's thread does not panic");
}
