//! The examples of channels, of the broadcast, of embedded clients, of locks and of the simulation do what they say.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use stentor_testutil::TempDir;

/// Nothing here takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// An example that runs, with the lines that it prints. It ends with the test.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(name: &str, words: &[&str], directory: &TempDir, input: Stdio) -> Running {
        let mut child = Command::new(example(name))
            .args(words)
            .current_dir(directory)
            .env("XDG_RUNTIME_DIR", &**directory)
            .stdin(input)
            .stdout(Stdio::piped())
            .spawn()
            .expect("an example");
        let (give, lines) = channel();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| give.send(line)));
        Running { child, lines }
    }

    fn next_line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line in time")
    }

    /// Waits for the end, and for all that was printed before it.
    fn end(mut self) -> Vec<String> {
        let rest = std::iter::from_fn(|| self.lines.recv_timeout(PATIENCE).ok()).collect();
        assert!(self.child.wait().expect("it ran").success());
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, or nobody needs it any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program of an example. `cargo test` builds them all, but for a test that is named by `--test`.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("this program");
    let directory = own.parent().and_then(|deps| deps.parent()).expect("a directory for build products");
    let path = directory.join("examples").join(name);
    assert!(path.exists(), "there is no {}: cargo build -p stentor --examples", path.display());
    path
}

#[test]
fn ends_of_the_channel_example_talk() {
    let directory = TempDir::new();
    let listens = Running::start("channel", &["listen"], &directory, Stdio::null());
    let mut asks = Running::start("channel", &[], &directory, Stdio::piped());
    let mut input = asks.child.stdin.take().expect("it is piped");
    for (line, answer) in [("one", "ONE"), ("", ""), ("2 + two", "2 + TWO")] {
        writeln!(input, "{line}").unwrap();
        assert_eq!(asks.next_line(), answer);
    }
    drop(input);
    assert_eq!((asks.end(), listens.end()), (Vec::new(), Vec::new()));
}

#[test]
fn tasks_of_the_tokio_example_get_their_sums() {
    let directory = TempDir::new();
    let lines = Running::start("channel_tokio", &[], &directory, Stdio::null()).end();
    assert_eq!(lines, ["channel 1: 60", "channel 2: 60", "channel 3: 60"]);
}

#[test]
fn processes_of_the_broadcast_example_hear_each_other() {
    let directory = TempDir::new();
    let names = ["a", "b", "c"];
    let member = |(n, name)| format!("{{ id = \"{name}\", address = \"127.0.0.{n}:7101\" }}, ");
    let members: String = (1..).zip(names).map(member).collect();
    let section = "[neb]\nmode = \"quorum\"\nfault_model = \"lying-sender\"\nfaults = 0\n";
    let text = format!("cluster = \"x\"\nfabric = \"shm\"\n{section}[[group]]\nid = \"g1\"\nprocess = [ {members} ]\n");
    std::fs::write(directory.join("cluster.toml"), text).unwrap();
    let mut running = names.map(|name| Running::start("broadcast", &[name], &directory, Stdio::piped()));
    for (process, name) in running.iter_mut().zip(names) {
        let mut input = process.child.stdin.take().expect("it is piped");
        writeln!(input, "{name} is here\nand says so").unwrap();
    }
    for process in &running {
        let mut heard: Vec<String> = (0..6).map(|_| process.next_line()).collect();
        heard.sort();
        let expected = names.map(|name| [format!("{name} 0: {name} is here"), format!("{name} 1: and says so")]);
        assert_eq!(heard, expected.concat());
    }
}

#[test]
fn servers_of_the_embedded_example_are_their_own_clients() {
    let directory = TempDir::new();
    let lines = Running::start("embedded", &[], &directory, Stdio::null()).end();
    assert_eq!(lines, ["a: 5", "b: 10", "c: 15"]);
}

/// Who has the lock is killed, and so is a node: the lock goes on to who waits, under a larger number.
#[test]
fn locks_of_the_example_go_on_when_their_holder_dies() {
    let directory = TempDir::new();
    let member = |n: u32| format!("{{ id = \"g1.{n}\", address = \"127.0.0.{n}:7101\" }}, ");
    let members: String = (1..=3).map(member).collect();
    let text = format!("cluster = \"locks\"\nfabric = \"shm\"\n[[group]]\nid = \"g1\"\nprocess = [ {members} ]\n");
    std::fs::write(directory.join("cluster.toml"), text).unwrap();
    let node = |n: u32| Running::start("locks", &[&format!("g1.{n}")], &directory, Stdio::null());
    let mut nodes: Vec<Running> = (1..=3).map(node).collect();
    let take = || Running::start("locks", &["take", "door"], &directory, Stdio::piped());
    let number = |line: String| line.strip_prefix("door is ours, number ").expect("it is ours").parse::<u64>().unwrap();
    let first = take();
    let mut numbers = vec![number(first.next_line())];
    let others = [take(), take()];
    // Both wait by now, or will soon: the order is theirs.
    thread::sleep(Duration::from_millis(500));
    assert!(others.iter().all(|other| other.lines.try_recv().is_err()), "the first one has it");
    drop(first);
    drop(nodes.remove(0));
    let since = Instant::now();
    let mut waiting = Vec::from(others);
    while !waiting.is_empty() {
        assert!(since.elapsed() < PATIENCE, "{} wait", waiting.len());
        thread::sleep(Duration::from_millis(5));
        let has_it = waiting.iter().position(|other| match other.lines.try_recv() {
            Ok(line) => {
                numbers.push(number(line));
                true
            }
            Err(_) => false,
        });
        if let Some(has_it) = has_it {
            let mut holder = waiting.remove(has_it);
            thread::sleep(Duration::from_millis(100));
            assert!(waiting.iter().all(|other| other.lines.try_recv().is_err()), "one at a time");
            drop(holder.child.stdin.take());
            assert_eq!(holder.end(), Vec::<String>::new());
        }
    }
    assert!(numbers.is_sorted() && numbers[0] < numbers[1] && numbers[1] < numbers[2], "{numbers:?}");
}

#[test]
fn the_simulated_locks_pass() {
    let directory = TempDir::new();
    let lines = Running::start("simulated_locks", &[], &directory, Stdio::null()).end();
    assert!(lines[0].starts_with("200 seeds, "), "{lines:?}");
}
