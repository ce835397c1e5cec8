//! Tests of the histories of `stentor neb run`, and of `stentor check` on them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Scratch, ran, run, signal, stentor};

/// Number of broadcasts of each process. It exceeds the window, so that ring slots are reused.
const EACH: usize = 10;

/// Configures a cluster of three processes that broadcast.
fn three_processes(scratch: &Scratch) -> PathBuf {
    let file = scratch.path("cluster.toml");
    assert_eq!(run(["config", "init", "--groups", "1", "--replicas", "3", "-o", file.to_str().unwrap()]).code, 0);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text + "\n[neb]\nmode = \"all\"\nwindow = 4\npayload_bytes = 64\n").unwrap();
    file
}

fn process(scratch: &Scratch, file: &Path, n: usize, history: &Path) -> Command {
    let mut command = stentor();
    command.args(["neb", "run", "--id", &format!("g1.{n}"), "--config"]).arg(file);
    command.arg("--directory").arg(scratch.path("sockets")).arg("--history").arg(history);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn end(child: Child) {
    signal(child.id(), Signal::TERM);
    let ran = ran(&child.wait_with_output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

/// Runs three processes that broadcast until every process has delivered everything. Returns their histories.
fn recorded(scratch: &Scratch) -> Vec<PathBuf> {
    let file = three_processes(scratch);
    let histories: Vec<_> = (1..=3).map(|n| scratch.path(&format!("g1.{n}.jsonl"))).collect();
    let start = |(n, history): (usize, &PathBuf)| process(scratch, &file, n, history).spawn().unwrap();
    let mut children: Vec<_> = (1..).zip(&histories).map(start).collect();
    for (n, child) in children.iter_mut().enumerate() {
        let lines: String = (0..EACH).map(|line| format!("line {line} of {n}\n")).collect();
        child.stdin.as_mut().unwrap().write_all(lines.as_bytes()).unwrap();
    }
    for child in &mut children {
        let out = BufReader::new(child.stdout.take().unwrap());
        assert_eq!(
            out.lines().take(3 * EACH).map(Result::unwrap).filter(|line| line.contains("deliver")).count(),
            3 * EACH
        );
    }
    children.into_iter().for_each(end);
    histories
}

#[test]
fn known_liar_is_excluded_by_an_option_of_check() {
    let scratch = Scratch::new();
    // The first two processes delivered different values of the third.
    let cluster = r#"{"e":"cluster","groups":{"g1":["g1.1","g1.2","g1.3"]}}"#;
    let deliver = |n: u32| {
        format!(r#"{{"t":1,"p":"g1.{n}","i":1,"e":"bdeliver","s":"g1.3","k":0,"len":8,"hash":"000000000000000{n}"}}"#)
    };
    let history = scratch.file("h.jsonl", &format!("{cluster}\n{}\n{}\n", deliver(1), deliver(2)));
    let check = |faulty: &[&str]| run(["check", "--json", history.to_str().unwrap()].iter().chain(faulty));
    let unknown = check(&[]).document("check");
    assert_eq!(unknown["properties"]["B1"], "violated", "two members delivered different values");
    assert!(unknown["not_checked"]["B3"].as_str().unwrap().contains("`g1.3` is missing"), "{unknown:#}");
    let known = check(&["--faulty", "g1.3"]).document("check");
    assert_eq!((&known["properties"]["B1"], &known["properties"]["B3"]), (&"violated".into(), &"ok".into()));
    let two = check(&["--faulty", "g1.3,g1.2"]);
    assert_eq!((two.code, &two.document("check")["properties"]["B1"]), (0, &"ok".into()));
    let nobody = check(&["--faulty", "g1.9"]);
    assert_eq!(nobody.code, 2);
    assert!(nobody.stderr.contains("g1.9"), "{}", nobody.stderr);
}

fn check(histories: &[PathBuf]) -> (i32, Value) {
    let arguments = ["check", "--complete", "--json"].into_iter().map(PathBuf::from);
    let ran = run(arguments.chain(histories.iter().cloned()));
    (ran.code, ran.document("check"))
}

/// Returns the histories, with the lines of one of them changed.
fn tampered(scratch: &Scratch, histories: &[PathBuf], change: impl Fn(&mut Vec<String>)) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(&histories[1]).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    change(&mut lines);
    let changed = scratch.file("changed.jsonl", &(lines.join("\n") + "\n"));
    assert_ne!(std::fs::read_to_string(&changed).unwrap(), text, "the change had no effect");
    vec![histories[0].clone(), changed, histories[2].clone()]
}

#[test]
fn recorded_broadcasts_pass_and_tampered_histories_fail() {
    let scratch = Scratch::new();
    let histories = recorded(&scratch);
    let (code, document) = check(&histories);
    assert_eq!(code, 0, "{document:#}");
    for property in ["B1", "B2", "B3", "B4", "B5", "B6"] {
        assert_eq!(document["properties"][property], "ok", "{document:#}");
    }
    assert_eq!(document["not_checked"]["B7"], "no equivocation was reported", "{document:#}");
    let (code, without) = check(&histories[1..]);
    assert_eq!(code, 3, "{without:#}");
    assert!(without["undecided"].as_str().unwrap().contains("a history of `g1.1` is missing"), "{without:#}");
    let counts = &document["counts"];
    assert_eq!((&counts["broadcasts"], &counts["broadcast_deliveries"]), (&30.into(), &90.into()), "{document:#}");

    let delivery = |lines: &[String], k: usize| {
        let (event, stream, index) = (r#""e":"bdeliver""#, r#""s":"g1.3""#, format!("\"k\":{k},"));
        let is_it = |line: &String| [event, stream, &index].iter().all(|part| line.contains(part));
        lines.iter().position(is_it).unwrap_or_else(|| panic!("{lines:#?}"))
    };
    let found = |property: &str, change: &dyn Fn(&mut Vec<String>)| {
        let (code, document) = check(&tampered(&scratch, &histories, change));
        assert_eq!((code, &document["properties"][property]), (1, &"violated".into()), "{document:#}");
        assert!(document["counter_examples"][property].as_str().unwrap().contains("[g1."), "{document:#}");
    };
    let other_bytes = |lines: &mut Vec<String>| {
        let at = delivery(lines, 7);
        let mut event: Value = serde_json::from_str(&lines[at]).unwrap();
        event["hash"] = "0123456789abcdef".into();
        lines[at] = event.to_string();
    };
    found("B1", &other_bytes);
    found("B3", &other_bytes);
    found("B2", &|lines| {
        let at = delivery(lines, EACH - 1);
        lines.remove(at);
    });
    found("B3", &|lines| {
        let at = delivery(lines, 7);
        lines.insert(at, lines[at].clone());
    });
    found("B3", &|lines| {
        let at = lines.iter().position(|line| line.contains(r#""e":"broadcast""#)).unwrap();
        lines.insert(at, lines[at].clone());
    });
    found("B4", &|lines| {
        let (at, to) = (delivery(lines, 7), delivery(lines, 6));
        let (one, other) = (lines[at].clone(), lines[to].clone());
        // The times keep their order, so that the history stays monotonic.
        let with_time = |line: &str, like: &str| {
            let mut event: Value = serde_json::from_str(line).unwrap();
            event["t"] = serde_json::from_str::<Value>(like).unwrap()["t"].clone();
            event.to_string()
        };
        lines[to] = with_time(&one, &other);
        lines[at] = with_time(&other, &one);
    });
    found("B7", &|lines| {
        let at = delivery(lines, 7);
        let mut event: Value = serde_json::from_str(&lines[at]).unwrap();
        event["e"] = "equivocation".into();
        event["other"] = "0123456789abcdef".into();
        event["proven"] = true.into();
        lines.insert(at, event.to_string());
    });
}

#[test]
fn existing_history_is_not_overwritten() {
    let scratch = Scratch::new();
    let file = three_processes(&scratch);
    let history = scratch.file("old.jsonl", "mine\n");
    let ran = ran(&process(&scratch, &file, 1, &history).stdin(Stdio::null()).output().unwrap());
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("the history exists already; it was not changed"), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(&history).unwrap(), "mine\n");
}

#[test]
fn killed_process_has_recorded_its_delivered_broadcasts() {
    let scratch = Scratch::new();
    let file = three_processes(&scratch);
    let histories: Vec<_> = (1..=3).map(|n| scratch.path(&format!("g1.{n}.jsonl"))).collect();
    let start = |(n, history): (usize, &PathBuf)| process(&scratch, &file, n, history).spawn().unwrap();
    let mut children: Vec<_> = (1..).zip(&histories).map(start).collect();
    writeln!(children[0].stdin.as_mut().unwrap(), "before the end").unwrap();
    let mut out = BufReader::new(children[1].stdout.take().unwrap());
    let mut told = String::new();
    out.read_line(&mut told).unwrap();
    let mut killed = children.remove(0);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(told.contains("before the end"), "{told}");
    children.into_iter().for_each(end);
    let ran = run(["check", "--json"].into_iter().map(PathBuf::from).chain(histories));
    let document = ran.document("check");
    assert_eq!((ran.code, &document["properties"]["B3"]), (0, &"ok".into()), "{document:#}");
    assert_eq!(document["counts"]["broadcasts"], 1, "{document:#}");
}
