//! `stentor node` and `stentor cast`: a cluster whose processes the test starts.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Ran, Scratch, ran, run, stentor, violations};

/// Maximum time for which a test waits for one step.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A cluster of processes in one directory. Dropping it ends them.
pub(crate) struct Running {
    scratch: Scratch,
    config: PathBuf,
    nodes: Vec<(String, Child)>,
}

impl Running {
    pub(crate) fn new(groups: usize, replicas: usize, limits: &str) -> Self {
        let scratch = Scratch::new();
        // Each cluster has a unique name, because commands look for the members on this host by the name of their
        // cluster.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let cluster = format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut text = format!(
            "cluster = \"{cluster}\"\nfabric = \"shm\"\n[election]\nkind = \"heartbeat\"\n[limits]\n{limits}\n"
        );
        for group in 1..=groups {
            let member = |n| format!("{{ id = \"g{group}.{n}\", address = \"127.0.0.1:7{group}0{n}\" }}");
            let members = (1..=replicas).map(member).collect::<Vec<_>>().join(", ");
            text += &format!("[[group]]\nid = \"g{group}\"\nprocess = [ {members} ]\n");
        }
        let config = scratch.file("cluster.toml", &text);
        Running { scratch, config, nodes: Vec::new() }
    }

    /// Starts a cluster with these members.
    pub(crate) fn with(names: &[&str], groups: usize, replicas: usize, limits: &str) -> Self {
        let mut running = Running::new(groups, replicas, limits);
        names.iter().for_each(|name| running.start(name, &[]));
        running
    }

    pub(crate) fn meeting(&self) -> Vec<String> {
        let directory = self.scratch.path("run");
        ["--config", self.config.to_str().unwrap(), "--directory", directory.to_str().unwrap()]
            .map(str::to_owned)
            .into()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path(name)
    }

    pub(crate) fn start(&mut self, name: &str, more: &[&str]) {
        let create = |end: &str| File::create(self.path(&format!("{name}.{end}"))).unwrap();
        let mut command = stentor();
        let meeting = if more.contains(&"--directory") { self.meeting()[..2].to_vec() } else { self.meeting() };
        command.args(["node", "--id", name]).args(meeting).args(more).stdin(Stdio::piped());
        let child = command.stdout(create("out")).stderr(create("err")).spawn().expect("the command starts");
        self.nodes.push((name.to_owned(), child));
    }

    pub(crate) fn read(&self, name: &str, end: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.{end}"))).unwrap()
    }

    /// Waits until a file of a node satisfies `said`.
    pub(crate) fn until(&self, name: &str, end: &str, said: impl Fn(&str) -> bool) -> String {
        let since = Instant::now();
        loop {
            let text = self.read(name, end);
            if said(&text) {
                return text;
            }
            assert!(since.elapsed() < PATIENCE, "{name}: {text}\n{}", self.read(name, "err"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn until_recorded(&self, history: &str, deliveries: usize) {
        let since = Instant::now();
        while fs::read_to_string(self.path(history)).unwrap_or_default().matches(r#""e":"deliver""#).count()
            < deliveries
        {
            assert!(since.elapsed() < PATIENCE, "{history}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn signal(&mut self, name: &str, signal: Signal) -> Option<i32> {
        let at = self.nodes.iter().position(|(n, _)| n == name).expect("the node was started");
        let (_, mut child) = self.nodes.remove(at);
        kill_process(Pid::from_child(&child), signal).unwrap();
        child.wait().unwrap().code()
    }

    pub(crate) fn end_input(&mut self, name: &str) {
        let (_, child) = self.nodes.iter_mut().find(|(n, _)| n == name).expect("the node was started");
        drop(child.stdin.take());
    }

    pub(crate) fn pid(&self, name: &str) -> u32 {
        self.nodes.iter().find(|(n, _)| n == name).expect("the node was started").1.id()
    }

    /// Sends a signal to a member that keeps running or is stopped by it.
    pub(crate) fn interrupt(&self, name: &str, signal: Signal) {
        let (_, child) = self.nodes.iter().find(|(n, _)| n == name).expect("the node was started");
        kill_process(Pid::from_child(child), signal).unwrap();
    }

    pub(crate) fn cast(&self, input: &[u8], more: &[&str]) -> Ran {
        let mut command = stentor();
        command.arg("cast").args(self.meeting()).args(more);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A cast that is refused does not read its input.
        let _ = child.stdin.take().unwrap().write_all(input);
        let output: Output = child.wait_with_output().unwrap();
        ran(&output)
    }

    pub(crate) fn delivered(&self, name: &str, count: usize) -> Vec<Value> {
        let text = self.until(name, "out", |text| text.lines().count() >= count);
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for (_, child) in &mut self.nodes {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) const SMALL: &str = "message_bytes = 128\nwindow = 16\nclients = 2\nring_kib = 16\nbody_ring_kib = 16";

#[test]
fn members_deliver_in_one_order_and_the_history_passes() {
    let mut running = Running::new(2, 2, SMALL);
    let names = ["g1.1", "g1.2", "g2.1", "g2.2"];
    for name in names {
        let history = running.path(&format!("{name}.jsonl"));
        running.start(name, &["--history", history.to_str().unwrap(), "--operations"]);
    }
    let history = running.path("c0.jsonl");
    let input: Vec<u8> = (0..200).flat_map(|n| format!("line {n}\n").into_bytes()).chain(*b"\n\xff\xfe").collect();
    let recorded = ["--history", history.to_str().unwrap(), "--operations"];
    let cast = running.cast(&input, &[&["--to", "g2,g1", "--json"], &recorded[..]].concat());
    assert!(
        cast.code == 0 && cast.stderr.lines().all(|line| line.contains(" warn cast: waiting for ")),
        "{}",
        cast.stderr
    );
    let document = cast.document("cast");
    assert_eq!((&document["messages"], &document["outstanding"]), (&202.into(), &0.into()));
    assert_eq!(document["to"], serde_json::json!(["g1", "g2"]));
    for name in names {
        let delivered = running.delivered(name, 202);
        assert_eq!(delivered.len(), 202);
        delivered.iter().for_each(|line| assert!(violations("node-delivery", line).is_empty(), "{line}"));
        assert_eq!(
            (&delivered[7]["payload"], &delivered[7]["n"]),
            (&"line 7".into(), &9.into()),
            "after the opening of the session"
        );
        assert_eq!((&delivered[200]["payload"], &delivered[201]["payload_hex"]), (&"".into(), &"fffe".into()));
        let said = running.until(name, "err", |text| text.contains("all members are connected"));
        assert!(said.contains("memory, fixed from here on"), "{said}");
    }
    // Members are stopped only after the checks of their logs, because the remaining ones log each member that stops.
    for name in names {
        assert_eq!(running.signal(name, Signal::TERM), Some(0));
        assert!(running.read(name, "err").contains("stopped after 202 deliveries"));
    }
    for name in names {
        // A later life of the process would repeat these deliveries, so each life records where it begins.
        let recorded = running.read(name, "jsonl");
        let first = recorded.find(r#""e":"deliver""#).unwrap();
        assert_eq!(recorded[..first].matches(r#""e":"recover","from":0"#).count(), 1, "{name}");
        assert_eq!(recorded.matches(r#""e":"recover""#).count(), 1, "{name}");
    }
    let files = names.iter().chain(&["c0"]).map(|name| running.path(&format!("{name}.jsonl")));
    let judged = run([PathBuf::from("check"), "--complete".into(), "--json".into()].into_iter().chain(files));
    let document = judged.document("check");
    let properties = document["properties"].as_object().unwrap();
    assert!(properties.contains_key("M12"), "the session has heard of its opening: {document:#}");
    for (property, verdict) in properties {
        // No member failed, so none rejoined.
        let expected = if property == "M11" { "not_checked" } else { "ok" };
        assert_eq!(verdict, expected, "{property}: {document:#}");
    }
    assert!(!running.path("run").exists(), "nothing is left behind");
}

#[test]
fn restarted_member_reports_its_undelivered_messages() {
    let mut running = Running::new(1, 3, "");
    let path = |running: &Running, life: &str| running.path(&format!("{life}.jsonl")).to_str().unwrap().to_owned();
    for name in ["g1.1", "g1.2", "g1.3"] {
        running.start(name, &["--history", &path(&running, name)]);
    }
    let cast = |running: &Running, input: &[u8], history: &str| {
        let cast = running.cast(input, &["--to", "g1", "--history", &path(running, history)]);
        assert_eq!(cast.code, 0, "{}", cast.stderr);
    };
    cast(&running, b"one\ntwo\nthree\n", "c0");
    // The member that sends the state has delivered all three lines, too.
    for name in ["g1.1", "g1.2", "g1.3"] {
        running.delivered(name, 3);
    }
    // A member that is killed may not have reported its last deliveries to any other member.
    // The session's opening and end are deliveries, too.
    running.until_recorded("g1.3.jsonl", 5);
    running.signal("g1.3", Signal::KILL);
    // The later life has a smaller number, as after the wall clock was set back.
    running.start("g1.3", &["--history", &path(&running, "g1.3-again"), "--life", "1"]);
    let text = running.until("g1.3", "out", |text| text.ends_with("}\n"));
    let line: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    assert!(violations("node-restored", &line).is_empty() && line["restored"]["n"] == 5, "{line}");
    cast(&running, b"four\n", "c0-again");
    running.until("g1.3", "out", |text| text.contains("four"));
    for name in ["g1.1", "g1.2", "g1.3"] {
        assert_eq!(running.signal(name, Signal::TERM), Some(0));
    }
    let files = ["g1.1", "g1.2", "g1.3", "g1.3-again", "c0", "c0-again"].map(|name| path(&running, name));
    let check = |files: &[String]| run(["check", "--json"].map(str::to_owned).into_iter().chain(files.iter().cloned()));
    let document = check(&files).document("check");
    let properties = &document["properties"];
    assert!(document["ok"] == true && properties["M11"] == "ok" && properties["M1"] == "ok", "{document:#}");
    let first = fs::read_to_string(&files[3]).unwrap();
    let first: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    assert!(first["by"] == "g1.3" && first["began"].is_u64(), "{first}");
    assert!(first["clock"].as_str().unwrap().starts_with("host:"), "{first}");
    for missing in [4, 5] {
        let others: Vec<_> = (0..6).filter(|n| *n != missing).map(|n| files[n].clone()).collect();
        let without = check(&others);
        assert_eq!(without.code, 3, "{}", without.stdout);
        assert!(without.document("check")["undecided"].as_str().unwrap().contains("`c0` is missing"));
    }
    let copy = running.path("copy.jsonl");
    fs::copy(&files[3], &copy).unwrap();
    let twice = check(&[&files[..], &[copy.to_str().unwrap().to_owned()]].concat());
    assert!(
        twice.code == 2 && twice.stderr.contains("each life needs its own, larger `i`"),
        "{} {}",
        twice.code,
        twice.stderr
    );
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn majority_without_memory_is_reported_with_the_remedy() {
    let mut running = Running::with(&["g1.1", "g1.2"], 1, 3, SMALL);
    running.until("g1.1", "err", |text| text.contains("g1 begins when all its members are there: start g1.3\n"));
    running.start("g1.3", &[]);
    for name in ["g1.1", "g1.2", "g1.3"] {
        running.until(name, "err", |text| text.contains("all members are connected"));
    }
    let begun = |running: &Running, seconds: &str| running.cast(b"x\n", &["--to", "g1", "--timeout", seconds]);
    assert_eq!(begun(&running, "20").code, 0);
    // On a busy machine, one of them may start after the others have begun, and then joins.
    let begins = |text: &str| text.contains("g1 begins from nothing: its deliveries are numbered from 1");
    let told = ["g1.1", "g1.2", "g1.3"].map(|name| {
        running.until(name, "err", |text| begins(text) || text.contains("taken in by its group, which has delivered 0"))
    });
    assert!(told.iter().filter(|told| begins(told)).count() >= 2, "{told:?}");
    for name in ["g1.1", "g1.3"] {
        running.signal(name, Signal::KILL);
    }
    // The remedy must be reported at once, and not only after a restart that did not help.
    let remedy = "and nothing is delivered; fewer than a majority have the group's state: start g1.1 and g1.3, which then wait \
                  for it; stop g1.2 and start it anew: then g1 begins from nothing";
    running.until("g1.2", "err", |text| text.contains(remedy));
    for name in ["g1.1", "g1.3"] {
        running.start(name, &[]);
    }
    for name in ["g1.1", "g1.3"] {
        let said = running.until(name, "err", |text| text.contains("2 of 3 members of g1 have no memory of it"));
        assert!(said.contains("stop g1.2 and start it anew"), "{said}");
        assert!(!said.contains("ready"), "{said}");
    }
    let since = Instant::now();
    let moved = loop {
        // A busy member may not answer in time.
        let moved = run(["leader", "move", "--to", "g1.1"].map(str::to_owned).into_iter().chain(running.meeting()));
        if moved.stderr.contains("have no memory") || since.elapsed() > PATIENCE {
            break moved;
        }
    };
    assert_eq!(moved.code, 1);
    let lost = |text: &str| {
        text.contains("2 of its 3 members have no memory") || text.contains("1 of its 3 members work, 2 have to")
    };
    show_until(&running, "the group lost its memory", 1, lost);
    assert!(moved.stderr.contains("2 of its 3 members have no memory"), "{}", moved.stderr);
    assert!(moved.stderr.contains("stop g1.2 and start it anew"), "{}", moved.stderr);
    let nobody = begun(&running, "1");
    assert!(
        nobody.code == 1 && nobody.stderr.contains("`stentor leader show` says which group does not work"),
        "{}",
        nobody.stderr
    );
    running.signal("g1.2", Signal::KILL);
    running.start("g1.2", &[]);
    for name in ["g1.1", "g1.2", "g1.3"] {
        running.until(name, "err", |text| text.contains("all members are connected"));
    }
    assert_eq!(begun(&running, "20").code, 0);
}

#[test]
fn state_of_any_size_is_restored_and_no_state_is_not_reported() {
    let mut running = Running::new(1, 3, SMALL);
    for name in ["g1.1", "g1.2", "g1.3"] {
        running.start(name, &["--state-bytes", "300000"]);
    }
    assert_eq!(running.cast(b"one\n", &["--to", "g1"]).code, 0);
    running.delivered("g1.3", 1);
    running.signal("g1.3", Signal::KILL);
    running.start("g1.3", &["--state-bytes", "300000"]);
    running.until("g1.3", "out", |text| text.contains(r#"{"restored":{"n":3"#));
    running.signal("g1.3", Signal::KILL);
    running.start("g1.3", &["--state-bytes", "5"]);
    let said = running.until("g1.3", "err", |text| text.contains("\n  remedy: "));
    assert!(
        said.contains("another member's state was not taken over: the artificial state has 300000 bytes"),
        "{said}"
    );
    assert_eq!(running.read("g1.3", "out"), "", "nothing was restored");
}

#[test]
fn invalid_arguments_and_configurations_are_refused() {
    let mut running = Running::with(&["g1.1"], 2, 1, SMALL);
    running.until("g1.1", "err", |text| text.contains("memory"));
    running.cast(b"", &["--to", "g1,g9"]).refused(&["no group `g9`", "cluster.toml", "g1, g2"]);
    running.cast(b"", &["--to", "g1,g2,g1"]).refused(&["group `g1` is named twice", "g1,g2,g1", "once"]);
    running.cast(b"", &["--to", "g1", "--client", "c7"]).refused(&["no process `c7`"]);
    running.cast(b"", &["--to", "g1", "--client", "g1.1"]).refused(&["`g1.1` is a member"]);
    let node = |id: &str| run(["node", "--id", id].map(str::to_owned).into_iter().chain(running.meeting()));
    node("g1.1").refused(&["`g1.1` of cluster `test-", "` is running already, as pid", "stop that process"]);
    node("g3.1").refused(&["no process `g3.1`"]);
    node("c0").refused(&["`c0` is not a member of a group"]);
    let alone = running.cast(b"x\n", &["--to", "g1,g2", "--timeout", "1"]);
    assert_eq!(alone.code, 1);
    assert!(alone.stderr.contains("not there after 1s: g2.1\n"), "{}", alone.stderr);
    let history = running.scratch.file("old.jsonl", "precious");
    let arguments = ["--id", "g2.1", "--history", history.to_str().unwrap()].map(str::to_owned);
    run([String::from("node")].into_iter().chain(running.meeting()).chain(arguments)).refused(&["exists already"]);
    assert_eq!(fs::read_to_string(history).unwrap(), "precious");
    running.start("g2.1", &["--until-eof", "--json"]);
    assert_eq!(running.cast(b"x\n", &["--to", "g1,g2"]).code, 0);
    running.end_input("g2.1");
    let said = running.until("g2.1", "out", |text| text.ends_with("}\n"));
    let said: Value = serde_json::from_str(&said).unwrap();
    assert!(violations("node", &said).is_empty() && said["deliveries"] == 1, "{said:#}");
}

#[test]
fn node_with_unread_output_stops_on_request_and_reports_the_loss() {
    let limits = SMALL.replace("message_bytes = 128", "message_bytes = 4096").replace("window = 16", "window = 256");
    let mut running = Running::new(1, 1, &limits);
    let mut command = stentor();
    command.args(["node", "--id", "g1.1"]).args(running.meeting()).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let unread = child.stdout.take();
    // More than a pipe and the node's own batch can hold.
    let input = format!("{}\n", "x".repeat(4000)).repeat(400);
    let cast = running.cast(input.as_bytes(), &["--to", "g1", "--timeout", "1"]);
    assert_eq!(cast.code, 1, "the node is stuck: {}", cast.stderr);
    assert!(cast.stderr.contains("wait longer with --timeout"), "{}", cast.stderr);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let since = Instant::now();
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if since.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the node does not stop");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    drop(unread);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("nobody reads the deliveries"), "{said}");
    // The seat is free again, and the directory is in its usual state.
    running.start("g1.1", &[]);
    assert_eq!(running.cast(b"x\n", &["--to", "g1"]).code, 0);
}

#[test]
fn members_log_lost_and_returned_members_and_the_consequences() {
    let mut running = Running::with(&["g1.1", "g1.2", "g2.1"], 2, 2, SMALL);
    assert_eq!(running.cast(b"x\n", &["--to", "g1"]).code, 0, "the other group need not be complete");
    let alone = running.cast(b"x\n", &["--to", "g2", "--timeout", "1"]);
    assert_eq!(alone.code, 1);
    assert!(alone.stderr.contains("not there after 1s: g2.2\n"), "one of two is no majority: {}", alone.stderr);
    running.start("g2.2", &[]);
    running.until("g1.1", "err", |text| text.contains("all members are connected"));
    running.until("g2.2", "err", |text| text.contains("all members are connected"));
    running.signal("g1.2", Signal::KILL);
    running.until("g1.1", "err", |text| {
        text.contains("g1.1: lost g1.2, pid ") && text.contains("g1 has lost its majority")
    });
    running.start("g1.2", &[]);
    running.until("g2.1", "err", |text| {
        text.contains("g1.2 is there again, as pid ")
            && text.contains("; 2 of the 2 members of g1 run again, a majority")
    });
    // With two members of which one has no memory, no majority can let it join.
}

#[test]
fn killed_member_is_named_and_leaves_no_files() {
    let mut running = Running::with(&["g1.1", "g1.2"], 1, 2, SMALL);
    assert_eq!(running.cast(b"before\n", &["--to", "g1"]).code, 0);
    running.signal("g1.1", Signal::KILL);
    let cast = running.cast(b"after\n", &["--to", "g1", "--timeout", "1"]);
    assert_eq!(cast.code, 1);
    assert!(cast.stderr.contains("g1.1"), "{}", cast.stderr);
    assert_eq!(running.signal("g1.2", Signal::INT), Some(0), "the other member does not stop in order");
    let since = Instant::now();
    while running.path("run").exists() {
        assert!(since.elapsed() < PATIENCE, "{:?}", fs::read_dir(running.path("run/test")).map(Iterator::count));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the members that claim to lead.
pub(crate) fn led(running: &Running) -> Vec<String> {
    let shown = run(["leader", "show", "--json"].map(str::to_owned).into_iter().chain(running.meeting()));
    let document = shown.document("leader-show");
    let members = document["members"].as_array().unwrap().iter();
    members.filter(|member| member["state"] == "leads").map(|m| m["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn stopped_member_is_shown_as_silent() {
    let running = Running::with(&["g1.1", "g1.2", "g1.3"], 1, 3, SMALL);
    assert_eq!(running.cast(b"one\n", &["--to", "g1"]).code, 0);
    let leader = led(&running).pop().expect("a member leads");
    let other = ["g1.1", "g1.2", "g1.3"].into_iter().find(|name| *name != leader).unwrap();
    running.interrupt(other, Signal::STOP);
    let shown = run(["leader", "show", "--json"].map(str::to_owned).into_iter().chain(running.meeting()));
    running.interrupt(other, Signal::CONT);
    let document = shown.document("leader-show");
    let states: Vec<_> = document["members"].as_array().unwrap().iter().map(|member| &member["state"]).collect();
    assert_eq!(states.iter().filter(|state| **state == "silent").count(), 1, "{document}");
    // On a busy machine, the leader may be replaced meanwhile.
    let says = |state: &str| ["leads", "follows", "campaigns"].contains(&state);
    assert_eq!(states.iter().filter(|state| state.as_str().is_some_and(says)).count(), 2, "{document}");
}

/// `cast`, `leader move` and `leader show` report a stopped member, and how to continue it. A restart would lose the
/// member's memory.
#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn remedy_for_stopped_members_is_not_a_restart() {
    let running = Running::with(&["g1.1", "g1.2", "g1.3"], 1, 3, SMALL);
    assert_eq!(running.cast(b"one\n", &["--to", "g1"]).code, 0);
    let all = ["g1.1", "g1.2", "g1.3"];
    let pids: Vec<_> = all.iter().map(|name| running.pid(name).to_string()).collect();
    all.iter().for_each(|name| running.interrupt(name, Signal::STOP));
    let ask = |words: &[&str]| run(words.iter().map(|word| (*word).to_owned()).chain(running.meeting()));
    let cast = running.cast(b"two\n", &["--to", "g1", "--timeout", "1"]);
    let moved = ask(&["leader", "move", "--to", "g1.2"]);
    let shown = ask(&["leader", "show"]);
    all.iter().for_each(|name| running.interrupt(name, Signal::CONT));
    let remedy = format!("`kill -CONT {}` lets", pids.join(" "));
    for text in [&cast.stderr, &moved.stderr, &shown.stdout] {
        assert!(text.contains(&remedy), "`{remedy}` is not in: {text}");
    }
    let stopped = format!("g1.3 runs on this host, as pid {}, and is stopped", pids[2]);
    assert!(cast.stderr.contains(&stopped) && moved.stderr.contains(&stopped), "{}{}", cast.stderr, moved.stderr);
    assert!(shown.stdout.contains("g1.3 does not answer (stopped)"), "{}", shown.stdout);
    assert!(!shown.stdout.contains("another program has its address"), "{}", shown.stdout);
}

/// Waits until `leader show` ends with this code and its output satisfies `said`. Returns the output. No call may take
/// long.
pub(crate) fn show_until(running: &Running, what: &str, code: i32, said: impl Fn(&str) -> bool) -> String {
    let since = Instant::now();
    loop {
        let begun = Instant::now();
        let shown = run(["leader", "show"].map(str::to_owned).into_iter().chain(running.meeting()));
        // All members are asked at once, for 0.4 s. The rest is the start of the command on a busy machine.
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        if shown.code == code && said(&shown.stdout) {
            return shown.stdout;
        }
        assert!(since.elapsed() < PATIENCE, "{what}: exit code {}: {}", shown.code, shown.stdout);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn lost_majority_is_reported_by_remaining_members_and_leader_show() {
    let mut running = Running::with(&["g1.1", "g1.2", "g1.3"], 1, 3, SMALL);
    for name in ["g1.1", "g1.2", "g1.3"] {
        running.until(name, "err", |text| text.contains("all members are connected"));
    }
    show_until(&running, "all work", 0, |text| text.contains("3 of its 3 members stand by it\n"));
    let leader = led(&running).pop().expect("a member leads");
    let others: Vec<_> = ["g1.1", "g1.2", "g1.3"].into_iter().filter(|name| *name != leader).collect();
    running.interrupt(others[0], Signal::STOP);
    let silent = format!("{} does not answer", others[0]);
    show_until(&running, "a majority works", 0, |text| text.contains("g1 works: ") && text.contains(&silent));
    running.interrupt(others[0], Signal::CONT);
    running.signal(others[0], Signal::KILL);
    running.until(&leader, "err", |text| text.contains("g1 goes on: 2 of its 3 members are there, 2 have to"));
    let down = format!("{} is down", others[0]);
    show_until(&running, "a majority works", 0, |text| text.contains("g1 works: ") && text.contains(&down));
    assert_eq!(running.cast(b"x\n", &["--to", "g1"]).code, 0, "the group accepts new clients");
    running.signal(others[1], Signal::KILL);
    running.until(&leader, "err", |text| text.contains("g1 has lost its majority: 1 of its 3 members are there"));
    let none =
        |text: &str| text.contains("g1 has no majority: 1 of its 3 members work") || text.contains("nobody leads g1");
    show_until(&running, "no majority", 1, |text| none(text) && text.contains(&down));
    let shown = run(["leader", "show", "--json"].map(str::to_owned).into_iter().chain(running.meeting()));
    let document = shown.document("leader-show");
    assert!(shown.code == 1 && document["ok"] == false && document["groups"][0]["reason"].is_string(), "{document:#}");
}

/// A stopped process keeps its sockets, and only its heartbeat stops.
#[test]
fn stopped_majority_is_reported_missing_once_and_back_once() {
    let running = Running::with(&["g1.1", "g1.2", "g1.3"], 1, 3, SMALL);
    for name in ["g1.1", "g1.2", "g1.3"] {
        running.until(name, "err", |text| text.contains("all members are connected"));
    }
    show_until(&running, "all work", 0, |text| text.contains("3 of its 3 members stand by it\n"));
    let leader = led(&running).pop().expect("a member leads");
    let others: Vec<_> = ["g1.1", "g1.2", "g1.3"].into_iter().filter(|name| *name != leader).collect();
    others.iter().for_each(|name| running.interrupt(name, Signal::STOP));
    let lost = "g1 has lost its majority: 1 of its 3 members answer, 2 have to";
    let said = running.until(&leader, "err", |text| text.contains(lost));
    let pids = others.iter().map(|name| running.pid(name).to_string()).collect::<Vec<_>>().join(" ");
    let silent = format!("{} are there and silent: stopped (`kill -CONT {pids}`) or very busy\n", others.join(" and "));
    assert!(said.contains(&silent) && !said.contains("its majority again"), "{said}");
    others.iter().for_each(|name| running.interrupt(name, Signal::CONT));
    let back = "g1 has its majority again: ";
    running.until(&leader, "err", |text| text.contains(back));
    show_until(&running, "all work again", 0, |text| text.contains("3 of its 3 members stand by it\n"));
    let said = running.read(&leader, "err");
    assert_eq!((said.matches(lost).count(), said.matches(back).count()), (1, 1), "{said}");
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn member_without_memory_does_not_report_that_its_group_goes_on() {
    let mut running = Running::with(&["g1.1", "g1.2", "g1.3"], 1, 3, SMALL);
    for name in ["g1.1", "g1.2", "g1.3"] {
        running.until(name, "err", |text| text.contains("all members are connected"));
    }
    for name in ["g1.1", "g1.2"] {
        running.signal(name, Signal::KILL);
    }
    for name in ["g1.1", "g1.2"] {
        running.start(name, &[]);
    }
    running.until("g1.1", "err", |text| text.contains("2 of 3 members of g1 have no memory of it"));
    running.signal("g1.2", Signal::KILL);
    let said = running.until("g1.1", "err", |text| text.contains("lost g1.2"));
    assert!(!said.contains("g1 goes on"), "{said}");
    // Process g1.1 has not lost a majority, because it never knew one.
    assert!(!said.contains("g1 has lost its majority"), "{said}");
    let lost = said.lines().find(|line| line.contains("lost g1.2, pid ")).expect("a line");
    let remedy = "; this process waits for the group's state; fewer than a majority have the group's state: start g1.2, which \
                  then waits for it; stop g1.3 and start it anew: then g1 begins from nothing";
    assert!(lost.contains(remedy), "{lost}");
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn messages_stalled_by_another_group_name_their_client() {
    let running = Running::with(&["g1.1", "g2.1"], 2, 1, SMALL);
    let mut command = stentor();
    command.args(["cast", "--to", "g1,g2", "--timeout", "60"]).args(running.meeting());
    let mut cast = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut say = |text: &str| cast.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    say("one\n");
    running.delivered("g1.1", 1);
    running.delivered("g2.1", 1);
    show_until(&running, "both work", 0, |text| text.contains("g1 works: ") && text.contains("g2 works: "));
    running.interrupt("g2.1", Signal::STOP);
    say("two\n");
    let said =
        show_until(&running, "nothing moves", 1, |text| text.contains("g1 makes no progress: 1 message has not moved"));
    assert!(said.contains("client c0: 1 undelivered at g1.1"), "{said}");
    assert!(
        said.contains("g2 has no majority: 0 of its 1 members answer, 1 have to; g2.1 does not answer (stopped)"),
        "{said}"
    );
    running.interrupt("g2.1", Signal::CONT);
    show_until(&running, "both work again", 0, |text| !text.contains("undelivered at"));
    drop(cast.stdin.take());
    assert!(cast.wait().unwrap().success());
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn messages_of_unknown_outcome_are_not_reported_undelivered() {
    let running = Running::with(&["g1.1", "g2.1"], 2, 1, SMALL);
    let mut command = stentor();
    command.args(["cast", "--to", "g1,g2", "--timeout", "3"]).args(running.meeting());
    let mut cast = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut say = |text: &str| cast.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    say("one\n");
    running.delivered("g2.1", 1);
    running.interrupt("g2.1", Signal::STOP);
    say("two\n");
    let cast = ran(&cast.wait_with_output().unwrap());
    running.interrupt("g2.1", Signal::CONT);
    assert_eq!(cast.code, 1, "{}", cast.stderr);
    for part in [
        "1 not known to be delivered",
        "no progress for 3 s: 1 of 2 messages are not known to be delivered",
        "`stentor leader show` says whether the groups work",
    ] {
        assert!(cast.stderr.contains(part), "`{part}` is not in: {}", cast.stderr);
    }
}

/// Returns the command line of the janitor of a node.
fn janitor_of(pid: u32) -> Option<String> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let child = children.split_whitespace().next()?;
    let program = fs::read_link(format!("/proc/{child}/exe")).ok()?;
    assert_eq!(program, fs::canonicalize(env!("CARGO_BIN_EXE_stentor")).unwrap(), "no shell is needed");
    Some(fs::read_to_string(format!("/proc/{child}/cmdline")).ok()?.replace('\0', " "))
}

#[test]
fn files_of_a_killed_node_are_removed_by_its_janitor() {
    let mut running = Running::with(&["g1.1"], 1, 1, SMALL);
    running.until("g1.1", "err", |text| text.contains("ready"));
    let pid = running.nodes[0].1.id();
    let line = janitor_of(pid).expect("the node has a janitor");
    assert!(line.starts_with("stentor janitor ") && line.contains("-g1.1."), "{line}");
    assert_eq!(running.signal("g1.1", Signal::KILL), None);
    let since = Instant::now();
    while running.path("run").exists() {
        assert!(since.elapsed() < PATIENCE, "the sockets are still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn stop_ends_only_the_members_of_its_cluster() {
    let mut running = Running::with(&["g1.1", "g1.2"], 1, 2, SMALL);
    let other = Running::with(&["g1.1"], 1, 1, SMALL);
    for name in ["g1.1", "g1.2"] {
        running.until(name, "err", |text| text.contains("ready"));
    }
    let stop = |more: &[&str]| {
        run(["stop", "--json"].iter().chain(more).map(|word| (*word).to_owned()).chain(running.meeting()))
    };
    let one = stop(&["--id", "g1.2"]);
    assert_eq!((one.code, &one.document("stop")["members"][0]["state"]), (0, &"stopped".into()), "{}", one.stderr);
    // A killed predecessor may have left its socket beside that of the running process.
    let list = |path: PathBuf| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let pid = format!(".{}.", running.nodes[0].1.id());
    let sockets: Vec<_> = list(running.path("run")).into_iter().filter(|path| path.is_dir()).flat_map(list).collect();
    let own: Vec<_> = sockets.iter().filter_map(|path| path.to_str().filter(|path| path.contains(&pid))).collect();
    assert!(own.iter().any(|path| path.ends_with(".sock")) && own.len() > 1, "{sockets:?}");
    for path in own {
        drop(UnixListener::bind(path.replacen(&pid, ".1999999999.", 1)).unwrap());
    }
    let all = stop(&[]);
    let states = all.document("stop")["members"].clone();
    assert_eq!((&states[0]["state"], &states[1]["state"]), (&"stopped".into(), &"absent".into()), "{states}");
    let client = stop(&["--id", "c0"]);
    assert!(client.code == 2 && client.stderr.contains("`c0` is a client"), "{}", client.stderr);
    for (name, child) in &mut running.nodes {
        assert_eq!(child.wait().unwrap().code(), Some(0), "{name}");
    }
    assert!(running.read("g1.1", "err").contains("info g1.1: told to stop by `stentor stop`"));
    other.until("g1.1", "err", |text| text.contains("ready") && !text.contains("told to stop"));
    other.interrupt("g1.1", Signal::STOP);
    let silent = run(["stop", "--json"].map(str::to_owned).into_iter().chain(other.meeting()));
    other.interrupt("g1.1", Signal::CONT);
    assert_eq!((silent.code, &silent.document("stop")["members"][0]["state"]), (1, &"silent".into()));
}
