//! Tests of `stentor chaos`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::support::{Ran, Scratch, ran, run, stentor};

/// Maximum time for which a test waits for one step.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the command with its files in a separate directory.
fn chaos(scratch: &Scratch, more: &[&str]) -> Ran {
    let directory = scratch.path("run");
    let mut command = stentor();
    command.args(["chaos", "--json", "--seed", "5", "--directory", directory.to_str().unwrap()]).args(more);
    ran(&command.output().unwrap())
}

fn verdicts(document: &Value) -> Vec<(&String, &str)> {
    let properties = document["properties"].as_object().unwrap();
    properties.iter().map(|(name, verdict)| (name, verdict.as_str().unwrap())).collect()
}

fn survives(more: &[&str], faults: &[&str]) {
    let scratch = Scratch::new();
    let ran = chaos(&scratch, &[more, &["--minutes", "0.3"]].concat());
    let document = ran.document("chaos");
    assert_eq!(ran.code, 0, "{document:#}\n{}", ran.stderr);
    assert!(verdicts(&document).iter().all(|(_, verdict)| *verdict == "ok"), "{document:#}");
    assert_eq!(document["trouble"], Value::Null);
    let counts = document["faults"].as_object().unwrap();
    assert_eq!(counts.keys().collect::<Vec<_>>(), faults);
    assert!(counts.values().map(|n| n.as_u64().unwrap()).sum::<u64>() >= 5, "{document:#}");
    assert!(document["deliveries"].as_u64() > document["messages"].as_u64(), "{document:#}");
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn cluster_on_shm_survives() {
    survives(&["--fabric", "shm"], &["kill", "move", "restart", "stop"]);
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn cluster_on_roce_survives() {
    survives(&["--fabric", "roce"], &["cut", "kill", "loss", "move", "restart", "stop"]);
}

/// The mutant stops the majority of a group, and the command assumes that it runs. The command must detect the hang,
/// report it, and end all processes, including the stopped ones.
#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn hang_is_detected_and_reported() {
    let scratch = Scratch::new();
    let ran = chaos(&scratch, &["--minutes", "1", "--plant", "hang"]);
    let document = ran.document("chaos");
    assert_eq!(ran.code, 1, "{document:#}");
    assert_eq!((&document["ok"], &document["trouble"]["kind"]), (&false.into(), &"message".into()));
    let told = document["trouble"]["what"].as_str().unwrap();
    assert!(told.contains("g1") && told.contains("5000 ms in which each had a connected majority"), "{told}");
    let silent =
        document["trouble"]["members"].as_array().unwrap().iter().filter(|member| member["standing"].is_null());
    let silent: Vec<_> = silent.map(|member| member["id"].as_str().unwrap()).collect();
    assert_eq!(silent, ["g1.2", "g1.3"], "{document:#}");
    let kept = PathBuf::from(document["history"].as_str().unwrap());
    assert!(kept.join("trouble.json").exists() && kept.join("g1.1.1.jsonl").exists());
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn broken_history_is_a_failure() {
    let scratch = Scratch::new();
    let ran = chaos(&scratch, &["--minutes", "0.05", "--plant", "history"]);
    let document = ran.document("chaos");
    assert_eq!(ran.code, 1, "{document:#}");
    assert_eq!((&document["ok"], &document["trouble"]), (&false.into(), &Value::Null));
    assert_eq!(document["properties"]["M1"], "violated");
    assert!(document["counter_example"].as_str().unwrap().contains("g1.1"), "{document:#}");
}

/// Faults that both fabrics have, kills of clients, and wrong clocks.
const OF_A_SERVICE: &str = "kill,stop,restart,move,client,clock";

fn service(scratch: &Scratch, more: &[&str]) -> (Ran, Value) {
    let ran = chaos(scratch, &[&["--service", "--rate", "300", "--faults", OF_A_SERVICE], more].concat());
    let document = ran.document("chaos");
    (ran, document)
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn a_service_keeps_its_promises() {
    for fabric in ["shm", "roce"] {
        let (ran, document) = service(&Scratch::new(), &["--fabric", fabric, "--minutes", "0.2"]);
        assert_eq!(ran.code, 0, "{document:#}\n{}", ran.stderr);
        let all = ["V1", "V2", "V3", "V4"].map(|name| (name, "ok"));
        assert!(
            verdicts(&document).into_iter().map(|(name, verdict)| (name.as_str(), verdict)).eq(all),
            "{document:#}"
        );
        let counts = &document["service"];
        assert!(counts["commands"].as_u64() > Some(100), "{document:#}");
        for read in ["ordered", "leader", "after", "local"] {
            assert!(counts["reads"][read].as_u64() > Some(0), "{document:#}");
        }
    }
}

/// The mutants inject a stale reply, a lost command and a doubled one into the records of the processes.
#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn broken_promise_of_the_service_is_a_failure() {
    for (plant, property) in [("reply", "V2"), ("lost", "V1"), ("doubled", "V1")] {
        let (ran, document) = service(&Scratch::new(), &["--minutes", "0.05", "--plant", plant]);
        assert_eq!((ran.code, &document["ok"]), (1, &false.into()), "{plant}: {document:#}");
        assert_eq!(document["properties"][property], "violated", "{plant}: {document:#}");
        assert!(document["counter_example"].as_str().unwrap().contains(property), "{plant}: {document:#}");
    }
}

/// A member of the multicast whose clock is wrong reports that, and stops leading.
#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn wrong_clocks_are_harmless_and_reported() {
    let ran = chaos(&Scratch::new(), &["--faults", "clock", "--minutes", "0.5"]);
    let document = ran.document("chaos");
    assert_eq!(ran.code, 0, "{document:#}\n{}", ran.stderr);
    assert!(
        document["faults"]["clock"].as_u64() > Some(2) && document["wrong_clocks"].as_u64() > Some(0),
        "{document:#}"
    );
    assert!(document["named_clocks"].as_u64() > Some(0), "{document:#}");
}

/// Returns the processes of the members that a run started.
fn pids(directory: &Path) -> Vec<i32> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(" node ") && line.contains(directory.to_str().unwrap()) {
            pids.push(pid);
        }
    }
    pids
}

/// Starts a long run, waits until all members run and three seconds have passed, sends a signal, and waits for the end.
/// Returns the exit code, the output, and the processes of the members.
fn signalled(scratch: &Scratch, signal: Signal) -> (Option<i32>, String, Vec<i32>) {
    let directory = scratch.path("run");
    let mut command = stentor();
    command.args(["chaos", "--json", "--minutes", "9", "--seed", "5", "--faults", "stop", "--directory"]);
    let mut child = command.arg(&directory).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    let mut members = Vec::new();
    while members.len() < 6 || since.elapsed() < Duration::from_secs(3) {
        assert!(since.elapsed() < PATIENCE, "the members do not start");
        std::thread::sleep(Duration::from_millis(50));
        members = pids(&directory);
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() && since.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = child.try_wait().unwrap().expect("the command ends after the signal");
    let output = child.wait_with_output().unwrap();
    (status.code(), String::from_utf8(output.stdout).unwrap(), members)
}

fn are_gone(members: &[i32]) {
    let alive = |pid: &i32| test_kill_process(Pid::from_raw(*pid).unwrap()).is_ok();
    let since = Instant::now();
    while members.iter().any(alive) {
        assert!(
            since.elapsed() < PATIENCE,
            "{:?} live on",
            members.iter().filter(|pid| alive(pid)).collect::<Vec<_>>()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn interrupt_ends_the_run_with_a_verdict() {
    let scratch = Scratch::new();
    let (code, stdout, members) = signalled(&scratch, Signal::INT);
    let document = Ran { code: code.unwrap(), stdout, stderr: String::new() }.document("chaos");
    assert_eq!(
        (code, &document["interrupted"], &document["ok"]),
        (Some(0), &true.into(), &true.into()),
        "{document:#}"
    );
    assert!(document["deliveries"].as_u64().unwrap() > 0);
    are_gone(&members);
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn all_members_die_with_the_command_even_stopped_ones() {
    let scratch = Scratch::new();
    let (code, _, members) = signalled(&scratch, Signal::KILL);
    assert_eq!(code, None);
    are_gone(&members);
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn user_configuration_is_used() {
    let scratch = Scratch::new();
    let (config, directory) = (scratch.path("cluster.toml"), scratch.path("run"));
    let (file, directory) = (config.to_str().unwrap(), directory.to_str().unwrap());
    assert_eq!(run(["config", "init", "-o", file, "--groups", "1"]).code, 0);
    let more = ["chaos", "--config", file, "--clients", "2", "--minutes", "0.05", "--json", "--directory", directory];
    let ran = run(more);
    let document = ran.document("chaos");
    assert_eq!((ran.code, &document["groups"]), (0, &1.into()), "{document:#}");
    assert!(document["repeat"].as_str().unwrap().contains(file), "{document:#}");
    let text = more.iter().filter(|word| **word != "--json");
    run(text).refused(&["not empty", directory]);
    run(["chaos", "--config", file, "--clients", "17"]).refused(&["only 16 client ids", file]);
    assert_eq!(run(["chaos", "--config", file, "--groups", "2"]).code, 2, "a configuration has its groups");
    run(["chaos", "--config", file, "--faults", "cut"])
        .refused(&["fault `cut` is impossible here", "only fabric `roce`"]);
}

#[test]
fn impossible_options_are_refused() {
    run(["chaos", "--replicas", "1"]).refused(&["no fault is possible", "three members"]);
    run(["chaos", "--replicas", "2", "--faults", "kill"])
        .refused(&["fault `kill` is impossible here", "three members"]);
    run(["chaos", "--groups", "101", "--replicas", "1"]).refused(&["101 members", "at most 100"]);
    run(["chaos", "--groups", "0"]).refused(&["--groups and --replicas"]);
    run(["chaos", "--provider", "tcp"]).refused(&["provider `tcp`"]);
    run(["chaos", "--faults", "client"]).refused(&["fault `client` is impossible here", "--service"]);
    run(["chaos", "--service", "--faults", "cut"]).refused(&["fault `cut` is impossible here", "only fabric `roce`"]);
    run(["chaos", "--replicas", "2", "--faults", "clock"])
        .refused(&["fault `clock` is impossible here", "three members"]);
    run(["chaos", "--plant", "lost"]).refused(&["--plant", "--service"]);
    run(["chaos", "--service", "--plant", "hang"]).refused(&["--plant", "--service"]);
    run(["chaos-process", "nonsense"]).refused(&["stentor chaos --service"]);
    let scratch = Scratch::new();
    let config = scratch.path("cluster.toml");
    let file = config.to_str().unwrap();
    assert_eq!(run(["config", "init", "-o", file, "--fabric", "roce"]).code, 0);
    let text = fs::read_to_string(&config).unwrap().replace("127.1.1.2:", "192.0.2.7:");
    fs::write(&config, text).unwrap();
    run(["chaos", "--config", file]).refused(&["`g1.2` is at 192.0.2.7", "no address of this host", file]);
}
