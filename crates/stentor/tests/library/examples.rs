//! The output of the examples, except those that measure.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use stentor_testutil::TempDir;

/// Time limit; reached only if an example hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running example, which is killed when this is dropped, and its output.
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
        let output = BufReader::new(child.stdout.take().expect("the output is piped"));
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| give.send(line)));
        Running { child, lines }
    }

    fn next_line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line in time")
    }

    /// Waits for the end, and returns the remaining output.
    fn end(mut self) -> Vec<String> {
        let rest = std::iter::from_fn(|| self.lines.recv_timeout(PATIENCE).ok()).collect();
        assert!(self.child.wait().expect("the example ends").success());
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs an example without arguments to its end, and returns its output.
fn lines_of(name: &str) -> Vec<String> {
    Running::start(name, &[], &TempDir::new(), Stdio::null()).end()
}

/// Returns the program of an example. `cargo test` builds all examples, unless a test is selected by `--test`.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("this program");
    let directory = own.parent().and_then(|deps| deps.parent()).expect("a directory for build products");
    let path = directory.join("examples").join(name);
    assert!(path.exists(), "there is no {}: cargo build -p stentor --examples", path.display());
    path
}

#[test]
fn channel_example_answers_each_line() {
    let directory = TempDir::new();
    let listens = Running::start("channel", &["listen"], &directory, Stdio::null());
    let mut asks = Running::start("channel", &[], &directory, Stdio::piped());
    let mut input = asks.child.stdin.take().expect("the input is piped");
    for (line, answer) in [("one", "ONE"), ("", ""), ("2 + two", "2 + TWO")] {
        writeln!(input, "{line}").unwrap();
        assert_eq!(asks.next_line(), answer);
    }
    drop(input);
    assert_eq!((asks.end(), listens.end()), (Vec::new(), Vec::new()));
}

#[test]
fn tasks_of_the_tokio_example_get_their_sums() {
    assert_eq!(lines_of("channel_tokio"), ["channel 1: 60", "channel 2: 60", "channel 3: 60"]);
}

#[test]
fn broadcast_example_delivers_everywhere() {
    let directory = TempDir::new();
    let names = ["a", "b", "c"];
    let member = |(n, name)| format!("{{ id = \"{name}\", address = \"127.0.0.{n}:7101\" }}, ");
    let members: String = (1..).zip(names).map(member).collect();
    let section = "[neb]\nmode = \"quorum\"\nfault_model = \"lying-sender\"\nfaults = 0\n";
    let text = format!("cluster = \"x\"\nfabric = \"shm\"\n{section}[[group]]\nid = \"g1\"\nprocess = [ {members} ]\n");
    std::fs::write(directory.join("cluster.toml"), text).unwrap();
    let mut running = names.map(|name| Running::start("broadcast", &[name], &directory, Stdio::piped()));
    for (process, name) in running.iter_mut().zip(names) {
        let mut input = process.child.stdin.take().expect("the input is piped");
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
    assert_eq!(lines_of("embedded"), ["a: 5", "b: 10", "c: 15"]);
}

/// Starts the nodes `g1.1` to `g1.3` of an example that reads a configuration.
fn nodes(name: &str, directory: &TempDir) -> Vec<Running> {
    let member = |n: u32| format!("{{ id = \"g1.{n}\", address = \"127.0.0.{n}:7101\" }}, ");
    let members: String = (1..=3).map(member).collect();
    let text = format!("cluster = \"{name}\"\nfabric = \"shm\"\n[[group]]\nid = \"g1\"\nprocess = [ {members} ]\n");
    std::fs::write(directory.join("cluster.toml"), text).unwrap();
    (1..=3).map(|n| Running::start(name, &[&format!("g1.{n}")], directory, Stdio::null())).collect()
}

/// The holder of the lock is killed, and so is a node. The lock passes to the waiting clients, with rising numbers.
#[test]
fn example_lock_passes_on_when_its_holder_dies() {
    let directory = TempDir::new();
    let mut nodes = nodes("locks", &directory);
    let take = || Running::start("locks", &["take", "door"], &directory, Stdio::piped());
    let number = |line: String| {
        line.strip_prefix("door is ours, number ").expect("the line reports the lock").parse::<u64>().unwrap()
    };
    let first = take();
    let mut numbers = vec![number(first.next_line())];
    let others = [take(), take()];
    // Both clients wait by now, or soon will. The order between them is not fixed.
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
    let lines = lines_of("simulated_locks");
    assert!(lines[0].starts_with("200 seeds, "), "{lines:?}");
}

#[test]
fn example_observer_resumes_from_its_file() {
    let directory = TempDir::new();
    let _nodes = nodes("counter", &directory);
    let add = || Running::start("counter", &[], &directory, Stdio::null()).end();
    let observe = || Running::start("observe", &["g1", "position"], &directory, Stdio::null());
    let index = |line: &str| line.split_whitespace().next().and_then(|index| index.parse::<u64>().ok());
    let next = |observer: &Running, is: &dyn Fn(&str) -> bool| {
        let line = std::iter::repeat_with(|| observer.next_line())
            .find(|line| is(line))
            .expect("the observer prints the line");
        index(&line).expect("an index")
    };
    let observer = observe();
    // The observer sees all later commands, or a state that contains the first command.
    assert!(add()[0].starts_with("5 at "));
    assert!(observer.next_line().contains(' '));
    assert!(add()[0].starts_with("10 at "));
    let first = next(&observer, &|line| line.ends_with(r": \x05\x00\x00\x00\x00\x00\x00\x00"));
    // The observer stores its position after a second in which it observed nothing.
    let since = Instant::now();
    while !directory.join("position").exists() {
        assert!(since.elapsed() < PATIENCE, "nothing is written");
        thread::sleep(Duration::from_millis(20));
    }
    drop(observer);
    assert!(add()[0].starts_with("15 at "));
    // A member that was not observed before sends the state, which contains the command.
    next(&observe(), &|line| index(line).is_some_and(|index| index > first));
}

#[test]
fn items_of_the_queue_are_popped_once_and_none_is_lost() {
    let popped = ["client 0: =one", "client 1: =two", "client 0: =three", "client 1: long", "left: 1"];
    assert_eq!(lines_of("queue"), popped);
}

/// The last number of each line is a number of positions. It may vary if the leader changes meanwhile, so it is not
/// compared.
#[test]
fn leader_reads_see_the_last_write() {
    let lines = lines_of("leader_read");
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, how) in lines.iter().zip(["leader", "ordered"]) {
        assert!(line.starts_with(&format!("{how}: 50 of 50 reads saw the last write")), "{line}");
    }
}

#[test]
fn reads_after_a_position_see_the_write() {
    assert_eq!(lines_of("after_position"), ["0 of 400 reads missed the write"]);
}

/// A payment may or may not be made before its process dies. In any case it is made once.
#[test]
fn a_payment_whose_outcome_is_unknown_is_made_once() {
    let lines = lines_of("resolve_unknown");
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, (number, left)) in lines.iter().zip([(1, 95), (2, 90), (3, 85)]) {
        let what = line.strip_prefix(&format!("payment {number}: it "));
        let what = what.and_then(|line| line.strip_suffix(&format!(", and {left} is left")));
        assert!(matches!(what, Some("was made" | "is made now")), "{line}");
    }
}

#[test]
fn reminders_come_in_the_order_of_their_times() {
    let lines = lines_of("reminders");
    assert_eq!(lines[..2], ["in 400 ms: eat the cake", "in 200 ms: bake the cake"]);
    assert!(lines[2].starts_with("now: bake the cake (") && lines[3].starts_with("now: eat the cake ("), "{lines:?}");
}

#[test]
fn money_in_transit_is_never_visible() {
    let lines = lines_of("two_groups");
    assert_eq!(lines, ["50 reads of both banks, and 0 with a wrong sum", "after 200 transfers: [402, 1598]"]);
}

#[test]
fn a_broadcast_in_mode_quorum_continues_without_a_process() {
    let heard = |name, count, without| format!("{name} has delivered {count} messages, and misses {without}");
    let before = ["a", "b", "c", "d"].map(|name| heard(name, 4, "[]"));
    let after = ["a", "b", "c"].map(|name| heard(name, 24, "[\"d\"]"));
    assert_eq!(lines_of("broadcast_quorum"), [&before[..], &["d ends".to_owned()], &after].concat());
}

#[test]
fn a_liar_is_proven_and_deceives_nobody() {
    let lines = lines_of("broadcast_liar");
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("d signed both under ")), "{lines:?}");
    assert_eq!(lines[3], "0 messages were delivered differently");
}

/// Without libfabric, the example prints an error.
#[test]
fn a_channel_over_libfabric_carries_messages_if_available() {
    let lines = lines_of("channel_ofi");
    let came_back = [3, 3, 100_000].map(|bytes| format!("{bytes} bytes came back: true"));
    assert!(lines == came_back || lines.len() == 1 && lines[0].contains("libfabric"), "{lines:?}");
}

#[test]
fn an_event_loop_turns_nodes_and_serves_a_socket() {
    let lines = lines_of("event_loop");
    let counted = ["the counter is 5", "the counter is 10", "the counter is 15"];
    assert_eq!(lines[..3], counted);
    assert!(lines[3].strip_prefix("the leader is ").is_some_and(|name| ["a", "b", "c"].contains(&name)), "{lines:?}");
    assert_eq!(lines[4..], ["the loop slept: true"]);
}

#[test]
fn tasks_of_a_client_in_tokio_are_all_answered() {
    assert_eq!(lines_of("client_tokio"), ["20 tasks are done, and the counter is 420"]);
}

#[test]
fn status_shows_a_leader_that_leaves_and_returns() {
    let lines = lines_of("node_status");
    let name_before = |line: &str, rest| line.strip_suffix(rest).map(str::to_owned);
    let stopped = lines.iter().find_map(|line| name_before(line, " is stopped")).expect("one is stopped");
    let at = |what: &str| {
        lines.iter().position(|line| *line == format!("{stopped} {what}")).expect("the member's line is printed")
    };
    let (stops, starts) = (at("is stopped"), at("is started again"));
    let led = |line: &String| line.contains(" leads, ") || line.contains(" follows ");
    assert!(lines[..stops].iter().any(led) && lines[stops..starts].iter().any(led), "{lines:?}");
    let last = lines.last().expect("there are lines");
    assert!(
        last.starts_with(&format!("{stopped} follows ")) || last.starts_with(&format!("{stopped} leads")),
        "{last}"
    );
}

#[test]
fn appointed_members_lead() {
    assert_eq!(lines_of("own_election"), ["a leads", "c is appointed", "c leads", "b is appointed", "b leads"]);
}

#[test]
fn a_bridge_carries_the_order_of_one_cluster_to_another() {
    let lines = lines_of("two_clusters");
    assert_eq!(lines[lines.len() - 2..], ["near: one order each", "far: one order each"]);
}
