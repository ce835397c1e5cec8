//! The server is killed, and restarted with its data or without.

use std::time::Duration;

use stentor_election::Change;
use zookeeper_client::{Acls, Client, CreateMode};

use crate::candidate::{Candidate, Group, config};
use crate::zookeeper::{Zookeeper, free_port};

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn server_restart_within_the_session_changes_nothing() {
    let server = Zookeeper::start();
    let session = Duration::from_secs(30);
    let mut group = Group::in_line(3, &[&server.address()], "/stentor/restart", session);
    let sessions: Vec<i64> = group.0.iter().map(|candidate| candidate.election.status().session).collect();
    let requests = group.0[0].election.status().requests;
    let told: Vec<usize> = group.0.iter().map(|candidate| candidate.log.len()).collect();
    let server = group.meanwhile(move || server.restart());
    let disconnected = "no connection to";
    group.until("all are connected again", |group| {
        let status = |candidate: &Candidate| candidate.election.status();
        group.0.iter().map(status).all(|s| s.connected && !s.error.is_some_and(|error| error.contains(disconnected)))
    });
    group.run(Duration::from_millis(500));
    assert_eq!(group.agreed(), Some((1, 0)));
    let now: Vec<usize> = group.0.iter().map(|candidate| candidate.log.len()).collect();
    assert_eq!(now, told, "a change was reported: {:?}", group.0[0].log);
    let same: Vec<i64> = group.0.iter().map(|candidate| candidate.election.status().session).collect();
    assert_eq!(same, sessions);
    assert!(group.0[0].election.status().requests > requests, "the node was not verified again");
    // The line still works.
    drop(group.0.remove(0));
    assert_eq!(group.agree(), (2, 1));
    drop(server);
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn leader_resigns_during_a_long_outage_and_a_new_one_is_elected() {
    let mut server = Zookeeper::start();
    let session = Duration::from_secs(1);
    let mut group = Group::in_line(3, &[&server.address()], "/stentor/away", session);
    server.kill();
    let took = group.until("nobody leads", |group| group.0.iter().all(|candidate| candidate.leader().is_none()));
    println!("without a server everybody knows of no leader after {took:?}, session {session:?}");
    assert!(took < session * 3, "{took:?}");
    group.run(Duration::from_secs(2));
    let error = group.0[0].election.status().error.unwrap_or_default();
    assert!(error.contains("refuses connections") || error.contains("no connection"), "{error}");
    let server = group.meanwhile(move || server.restart());
    let (epoch, _) = group.agree();
    assert!(epoch > 1);
    drop(server);
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn leader_of_a_silent_server_resigns_before_the_client_times_out() {
    let server = Zookeeper::start();
    let session = Duration::from_secs(3);
    let mut group = Group::in_line(1, &[&server.address()], "/stentor/silent", session);
    server.stop();
    let took = group.until("it resigns", |group| group.0[0].leader().is_none());
    println!("with a silent server a leader resigns after {took:?}, session {session:?}");
    // The bound is the session timeout plus the delay of a busy machine. The client alone would take 1.7 session
    // timeouts.
    assert!(took > session / 2 && took < session * 7 / 5, "{took:?}");
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn epochs_do_not_decrease_on_a_server_without_them() {
    let mut old = Zookeeper::start();
    let session = Duration::from_secs(1);
    let port = free_port();
    let (first, second) = (old.address(), format!("127.0.0.1:{port}"));
    // The only server has epochs far ahead.
    let mut ahead = config(0, &[&first, &second], "/stentor/data", session);
    ahead.floor = 40;
    let mut group = Group(vec![Candidate::start(ahead)]);
    assert_eq!(group.agree(), (41, 0));
    // A second server does not know those epochs and has its own leader.
    let new = group.meanwhile(move || Zookeeper::on(port));
    group.0.push(Candidate::start(config(1, &[&first], "/stentor/data", session)));
    group.0.push(Candidate::start(config(2, &[&second], "/stentor/data", session)));
    group.until("each server has its leader", |group| {
        let leaders: Vec<_> = group.0.iter().map(Candidate::leader).collect();
        leaders == [Some((41, 0)), Some((41, 0)), Some((1, 2))]
    });
    let alone = group.0.remove(1);
    old.kill();
    drop(alone);
    let (leader, _) = group.agree_anew((0, 0));
    assert!(leader.0 > 41 && leader.1 == 2, "{leader:?}");
    drop(new);
    for candidate in &group.0 {
        println!("p{}: {:?}", candidate.me, candidate.log);
    }
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn epochs_do_not_decrease_after_data_loss() {
    let server = Zookeeper::start();
    let address = server.address();
    let session = Duration::from_secs(1);
    let mut group = Group::in_line(3, &[&address], "/stentor/gone", session);
    for leaves in 0..2 {
        drop(group.0.remove(0));
        let leader = group.agree();
        assert_eq!(leader, (leaves + 2, leaves as u16 + 1));
        let me = leaves as u16;
        group.0.push(Candidate::start(config(me, &[&address], "/stentor/gone", session)));
        group.until("it is in line", |group| group.agreed() == Some(leader));
    }
    let before = group.agree();
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    drop(server);
    let server = group.meanwhile(move || Zookeeper::on(port));
    let (leader, _) = group.agree_anew(before);
    println!("after the data was lost: {leader:?} instead of {before:?}");
    assert!(leader.0 > before.0, "{leader:?} after {before:?}");
    drop(group);
    drop(server);
}

/// Replaces the node of the first candidate by a node of another session, in one transaction.
fn usurp(address: &str, path: &str) -> (tokio::runtime::Runtime, Client) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let usurper = runtime.block_on(async {
        // The session gets no heartbeats, so its timeout must exceed the waits of the test.
        let minute = Client::connector().with_session_timeout(Duration::from_secs(60));
        let usurper = minute.connect(address).await.expect("a session");
        let first =
            usurper.list_children(path).await.expect("the line").into_iter().min().expect("the line has a candidate");
        let node = format!("{path}/{first}");
        let (data, _) = usurper.get_data(&node).await.expect("the first node");
        let mut writes = usurper.new_multi_writer();
        writes.add_delete(&node, None).expect("a deletion");
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        writes.add_create(&node, &data, &ephemeral).expect("a creation");
        writes.commit().await.expect("both writes are committed");
        usurper
    });
    (runtime, usurper)
}

#[test]
#[ignore = "needs ZooKeeper: `cargo xtask test --only zookeeper`"]
fn foreign_node_with_the_same_name_is_detected_after_reconnection() {
    let server = Zookeeper::start();
    let root = "/stentor/usurped";
    let mut group = Group::in_line(1, &[&server.address()], root, Duration::from_secs(30));
    assert_eq!(group.agree(), (1, 0));
    let (runtime, usurper) = usurp(&server.address(), &format!("{root}/election/g1"));
    let server = group.meanwhile(move || server.restart());
    // The candidate detects that the node with its name belongs to another session. It removes that node, and leads
    // with a new one.
    group.until("p0 leads anew", |group| group.0[0].leader() == Some((2, 0)));
    assert!(group.0[0].log.contains(&Change::Resigned { epoch: 1 }));
    assert_eq!(group.0[0].election.status().sessions, 1);
    drop((runtime, usurper, server));
}
