//! Tests of `stentor demo`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Ran, Scratch, ran, run, stentor};

/// Maximum time for which a test waits for one step.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn every_property_is_judged_and_holds() {
    let scratch = Scratch::new();
    let keep = scratch.path("histories");
    let keep = keep.to_str().unwrap();
    let ran = run(["demo", "--no-kill", "--json", "--keep", keep]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    let document = ran.document("demo");
    assert_eq!(document["ok"], true);
    for (property, verdict) in document["properties"].as_object().unwrap() {
        // No member is killed, so none rejoins.
        let expected = if property == "M11" { "not_checked" } else { "ok" };
        assert_eq!(verdict, expected, "{property}: {document:#}");
    }
    let (messages, deliveries) = (document["messages"].as_u64().unwrap(), document["deliveries"].as_u64().unwrap());
    assert!(messages >= 5000 && deliveries > 3 * messages && deliveries < 6 * messages, "{document:#}");
    let delivered: u64 = document["delivered"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(delivered, deliveries);
    let micros = ["p50", "p99", "max"].map(|at| document["latency_us"][at].as_f64().unwrap());
    assert!(micros.is_sorted() && micros[0] > 1.0, "{micros:?}");
    // A message to one group of three costs 3 + 2 + 4 writes, and one to both groups 36.
    let share = document["messages_to_one_group"].as_f64().unwrap() / messages as f64;
    let items: f64 = document["items_by_step"].as_object().unwrap().values().map(|n| n.as_f64().unwrap()).sum();
    let expected = share * 9.0 + (1.0 - share) * 36.0;
    // A member that waits for a process that gets no processor repeats acknowledgements, timestamps and vectors. If a
    // leader is replaced for that reason, its successor repeats more. If no leader is replaced, bodies and assignments
    // are sent once.
    let again = if document["leader_changes"] == 0 { 1.3 } else { 1.5 };
    assert!(items > expected - 0.001 && items < expected * again, "{items} {share}: {document:#}");
    for (step, one, both) in [("body", 3.0, 6.0), ("assign", 2.0, 4.0)] {
        let over = document["items_by_step"][step].as_f64().unwrap() - (share * one + (1.0 - share) * both);
        let most = if document["leader_changes"] == 0 { 0.001 } else { expected / 2.0 };
        assert!(over > -0.001 && over < most, "{step} {over} {share}: {document:#}");
    }
    let writes = document["writes_per_message"].as_f64().unwrap();
    assert!(writes > 0.0 && writes <= items, "{writes}");
    let mut names: Vec<_> =
        fs::read_dir(keep).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let histories = ["c0", "g1.1", "g1.2", "g1.3", "g2.1", "g2.2", "g2.3"].map(|name| format!("{name}.jsonl"));
    assert_eq!(names, [&histories[..1], &["cluster.toml".to_owned()], &histories[1..]].concat());
    let again =
        run([PathBuf::from("check")].into_iter().chain(histories.iter().map(|name| Path::new(keep).join(name))));
    assert_eq!(again.code, 0, "{}", again.stdout);
    run(["demo", "--keep", keep]).refused(&["not empty", keep]);
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn killed_leader_is_replaced_and_rejoins() {
    let scratch = Scratch::new();
    let keep = scratch.path("histories");
    let ran = run(["demo", "--json", "--keep", keep.to_str().unwrap()]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    let document = ran.document("demo");
    for (property, verdict) in document["properties"].as_object().unwrap() {
        assert_eq!(verdict, "ok", "{property}: {document:#}");
    }
    assert!(document["leader_changes"].as_u64().unwrap() > 0, "{document:#}");
    assert!(document["killed"].as_str().is_some_and(|name| name.starts_with("g1.")), "{document:#}");
    for time in ["failover_ms", "outage_ms", "rejoin_ms"] {
        assert!(document[time].as_f64().is_some_and(|ms| ms > 0.0), "{time}: {document:#}");
    }
}

#[test]
fn other_texts_and_cluster_shapes_work() {
    let scratch = Scratch::new();
    let text = scratch.file("text", "one\n\ntwo \u{fe}\nthree");
    let temporary = scratch.path("tmp");
    fs::create_dir(&temporary).unwrap();
    let demo = |more: &[&str]| {
        let mut command = stentor();
        command.args(["demo", "--input", text.to_str().unwrap()]).args(more).env("TMPDIR", &temporary);
        ran(&command.output().unwrap())
    };
    let human = demo(&["--groups", "3", "--replicas", "1", "--no-kill"]);
    assert_eq!(human.code, 0, "{}{}", human.stdout, human.stderr);
    for part in ["3 processes in 3 groups of 1", "4 messages", "M9  liveness               ok", "nothing is killed"] {
        assert!(human.stdout.contains(part), "{part}: {}", human.stdout);
    }
    let history = human.stdout.lines().find_map(|line| line.strip_prefix("history: ")).unwrap();
    assert!(Path::new(history.split(';').next().unwrap()).join("c0.jsonl").exists(), "{history}");
    let limited = demo(&["--groups", "1", "--messages-limit", "2", "--json"]).document("demo");
    assert_eq!((&limited["messages"], &limited["deliveries"]), (&2.into(), &6.into()));
    assert_eq!(demo(&["-q", "--replicas", "1"]).stdout, "");
    demo(&["--groups", "0"]).refused(&["arguments of `stentor demo`", "--groups and --replicas"]);
    demo(&["--groups", "1000000000000"]).refused(&["at most 256"]);
    demo(&["--groups", "101", "--replicas", "1"]).refused(&["101 processes", "at most 100", "sim multicast"]);
    fs::write(&text, "x".repeat(65_537)).unwrap();
    demo(&[]).refused(&["line 1 is longer than 65536 bytes", "text:1"]);
    fs::write(&text, "").unwrap();
    demo(&[]).refused(&["no line"]);
    fs::remove_file(&text).unwrap();
    demo(&[]).refused(&["cannot read the input"]);
    let mut full = stentor();
    full.args(["demo", "--messages-limit", "1"]).env("TMPDIR", "/proc");
    ran(&full.output().unwrap()).refused(&["cannot write", "/proc/stentor-demo"]);
}

#[test]
fn long_temporary_directory_works() {
    let scratch = Scratch::new();
    let temporary = scratch.path(&"x".repeat(120));
    fs::create_dir(&temporary).unwrap();
    let mut command = stentor();
    command.args(["demo", "--messages-limit", "3", "--json"]).env("TMPDIR", &temporary);
    let document = ran(&command.output().unwrap()).document("demo");
    assert_eq!((&document["ok"], &document["messages"]), (&true.into(), &3.into()));
}

/// A demonstration that runs for long, in a separate directory.
struct Long {
    scratch: Scratch,
    demo: Child,
}

impl Long {
    fn start() -> Self {
        let scratch = Scratch::new();
        let lines: String = (0..2_000_000).map(|n| format!("{n}\n")).collect();
        let text = scratch.file("text", &lines);
        fs::create_dir(scratch.path("tmp")).unwrap();
        let mut command = stentor();
        command.args(["demo", "--no-kill", "--input", text.to_str().unwrap()]).env("TMPDIR", scratch.path("tmp"));
        let demo = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let long = Long { scratch, demo };
        // Wait until the client records events and all members run.
        let grown =
            |name: &str| long.files().iter().any(|file| file.ends_with(name) && file.metadata().unwrap().len() > 0);
        long.until(|| grown("c0.jsonl") && long.nodes().len() == 6);
        long
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut left = vec![self.scratch.path("tmp")];
        while let Some(directory) = left.pop() {
            // Directories appear and disappear meanwhile.
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                if entry.path().is_dir() { left.push(entry.path()) } else { files.push(entry.path()) }
            }
        }
        files
    }

    /// Returns the members whose command lines contain this test's directory.
    fn nodes(&self) -> Vec<Pid> {
        let ours = self.scratch.path("tmp").into_os_string().into_string().unwrap();
        let pid = |entry: fs::DirEntry| {
            let line = fs::read_to_string(entry.path().join("cmdline")).ok()?;
            let ours = line.contains("\0node\0") && line.contains(&ours);
            Pid::from_raw(entry.file_name().to_str()?.parse().ok()?).filter(|_| ours)
        };
        fs::read_dir("/proc").unwrap().filter_map(|entry| pid(entry.ok()?)).collect()
    }

    fn until(&self, done: impl Fn() -> bool) {
        let since = Instant::now();
        while !done() {
            assert!(since.elapsed() < PATIENCE, "{:?} {:?}", self.nodes(), self.files());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the demonstration ends by itself, which must happen soon.
    fn end(self) -> (Ran, Scratch) {
        let since = Instant::now();
        let Long { scratch, demo } = self;
        let ran = ran(&demo.wait_with_output().unwrap());
        assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
        (ran, scratch)
    }
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn killed_member_ends_the_demonstration_without_leftovers() {
    let long = Long::start();
    kill_process(long.nodes()[2], Signal::KILL).unwrap();
    let (ran, scratch) = long.end();
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("ended unexpectedly, by signal 9"), "{}", ran.stderr);
    assert_eq!(fs::read_dir(scratch.path("tmp")).unwrap().count(), 0);
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn interrupt_ends_everything_without_leftovers() {
    let long = Long::start();
    kill_process(Pid::from_child(&long.demo), Signal::INT).unwrap();
    let (ran, scratch) = long.end();
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("interrupted"), "{}", ran.stderr);
    assert_eq!(fs::read_dir(scratch.path("tmp")).unwrap().count(), 0);
}

#[test]
fn a_killed_demonstration_leaves_no_processes_and_no_files() {
    let mut long = Long::start();
    long.demo.kill().unwrap();
    long.demo.wait().unwrap();
    long.until(|| long.nodes().is_empty());
    long.until(|| fs::read_dir(long.scratch.path("tmp")).unwrap().count() == 0);
}
