//! Observers: they see what the machines applied, no matter what happens to them and to the members.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stentor::config::FabricKind;
use stentor::operator::{Answer, Question, ask};
use stentor::{
    Client, Cluster, Group, Limits, NodeHandle, ObserveError, ObserveErrorKind, Observed, ObservedPosition, Observer,
    ObserverBuilder, StateMachine,
};
use stentor_fabric::ProcessId;
use stentor_testutil::TempDir;

use crate::log::{Log, until};
use crate::nodes::LONG;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Returns a cluster of one group, in which a member with observers keeps a journal of `observed_mib` MiB.
pub(crate) fn cluster(name: &str, directory: &Path, fabric: FabricKind, observed_mib: u32) -> Cluster {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
    let (net, next) = (std::process::id() % 250 + 1, NEXT.fetch_add(1, Ordering::Relaxed) % 60);
    let members = NAMES.iter().zip(1..).map(|(name, n)| (*name, format!("127.166.{net}.{}:7101", 4 * next + n)));
    std::fs::write(directory.join("key"), "0123456789abcdef0123456789abcdef\n").expect("the key can be written");
    let builder = Cluster::builder(name).fabric(fabric).directory(directory).group("g", members);
    let builder = builder.election(Duration::from_millis(400)..=Duration::from_millis(800));
    let builder = builder.key(&format!("file:{}", directory.join("key").display()));
    builder.limits(Limits { observed_mib, ..Limits::default() }).build().expect("a valid cluster")
}

struct Stage {
    _directory: TempDir,
    cluster: Cluster,
    group: Group,
    nodes: Vec<(&'static str, NodeHandle<Log>)>,
    client: Client,
}

impl Stage {
    fn new(name: &str, fabric: FabricKind, observed_mib: u32) -> Stage {
        let directory = TempDir::new();
        let cluster = cluster(name, &directory, fabric, observed_mib);
        let group = cluster.group("g").expect("the group is in the configuration");
        let nodes = NAMES.map(|name| (name, cluster.node(name, Log::default()).spawn().expect("the node starts")));
        let client = cluster.client().connect().expect("the client connects");
        Stage { _directory: directory, cluster, group, nodes: nodes.into(), client }
    }

    fn observe(&self) -> ObserverBuilder {
        self.cluster.observe(self.group)
    }

    /// Makes calls with these numbers, and waits until they are applied.
    fn call(&self, numbers: std::ops::Range<u64>) {
        let calls: Vec<_> =
            numbers.map(|number| self.client.call(self.group, format!("n{number}").as_bytes())).collect();
        calls.into_iter().for_each(|call| drop(call.wait().expect("the command is applied")));
    }

    fn node(&self, name: &str) -> &NodeHandle<Log> {
        &self.nodes.iter().find(|(other, _)| *other == name).expect("the node runs").1
    }

    fn leader(&self) -> &'static str {
        let leads = |node: &NodeHandle<Log>| node.status().is_ok_and(|status| status.leads);
        until("a leader", || self.nodes.iter().find(|(_, node)| leads(node)).map(|(name, _)| *name))
    }

    fn follower(&self) -> &'static str {
        let leader = self.leader();
        self.nodes.iter().map(|(name, _)| *name).find(|name| *name != leader).expect("the group has other members")
    }

    /// Waits until the witness has seen all commands that the group has applied, and checks that its value is equal.
    fn check(&self, witness: &mut Witness) {
        let (leader, since) = (self.leader(), Instant::now());
        loop {
            let (applied, index) = (self.log(leader), self.node(leader).status().expect("the node runs").commands);
            if witness.last.is_some_and(|last| last.index() >= index) && witness.log.0 == applied {
                return;
            }
            assert!(since.elapsed() < LONG, "it sees {:?} of {index}", witness.last);
            witness.see(Duration::from_millis(20));
        }
    }

    fn log(&self, name: &str) -> Vec<Vec<u8>> {
        self.node(name).inspect(|log| log.0.clone()).expect("the node runs")
    }
}

/// Applies what an observer sees, and checks that nothing is missing.
#[derive(Default)]
struct Witness {
    observer: Option<Observer>,
    log: Log,
    last: Option<ObservedPosition>,
    commands: usize,
    steps: usize,
    states: usize,
    resets: Vec<bool>,
}

impl Witness {
    fn new(builder: ObserverBuilder) -> Witness {
        Witness { observer: Some(builder.connect().expect("the observer is served")), ..Witness::default() }
    }

    fn observer(&mut self) -> &mut Observer {
        self.observer.as_mut().expect("the observer is connected")
    }

    /// Records all events that arrive within this time.
    fn see(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while let Some(observed) =
            self.next(until.saturating_duration_since(Instant::now())).expect("the observer is served")
        {
            self.note(&observed);
        }
    }

    fn next(&mut self, time: Duration) -> Result<Option<Observed>, ObserveError> {
        self.observer().next(time)
    }

    fn note(&mut self, observed: &Observed) {
        let follows = |last: Option<ObservedPosition>| {
            let index = observed.position().index();
            assert!(last.is_none_or(|last| index == last.index() + 1), "{last:?}, then {observed:?}");
        };
        match observed {
            Observed::Command(command) => {
                follows(self.last);
                self.commands += 1;
                self.log.0.push(command.bytes.clone());
            }
            Observed::Step(_) => {
                follows(self.last);
                self.steps += 1;
            }
            Observed::State(state) => {
                self.states += 1;
                self.log.restore(&mut &state.bytes[..]).expect("a state");
            }
            Observed::Reset(reset) => self.resets.push(reset.goes_on),
            _ => panic!("{observed:?}"),
        }
        self.last = Some(observed.position());
        assert_eq!(self.observer.as_ref().and_then(Observer::position), self.last);
    }
}

#[test]
fn an_observer_sees_every_command_in_the_order_of_the_machines() {
    for fabric in [FabricKind::Shm, FabricKind::Roce] {
        let stage = Stage::new(&format!("observed-{fabric}"), fabric, 8);
        stage.call(0..100);
        let mut witness = Witness::new(stage.observe());
        witness.see(Duration::from_millis(100));
        assert_eq!(witness.states, 1, "it begins with a state");
        let member = witness.observer().member().expect("the observer is served").to_owned();
        assert_ne!(member, stage.leader(), "a follower serves it");
        stage.call(100..2000);
        stage.check(&mut witness);
        assert!(witness.commands >= 1900 && witness.states == 1 && witness.resets.is_empty());
        let answer = stage.client.call(stage.group, b"last").wait().expect("the command is applied");
        let seen = loop {
            let observed = witness.next(LONG).expect("the observer is served").expect("the command arrives");
            witness.note(&observed);
            if let Observed::Command(command) = observed {
                break command;
            }
        };
        assert_eq!((seen.bytes.as_slice(), seen.sender.as_str()), (&b"last"[..], "c0"));
        assert_eq!((seen.session, seen.groups), (Some(stage.client.session().id()), vec![stage.group]));
        assert_eq!(seen.position.position(), answer.position());
        stage.client.observe(seen.position.position()).expect("the position is not ahead of time");
    }
}

#[test]
fn an_observer_resumes_from_a_stored_position() {
    let stage = Stage::new("resumed", FabricKind::Shm, 8);
    let member = stage.follower();
    let mut witness = Witness::new(stage.observe().member(member));
    for round in 0..5 {
        stage.call(100 * round..100 * round + 60);
        // The observer may stop anywhere.
        while witness.last.is_none() || witness.commands < (100 * round + 7 * round) as usize / 2 {
            witness.see(Duration::from_millis(1));
        }
        let bytes = witness.observer().position().expect("the observer has a position").to_bytes();
        witness.observer = None;
        stage.call(100 * round + 60..100 * round + 100);
        let from = ObservedPosition::from_bytes(&bytes).expect("its own bytes");
        let builder = stage.observe().member(member).from(from).without_states();
        witness.observer = Some(builder.connect().expect("the member's journal contains the position"));
    }
    stage.check(&mut witness);
    assert_eq!((witness.states, witness.commands), (1, 500));
    let other = stage.observe().from(witness.last.expect("the observer has seen an event")).member("nobody");
    let error = other.connect().map(drop).expect_err("there is no such member");
    assert_eq!(error.kind(), ObserveErrorKind::Argument);
    assert!(error.to_string().contains("`nobody` is not a member"), "{error}");
}

#[test]
fn an_observer_without_states_and_position_starts_at_the_present() {
    let stage = Stage::new("present", FabricKind::Shm, 8);
    stage.call(0..50);
    let mut witness = Witness::new(stage.observe().member(stage.leader()).without_states());
    let begins = witness.observer().position().expect("the observer begins at a position");
    witness.last = Some(begins);
    stage.call(50..70);
    while witness.commands < 20 {
        witness.see(Duration::from_millis(5));
    }
    assert_eq!((witness.states, witness.log.0.first()), (0, Some(&b"n50".to_vec())));
    // A member without observers keeps no journal, so the follower did not keep what follows the position.
    let error = stage.observe().member(stage.follower()).from(begins).without_states().connect();
    let error = error.map(drop).expect_err("the member's journal does not contain the position");
    assert_eq!(error.kind(), ObserveErrorKind::Gone, "{error}");
    assert!(error.first_kept().is_some_and(|first| first > begins.index() + 20), "{error}");
    assert!(!error.remedy().is_empty());
}

/// Makes calls with rising numbers on a thread, until the returned flag is set. The thread returns the number of
/// applied calls.
fn load(stage: &Stage) -> (Arc<AtomicBool>, JoinHandle<u64>) {
    let (stop, client, group) = (Arc::new(AtomicBool::new(false)), stage.client.clone(), stage.group);
    let told = Arc::clone(&stop);
    let run = move || {
        let mut number = 1_000_000;
        while !told.load(Ordering::Relaxed) {
            let calls: Vec<_> = (0..8).map(|n| client.call(group, format!("n{}", number + n).as_bytes())).collect();
            calls.into_iter().for_each(|call| drop(call.wait().expect("the command is applied")));
            number += 8;
        }
        number - 1_000_000
    };
    (stop, std::thread::spawn(run))
}

#[test]
fn an_observer_survives_leader_changes_and_the_end_of_its_member() {
    let mut stage = Stage::new("moves", FabricKind::Shm, 8);
    let mut witness = Witness::new(stage.observe());
    let (stop, caller) = load(&stage);
    witness.see(Duration::from_millis(200));
    let (leader, heir) = (stage.leader(), stage.follower());
    until("it hands over", || stage.node(leader).hand_over(heir).ok());
    until("a new leader", || (stage.leader() == heir).then_some(()));
    witness.see(Duration::from_millis(200));
    assert_eq!((witness.states, witness.resets.len()), (1, 0), "its member serves it on");
    for _ in 0..2 {
        let serves = witness.observer().member().expect("the observer is served").to_owned();
        let at = stage.nodes.iter().position(|(name, _)| *name == serves).expect("a member");
        let (name, node) = stage.nodes.remove(at);
        let ends = std::thread::spawn(move || node.stop().map(drop));
        let before = witness.commands;
        while witness.commands < before + 50 || witness.observer().member().is_none_or(|member| member == serves) {
            witness.see(Duration::from_millis(20));
        }
        ends.join().expect("the thread does not panic").expect("the node ran until it was stopped");
        stage.nodes.push((name, stage.cluster.node(name, Log::default()).spawn().expect("the node starts again")));
        until("it has joined", || stage.node(name).status().ok().filter(|status| !status.joining));
    }
    stop.store(true, Ordering::Relaxed);
    caller.join().expect("all commands were applied");
    stage.check(&mut witness);
    assert!(witness.states >= 2 && witness.resets.is_empty(), "another member had no journal");
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn an_observer_behind_the_journal_gets_a_state_or_an_error() {
    let stage = Stage::new("behind", FabricKind::Shm, 1);
    let member = stage.follower();
    let mut witness = Witness::new(stage.observe().member(member));
    stage.call(0..10);
    stage.check(&mut witness);
    let last = witness.last.expect("the observer has seen an event");
    // The commands have more bytes than the sockets and the journal hold.
    let command = vec![b'x'; 60_000];
    let calls: Vec<_> = (0..60).map(|_| stage.client.call(stage.group, &command)).collect();
    calls.into_iter().for_each(|call| drop(call.wait().expect("the command is applied")));
    stage.check(&mut witness);
    assert_eq!((witness.states, witness.resets.len()), (2, 0));
    let error = stage.observe().member(member).from(last).without_states().connect().map(drop);
    let error = error.expect_err("the member's journal does not contain the position");
    let first = error.first_kept().expect("the journal contains records");
    assert!(error.kind() == ObserveErrorKind::Gone && first > last.index() + 30, "{error}");
    assert!(error.to_string().contains(&format!("after index {}", first - 1)), "{error}");
    let error = stage.observe().member(member).longest_state(1000).connect().and_then(|mut observer| {
        while observer.next(LONG)?.is_some() {}
        Ok(())
    });
    assert_eq!(error.expect_err("the state has more").kind(), ObserveErrorKind::TooLarge);
}

#[test]
fn a_member_without_a_journal_has_no_observers() {
    let stage = Stage::new("off", FabricKind::Shm, 0);
    let error = stage.observe().connect().map(drop).expect_err("the member serves no observers");
    assert_eq!(error.kind(), ObserveErrorKind::Configuration);
    assert!(error.to_string().contains("`observed_mib` is 0"), "{error}");
    let nobody = TempDir::new();
    let cluster = cluster("nobody", &nobody, FabricKind::Roce, 1);
    let error = cluster.observe(stage.group).patience(Duration::from_millis(300)).connect().map(drop);
    let error = error.expect_err("no member runs");
    assert_eq!(error.kind(), ObserveErrorKind::Unreachable);
    assert!(NAMES.iter().all(|name| error.to_string().contains(&format!("{name}: "))), "{error}");
}

/// Returns the sockets of a process for operators and observers of this host.
fn sockets(directory: &Path, cluster: &str, process: u16) -> Vec<std::path::PathBuf> {
    stentor_host::all_beside(directory, cluster, ProcessId(process)).expect("the directory is this user's")
}

/// Two of three members lose their memory, and the group continues with the state of the third.
#[test]
fn a_reset_of_the_group_is_reported() {
    let mut stage = Stage::new("reset", FabricKind::Shm, 8);
    stage.call(0..100);
    let mut witness = Witness::new(stage.observe().member("b"));
    stage.check(&mut witness);
    for name in ["a", "c"] {
        let at = stage.nodes.iter().position(|(other, _)| *other == name).expect("a member");
        stage.nodes.remove(at).1.stop().map(drop).expect("the node ran until it was stopped");
    }
    let directory = stage._directory.join("");
    for name in ["a", "c"] {
        stage.nodes.push((name, stage.cluster.node(name, Log::default()).spawn().expect("the node starts")));
    }
    let standing = || match ask(&sockets(&directory, "reset", 1), &Question::Show) {
        Ok(Some(Answer::Standing(standing))) => Some(*standing),
        _ => None,
    };
    let ends = until("it knows what ends", || standing().map(|it| it.ends).filter(|ends| !ends.is_empty()));
    until("the next incarnation", || {
        let reset = Question::Reset { ends: ends.clone(), empty: false };
        let _ = ask(&sockets(&directory, "reset", 1), &reset);
        standing().filter(|it| it.incarnation.starts_with("2-") && it.leads)
    });
    stage.client = until("it connects", || stage.cluster.client().connect().ok());
    stage.call(200..210);
    stage.check(&mut witness);
    assert_eq!((witness.resets.as_slice(), witness.states), (&[true][..], 1));
}

#[test]
fn an_event_loop_sleeps_on_the_descriptor() {
    let stage = Stage::new("descriptor", FabricKind::Shm, 8);
    let mut witness = Witness::new(stage.observe());
    witness.see(Duration::from_millis(50));
    let is_readable = |observer: &Observer, millis: i64| {
        let time = Timespec { tv_sec: 0, tv_nsec: millis * 1_000_000 };
        poll(&mut [PollFd::from_borrowed_fd(observer.as_fd(), PollFlags::IN)], Some(&time))
            .expect("the observer's descriptor can be polled")
            > 0
    };
    let mut sleeps = 0;
    for round in 0..20 {
        let calls = stage.client.call(stage.group, format!("n{round}").as_bytes());
        while witness.commands <= round {
            match witness.observer().try_next().expect("the observer is served") {
                Some(observed) => witness.note(&observed),
                None => sleeps += usize::from(is_readable(witness.observer(), 900)),
            }
        }
        drop(calls.wait().expect("the command is applied"));
    }
    assert!((1..400).contains(&sleeps), "{sleeps}");
}

#[test]
fn hostile_peers_at_the_socket_harm_nobody_else() {
    let stage = Stage::new("hostile", FabricKind::Shm, 8);
    let mut witness = Witness::new(stage.observe().member("a"));
    let directory = stage._directory.join("");
    let path = || sockets(&directory, "hostile", 0).remove(0);
    // Connects an observer.
    let enter = || {
        let mut stream = UnixStream::connect(path()).expect("the node listens");
        stream.write_all(b"\"observe\"\n").expect("the node reads the request");
        let mut answer = [0; 7];
        stream.read_exact(&mut answer).expect("the node answers");
        assert_eq!(&answer, b"\"done\"\n");
        stream
    };
    let is_closed = |mut stream: UnixStream| {
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        stream
            .read_to_end(&mut Vec::new())
            .map_or_else(|error| error.kind() != std::io::ErrorKind::WouldBlock, |_| true)
    };
    let garbage: [&[u8]; 5] = [b"GET / HTTP/1.1\r\n", &[0; 64], &[255; 4096], &[0, 0, 0, 1, 3], &[0, 0, 0, 2, 1, 0]];
    for bytes in garbage {
        let mut stream = enter();
        let _ = stream.write_all(bytes);
        assert!(is_closed(stream), "{bytes:?}");
    }
    // A peer that sends half a request and then nothing is disconnected after five seconds.
    let mut half = enter();
    half.write_all(&[0, 0, 0, 30, 1]).expect("the connection accepts the bytes");
    let silent: Vec<_> = (0..300).map(|_| enter()).collect();
    stage.call(0..200);
    witness.see(Duration::from_millis(100));
    // With this observer there are more connections than the node accepts, so it closes the oldest silent ones.
    let mut other = Witness::new(stage.observe().member("a"));
    stage.check(&mut other);
    assert!(is_closed(half) && silent.into_iter().all(is_closed));
    stage.check(&mut witness);
    assert!(witness.commands >= 200);
}
