//! Calls of a client in every phase: prepared, given up, held up by others, and left alone.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use stentor::config::Limits;
use stentor::{Client, Cluster, Group, NodeHandle, Refused, WaitMode};
use stentor_testutil::TempDir;

use crate::log::{Log, numbers, until};

/// Requests of a client that may be unanswered.
const WINDOW: usize = 16;
/// Less than the patience of a client, and more than anything here takes.
const SOON: Duration = Duration::from_secs(5);

/// How far clocks are apart: less than they may be.
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
        let cluster = builder.build().expect("a sound cluster");
        let start = |name| (name, cluster.node(name, Log::default()).spawn().expect("it starts"));
        let nodes = ["a", "x"].into_iter().map(start).collect();
        Running { cluster, nodes, _directory: directory }
    }

    fn group(&self, name: &str) -> Group {
        self.cluster.group(name).expect("it is in the configuration")
    }

    fn connect(&self) -> Client {
        self.cluster.client().connect().expect("it is let in")
    }

    /// Stops the only member of a group, and waits until its clients have noticed.
    fn stop(&mut self, name: &str) {
        self.nodes.remove(name).expect("it runs").stop().expect("it ran until now");
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn a_question_about_an_old_command_answers_no_new_one() {
    let running = Running::new("calls-question");
    let (client, group) = (running.connect(), running.group("g1"));
    let first = client.call(group, b"first");
    let ticket = until("a ticket", || first.ticket());
    first.wait().expect("it is applied");
    for number in 0..3 * WINDOW as u64 {
        let question = client.resolve(&ticket);
        let answer = client.call(group, &number.to_le_bytes()).wait().expect("it is applied");
        assert_eq!(numbers(answer.bytes()), (1, number + 2));
        let _ = question.wait();
    }
}

#[test]
fn prepared_commands_that_nobody_waits_for_leave_the_window() {
    let running = Running::new("calls-given-up");
    let (client, group) = (running.connect(), running.group("g1"));
    for _ in 0..100 * WINDOW {
        let prepared = client.prepare(group, b"prepared").wait().expect("there is room");
        let _ = prepared.send().wait_for(Duration::ZERO);
    }
    client.call(group, b"last").wait_for(SOON).expect("there is room");
}

#[test]
fn prepared_commands_go_before_a_call_that_waits_for_their_places() {
    let running = Running::new("calls-prepared");
    let (client, group) = (running.connect(), running.group("g1"));
    for sends in [true, false] {
        let prepare = |_| client.prepare(group, b"prepared").wait().expect("there is room");
        let prepared: Vec<_> = (0..WINDOW).map(prepare).collect();
        let waiting: Vec<_> = (0..100).map(|_| client.call(group, b"behind")).collect();
        std::thread::sleep(Duration::from_millis(50));
        if sends {
            let sent: Vec<_> = prepared.into_iter().map(stentor::Prepared::send).collect();
            sent.into_iter().for_each(|call| drop(call.wait_for(SOON).expect("it is applied")));
        } else {
            drop(prepared);
        }
        waiting.into_iter().for_each(|call| drop(call.wait_for(SOON).expect("it is applied")));
    }
}

#[test]
fn a_prepared_command_to_a_group_that_is_down_ends_in_time() {
    let mut running = Running::new("calls-down");
    let group = running.group("g2");
    let client = running.cluster.client().patience(Duration::from_secs(2)).connect().expect("it is let in");
    let prepared = client.prepare(group, b"prepared").wait().expect("there is room");
    running.stop("x");
    let since = Instant::now();
    prepared.send().wait_for(2 * SOON).expect_err("nobody is there");
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}

#[test]
fn calls_to_a_group_that_is_down_hold_up_no_others() {
    let mut running = Running::new("calls-blocked");
    let (up, down, client) = (running.group("g1"), running.group("g2"), running.connect());
    running.stop("x");
    let blocked: Vec<_> = (0..500_u64).map(|number| client.call(down, &number.to_le_bytes())).collect();
    client.call(up, b"free").wait_for(SOON).expect("it is applied");
    drop(blocked);
}

#[test]
fn a_call_made_just_before_the_last_handle_goes_is_applied() {
    let running = Running::new("calls-last");
    let group = running.group("g1");
    for round in 0..100_u64 {
        let client = running.cluster.client().groups(group).wait(WaitMode::POLL).connect().expect("it is let in");
        client.call(group, b"first").wait().expect("it is applied");
        let call = client.call(group, &round.to_le_bytes());
        drop(client);
        call.wait().expect("it goes on");
    }
}

/// The clocks of two groups are apart, as those of hosts are. A session that goes from the one that is ahead to the other takes its place in
/// the order with it; so does who is told of that place.
#[test]
fn a_command_comes_after_all_that_its_session_has_heard_in_whatever_groups() {
    let running = Running::new("session-order");
    let (ahead, behind) = (running.group("g1"), running.group("g2"));
    let [first, second, stranger] = [(); 3].map(|()| running.connect());
    let call = |client: &Client, group| client.call(group, b"a command").wait().expect("it is applied").position();
    let far = until("clocks that are apart", || {
        let mut later = call(&first, ahead);
        later.time += LEAP.as_nanos() as u64;
        first.observe(later).expect("clocks may be so far apart");
        let far = call(&first, ahead);
        assert!(far > later);
        // Nobody has told the stranger. On a slow machine its clock may be there by now.
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
