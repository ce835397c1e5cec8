//! `stentor cast`: lines are delivered once and in order, or the command reports which are not.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use stentor_multicast::MessageId;

use crate::cluster::{Running, SMALL};
use crate::support::{run, stentor};

#[test]
fn long_line_is_refused_and_earlier_lines_are_delivered() {
    let running = Running::with(&["g1.1"], 1, 1, SMALL);
    let long = "x".repeat(57);
    let cast = running.cast(format!("one\n{}\n{long}\nfour\n", &long[1..]).as_bytes(), &["--to", "g1"]);
    assert_eq!((cast.code, cast.stdout.as_str()), (2, ""));
    for part in ["2 messages", "all delivered", "line 3 is longer than 56 bytes", "standard input:3", "message_bytes"] {
        assert!(cast.stderr.contains(part), "{part}: {}", cast.stderr);
    }
    assert_eq!(running.delivered("g1.1", 2).len(), 2);
    let again = running.cast(b"four\n", &["--to", "g1", "--client", "c0", "-q"]);
    assert_eq!((again.code, again.stdout.as_str(), again.stderr.as_str()), (0, "", ""));
    let message = running.delivered("g1.1", 3)[2]["m"].clone();
    assert_eq!(message[0], "c0");
    let number: u64 = message[1].as_str().expect("a string of digits").parse().unwrap();
    assert!(number > 1 << MessageId::GENERATION_BITS, "{message}: a number of an earlier process may be used again");
}

#[test]
fn killed_cast_has_recorded_its_multicasts() {
    let mut running = Running::new(1, 1, SMALL);
    let path = |running: &Running, name: &str| running.path(&format!("{name}.jsonl")).to_str().unwrap().to_owned();
    running.start("g1.1", &["--history", &path(&running, "g1.1")]);
    let mut command = stentor();
    command.args(["cast", "--to", "g1", "--history", &path(&running, "c0")]).args(running.meeting());
    let mut cast = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = cast.stdin.take().unwrap();
    let lines = std::thread::spawn(move || while input.write_all(b"a line\n").is_ok() {});
    running.until_recorded("g1.1.jsonl", 500);
    cast.kill().unwrap();
    cast.wait().unwrap();
    lines.join().unwrap();
    assert_eq!(running.signal("g1.1", Signal::TERM), Some(0));
    let files = ["g1.1", "c0"].map(|name| path(&running, name));
    let document = run(["check", "--json"].map(str::to_owned).into_iter().chain(files)).document("check");
    assert!(document["ok"] == true && document["properties"]["M1"] == "ok", "{document:#}");
}

#[test]
fn lines_are_delivered_once_and_in_order_although_the_leader_is_killed() {
    let names = ["g1.1", "g1.2", "g1.3"];
    let mut running = Running::new(1, 3, SMALL);
    let path = |running: &Running, name: &str| running.path(&format!("{name}.jsonl")).to_str().unwrap().to_owned();
    for name in names {
        running.start(name, &["--history", &path(&running, name)]);
    }
    let mut command = stentor();
    command.args(["cast", "--to", "g1", "--history", &path(&running, "c0"), "--json"]).args(running.meeting());
    let mut cast = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = cast.stdin.take().unwrap();
    let lines = std::thread::spawn(move || {
        for n in 0..600 {
            writeln!(input, "line {n}").unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    running.until("g1.1", "out", |text| text.contains("line 100"));
    let leads = |name: &&str| running.read(name, "err").contains(&format!("{name} leads"));
    let leader = names.into_iter().find(leads).expect("a member leads");
    running.signal(leader, Signal::KILL);
    lines.join().unwrap();
    let cast = crate::support::ran(&cast.wait_with_output().unwrap());
    assert_eq!(cast.code, 0, "{}", cast.stderr);
    assert_eq!(cast.document("cast")["outstanding"], 0);
    for name in names.into_iter().filter(|name| *name != leader) {
        let delivered = running.delivered(name, 600);
        let payloads: Vec<_> = delivered.iter().map(|line| line["payload"].as_str().unwrap().to_owned()).collect();
        assert!(payloads.iter().cloned().eq((0..600).map(|n| format!("line {n}"))), "{payloads:?}");
        assert_eq!(running.signal(name, Signal::TERM), Some(0));
    }
    let files = names.iter().chain(&["c0"]).map(|name| path(&running, name));
    let judged = run(["check", "--json"].map(str::to_owned).into_iter().chain(files)).document("check");
    assert!(judged["ok"] == true && judged["properties"]["M1"] == "ok", "{judged:#}");
}

#[test]
fn cluster_too_small_for_sessions_is_refused_before_the_start() {
    for (limits, parts) in [
        ("reply_bytes = 0", ["`reply_bytes` is 0 in [limits]", "raise `reply_bytes`"]),
        ("message_bytes = 100", ["less than the 104 bytes that open a session", "raise `message_bytes`"]),
    ] {
        let running = Running::new(1, 1, limits);
        let cast = running.cast(b"one\n", &["--to", "g1"]);
        cast.refused(&parts);
        assert!(!running.path("run").exists(), "the cast has begun");
    }
}
