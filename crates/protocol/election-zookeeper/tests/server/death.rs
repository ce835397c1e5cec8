//! Processes that are killed, stopped and started again.

use std::time::{Duration, Instant};

use crate::candidate::Group;
use crate::child::Process;
use crate::zookeeper::{TICK, Zookeeper};

const SESSION: Duration = Duration::from_millis(1200);
/// Extra time for a shared machine.
const SLACK: Duration = Duration::from_secs(2);

/// Starts a leader in a separate process, and two candidates behind it in this one.
fn scene(server: &Zookeeper, root: &str, session: Duration) -> (Process, Group) {
    let mut process = Process::start(4, &server.address(), root, session);
    process.until("p4 leads in epoch 1");
    let mut group = Group::in_line_behind(2, &[&server.address()], root, session);
    group.until("all follow p4", |group| group.0.iter().all(|candidate| candidate.leader() == Some((1, 4))));
    (process, group)
}

impl Group {
    fn in_line_behind(count: u16, servers: &[&str], root: &str, session: Duration) -> Self {
        use crate::candidate::{Candidate, config};
        let mut group = Group(Vec::new());
        for me in 0..count {
            group.0.push(Candidate::start(config(me, servers, root, session)));
            group.until("the next is in line", |group| {
                group.0[usize::from(me)].election.status().line.len() == usize::from(me) + 2
            });
        }
        group
    }
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn next_candidate_leads_after_the_session_of_a_killed_leader() {
    let server = Zookeeper::start();
    let mut took = Vec::new();
    for round in 0..5 {
        let (mut process, mut group) = scene(&server, &format!("/stentor/kill{round}"), SESSION);
        let woken = group.wakes();
        process.kill();
        took.push(group.until("p0 leads", |group| group.0[0].leader() == Some((2, 0))));
        let all = group.until("p1 follows", |group| group.0[1].leader() == Some((2, 0)));
        assert!(all < SESSION, "the next candidate must learn it from the node before its own: {all:?}");
        // Each candidate is woken at most once. It is not woken at all if the session ends while the candidate does one
        // of its periodic reads of the line.
        assert!(group.wakes().iter().zip(&woken).all(|(after, before)| after - before <= 1));
    }
    took.sort_unstable();
    println!("session {SESSION:?}: a killed leader is replaced after {took:?}");
    assert!(took[0] > SESSION / 2, "faster than the session can have expired: {took:?}");
    assert!(took[4] < SESSION + 2 * TICK + SLACK, "{took:?}");
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn stopped_leader_is_replaced_and_resigns_when_it_resumes() {
    let server = Zookeeper::start();
    let (mut process, mut group) = scene(&server, "/stentor/stop", SESSION);
    process.stop();
    let took = group.until("p0 leads", |group| group.0[0].leader() == Some((2, 0)));
    println!("session {SESSION:?}: a stopped leader is replaced after {took:?}");
    assert!(took < SESSION + 2 * TICK + SLACK, "{took:?}");
    group.run(SESSION);
    let before = process.told.len();
    process.go_on();
    let begin = Instant::now();
    process.until("resigned from epoch 1");
    let resigned = begin.elapsed();
    process.until("p0 leads in epoch 2");
    println!("it resigns {resigned:?} after it wakes, and follows after {:?}", begin.elapsed());
    assert_eq!(process.told[before], "resigned from epoch 1");
    // The process is in the line of candidates again, at its end, so it leads after the others have left.
    drop(group.0.remove(1));
    drop(group.0.remove(0));
    process.until("p4 leads in epoch 3");
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn restarted_process_does_not_wait_for_its_old_session() {
    let server = Zookeeper::start();
    let session = Duration::from_secs(20);
    let (mut process, mut group) = scene(&server, "/stentor/again", session);
    process.kill();
    let again = Process::start(4, &server.address(), "/stentor/again", session);
    let took = group.until("p0 leads", |group| group.0[0].leader() == Some((2, 0)));
    println!("session {session:?}: a leader that is killed and started again is replaced after {took:?}");
    assert!(took < session / 2, "{took:?}");
    drop(again);
}
