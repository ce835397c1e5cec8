//! Injects faults while clients read and write: nodes are killed, stopped and partitioned, and gateways are killed. For
//! each key, an order of the requests must exist that explains every reply.
//!
//! `STENTOR_KV_SECONDS` is the time for which faults are injected, in seconds, and `STENTOR_KV_SEED` is the seed of the
//! random choices.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use stentor_checker::calls::{Call, History, Kind, Model, Outcome, Verdict, decide};
use stentor_checker::{Group, GroupSet};
use stentor_testutil::number_of_environment;

use crate::connection::Connection;
use crate::hosts::Hosts;
use crate::server::Store;

const CLIENTS: u64 = 6;
const KEYS: u64 = 4;

/// The model of one key. Its state is the key's value. An operation is a request without the key, and an answer is the
/// reply as bytes of the protocol.
struct Key;

impl Model for Key {
    type State = Option<Vec<u8>>;

    fn initial(&self, _: Group) -> Self::State {
        None
    }

    fn apply(&self, state: &mut Self::State, _: Group, operation: &[u8]) -> Vec<u8> {
        let (name, value) =
            operation.split_at(operation.iter().position(|byte| *byte == b' ').unwrap_or(operation.len()));
        match name {
            b"SET" => {
                *state = Some(value[1..].to_vec());
                b"+OK\r\n".to_vec()
            }
            b"DEL" => format!(":{}\r\n", u8::from(state.take().is_some())).into_bytes(),
            b"APPEND" => {
                let text = state.get_or_insert_default();
                text.extend_from_slice(&value[1..]);
                format!(":{}\r\n", text.len()).into_bytes()
            }
            _ => self.read(state, Group(0), operation),
        }
    }

    fn read(&self, state: &Self::State, _: Group, _: &[u8]) -> Vec<u8> {
        match state {
            None => b"$-1\r\n".to_vec(),
            Some(value) => [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
        }
    }
}

struct Run {
    began: Instant,
    ends: AtomicBool,
    sessions: AtomicU64,
    calls: Mutex<BTreeMap<u64, Vec<Call>>>,
}

impl Run {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Runs clients one after the other until `ends` is set. When a client loses its connection, the next one begins.
    fn client(&self, port: u16, seed: u64) {
        let mut chance = Chance(seed);
        while !self.ends.load(Ordering::Relaxed) {
            let session = self.sessions.fetch_add(1, Ordering::Relaxed);
            let Ok(mut connection) = Connection::new(port) else {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            while !self.ends.load(Ordering::Relaxed) && self.call(&mut connection, session, &mut chance) {
                std::thread::sleep(Duration::from_micros(chance.below(3000)));
            }
        }
    }

    /// Sends a request and records the call. Returns whether the connection still works.
    fn call(&self, connection: &mut Connection, session: u64, chance: &mut Chance) -> bool {
        let key = chance.below(KEYS);
        let value = format!("{session}.{}", self.now());
        let operation = match chance.below(10) {
            0..=4 => "GET".to_owned(),
            5..=7 => format!("SET {value}"),
            8 => format!("APPEND {}", chance.below(10)),
            _ => "DEL".to_owned(),
        };
        let kind = if operation == "GET" { Kind::Leader } else { Kind::Command };
        let name = format!("key{key}");
        let mut words: Vec<&[u8]> = operation.split(' ').map(str::as_bytes).collect();
        words.insert(1, name.as_bytes());
        let submitted = self.now();
        let reply = connection.send(&words).and_then(|()| connection.reply());
        let lives = reply.is_ok();
        let outcome = match reply {
            Ok(reply) if reply.starts_with(b"-TRYAGAIN") => Outcome::NotApplied,
            Ok(reply) if reply.starts_with(b"-UNKNOWN") => Outcome::Unknown,
            Ok(reply) => Outcome::Answered { at: self.now(), replies: vec![(Group(0), reply)], position: None },
            Err(_) => Outcome::Unknown,
        };
        let groups: GroupSet = [Group(0)].into_iter().collect();
        let operation = operation.into_bytes();
        let call = Call { session, generation: 1, submitted, groups, operation, kind, outcome, observed: Vec::new() };
        self.calls.lock().expect("no client panics while it holds the lock").entry(key).or_default().push(call);
        lives
    }
}

/// The generator SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % bound
    }
}

/// The number of faults of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Faults {
    gateways: u32,
    stops: u32,
    cuts: u32,
    kills: u32,
}

impl Faults {
    /// Injects one fault after the other.
    fn inject(&mut self, store: &mut Store, hosts: Option<&Hosts>, until: Instant, chance: &mut Chance) {
        let ms = |chance: &mut Chance, most| std::thread::sleep(Duration::from_millis(100 + chance.below(most)));
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(300 + chance.below(700)));
            let (group, member) = (1 + chance.below(2), 1 + chance.below(3));
            let node = format!("g{group}.{member}");
            match (chance.below(6), hosts) {
                (0, _) => {
                    self.gateways += 1;
                    store.restart_gateway();
                }
                (1, _) => {
                    self.stops += 1;
                    let mut nodes = store.nodes.children.iter();
                    let (_, child) = nodes.find(|(name, _)| *name == node).expect("the node was started");
                    let pid = Pid::from_child(child);
                    kill_process(pid, Signal::STOP).expect("a signal to a child of this process");
                    ms(chance, 1500);
                    kill_process(pid, Signal::CONT).expect("a signal to a child of this process");
                }
                (2..=3, Some(hosts)) => {
                    self.cuts += 1;
                    assert!(hosts.reaches(member), "host {member} cannot be reached before its link is cut");
                    hosts.set_up(member, false);
                    assert!(!hosts.reaches(member), "host {member} can be reached although its link is down");
                    ms(chance, 3000);
                    hosts.set_up(member, true);
                    // As after a kill, the pause gives the members on this host time to fetch the keys that they
                    // missed.
                    std::thread::sleep(Duration::from_millis(1500));
                }
                _ => {
                    self.kills += 1;
                    store.nodes.kill(&node).expect("the node runs");
                    ms(chance, 500);
                    store.nodes.restart(&node).expect("the node starts");
                    // A majority must have the keys, so the pause gives this node time to fetch them.
                    std::thread::sleep(Duration::from_millis(1500));
                }
            }
        }
    }
}

/// Runs clients of a store of two partitions under faults, and checks the history of each key. Returns the counts of
/// faults.
fn run_under_faults(mut store: Store, hosts: Option<&Hosts>, seconds: u64) -> Faults {
    let seed = number_of_environment("STENTOR_KV_SEED", 1);
    let run = Arc::new(Run {
        began: Instant::now(),
        ends: AtomicBool::new(false),
        sessions: AtomicU64::new(0),
        calls: Mutex::default(),
    });
    let port = store.gateway.port;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let run = Arc::clone(&run);
            std::thread::spawn(move || run.client(port, seed * CLIENTS + client))
        })
        .collect();
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut faults = Faults::default();
    faults.inject(&mut store, hosts, until, &mut Chance(seed));
    std::thread::sleep(Duration::from_secs(2));
    run.ends.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("the client thread does not panic"));
    let calls = std::mem::take(&mut *run.calls.lock().expect("no client panics while it holds the lock"));
    let (mut answered, mut unknown) = (0, 0);
    for (key, calls) in calls {
        let mut history = History::new();
        for call in calls {
            answered += u64::from(call.answered().is_some());
            unknown += u64::from(call.outcome == Outcome::Unknown);
            history.push(call).expect("a possible call");
        }
        match decide(&history, &Key) {
            Verdict::Kept(_) => {}
            other => panic!("seed {seed}, key {key}: {other:?}"),
        }
    }
    println!("seed {seed}: {answered} calls answered, {unknown} unknown, {faults:?}");
    assert!(answered > 200 * seconds, "{answered} calls answered in {seconds} s");
    faults
}

#[test]
fn every_key_has_an_order_that_explains_all_replies() {
    run_under_faults(Store::start("shm", 2), None, number_of_environment("STENTOR_KV_SECONDS", 15));
}

#[test]
#[ignore = "needs network namespaces: cargo xtask test --only store"]
fn hosts_that_are_cut_off_lose_nothing() {
    let Some(hosts) = Hosts::new("chaos::hosts_that_are_cut_off_lose_nothing") else { return };
    let faults =
        run_under_faults(Store::start_on(&hosts, 2), Some(&hosts), number_of_environment("STENTOR_KV_SECONDS", 15));
    assert!(faults.cuts > 0, "no host was cut off: {faults:?}");
}

#[test]
fn stale_read_is_detected() {
    let groups: GroupSet = [Group(0)].into_iter().collect();
    let call = |kind, submitted, operation: &str, reply: &str| Call {
        session: submitted,
        generation: 1,
        submitted,
        groups,
        operation: operation.into(),
        kind,
        outcome: Outcome::Answered { at: submitted + 1, replies: vec![(Group(0), reply.into())], position: None },
        observed: Vec::new(),
    };
    let mut history = History::new();
    for (at, operation, reply) in [(10, "SET a", "+OK\r\n"), (20, "APPEND b", ":2\r\n"), (30, "DEL", ":1\r\n")] {
        history.push(call(Kind::Command, at, operation, reply)).unwrap();
    }
    history.push(call(Kind::Leader, 40, "GET", "$-1\r\n")).unwrap();
    assert!(matches!(decide(&history, &Key), Verdict::Kept(_)));
    history.push(call(Kind::Leader, 50, "GET", "$2\r\nab\r\n")).unwrap();
    assert!(matches!(decide(&history, &Key), Verdict::Violated(_)));
}
