//! Clients: replies, several groups, failures of leaders, sessions, and dropped calls.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use stentor::config::Limits;
use stentor::{CallError, Client, Cluster, Group, NodeHandle, Outcome, Refused, Session, Ticket, Why};
use stentor_testutil::TempDir;

use crate::log::{Log, numbers, until};

const GROUPS: [(&str, [&str; 3]); 2] = [("g1", ["a", "b", "c"]), ("g2", ["x", "y", "z"])];

/// A cluster of one or two groups in one process.
struct Running {
    cluster: Cluster,
    nodes: BTreeMap<&'static str, NodeHandle<Log>>,
    _directory: TempDir,
}

impl Running {
    fn new(name: &str, groups: usize) -> Running {
        Running::with(name, groups, Limits::DEFAULT)
    }

    fn with(name: &str, groups: usize, limits: Limits) -> Running {
        let directory = TempDir::new();
        let cluster = limited(name, groups, limits, &directory);
        let mut running = Running { cluster, nodes: BTreeMap::new(), _directory: directory };
        GROUPS[..groups].iter().flat_map(|(_, names)| names).for_each(|name| running.start(name));
        running
    }

    fn start(&mut self, name: &'static str) {
        let node = self.cluster.node(name, Log::default()).spawn().expect("the node starts");
        self.nodes.insert(name, node);
    }

    fn stop(&mut self, name: &str) {
        self.nodes.remove(name).expect("the node runs").stop().expect("the node ran until it was stopped");
    }

    fn group(&self, name: &str) -> Group {
        self.cluster.group(name).expect("the group is in the configuration")
    }

    fn connect(&self) -> Client {
        self.cluster.client().connect().expect("the client connects")
    }

    fn leader(&self, group: usize) -> &'static str {
        let names = GROUPS[group].1;
        until("a leader", || {
            let leads = |name: &&str| {
                let status = self.nodes.get(*name).and_then(|node| node.status().ok());
                status.is_some_and(|status| status.leads && !status.joining)
            };
            names.into_iter().find(leads)
        })
    }
}

fn cluster(name: &str, groups: usize, directory: &Path) -> Cluster {
    limited(name, groups, Limits::DEFAULT, directory)
}

fn limited(name: &str, groups: usize, limits: Limits, directory: &Path) -> Cluster {
    let silence = Duration::from_millis(400)..=Duration::from_millis(800);
    let mut builder = Cluster::builder(name).election(silence).limits(limits).directory(directory);
    for (at, (group, names)) in GROUPS[..groups].iter().enumerate() {
        let members = names.iter().zip(1..).map(|(name, n)| (*name, format!("127.0.{at}.{n}:7101")));
        builder = builder.group(group, members);
    }
    builder.build().expect("a valid cluster")
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A minimal executor.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(ready) = future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            return ready;
        }
        thread::park_timeout(Duration::from_secs(60));
    }
}

#[test]
fn each_command_is_applied_once_in_order_and_answered() {
    let running = Running::new("client-replies", 1);
    let (client, group) = (running.connect(), running.group("g1"));
    let mut last = None;
    for number in 1..=200_u64 {
        let answer = client.call(group, &number.to_le_bytes()).wait().expect("the command is applied");
        assert_eq!(numbers(answer.bytes()), (1, number));
        assert_eq!(answer.of_group(group), Some(answer.bytes()));
        assert!(last < Some(answer.position()), "{last:?}");
        last = Some(answer.position());
    }
    let calls: Vec<_> = (201..=3000_u64).map(|number| client.call(group, &number.to_le_bytes())).collect();
    for (number, call) in (201..).zip(calls) {
        let answer = block_on(call).expect("the command is applied");
        assert_eq!(numbers(answer.bytes()), (1, number));
    }
    client.close().expect("the client ends in order");
    for node in running.nodes.values() {
        until("all have applied", || (node.inspect(|log| log.0.len()).expect("the node runs") == 3000).then_some(()));
    }
}

#[test]
fn many_threads_share_a_client() {
    let running = Running::new("client-threads", 1);
    let (client, group) = (running.connect(), running.group("g1"));
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let client = client.clone();
            scope.spawn(move || {
                for number in 0..200_u64 {
                    let command = [thread.to_le_bytes(), number.to_le_bytes()].concat();
                    let answer = client.call(group, &command).wait().expect("the command is applied");
                    assert_eq!(numbers(answer.bytes()).0, 1);
                }
            });
        }
    });
    let answer = client.call(group, b"last").wait().expect("the command is applied");
    assert_eq!(numbers(answer.bytes()), (1, 1601));
}

/// A lone process waits for other clocks before it trusts its own, and assigns small times until then.
#[test]
fn a_session_opens_in_a_group_that_does_not_know_the_time_yet() {
    let directory = TempDir::new();
    let cluster = Cluster::builder("client-clock").group("g1", [("a", "127.0.0.1:7001")]);
    let cluster =
        cluster.group("g2", [("x", "127.0.0.1:7002")]).directory(&directory).build().expect("a valid cluster");
    let node = cluster.node("a", Log::default()).spawn().expect("the node starts");
    let group = cluster.group("g1").expect("the group is in the configuration");
    let client = cluster.client().groups(group).connect().expect("the group learns the time");
    let answer = client.call(group, b"1").wait().expect("the command is applied");
    assert!(answer.position().time > 1 << 60, "{:?}", answer.position());
    client.close().expect("its session ends");
    node.stop().expect("the node ran until it was stopped");
}

#[test]
fn a_command_to_two_groups_has_a_reply_of_each() {
    let running = Running::new("client-groups", 2);
    let (g1, g2) = (running.group("g1"), running.group("g2"));
    let client = running.connect();
    for number in 1..=50_u64 {
        let both = client.call([g2, g1], &number.to_le_bytes()).wait().expect("the command is applied");
        assert_eq!(both.replies().map(|(group, _)| group).collect::<Vec<_>>(), [g1, g2]);
        assert_eq!(numbers(both.of_group(g1).expect("the command went to this group")), (1, 2 * number - 1));
        assert_eq!(numbers(both.of_group(g2).expect("the command went to this group")), (1, number));
        let one = client.call(g1, &[number as u8]).wait().expect("the command is applied");
        assert_eq!(numbers(one.bytes()), (1, 2 * number));
        assert!(one.position() > both.position() && one.of_group(g2).is_none());
    }
}

#[test]
fn no_command_is_lost_or_doubled_when_leaders_restart() {
    let mut running = Running::new("client-failover", 2);
    let groups = [running.group("g1"), running.group("g2")];
    let client = running.cluster.client().patience(Duration::from_secs(60)).connect().expect("the client connects");
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let (mut number, since) = (0_u64, Instant::now());
            while since.elapsed() < Duration::from_secs(6) {
                let calls: Vec<_> = (0..20)
                    .map(|_| {
                        number += 1;
                        match number % 3 {
                            0 => client.call(groups, &number.to_le_bytes()),
                            one => client.call(groups[one as usize - 1], &number.to_le_bytes()),
                        }
                    })
                    .collect();
                for call in calls {
                    let answer = call.wait().expect("a member leads again before the time of the call is over");
                    assert!(answer.replies().all(|(_, reply)| numbers(reply).0 == 1), "applied twice");
                }
            }
            number
        });
        for round in 0..4 {
            let leader = running.leader(round % 2);
            running.stop(leader);
            thread::sleep(Duration::from_millis(700));
            running.start(leader);
        }
        let sent = load.join().expect("the load ends");
        for (at, (_, names)) in GROUPS.iter().enumerate() {
            let logs: Vec<_> = names
                .iter()
                .map(|name| {
                    let expected = (1..=sent).filter(|n| n % 3 == 0 || n % 3 == at as u64 + 1).count();
                    let node = &running.nodes[name];
                    until("all have applied", || {
                        let log = node.inspect(|log| log.clone()).expect("the node runs");
                        (log.0.len() >= expected).then_some(log)
                    })
                })
                .collect();
            let mut once = logs[0].0.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), logs[0].0.len(), "a command was applied twice");
            assert!(logs.iter().all(|log| *log == logs[0]), "the members differ");
        }
    });
}

#[test]
fn an_unreachable_cluster_is_an_error_with_a_remedy() {
    let directory = TempDir::new();
    let cluster = cluster("client-alone", 1, &directory);
    let since = Instant::now();
    let error = cluster.client().patience(Duration::from_millis(500)).connect().expect_err("no member runs");
    assert!(since.elapsed() < Duration::from_secs(5));
    let text = error.to_string();
    assert!(text.contains("a, b, c") && text.contains("start a majority"), "{text}");
}

#[test]
fn prepared_commands_hold_slots_until_they_are_abandoned() {
    let running = Running::new("client-places", 1);
    let group = running.group("g1");
    let mut client = running.cluster.client().connect_local().expect("the client connects");
    let window = Limits::DEFAULT.window;
    let prepared: Vec<_> = (0..window).map(|_| client.prepare(group, b"x").expect("there is room")).collect();
    assert_eq!(client.submit(group, b"x"), Err(Refused::Busy(group)));
    client.send(prepared[0], group, b"once").expect("the command is sent");
    prepared.iter().for_each(|request| client.give_up(*request));
    let mut applied = Vec::new();
    until("it is applied", || {
        let turned = client.turn(|request, outcome| {
            assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
            applied.push(request);
        });
        let _ = turned.expect("the client still runs");
        (!applied.is_empty()).then_some(())
    });
    assert_eq!(applied, [prepared[0]], "what was sent is not given up");
    assert!((0..window).all(|_| client.prepare(group, b"x").is_ok()), "all places are free again");
}

#[test]
fn sizes_without_room_for_a_session_are_reported_at_once() {
    let directory = TempDir::new();
    let least = 64 + 24 + 16;
    for (reply_bytes, message_bytes, key) in
        [(0, 1024, Some("`reply_bytes`")), (1, least - 1, Some("`message_bytes`")), (1, least, None)]
    {
        let limits = Limits { reply_bytes, message_bytes, ..Limits::DEFAULT };
        let members = GROUPS[0].1.iter().zip(1..).map(|(name, n)| (*name, format!("127.0.0.{n}:7101")));
        let builder = Cluster::builder("client-sizes").limits(limits).directory(&directory).group("g1", members);
        let cluster = builder.build().expect("a valid cluster");
        let error = cluster.client().patience(Duration::ZERO).connect().expect_err("no member runs").to_string();
        assert!(error.contains(key.unwrap_or("not reached in time")), "{error}");
    }
}

#[test]
fn calls_end_in_time_without_a_majority() {
    let mut running = Running::new("client-minority", 1);
    let group = running.group("g1");
    let client = running.cluster.client().patience(Duration::from_secs(2)).connect().expect("the client connects");
    client.call(group, b"first").wait().expect("the command is applied");
    let leader = running.leader(0);
    let others: Vec<_> = GROUPS[0].1.into_iter().filter(|name| *name != leader).collect();
    others.iter().for_each(|name| running.stop(name));
    let since = Instant::now();
    let calls: Vec<_> = (0..20).map(|n: u64| client.call(group, &n.to_le_bytes())).collect();
    let mut tickets = Vec::new();
    for call in calls {
        match call.wait().expect_err("there is no majority") {
            CallError::Unknown(ticket, Why::TimedOut) => tickets.push(ticket),
            CallError::NotApplied(why @ (Refused::Unavailable(of) | Refused::Busy(of))) => {
                assert_eq!((of, why.is_retryable()), (group, true));
            }
            other => panic!("{other}"),
        }
    }
    assert!(since.elapsed() < Duration::from_secs(10));
    running.start(others[0]);
    running.start(others[1]);
    let client = client;
    for ticket in tickets {
        let outcome = until("a majority", || match client.resolve(&ticket).wait() {
            Err(CallError::Unknown(_, why)) if why.is_retryable() => None,
            other => Some(other),
        });
        match outcome {
            Ok(answer) => assert_eq!(numbers(answer.bytes()).0, 1),
            Err(CallError::NotApplied(Refused::Closed)) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_dropped_call_continues_and_frees_its_slot() {
    let running = Running::new("client-drops", 1);
    let group = running.group("g1");
    let client = running.cluster.client().calls(64).connect().expect("the client connects");
    for round in 0..40_u64 {
        for number in 0..16_u64 {
            let mut call = client.call(group, &[round.to_le_bytes(), number.to_le_bytes()].concat());
            match number % 4 {
                0 => drop(call),
                1 => drop(call.wait_for(Duration::ZERO)),
                2 => {
                    let waker = Waker::noop();
                    let _ = std::pin::Pin::new(&mut call).poll(&mut TaskContext::from_waker(waker));
                }
                _ => drop(call.wait().expect("the command is applied")),
            }
        }
        until("room", || (client.room() == 64).then_some(()));
    }
    let length = numbers(client.call(group, b"last").wait().expect("the command is applied").bytes()).1;
    assert!((1 + 40 * 12..=1 + 40 * 16).contains(&length), "{length}");
    let call = client.call(group, b"slow and left alone");
    drop(client);
    assert_eq!(numbers(call.wait().expect("the command is applied without the client").bytes()).0, 1);
}

#[test]
fn excess_calls_are_refused() {
    let running = Running::new("client-busy", 1);
    let group = running.group("g1");
    let client = running.cluster.client().calls(8).connect().expect("the client connects");
    let calls: Vec<_> = (0..9).map(|_| client.call(group, b"slow")).collect();
    let outcomes: Vec<_> = calls.into_iter().map(|call| call.wait()).collect();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 8);
    assert!(matches!(&outcomes[8], Err(CallError::NotApplied(Refused::Busy(of))) if *of == group));
}

#[test]
fn invalid_calls_are_refused_with_their_reason() {
    let running = Running::new("client-refusals", 1);
    let client = running.connect();
    let group = running.group("g1");
    let refused = |call: stentor::Call| match call.wait() {
        Err(CallError::NotApplied(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(client.call(&[][..], b"x")), Refused::NoGroups);
    let other = cluster("client-other", 2, Path::new("/nowhere"));
    let foreign = other.group("g2").expect("the group is in the configuration");
    assert_eq!(refused(client.call(foreign, b"x")), Refused::NoGroups);
    let Refused::TooLong { bytes, limit } = refused(client.call(group, &vec![0; 1 << 20])) else { panic!() };
    assert_eq!(bytes, 1 << 20);
    client.call(group, &vec![0; limit]).wait().expect("the longest command is applied");
    assert_eq!(refused(client.call(group, &vec![0; limit + 1])), Refused::TooLong { bytes: limit + 1, limit });
    let long = client.call(group, b"long").wait();
    assert!(matches!(long, Err(CallError::ReplyTooLong(of)) if of == group), "{long:?}");
}

#[test]
fn a_later_process_resumes_the_session_and_resolves_a_ticket() {
    let running = Running::new("client-takeup", 1);
    let group = running.group("g1");
    let first = running.connect();
    first.call(group, b"one").wait().expect("the command is applied");
    let call = first.call(group, b"slow two");
    let ticket = until("it is sent", || call.ticket());
    let ticket = Ticket::from_bytes(&ticket.to_bytes()).expect("its own bytes");
    let session = Session::from_bytes(&first.session().to_bytes()).expect("its own bytes");
    let second = running.cluster.client().session(session).connect().expect("the client resumes the session");
    match second.resolve(&ticket).wait() {
        Ok(answer) => assert_eq!(numbers(answer.bytes()), (1, 2)),
        Err(CallError::NotApplied(Refused::Closed)) => {}
        Err(other) => panic!("{other}"),
    }
    drop(call);
    let error = first.call(group, b"three").wait().expect_err("the session is another's");
    assert!(matches!(error, CallError::NotApplied(Refused::Superseded | Refused::ClientEnded)), "{error}");
    second.call(group, b"four").wait().expect("the command is applied");
    let log = running.nodes["a"].inspect(|log| log.0.clone()).expect("the node runs");
    assert!(!log.contains(&b"three".to_vec()));
}

/// A client that wants to open a session in a full group retries with pauses, not in each round.
#[test]
fn a_full_group_is_retried_with_pauses_and_delays_no_other() {
    let running = Running::with("client-full", 2, Limits { sessions: 1, ..Limits::DEFAULT });
    let [g1, g2] = [running.group("g1"), running.group("g2")];
    let first = running.cluster.client().groups(g2).connect().expect("there is room");
    // A client that is refused in one group leaves nothing in the other.
    let refused = running.cluster.client().groups([g1, g2]).connect().expect_err("g2 is full");
    assert!(refused.to_string().contains("session"), "{refused}");
    let second = running.cluster.client().groups(g1).patience(Duration::from_secs(3)).connect().expect("there is room");
    let widenings = || {
        let key = second.session().to_bytes();
        u32::from_le_bytes(key[22..26].try_into().expect("4 bytes"))
    };
    second.call(g2, b"no room").wait().expect_err("the table is full");
    assert!((1..10).contains(&widenings()), "{} widenings", widenings());
    second.call(g1, b"one").wait().expect("the session is open there");
    drop(first);
    let room = || second.call(g2, b"two").wait().ok().map(drop);
    until("a place", room);
}

/// A process may die after it has resumed a session, and before it has stored the new key. The stored key is then an
/// earlier one.
#[test]
fn an_old_session_key_resumes_the_session() {
    let running = Running::new("client-old-key", 1);
    let group = running.group("g1");
    let first = running.connect();
    let written = first.session();
    let [second, third] = [0, 1].map(|_| {
        let client =
            running.cluster.client().session(written.clone()).connect().expect("the client resumes the session");
        client.call(group, b"next").wait().expect("the command is applied");
        client
    });
    let fourth = running.cluster.client().session(written).connect().expect("the client resumes the session");
    fourth.call(group, b"last").wait().expect("the command is applied");
    drop((first, second, third));
}

/// A caller sends a command again if it learns that the command was not applied. A failed resolve must therefore not
/// claim that.
#[test]
fn a_failed_resolve_does_not_claim_an_outcome() {
    let mut running = Running::new("client-questions", 1);
    let group = running.group("g1");
    let first = running.connect();
    let prepared = first.prepare(group, b"once").wait().expect("the command gets its number");
    let ticket = prepared.ticket();
    prepared.send().wait().expect("the command is applied");
    let not_asked = |client: &Client| match client.resolve(&ticket).wait() {
        Err(CallError::Unknown(about, Why::NotAsked(why))) if about == ticket => why,
        other => panic!("{other:?}"),
    };
    let other = running.connect();
    assert_eq!(not_asked(&other), Refused::OtherSession);
    let busy = running.cluster.client().session(first.session()).calls(1).patience(Duration::from_secs(4));
    let busy = busy.connect().expect("the client resumes the session");
    let held = busy.prepare(group, b"held").wait().expect("the command gets its number");
    assert_eq!(not_asked(&busy), Refused::Busy(group));
    drop(held);
    until("room", || (busy.room() == 1).then_some(()));
    GROUPS[0].1.iter().for_each(|name| running.stop(name));
    assert_eq!(not_asked(&busy), Refused::Unavailable(group));
    let late = other.resolve(&ticket).wait_for(Duration::ZERO);
    assert!(matches!(late, Err(CallError::Unknown(_, Why::NotAsked(_)))), "{late:?}");
}
