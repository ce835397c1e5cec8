//! Calls of a client in every phase: prepared, abandoned, delayed by others, and dropped.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use stentor::config::Limits;
use stentor::{Client, Cluster, Group, NodeHandle, Refused, WaitMode};
use stentor_testutil::TempDir;

use crate::log::{Log, numbers, until};

/// Number of requests of a client that may be unanswered.
const WINDOW: usize = 16;
/// Time limit: less than the timeout of a client, and more than any call here takes.
const SOON: Duration = Duration::from_secs(5);

/// Difference between the clocks: less than their bound.
const LEAP: Duration = Duration::from_millis(800);

/// Groups of one member each, in one process.
struct Running {
    cluster: Cluster,
    nodes: BTreeMap<&'static str, NodeHandle<Log>>,
    _directory: TempDir,
}

impl Running {
    fn new(name: &str) -> Running {
        let directory = TempDir::new();
        let silence = Duration::from_millis(400)..=Duration::from_millis(800);
        let builder = Cluster::builder(name)
            .election(silence)
            .directory(&directory)
            .limits(Limits { window: WINDOW as u32, ..Limits::default() });
        let builder = builder.group("g1", [("a", "127.0.0.1:7101")]).group("g2", [("x", "127.0.1.1:7101")]);
        let cluster = builder.build().expect("a valid cluster");
        let start = |name| (name, cluster.node(name, Log::default()).spawn().expect("the node starts"));
        let nodes = ["a", "x"].into_iter().map(start).collect();
        Running { cluster, nodes, _directory: directory }
    }

    fn group(&self, name: &str) -> Group {
        self.cluster.group(name).expect("the group is in the configuration")
    }

    fn connect(&self) -> Client {
        self.cluster.client().connect().expect("the client connects")
    }

    /// Stops the only member of a group, and waits until its clients have noticed.
    fn stop(&mut self, name: &str) {
        self.nodes.remove(name).expect("the node runs").stop().expect("the node ran until it was stopped");
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn resolving_an_old_command_does_not_affect_new_ones() {
    let running = Running::new("calls-question");
    let (client, group) = (running.connect(), running.group("g1"));
    let first = client.call(group, b"first");
    let ticket = until("a ticket", || first.ticket());
    first.wait().expect("the command is applied");
    for number in 0..3 * WINDOW as u64 {
        let question = client.resolve(&ticket);
        let answer = client.call(group, &number.to_le_bytes()).wait().expect("the command is applied");
        assert_eq!(numbers(answer.bytes()), (1, number + 2));
        let _ = question.wait();
    }
}

#[test]
fn abandoned_prepared_commands_leave_the_window() {
    let running = Running::new("calls-given-up");
    let (client, group) = (running.connect(), running.group("g1"));
    for _ in 0..100 * WINDOW {
        let prepared = client.prepare(group, b"prepared").wait().expect("there is room");
        let _ = prepared.send().wait_for(Duration::ZERO);
    }
    client.call(group, b"last").wait_for(SOON).expect("there is room");
}

#[test]
fn prepared_commands_precede_calls_that_wait_for_slots() {
    let running = Running::new("calls-prepared");
    let (client, group) = (running.connect(), running.group("g1"));
    for sends in [true, false] {
        let prepare = |_| client.prepare(group, b"prepared").wait().expect("there is room");
        let prepared: Vec<_> = (0..WINDOW).map(prepare).collect();
        let waiting: Vec<_> = (0..100).map(|_| client.call(group, b"behind")).collect();
        std::thread::sleep(Duration::from_millis(50));
        if sends {
            let sent: Vec<_> = prepared.into_iter().map(stentor::Prepared::send).collect();
            sent.into_iter().for_each(|call| drop(call.wait_for(SOON).expect("the command is applied")));
        } else {
            drop(prepared);
        }
        waiting.into_iter().for_each(|call| drop(call.wait_for(SOON).expect("the command is applied")));
    }
}

#[test]
fn a_prepared_command_to_a_dead_group_times_out() {
    let mut running = Running::new("calls-down");
    let group = running.group("g2");
    let client = running.cluster.client().patience(Duration::from_secs(2)).connect().expect("the client connects");
    let prepared = client.prepare(group, b"prepared").wait().expect("there is room");
    running.stop("x");
    let since = Instant::now();
    prepared.send().wait_for(2 * SOON).expect_err("the group has no running member");
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}

#[test]
fn calls_to_a_dead_group_delay_no_others() {
    let mut running = Running::new("calls-blocked");
    let (up, down, client) = (running.group("g1"), running.group("g2"), running.connect());
    running.stop("x");
    let blocked: Vec<_> = (0..500_u64).map(|number| client.call(down, &number.to_le_bytes())).collect();
    client.call(up, b"free").wait_for(SOON).expect("the command is applied");
    drop(blocked);
}

/// The client has room, and the group may work: only the wait was too short.
#[test]
fn a_wait_that_ends_before_the_call_is_sent_says_so() {
    let mut running = Running::new("calls-not-sent");
    let (down, client) = (running.group("g2"), running.connect());
    running.stop("x");
    for wait in [Duration::ZERO, Duration::from_millis(50)] {
        let error = client.call(down, b"late").wait_for(wait).expect_err("the group has no running member");
        let expected = "not applied: the wait ended before the command was sent; call again, and wait longer";
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn a_call_before_the_last_handle_drops_is_applied() {
    let running = Running::new("calls-last");
    let group = running.group("g1");
    for round in 0..100_u64 {
        let client =
            running.cluster.client().groups(group).wait(WaitMode::POLL).connect().expect("the client connects");
        client.call(group, b"first").wait().expect("the command is applied");
        let call = client.call(group, &round.to_le_bytes());
        drop(client);
        call.wait().expect("the command is applied without the client");
    }
}

/// The clocks of two groups differ, like those of two hosts. A session calls the group that is ahead, and then the
/// other group. Its commands there still follow the session's position in the order. The same applies to a session
/// that observes that position.
#[test]
fn a_command_follows_all_that_its_session_has_observed() {
    let running = Running::new("session-order");
    let (ahead, behind) = (running.group("g1"), running.group("g2"));
    let [first, second, stranger] = [(); 3].map(|()| running.connect());
    let call =
        |client: &Client, group| client.call(group, b"a command").wait().expect("the command is applied").position();
    let far = until("clocks that are apart", || {
        let mut later = call(&first, ahead);
        later.time += LEAP.as_nanos() as u64;
        first.observe(later).expect("clocks may be so far apart");
        let far = call(&first, ahead);
        assert!(far > later);
        // The stranger has not observed `far`, so its command gets an earlier time, unless the clock of `behind` has
        // caught up on a slow machine.
        (call(&stranger, behind) < far).then_some(far)
    });
    assert!(call(&first, behind) > far);
    second.observe(far).expect("clocks may be so far apart");
    let after = call(&second, behind);
    assert!(after > far);
    let mut absurd = after;
    absurd.time += Duration::from_secs(86_400).as_nanos() as u64;
    assert_eq!(first.observe(absurd), Err(Refused::AheadOfTime));
    assert!(call(&first, behind) < absurd);
}
