//! Tests of the command against a real ZooKeeper: killed leaders, expired sessions, dead servers, and no server at all.

#[path = "../../../../protocol/election-zookeeper/tests/server/zookeeper.rs"]
#[expect(dead_code, reason = "shared with the election's own tests, which look closer")]
mod zookeeper;

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use stentor_testutil::TempDir;
use zookeeper::{Zookeeper, free_port};

/// Maximum time for which a test waits for one step.
const PATIENCE: Duration = Duration::from_secs(90);

fn stentor() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stentor"));
    command.env_remove("NO_COLOR").env_remove("XDG_RUNTIME_DIR");
    command
}

/// Returns the document of a run, which must succeed.
fn document(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    let (said, text) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{said}{text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn demonstration_with_a_killed_leader_keeps_every_property() {
    let server = Zookeeper::start();
    let shown = document(stentor().args(["demo", "--json", "--zookeeper", &server.address()]));
    assert_eq!(shown["ok"], true, "{shown:#}");
    assert!(shown["killed"].is_string() && shown["leader_changes"].as_u64() > Some(0), "{shown:#}");
}

/// A bench that kills members under load, and the directory with its files.
struct Trial {
    bench: Child,
    directory: PathBuf,
}

impl Trial {
    fn start(scratch: &TempDir, server: &str) -> Self {
        let directory = scratch.join("keep");
        let mut command = stentor();
        command.args(["bench", "failover", "--json", "--rounds", "16", "--kill", "any", "--sim-runs", "0"]);
        command.args(["--rate", "200", "--timeout-ms", "500", "--seed", "3", "--zookeeper", server]);
        command.arg("--keep").arg(&directory).stdout(Stdio::piped()).stderr(Stdio::piped());
        Trial { bench: command.spawn().unwrap(), directory }
    }

    /// Returns the leader of the first group.
    fn leader(&self) -> Option<Pid> {
        let mut command = stentor();
        command.args(["leader", "show", "--json", "--group", "g1", "--config"]);
        command.arg(self.directory.join("cluster.toml")).arg("--directory").arg(self.directory.join("sockets"));
        let shown: Value = serde_json::from_slice(&command.output().ok()?.stdout).ok()?;
        let leads = shown["members"].as_array()?.iter().find(|member| member["state"] == "leads")?;
        Pid::from_raw(leads["standing"]["pid"].as_i64()? as i32)
    }

    /// Waits for a leader and returns it, or `None` if the bench ends before.
    fn led(&mut self) -> Option<Pid> {
        let since = Instant::now();
        while !self.is_over() {
            if let Some(pid) = self.leader() {
                return Some(pid);
            }
            assert!(since.elapsed() < PATIENCE, "nobody leads: {}", logs(&self.directory));
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// Returns whether the bench has ended, because all rounds are done or one failed. Then no process leads any more.
    fn is_over(&mut self) -> bool {
        self.bench.try_wait().unwrap().is_some()
    }
}

/// Returns the logs of all processes.
fn logs(directory: &Path) -> String {
    let files = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let errors = files.filter(|path| path.extension().is_some_and(|end| end == "err"));
    errors.map(|path| fs::read_to_string(path).unwrap_or_default()).collect()
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn histories_pass_after_expired_sessions_and_a_server_restart_under_load() {
    let (server, scratch) = (Zookeeper::start(), TempDir::new());
    let mut trial = Trial::start(&scratch, &server.address());
    // The bench may kill the process in the meantime or not. The run must survive both.
    let stopped = trial.led().expect("a member leads before the bench is over");
    let expired = kill_process(stopped, Signal::STOP).is_ok();
    std::thread::sleep(Duration::from_millis(1500));
    let _ = kill_process(stopped, Signal::CONT);
    assert!(expired, "the process was running");
    trial.led();
    assert!(!trial.is_over(), "the server must die under load: the bench needs more rounds");
    let server = server.restart();
    // A server takes its time to start. If the bench ends before, its verdict shows whether it survived.
    trial.led();
    let output = trial.bench.wait_with_output().unwrap();
    let (error, text) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{error}{text}{}", logs(&trial.directory));
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["trial"]["ok"], true, "{found:#}");
    let said = logs(&trial.directory);
    assert!(said.contains("ZooKeeper: in line") && said.contains("leads"), "{said}");
    drop(server);
}

/// Writes the configuration of a cluster with one group.
fn configured(scratch: &TempDir) -> PathBuf {
    let config = scratch.join("cluster.toml");
    let init = stentor().args(["config", "init", "--groups", "1", "-q", "-o"]).arg(&config).status().unwrap();
    assert!(init.success());
    config
}

/// Starts one member with these servers, waits until it logs `what`, and stops it.
fn until_said(servers: &str, what: &str) {
    let scratch = TempDir::new();
    let config = configured(&scratch);
    let log = scratch.join("err");
    let mut command = stentor();
    command.args(["node", "--id", "g1.1", "--json", "--zookeeper", servers, "--config"]).arg(&config);
    command.arg("--directory").arg(scratch.join("run")).stdin(Stdio::null()).stdout(Stdio::null());
    let mut node = command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let since = Instant::now();
    while !fs::read_to_string(&log).unwrap().contains(what) {
        let text = fs::read_to_string(&log).unwrap();
        assert!(since.elapsed() < PATIENCE && node.try_wait().unwrap().is_none(), "{what}: {text}");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&node), Signal::TERM).unwrap();
    assert_eq!(node.wait().unwrap().code(), Some(0), "the node waits for the servers, and stops on SIGTERM");
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn servers_that_refuse_or_answer_nonsense_are_reported_and_waited_for() {
    until_said(&format!("127.0.0.1:{}", free_port()), "ZooKeeper: ");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // The client may have closed the connection.
            let _ = (&stream).write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    until_said(&address, "ZooKeeper: ");
    let scratch = TempDir::new();
    let config = configured(&scratch);
    let refused = stentor().args(["node", "--id", "g1.1", "--zookeeper", "nonsense", "--config"]).arg(&config).output();
    let refused = refused.unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("\"nonsense\"") && said.contains("the port is missing"), "{said}");
}
