//! Timers and the ends of sessions, in groups in which no client sends anything.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stentor::{
    ApplyThread, Client, ClientErrorKind, Cluster, Context, Frozen, Group, LocalClient, Node, Outcome, Refused, Reply,
    SessionId, StateMachine, Turn,
};
use stentor_testutil::TempDir;

use crate::until::until;

/// Bound on the lateness of a timer on a busy host, in nanoseconds.
const LATE_NS: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// Value that represents the end of a session in place of a timer's id.
const SESSION: u64 = u64::MAX;
/// Id of a timer that repeatedly sets itself for a time that has passed.
const ENDLESS: u64 = 666;

/// An event: the timer's id, the time when it was due, and the time and index of the position at which it fired.
type Fired = (u64, u64, u64, u64);

/// A machine that records fired timers, and those that are set.
#[derive(Clone, Default)]
struct Alarms {
    fired: Vec<Fired>,
    set: BTreeMap<u64, u64>,
    /// A copy of `fired` that is visible from outside.
    seen: Arc<Mutex<Vec<Fired>>>,
    /// Largest lateness of a timer at this member by the host's clock, in nanoseconds.
    late: Arc<AtomicU64>,
}

impl Alarms {
    fn note(&mut self, at: &Context<'_>, what: u64, due: u64) {
        if what != SESSION {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
            self.late.fetch_max(now.saturating_sub(due), Ordering::Relaxed);
        }
        self.fired.push((what, due, at.time(), at.position().index));
        self.show();
    }

    fn show(&self) {
        self.seen.lock().expect("no thread panics while it holds the lock").clone_from(&self.fired);
    }
}

impl StateMachine for Alarms {
    type Frozen = Alarms;

    /// Sets a timer. A command is a timer's id and the delay in milliseconds; 0 clears the timer. Replies with the
    /// number of timers that fired.
    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        let ([timer, ms], _) = words(command);
        let due = at.time() + ms * MS;
        if ms == 0 {
            self.set.remove(&timer);
            at.clear_timer(timer);
        } else {
            self.set.insert(timer, due);
            at.set_timer(due, timer);
        }
        reply.extend(&(self.fired.len() as u64).to_le_bytes());
    }

    fn timer(&mut self, at: &Context<'_>, timer: u64) {
        assert_eq!(at.session(), None);
        if timer == ENDLESS {
            return at.set_timer(at.time(), ENDLESS);
        }
        let due = self.set.remove(&timer).expect("the timer was set, and fires once");
        assert!(at.time() >= due, "{timer} fires {} ns too early", due - at.time());
        self.note(at, timer, due);
    }

    fn session_ended(&mut self, at: &Context<'_>, _: SessionId) {
        self.note(at, SESSION, 0);
    }

    fn freeze(&self) -> Alarms {
        self.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes)?;
        let ([fired], mut rest) = words(&bytes);
        (self.fired, self.set) = (Vec::new(), BTreeMap::new());
        for _ in 0..fired {
            let ([what, due, time, index], behind) = words(rest);
            self.fired.push((what, due, time, index));
            rest = behind;
        }
        while !rest.is_empty() {
            let ([timer, due], behind) = words(rest);
            self.set.insert(timer, due);
            rest = behind;
        }
        self.show();
        Ok(())
    }
}

impl Frozen for Alarms {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        let mut all = vec![self.fired.len() as u64];
        all.extend(self.fired.iter().flat_map(|(what, due, time, index)| [*what, *due, *time, *index]));
        all.extend(self.set.iter().flat_map(|(timer, due)| [*timer, *due]));
        all.iter().try_for_each(|word| out.write_all(&word.to_le_bytes()))
    }
}

/// Returns the first words of some bytes, and the rest. Missing words are 0.
fn words<const N: usize>(bytes: &[u8]) -> ([u64; N], &[u8]) {
    let word =
        |at: usize| bytes.get(8 * at..8 * at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes);
    (std::array::from_fn(word), bytes.get(8 * N..).unwrap_or_default())
}

/// A node on a thread that may end at any point, as if its process was killed.
struct Killable {
    killed: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Fired>>>,
    late: Arc<AtomicU64>,
    leads: Arc<AtomicBool>,
    joined: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Killable {
    fn start(cluster: &Cluster, name: &str, on: ApplyThread) -> Killable {
        let seen = Arc::default();
        let late = Arc::default();
        let machine = Alarms { seen: Arc::clone(&seen), late: Arc::clone(&late), ..Alarms::default() };
        let mut node: Node<Alarms> = cluster.node(name, machine).apply_on(on).start().expect("the node starts");
        let (killed, leads, joined) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)), Arc::default());
        let (until_killed, says, is_in) = (Arc::clone(&killed), Arc::clone(&leads), Arc::clone(&joined));
        let run = move || {
            while !until_killed.load(Ordering::Relaxed) {
                if let Turn::Idle(_) = node.turn().expect("the node still runs") {
                    thread::sleep(Duration::from_micros(500));
                }
                let status = node.status();
                says.store(status.leads, Ordering::Relaxed);
                AtomicBool::store(&is_in, !status.joining, Ordering::Relaxed);
            }
        };
        Killable { killed, seen, late, leads, joined, thread: Some(thread::spawn(run)) }
    }

    fn fired(&self) -> Vec<Fired> {
        self.seen.lock().expect("no thread panics while it holds the lock").clone()
    }
}

impl Drop for Killable {
    fn drop(&mut self) {
        self.killed.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// A group of three.
struct Running {
    nodes: Vec<Option<Killable>>,
    cluster: Cluster,
    group: Group,
    on: ApplyThread,
    _directory: TempDir,
}

impl Running {
    fn new(name: &str, on: ApplyThread) -> Running {
        let directory = TempDir::new();
        let named = (1..=3).map(|n| (format!("m{n}"), format!("127.0.0.{n}:7101")));
        let silence = Duration::from_millis(400)..=Duration::from_millis(800);
        let builder = Cluster::builder(name).directory(&directory).election(silence).group("g1", named);
        let cluster = builder.build().expect("a valid cluster");
        let group = cluster.group("g1").expect("the group is in the configuration");
        let mut running = Running { nodes: vec![None, None, None], cluster, group, on, _directory: directory };
        (0..3).for_each(|at| running.start(at));
        running.joined();
        running
    }

    fn start(&mut self, at: usize) {
        self.nodes[at] = Some(Killable::start(&self.cluster, &format!("m{}", at + 1), self.on));
    }

    fn up(&self) -> impl Iterator<Item = &Killable> {
        self.nodes.iter().flatten()
    }

    /// Waits until all running nodes have joined.
    fn joined(&self) {
        until("all have joined", || self.up().all(|node| node.joined.load(Ordering::Relaxed)).then_some(()));
    }

    fn leader(&self) -> usize {
        let leads = |node: &Option<Killable>| node.as_ref().is_some_and(|node| node.leads.load(Ordering::Relaxed));
        until("a leader", || self.nodes.iter().position(leads))
    }

    fn client(&self) -> Client {
        self.cluster.client().session_ttl(Duration::from_secs(2)).connect().expect("the client connects")
    }

    fn set(&self, client: &Client, timer: u64, ms: u64) {
        let command = [timer.to_le_bytes(), ms.to_le_bytes()].concat();
        client.call(self.group, &command).wait().expect("the command is applied");
    }

    /// Waits until all members have recorded these events, in this order, and no others. Returns the largest lateness
    /// by the host's clock, in nanoseconds.
    fn wait_for_events(&self, expected: &[u64]) -> u64 {
        until("all have fired", || self.up().all(|node| node.fired().len() >= expected.len()).then_some(()));
        let all: Vec<Vec<Fired>> = self.up().map(Killable::fired).collect();
        assert!(all.windows(2).all(|two| two[0] == two[1]), "at the same places with the same times: {all:?}");
        let what: Vec<u64> = all[0].iter().map(|(what, ..)| *what).collect();
        assert_eq!(what, expected);
        self.up().map(|node| node.late.load(Ordering::Relaxed)).max().unwrap_or(0)
    }
}

#[test]
fn timers_fire_in_an_idle_group_at_their_times_and_alike_at_all_members() {
    for (name, on) in [("timers", ApplyThread::Own), ("timers-here", ApplyThread::Protocol)] {
        let running = Running::new(name, on);
        let client = running.client();
        for (timer, ms) in [(5, 300), (4, 200), (9, 250), (7, 5_000), (8, 300), (7, 0), (9, 400)] {
            running.set(&client, timer, ms);
        }
        let late = running.wait_for_events(&[4, 5, 8, 9]);
        eprintln!("{name}: the latest timer is {} µs late", late / 1_000);
        assert!(late < LATE_NS, "{late} ns");
    }
}

#[test]
fn timers_survive_a_killed_leader_and_a_state_transfer() {
    let mut running = Running::new("timers-leader", ApplyThread::Own);
    let client = running.client();
    running.set(&client, 1, 100);
    running.set(&client, 2, 2_500);
    running.set(&client, 3, 5_000);
    running.wait_for_events(&[1]);
    let leader = running.leader();
    running.nodes[leader] = None;
    let late = running.wait_for_events(&[1, 2]);
    eprintln!("after a change of the leader the timer is {} µs late", late / 1_000);
    // The restarted member has no state, and receives the value and the timers of the others.
    running.start(leader);
    running.joined();
    let late = running.wait_for_events(&[1, 2, 3]);
    eprintln!("with a member that came back it is {} µs late", late / 1_000);
    assert!(late < 5 * LATE_NS, "{late} ns");
}

#[test]
fn sessions_of_dead_clients_end_in_an_idle_group() {
    let running = Running::new("timers-sessions", ApplyThread::Own);
    let client = running.client();
    running.set(&client, 1, 100);
    // This looks like a killed process: nobody ends the session, and nobody renews it.
    client.leave().expect("the client has a session");
    let since = Instant::now();
    running.wait_for_events(&[1, SESSION]);
    let took = since.elapsed();
    assert!((Duration::from_millis(900)..Duration::from_secs(10)).contains(&took), "{took:?}");
}

/// A session must not continue under its id after the state machines have seen its end.
#[test]
fn a_client_with_an_expired_session_ends() {
    let running = Running::new("timers-ran-out", ApplyThread::Own);
    let client = running.client();
    let ttl = Duration::from_secs(2);
    let mut local = running.cluster.client().session_ttl(ttl).connect_local().expect("the client connects");
    let call = |local: &mut LocalClient| {
        let command = [1_u64, 0].map(u64::to_le_bytes).concat();
        until("it is sent", || local.submit(running.group, &command).ok());
        let mut ended = None;
        until("an outcome", || match local.turn(|_, outcome| ended = Some(matches!(outcome, Outcome::Applied(_)))) {
            Ok(_) => ended.map(Ok),
            Err(error) => Some(Err(error)),
        })
    };
    assert!(call(&mut local).expect("the client has not ended"), "it is applied");
    // The client is not turned, as if its process was stopped.
    running.wait_for_events(&[SESSION]);
    let error = until("it is told", || local.turn(|_, _| ()).err());
    assert_eq!(error.kind(), ClientErrorKind::SessionGone, "{error}");
    assert!(error.to_string().contains("has expired in group g1"), "{error}");
    assert_eq!(local.lives_until(), None);
    running.set(&client, 2, 50);
    running.wait_for_events(&[SESSION, 2]);
}

/// Here the client learns of the expiry because it opens another group: no group opens the session again. The session
/// ends before a renewal is due: another client observes a position in the future, so the time of its next command is
/// after the session's end.
#[test]
fn a_client_with_an_expired_session_opens_no_other_group() {
    let directory = TempDir::new();
    let group = |n: u32| {
        format!("[[group]]\nid = \"g{n}\"\nprocess = [ {{ id = \"m{n}\", address = \"127.0.{n}.1:7101\" }} ]\n")
    };
    let text = "cluster = \"timers-widened\"\nfabric = \"shm\"\n[limits]\nclock_bound_ms = 10000\n";
    directory.file("cluster.toml", [text, &group(1), &group(2)].concat());
    let cluster =
        Cluster::load(directory.join("cluster.toml")).expect("the configuration is valid").in_directory(&directory);
    let nodes = ["m1", "m2"].map(|name| Killable::start(&cluster, name, ApplyThread::Own));
    let [group, late] = ["g1", "g2"].map(|name| cluster.group(name).expect("the group is in the configuration"));
    let ahead = cluster.client().connect().expect("the client connects");
    let builder = cluster.client().groups(group).session_ttl(Duration::from_secs(2));
    let mut local = builder.connect_local().expect("the client connects");
    let command = [1_u64, 0].map(u64::to_le_bytes).concat();
    let mut later = ahead.call(group, &command).wait().expect("the command is applied").position();
    later.time += 5 * LATE_NS;
    ahead.observe(later).expect("clocks may be so far apart");
    ahead.call(group, &command).wait().expect("the command is applied");
    until("it has expired", || (!nodes[0].fired().is_empty()).then_some(()));
    assert!(matches!(local.submit(late, &command), Err(Refused::Unavailable(_))), "the session lacks g2");
    let error = until("it is told", || local.turn(|_, outcome| panic!("{outcome:?}")).err());
    assert_eq!(error.kind(), ClientErrorKind::SessionGone, "{error}");
    assert!(error.to_string().contains("has expired in group g1"), "{error}");
    assert_eq!(nodes.each_ref().map(|node| node.fired().len()), [1, 0]);
}

#[test]
fn a_machine_that_sets_timers_without_end_answers_its_clients() {
    let running = Running::new("timers-endless", ApplyThread::Own);
    let client = running.client();
    running.set(&client, ENDLESS, 1);
    for timer in 0..20 {
        running.set(&client, timer, 50);
    }
    running.set(&client, ENDLESS, 0);
    running.wait_for_events(&(0..20).collect::<Vec<_>>());
}
