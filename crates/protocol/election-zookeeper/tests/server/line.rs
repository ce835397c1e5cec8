//! Candidates that join, leave and hand over while the server works.

use std::time::Duration;

use stentor_election::{Change, Election, HandOverError};
use stentor_fabric::ProcessId;

use crate::candidate::{Candidate, Group, MEMBERS, config};
use crate::zookeeper::Zookeeper;

/// A session timeout that is longer than any wait that these tests expect.
const LONG: Duration = Duration::from_secs(20);

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn candidate_watches_its_predecessor_and_only_the_next_wakes() {
    let server = Zookeeper::start();
    let mut group = Group::in_line(5, &[&server.address()], "/stentor/herd", LONG);
    assert_eq!(group.agreed(), Some((1, 0)));
    group.run(Duration::from_millis(200));
    // Four candidates watch another one, and the leader watches the epoch.
    let watches = server.watches("/stentor/herd");
    assert_eq!(watches.len(), 5, "{watches:?}");
    assert!(watches.iter().all(|(_, watchers)| *watchers == 1), "more than one session watches a node: {watches:?}");
    let before = group.wakes();
    // Dropping the election closes the session, so no candidate waits for a timeout.
    drop(group.0.remove(0));
    let took = group.until("p1 leads", |group| group.0[0].leader() == Some((2, 1)));
    group.run(Duration::from_millis(300));
    let woken: Vec<u64> = group.wakes().iter().zip(&before[1..]).map(|(after, before)| after - before).collect();
    println!("a leader that leaves is replaced after {took:?}; woken {woken:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    // p1 is woken because p0 has left, p2 because p1 claimed leadership, and no other candidate.
    assert_eq!(woken, [1, 1, 0, 0]);
    let watches = server.watches("/stentor/herd");
    assert!(watches.len() == 4 && watches.iter().all(|(_, watchers)| *watchers == 1), "{watches:?}");
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn candidate_that_leaves_in_the_middle_changes_nothing() {
    let server = Zookeeper::start();
    let mut group = Group::in_line(4, &[&server.address()], "/stentor/middle", LONG);
    let told: Vec<usize> = group.0.iter().map(|candidate| candidate.log.len()).collect();
    drop(group.0.remove(2));
    group.until("p3 watches p1", |_| server.watches("/stentor/middle").iter().any(|(path, _)| path.contains("/p1-")));
    group.run(Duration::from_millis(200));
    assert_eq!(group.agreed(), Some((1, 0)));
    let now: Vec<usize> = group.0.iter().map(|candidate| candidate.log.len()).collect();
    assert_eq!(now, [told[0], told[1], told[3]]);
    // Candidate p3 is woken when its new predecessor leaves.
    drop(group.0.remove(1));
    group.until("p3 watches p0", |_| server.watches("/stentor/middle").iter().any(|(path, _)| path.contains("/p0-")));
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn leadership_goes_to_the_named_successor_only() {
    let server = Zookeeper::start();
    let mut group = Group::in_line(4, &[&server.address()], "/stentor/hand", LONG);
    let leader = group.agree();
    let refused = |group: &mut Group, n: usize, to: u16| group.0[n].election.hand_over(ProcessId(to));
    assert_eq!(refused(&mut group, 1, 2), Err(HandOverError::NotLeader));
    assert_eq!(refused(&mut group, 0, 9), Err(HandOverError::NotAMember { process: ProcessId(9) }));
    assert_eq!(refused(&mut group, 0, 4), Err(HandOverError::NotReady { process: MEMBERS[4] }));
    assert_eq!(refused(&mut group, 0, 0), Ok(()));
    group.until("the leader has read the whole line", |group| group.0[0].election.status().line.len() == 4);
    // The third candidate behind the leader is preferred, and the two before it move behind it.
    assert_eq!(refused(&mut group, 0, 3), Ok(()));
    let took = group.until("p3 leads", |group| group.0[3].leader() == Some((2, 3)));
    println!("handed over to the last of four after {took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    let resigned = group.0[0].log.iter().filter(|change| **change == Change::Resigned { epoch: leader.0 }).count();
    assert_eq!(resigned, 1);
    for n in [1, 2] {
        let led = |change: &Change| matches!(change, Change::Leader { process, .. } if process.0 == n);
        assert!(!group.0[usize::from(n)].log.iter().any(led), "p{n} led between");
    }
    // If the preferred candidate leaves at the same moment, another one leads.
    group.until("the new leader has read the line", |group| group.0[3].election.status().line.len() == 4);
    assert_eq!(refused(&mut group, 3, 0), Ok(()));
    drop(group.0.remove(0));
    let (next, _) = group.agree_anew((2, 3));
    assert!(next.0 > 2, "{next:?}");
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn unwilling_candidate_leaves_and_witnessed_ballots_are_exceeded() {
    let server = Zookeeper::start();
    let mut group = Group::in_line(2, &[&server.address()], "/stentor/stand", Duration::from_secs(3));
    group.0[0].election.stand(false);
    group.until("p1 leads", |group| group.0[1].leader() == Some((2, 1)));
    assert_eq!(group.agree(), (2, 1));
    group.0[1].election.witness(40, ProcessId(0));
    let (leader, _) = group.agree_anew((2, 1));
    assert_eq!(leader, (41, 1));
    group.0[0].election.stand(true);
    group.until("p0 is in line", |group| group.0[0].election.status().line.len() == 2);
    drop(group.0.remove(1));
    assert_eq!(group.agree(), (42, 0));
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn candidate_without_polls_leaves_the_line() {
    let server = Zookeeper::start();
    let session = Duration::from_millis(1500);
    let mut group = Group::in_line(2, &[&server.address()], "/stentor/stuck", session);
    group.0[0].polled = false;
    let took = group.until("p1 leads", |group| group.0[1].leader() == Some((2, 1)));
    println!("a leader whose owner hangs is replaced after {took:?}, session {session:?}");
    assert!(took >= session / 2 && took < session * 4, "{took:?}");
    group.0[0].polled = true;
    group.until("p0 is in line again", |group| {
        group.0[0].election.status().line == MEMBERS[..2].iter().rev().copied().collect::<Vec<_>>()
    });
    assert_eq!(group.agree(), (2, 1));
    assert!(group.0[0].log.contains(&Change::Resigned { epoch: 1 }));
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn larger_epoch_and_foreign_nodes_are_tolerated() {
    let server = Zookeeper::start();
    let mut stranger = config(0, &[&server.address()], "/stentor/foreign", LONG);
    stranger.members = vec![ProcessId(0), ProcessId(7)];
    stranger.me = ProcessId(7);
    stranger.floor = 100;
    let mut other = Group(vec![Candidate::start(stranger)]);
    assert_eq!(other.agree(), (101, 7));
    let mut group = Group(vec![Candidate::start(config(1, &[&server.address()], "/stentor/foreign", LONG))]);
    assert_eq!(group.agree(), (102, 1));
    let error = group.0[0].election.status().error.unwrap_or_default();
    assert!(error.contains("/stentor/foreign/election/g1/p7-") && error.contains("a root of its own"), "{error}");
}
