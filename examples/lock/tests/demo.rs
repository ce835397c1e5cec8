//! Tests that run the demonstration and single commands with real processes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use stentor_testutil::TempDir;

fn lock(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lock"));
    command.args(words);
    command
}

#[test]
fn stopped_holder_is_refused_and_another_one_continues() {
    let Output { status, stdout, .. } =
        lock(&["demo", "--rounds", "2"]).stderr(Stdio::inherit()).output().expect("the program runs");
    let text = String::from_utf8_lossy(&stdout);
    println!("{text}");
    assert!(status.success(), "{status}");
    for words in ["ran out", "is killed, and started again", "one holder at a time"] {
        assert!(text.contains(words), "{words}");
    }
    for holder in ["A", "B"] {
        assert!(text.contains(&format!("{holder} is stopped")), "{holder}");
        assert!(text.contains(&format!("{holder} is refused by the resource: token")), "{holder}");
    }
}

/// A process that is killed when the test drops it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already, so errors are ignored.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn commands_do_one_step_each() {
    let directory = TempDir::new();
    let member = |n: u32| format!("{{ id = \"g1.{n}\", address = \"127.0.0.{n}:7101\" }}, ");
    let members: String = (1..=3).map(member).collect();
    let text = format!("cluster = \"lock\"\nfabric = \"shm\"\n[[group]]\nid = \"g1\"\nprocess = [ {members} ]\n");
    directory.file("cluster.toml", text);
    let sockets = directory.to_str().expect("a path in ASCII");
    let start = |words: &[&str]| {
        let mut command = lock(&[words, &["--sockets", sockets]].concat());
        command.current_dir(&directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        Running(command.spawn().expect("the program starts"))
    };
    let _nodes = ["g1.1", "g1.2", "g1.3"].map(|name| start(&["node", name]));
    let next_line = |from: &mut Running| {
        let mut line = String::new();
        let output = from.0.stdout.as_mut().expect("the output is piped");
        BufReader::with_capacity(1, output).read_line(&mut line).expect("a line");
        line
    };
    let mut watcher = start(&["watch", "door"]);
    assert_eq!(next_line(&mut watcher), "door is free\n");
    let mut holder = start(&["hold", "door"]);
    let held = next_line(&mut holder);
    let token = held.trim_end().strip_prefix("holds door with token ").unwrap_or_else(|| panic!("{held}"));
    let run = |words: &[&str]| {
        let output = lock(&[words, &["--sockets", sockets]].concat())
            .current_dir(&directory)
            .output()
            .expect("the program runs");
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (code, text) = run(&["show"]);
    assert!(code == Some(0) && text.starts_with(&format!("door: token {token}, until ")), "{text}");
    // With a clock bound of 1 s, no time of this lease is certain.
    let (code, text) = run(&["hold", "gate", "--lease", "2s"]);
    assert!(code == Some(2) && text.contains("ask for more than 2s"), "{text}");
    drop(holder.0.stdin.take());
    assert!(holder.0.wait().expect("the holder ends").success());
    assert_eq!(next_line(&mut watcher), format!("door is free: the lease of token {token} was released\n"));
}
