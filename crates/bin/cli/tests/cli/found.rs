//! Members that run, but not where the configuration and `--directory` of a command point: the file was edited since
//! the member started, it is a copy, or the member was started with another directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Ran, Scratch, ran, signal, stentor};

/// Maximum time for which a test waits for one step.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time that is longer than a member takes to end after a request.
const MOMENT: Duration = Duration::from_millis(1500);

/// A running member of a cluster of two.
struct One {
    scratch: Scratch,
    cluster: String,
    network: String,
    node: Option<Child>,
}

impl One {
    fn new(cluster: &str, of: u8) -> Self {
        let id = std::process::id();
        let network = format!("127.{}.{}", 150 + of, id % 250 + 1);
        One { scratch: Scratch::new(), cluster: format!("{cluster}-{id}"), network, node: None }
    }

    /// Writes a configuration in which the member's address ends with `last`. The address of the other member ends with
    /// `other`.
    fn config(&self, name: &str, fabric: &str, last: u8, other: u8) -> PathBuf {
        let (cluster, network) = (&self.cluster, &self.network);
        let key = self.scratch.file("cluster.key", "0123456789abcdef0123456789abcdef\n");
        let key = if fabric == "shm" { String::new() } else { format!("key = \"file:{}\"\n", key.display()) };
        let text = format!(
            "cluster = \"{cluster}\"\nfabric = \"{fabric}\"\n{key}[limits]\nclients = 1\nwindow = 16\nmessage_bytes = 128\n\
             [[group]]\nid = \"g1\"\nprocess = [ {{ id = \"g1.1\", address = \"{network}.{last}:7101\" }} ]\n\
             [[group]]\nid = \"g2\"\nprocess = [ {{ id = \"g2.1\", address = \"{network}.{other}:7101\" }} ]\n"
        );
        self.scratch.file(name, &text)
    }

    fn run(&self, words: &[&str], config: &Path, directory: &str) -> Ran {
        let mut command = stentor();
        command.args(words).arg("--config").arg(config).arg("--directory").arg(self.scratch.path(directory));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        // A second process of a member must end by itself.
        let since = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if since.elapsed() > PATIENCE {
                child.kill().unwrap();
                panic!("it does not end: {}", String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        ran(&child.wait_with_output().unwrap())
    }

    /// Starts the member, and waits until it reports that it has begun.
    fn start(&mut self, config: &Path, directory: &str, change: impl Fn(&mut Command)) -> u32 {
        let mut command = stentor();
        command.args(["node", "--id", "g1.1", "--config"]).arg(config).arg("--directory");
        command.arg(self.scratch.path(directory));
        change(&mut command);
        let [out, err] = ["out", "err"].map(|end| File::create(self.scratch.path(end)).unwrap());
        let node = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().unwrap();
        let pid = node.id();
        self.node = Some(node);
        let since = Instant::now();
        while !self.said().contains("memory, fixed from here on") {
            assert!(since.elapsed() < PATIENCE, "{}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
        pid
    }

    fn said(&self) -> String {
        fs::read_to_string(self.scratch.path("err")).unwrap()
    }

    fn runs(&mut self) -> bool {
        self.node.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    /// Checks that `node`, `leader show` and `stop` find the member although this configuration and directory point
    /// elsewhere, and that their output has `parts`.
    fn check_is_found(&mut self, config: &Path, directory: &str, parts: &[&str]) {
        let pid = self.node.as_ref().unwrap().id();
        let second = self.run(&["node", "--id", "g1.1"], config, directory);
        second.refused(&["is running already, as pid ", &pid.to_string(), "stop that process"]);
        let shown = self.run(&["leader", "show"], config, directory);
        assert!(!shown.stdout.contains("g1.1 is down") && shown.stdout.contains(&pid.to_string()), "{}", shown.stdout);
        // The command requests the member's state in the directory in which the member runs.
        assert!(!shown.stdout.contains("silent"), "{}", shown.stdout);
        let stopped = self.run(&["stop", "--id", "g1.1"], config, directory);
        assert!(stopped.code == 0 && stopped.stdout.contains("stopped"), "{}{}", stopped.stdout, stopped.stderr);
        for part in parts {
            for text in [&second.stderr, &shown.stdout, &stopped.stdout] {
                assert!(text.contains(part), "`{part}` is not in: {text}");
            }
        }
        assert!(self.node.as_mut().unwrap().wait().unwrap().success(), "{}", self.said());
    }
}

impl Drop for One {
    fn drop(&mut self) {
        if let Some(node) = &mut self.node {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn member_in_another_directory_is_found_and_a_second_one_is_refused() {
    let mut one = One::new("directory", 0);
    let config = one.config("cluster.toml", "shm", 1, 2);
    one.start(&config, "a", |_| ());
    let there = one.scratch.path("a");
    let place = format!("sockets in {}", there.display());
    // The member need not be restarted, because only the command named the wrong directory.
    let ask = format!("ask with `--directory {}`", there.display());
    let shown = one.run(&["leader", "show"], &config, "b");
    assert!(shown.stdout.contains(&ask), "{}", shown.stdout);
    let cast = one.run(&["cast", "--to", "g1", "--timeout", "1"], &config, "b");
    let meet = format!("--directory {} is where g1.1 meet", there.display());
    assert!(cast.stderr.contains("g1.1 runs on this host, as pid ") && cast.stderr.contains(&meet), "{}", cast.stderr);
    let right = one.run(&["leader", "show"], &config, "a");
    assert!(!right.stdout.contains("runs on this host"), "{}", right.stdout);
    one.check_is_found(&config, "b", &[&place]);
    let none = one.run(&["stop", "--id", "g1.1"], &config, "b");
    assert!(none.code == 0 && none.stdout.contains("does not run on this host"), "{}", none.stdout);
}

#[test]
fn member_with_edited_configuration_is_found_and_a_second_one_is_refused() {
    let mut one = One::new("edited", 1);
    let config = one.config("cluster.toml", "roce", 1, 2);
    one.start(&config, "a", |_| ());
    one.config("cluster.toml", "roce", 3, 2);
    let address = |one: &One, last| format!("{}.{last}:7101", one.network);
    let moved = format!("at {}, which is {} in this configuration", address(&one, 1), address(&one, 3));
    one.check_is_found(&config, "a", &[&moved, "cluster.toml"]);
    one.start(&config, "a", |_| ());
    let text = fs::read_to_string(&config).unwrap().replace("window = 16", "window = 32");
    fs::write(&config, text).unwrap();
    one.check_is_found(&config, "a", &[]);
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn copied_configuration_is_the_same_cluster_but_an_equal_name_is_not() {
    let mut one = One::new("copy", 2);
    let config = one.config("cluster.toml", "roce", 1, 2);
    let copy = one.config("copy.toml", "roce", 3, 2);
    let other = one.config("other.toml", "roce", 4, 5);
    one.start(&config, "a", |_| ());
    let stopped = one.run(&["stop", "--id", "g1.1"], &other, "a");
    assert_eq!(stopped.code, 1, "{}", stopped.stdout);
    for part in
        ["g1.1  runs on this host", "cluster.toml", "another file, so it was not touched", "stentor stop --config"]
    {
        assert!(stopped.stdout.contains(part), "`{part}` is not in: {}", stopped.stdout);
    }
    std::thread::sleep(MOMENT);
    assert!(one.runs());
    one.check_is_found(&copy, "b", &["cluster.toml"]);
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn unanswered_request_to_stop_is_withdrawn() {
    let mut one = One::new("withdrawn", 3);
    let config = one.config("cluster.toml", "shm", 1, 2);
    let pid = one.start(&config, "a", |_| ());
    signal(pid, Signal::STOP);
    let stopped = one.run(&["stop", "--id", "g1.1"], &config, "a");
    let shown = one.run(&["leader", "show"], &config, "a");
    signal(pid, Signal::CONT);
    assert_eq!(stopped.code, 1);
    for part in [&format!("is there, as pid {pid}, and does not answer"), "the request is withdrawn"] {
        assert!(stopped.stdout.contains(part), "`{part}` is not in: {}", stopped.stdout);
    }
    let line = shown.stdout.lines().find(|line| line.contains("silent")).unwrap_or_default();
    assert!(line.split_whitespace().any(|word| word == pid.to_string()), "{}", shown.stdout);
    std::thread::sleep(MOMENT);
    assert!(one.runs(), "{}", one.said());
    assert!(!one.said().contains("told to stop"), "{}", one.said());
}

#[test]
fn first_line_of_a_member_names_its_configuration() {
    let mut one = One::new("origin", 4);
    let config = one.config("cluster.toml", "roce", 1, 2);
    one.start(&config, "a", |_| ());
    let said = one.said();
    let first = said.lines().next().unwrap();
    let address = format!("{}.1:7101", one.network);
    let parts =
        [config.to_str().unwrap(), "fingerprint ", "fabric roce", &address, "key file /", "cluster.key", "sockets in"];
    for part in parts {
        assert!(first.contains(part), "`{part}` is not in: {first}");
    }
    assert!(!said.contains("0123456789abcdef0123"), "the key must never be printed");
}

#[test]
fn low_open_file_limit_is_raised_or_reported() {
    let mut one = One::new("files", 5);
    let config = one.config("cluster.toml", "shm", 1, 2);
    let within = |limits: &str| {
        let script = format!("{limits} && exec \"$@\"");
        let mut command = Command::new("bash");
        command.args(["-c", &script, "bash", env!("CARGO_BIN_EXE_stentor"), "node", "--id", "g1.1", "--config"]);
        command.arg(&config).arg("--directory").arg(one.scratch.path("a")).env_remove("XDG_RUNTIME_DIR");
        command.stdin(Stdio::null());
        command
    };
    let few = ran(&within("ulimit -n 32").output().unwrap());
    let says = few.stderr.contains("32 open files are allowed: with fewer than 34 this process cannot connect");
    assert!(few.code == 1 && says && few.stderr.contains("ulimit -n "), "{}", few.stderr);
    for (limits, warns) in [("ulimit -n 36", true), ("ulimit -Sn 36", false)] {
        let mut command = within(limits);
        let [out, err] = ["out", "err"].map(|end| File::create(one.scratch.path(end)).unwrap());
        let mut node = command.stdout(out).stderr(err).spawn().unwrap();
        let since = Instant::now();
        while !one.said().contains("memory, fixed from here on") {
            assert!(since.elapsed() < PATIENCE && node.try_wait().unwrap().is_none(), "{}", one.said());
            std::thread::sleep(Duration::from_millis(10));
        }
        signal(node.id(), Signal::TERM);
        node.wait().unwrap();
        let said = one.said();
        assert_eq!(
            said.contains("36 open files are allowed, and it may need ") && said.contains("ulimit -n"),
            warns,
            "{said}"
        );
    }
    one.node = None;
}
