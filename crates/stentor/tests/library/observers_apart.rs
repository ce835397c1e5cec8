//! Observers in their own processes: they are stopped, starved, and lose the member that serves them, without effect on
//! the group.
//!
//! The nodes, a client and the observers are this test program, started again with a role. The tests that take minutes
//! are ignored by default: `cargo xtask nightly observers` runs them, and prints their figures.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use stentor::{Cluster, Consistency, Context, Frozen, Limits, Observed, ReadContext, Reply, StateMachine};
use stentor_testutil::{TempDir, median};

use crate::until::until;

const NAMES: [&str; 3] = ["a", "b", "c"];
const ROLE: &str = "STENTOR_OBSERVED_ROLE";
const DIRECTORY: &str = "STENTOR_OBSERVED_DIRECTORY";
/// Maximum number of calls of the client in flight.
const DEPTH: usize = 512;
/// Name of the file with the index that the observers must reach.
const TARGET: &str = "target";

fn cluster(directory: &Path, observed_mib: u32) -> Cluster {
    let silence = Duration::from_millis(1000)..=Duration::from_millis(2000);
    let members = NAMES.iter().zip(1..).map(|(name, n)| (*name, format!("127.0.0.{n}:7101")));
    let builder = Cluster::builder("apart").election(silence).directory(directory).group("g", members);
    builder.limits(Limits { observed_mib, ..Limits::default() }).build().expect("a valid cluster")
}

/// The number of commands, and a digest of their order.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Order {
    count: u64,
    digest: u64,
}

impl Order {
    fn add(&mut self, command: &[u8]) {
        self.count += 1;
        let number = command.first_chunk().map_or(0, |number| u64::from_le_bytes(*number));
        self.digest = (self.digest ^ number).wrapping_mul(0x0100_0000_01b3).rotate_left(7);
    }

    fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.count) | u128::from(self.digest) << 64).to_le_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Order {
        let word = u128::from_le_bytes(bytes.try_into().expect("sixteen bytes"));
        Order { count: word as u64, digest: (word >> 64) as u64 }
    }
}

impl StateMachine for Order {
    type Frozen = Order;

    fn apply(&mut self, _: &Context<'_>, command: &[u8], _: &mut Reply) {
        self.add(command);
    }

    fn read(&self, _: &ReadContext<'_>, _: &[u8], reply: &mut Reply) {
        reply.extend(&self.to_bytes());
    }

    fn freeze(&self) -> Order {
        *self
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut bytes = [0; 16];
        from.read_exact(&mut bytes)?;
        *self = Order::from_bytes(&bytes);
        Ok(())
    }
}

impl Frozen for Order {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.to_bytes())
    }
}

/// The entry point of the processes of these tests. In the test run itself it does nothing, because it has no role.
#[test]
fn a_process_takes_its_role() {
    let (Ok(role), Some(directory)) = (std::env::var(ROLE), std::env::var_os(DIRECTORY)) else { return };
    let directory = Path::new(&directory);
    let mut words = role.split(' ');
    let (kind, mib, name) = (words.next(), words.next(), words.next());
    let cluster = cluster(directory, mib.and_then(|mib| mib.parse().ok()).expect("a number"));
    match (kind, name) {
        (Some("node"), Some(name)) => {
            cluster.node(name, Order::default()).start().expect("the node starts").run().expect("the node runs");
        }
        (Some("client"), Some(rate)) => client(&cluster, rate.parse().expect("a number")),
        (Some("observer"), Some(number)) => observer(&cluster, directory, number),
        _ => panic!("{role}"),
    }
}

/// Makes `rate` calls per second, or as many as [`DEPTH`] allows if `rate` is 0. Prints the number of applied calls ten
/// times a second. A line on standard input ends the load; then the client prints the state of the group.
fn client(cluster: &Cluster, rate: u64) {
    let group = cluster.group("g").expect("the group is in the configuration");
    let client = cluster.client().patience(Duration::from_secs(30)).connect().expect("the client connects");
    let ends = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&ends);
    thread::spawn(move || {
        let _ = io::stdin().read_line(&mut String::new());
        told.store(1, Ordering::Relaxed);
    });
    let (mut calls, mut sent, mut done, since) = (VecDeque::new(), 0_u64, 0_u64, Instant::now());
    let mut said = since;
    while ends.load(Ordering::Relaxed) == 0 {
        let due = if rate == 0 { u64::MAX } else { since.elapsed().as_micros() as u64 * rate / 1_000_000 };
        while calls.len() < DEPTH && sent < due {
            let mut command = [7; 64];
            command[..8].copy_from_slice(&sent.to_le_bytes());
            calls.push_back(client.call(group, &command));
            sent += 1;
        }
        match calls.pop_front() {
            Some(call) => {
                call.wait().expect("the command is applied");
                done += 1;
            }
            None => thread::sleep(Duration::from_millis(1)),
        }
        if said.elapsed() >= Duration::from_millis(100) {
            said = Instant::now();
            println!("done {done}");
        }
    }
    calls.into_iter().for_each(|call| drop(call.wait().expect("the command is applied")));
    let answer = client.read(group, b"", Consistency::Ordered).wait().expect("the read is answered");
    let (order, index) = (Order::from_bytes(answer.bytes()), answer.position().index);
    println!("end {index} {} {}", order.count, order.digest);
    // The process waits until it is killed. If it ended by itself, the end of its session would be ordered after the
    // position that it has just printed.
    thread::sleep(Duration::from_secs(3600));
}

/// Follows the group, and stores a summary when it has reached the target.
fn observer(cluster: &Cluster, directory: &Path, number: &str) {
    let group = cluster.group("g").expect("the group is in the configuration");
    let mut observer =
        cluster.observe(group).patience(Duration::from_secs(120)).connect().expect("the observer is served");
    let (mut order, mut last, mut states, mut said) = (Order::default(), None, 0, None);
    loop {
        let observed = observer.next(Duration::from_secs(1)).expect("the observer is served");
        let Some(observed) = observed else {
            if said.replace(states) != Some(states) {
                replace(&directory.join(format!("states.{number}")), &format!("{states}"));
            }
            let target = std::fs::read_to_string(directory.join(TARGET)).ok().and_then(|text| text.parse().ok());
            if target.is_some_and(|target| last >= Some(target)) {
                let text = format!("{} {} {states}", order.count, order.digest);
                return replace(&directory.join(format!("seen.{number}")), &text);
            }
            continue;
        };
        let index = observed.position().index();
        match &observed {
            Observed::Command(command) => order.add(&command.bytes),
            Observed::State(state) => {
                order = Order::from_bytes(&state.bytes);
                states += 1;
            }
            _ => {}
        }
        let follows = last.is_none_or(|last| index == last + 1);
        assert!(follows || matches!(observed, Observed::State(_)), "{last:?}, then {observed:?}");
        last = Some(index);
    }
}

/// Replaces a file atomically.
fn replace(file: &Path, text: &str) {
    // The name has an extension that must be kept, so it is extended.
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, file)).expect("the directory can be written");
}

/// A process, which is killed when this is dropped.
struct Process(Child);

impl Process {
    fn start(directory: &Path, role: &str, output: Stdio, is_idle: bool) -> Process {
        let own = std::env::current_exe().expect("this program");
        let mut command = if is_idle {
            // An idle-priority process gets only processors that no other process wants.
            let mut command = Command::new("chrt");
            command.args(["--idle", "0"]).arg(own);
            command
        } else {
            Command::new(own)
        };
        let child = command
            .args(["--exact", "observers_apart::a_process_takes_its_role", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(DIRECTORY, directory)
            .stdin(Stdio::piped())
            .stdout(output)
            .spawn();
        Process(child.expect("this program can be started again"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("the process runs, and is a child of this one");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A group under load.
struct Stage {
    directory: TempDir,
    mib: u32,
    nodes: Vec<(&'static str, Process)>,
    client: Process,
    done: Arc<AtomicU64>,
    /// The last line of the client.
    end: thread::JoinHandle<String>,
    observers: usize,
}

impl Stage {
    fn new(mib: u32, rate: u64) -> Stage {
        let directory = TempDir::new();
        let node = |name| (name, Process::start(&directory, &format!("node {mib} {name}"), Stdio::null(), false));
        let nodes = NAMES.map(node).into();
        let mut client = Process::start(&directory, &format!("client {mib} {rate}"), Stdio::piped(), false);
        let lines = BufReader::new(client.0.stdout.take().expect("the output is piped")).lines();
        let done = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&done);
        let end = thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // The test program prints other lines as well.
                let words: Vec<_> = line.split_whitespace().collect();
                match words.as_slice() {
                    ["done", count] => told.store(count.parse().expect("a number"), Ordering::Relaxed),
                    ["end", ..] => return line,
                    _ => {}
                }
            }
            panic!("the client has ended");
        });
        let stage = Stage { directory, mib, nodes, client, done, end, observers: 0 };
        until("the load", || (stage.done.load(Ordering::Relaxed) > 1000).then_some(()));
        stage
    }

    fn observer(&mut self, is_idle: bool) -> Process {
        self.observers += 1;
        let role = format!("observer {} {}", self.mib, self.observers);
        Process::start(&self.directory, &role, Stdio::null(), is_idle)
    }

    /// Returns the number of states that an observer has received, as of its last pause.
    fn states(&self, observer: usize) -> Option<u64> {
        std::fs::read_to_string(self.directory.join(format!("states.{observer}"))).ok()?.parse().ok()
    }

    /// Returns the rate of commands per second, measured for `time`.
    fn rate(&self, time: Duration) -> f64 {
        let (before, since) = (self.done.load(Ordering::Relaxed), Instant::now());
        thread::sleep(time);
        (self.done.load(Ordering::Relaxed) - before) as f64 / since.elapsed().as_secs_f64()
    }

    /// Ends the load, and checks that these observers have seen all of it. Returns the number of states that they
    /// needed, and the time that they took.
    fn ends(mut self, observers: std::ops::RangeInclusive<usize>, within: Duration) -> (u64, Duration) {
        writeln!(self.client.0.stdin.take().expect("the input is piped"), "end")
            .expect("the client's process reads its input");
        let end = self.end.join().expect("the client's process prints the end of its group");
        let words: Vec<_> = end.split_whitespace().collect();
        replace(&self.directory.join(TARGET), words[1]);
        let since = Instant::now();
        let mut states = 0;
        for number in observers {
            let seen = loop {
                if let Ok(seen) = std::fs::read_to_string(self.directory.join(format!("seen.{number}"))) {
                    break seen;
                }
                assert!(since.elapsed() < within, "observer {number} does not catch up");
                thread::sleep(Duration::from_millis(20));
            };
            let seen: Vec<_> = seen.split_whitespace().collect();
            assert_eq!(seen[..2], words[2..], "observer {number} has seen something else than was applied");
            states += seen[2].parse::<u64>().expect("a number");
        }
        (states, since.elapsed())
    }
}

#[test]
fn a_stopped_observer_delays_nobody_and_resumes() {
    let mut stage = Stage::new(8, 0);
    let observer = stage.observer(false);
    until("it has seen something", || (stage.done.load(Ordering::Relaxed) > 2000).then_some(()));
    thread::sleep(Duration::from_millis(500));
    let time = Duration::from_millis(700);
    let (mut runs, mut stopped) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        runs.push(stage.rate(time));
        observer.signal(Signal::STOP);
        stopped.push(stage.rate(time));
        observer.signal(Signal::CONT);
    }
    let (runs, stopped) = (median(runs), median(stopped));
    assert!(stopped >= 0.7 * runs, "{stopped} commands a second while it is stopped, {runs} while it runs");
    let (states, _) = stage.ends(1..=1, Duration::from_secs(60));
    assert!(states >= 1);
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn an_observer_of_a_killed_member_resumes_at_another_one() {
    let mut stage = Stage::new(8, 2000);
    let _observers = [stage.observer(false), stage.observer(false)];
    until("they are served", || {
        thread::sleep(Duration::from_millis(300));
        (stage.done.load(Ordering::Relaxed) > 2000).then_some(())
    });
    for _ in 0..2 {
        let (name, node) = stage.nodes.remove(0);
        // The drop kills the node with SIGKILL.
        drop(node);
        thread::sleep(Duration::from_millis(300));
        let role = format!("node {} {name}", stage.mib);
        stage.nodes.push((name, Process::start(&stage.directory, &role, Stdio::null(), false)));
        // The member must rejoin before the next one may end.
        thread::sleep(Duration::from_secs(3));
    }
    stage.ends(1..=2, Duration::from_secs(60));
}

/// Runs for about four minutes.
#[test]
#[ignore = "it takes minutes, and measures"]
fn an_observer_stopped_for_a_minute_delays_nobody_and_resumes() {
    // At full speed the observer needs a state afterwards. At the lower rate the journal covers the minute, and the
    // observer needs no state.
    for (mib, rate) in [(32, 0), (1024, 20_000)] {
        let mut stage = Stage::new(mib, rate);
        let without = [stage.rate(Duration::from_secs(10)), stage.rate(Duration::from_secs(10))];
        let observer = stage.observer(false);
        thread::sleep(Duration::from_secs(3));
        let with = stage.rate(Duration::from_secs(10));
        let before = stage.states(1);
        observer.signal(Signal::STOP);
        let stopped = [(); 6].map(|()| stage.rate(Duration::from_secs(10)));
        observer.signal(Signal::CONT);
        let after = stage.rate(Duration::from_secs(10));
        let (states, took) = stage.ends(1..=1, Duration::from_secs(120));
        let (without, stopped) = (median(without), median(stopped));
        println!(
            "journal {mib} MiB: {without:.0} commands/s without an observer, {with:.0} with one, {stopped:.0} while it is stopped for 60 s, \
             {after:.0} when it goes on; {states} states (before the stop: {before:?}); at the end it has caught up {:.2} s after the load",
            took.as_secs_f64()
        );
        println!("ratio while it is stopped: {:.3}", stopped / without);
        assert!(stopped >= 0.8 * without, "measured on a busy machine?");
        assert!(rate == 0 || states == 1, "{states} states: the journal lasts for a minute");
    }
}

/// Runs for about two minutes.
#[test]
#[ignore = "it takes minutes, and measures"]
fn a_hundred_observers_at_idle_priority_slow_nobody_down_and_catch_up() {
    let mut stage = Stage::new(32, 0);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let mut all = Vec::new();
    for _ in 0..7 {
        all.clear();
        thread::sleep(Duration::from_secs(2));
        without.push(stage.rate(Duration::from_secs(8)));
        all.extend((0..100).map(|_| stage.observer(true)));
        thread::sleep(Duration::from_secs(8));
        with.push(stage.rate(Duration::from_secs(8)));
    }
    let ratios = without.iter().zip(&with).map(|(without, with)| with / without).collect::<Vec<_>>();
    let ratio = median(ratios.clone());
    let last = stage.observers;
    let (states, took) = stage.ends(last - 99..=last, Duration::from_secs(300));
    println!(
        "100 observers: {:.0} commands/s without, {:.0} with them, ratio {ratio:.3} ({ratios:.3?}); {states} states; all have caught up {:.1} s \
         after the load",
        median(without),
        median(with),
        took.as_secs_f64()
    );
    assert!(ratio >= 0.8, "measured on a busy machine?");
}
