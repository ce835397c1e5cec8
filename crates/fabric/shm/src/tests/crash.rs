//! Processes that are killed.

use std::path::Path;
use std::time::Duration;

use stentor_fabric::{Access, Event, Fabric, ProcessId, QpConfig, QpState, Status, WaitMode};

use super::child::Child;
use super::support::*;
use crate::ShmFabric;
use stentor_host::sockets_of;

fn entries(directory: &Path) -> usize {
    std::fs::read_dir(directory).map_or(0, |entries| entries.count())
}

#[test]
fn killed_process_leaves_nothing_and_its_peer_notices() {
    let directory = TestDirectory::new();
    let cluster = directory.0.join("test");
    let mut fabric = ShmFabric::start(config(&directory.0, 0, 2)).unwrap();
    region(&mut fabric, 1, Access::Write);
    let qp = fabric.connect(ProcessId(1), SERVICE, QpConfig::reliable(4, 4)).unwrap();
    for round in 0..3 {
        let mut child = Child::start("echo", &directory, 1);
        let mut said = false;
        // The child may print its line before its offer has arrived at this end.
        until("ready", || {
            events(&mut fabric);
            said |= child.line().is_some();
            said && fabric.state(qp) == QpState::Ready
        });
        assert_eq!(entries(&cluster), 2);
        // The child has posted no receive, so the message waits and fails with the peer.
        send(&mut fabric, qp, round, b"lost", None);
        fabric.post_recv(qp, span(stentor_fabric::RegionId(0), 0, 8), 90 + round).unwrap();
        child.kill();
        let mut heard = Vec::new();
        until("notified", || {
            heard.extend(events(&mut fabric));
            fabric.state(qp) == QpState::Error
        });
        assert_eq!(heard, [Event::Disconnected { qp, peer: ProcessId(1) }]);
        assert_eq!(ends(&poll(&mut fabric)), [(round, Status::RetryExceeded), (90 + round, Status::Flushed)]);
        until("its socket is gone", || sockets_of(&cluster, ProcessId(1)).unwrap_or_default().is_empty());
        fabric.reset(qp).unwrap();
    }
    drop(fabric);
    assert!(!directory.0.exists(), "directories go with the last process");
}

#[test]
fn last_killed_process_leaves_no_directory() {
    let directory = TestDirectory::new();
    let mut child = Child::start("echo", &directory, 1);
    let cluster = directory.0.join("test");
    until("started", || !sockets_of(&cluster, ProcessId(1)).unwrap_or_default().is_empty());
    child.kill();
    until("everything is gone", || !directory.0.exists());
}

#[test]
fn peer_killed_during_a_write_harms_nobody_and_is_replaced() {
    let directory = TestDirectory::new();
    let mut fabric = ShmFabric::start(config(&directory.0, 0, 2)).unwrap();
    let region = region(&mut fabric, 1, Access::Write);
    let spec = stentor_fabric::RegionSpec { purpose: super::child::BEATS, writer: ProcessId(1), bytes: 64 };
    fabric.register(spec).unwrap();
    let qp = fabric.connect(ProcessId(1), SERVICE, QpConfig::reliable(4, 0)).unwrap();
    for round in 0..8 {
        let mut child = Child::start("writer", &directory, 1);
        let before = load(&fabric, region, 511);
        until("writing", || {
            events(&mut fabric);
            load(&fabric, region, 511) != before && load(&fabric, region, 511) > round * 17
        });
        child.kill();
        until("gone", || {
            events(&mut fabric);
            fabric.state(qp) == QpState::Error
        });
        // If the child was killed in the middle of a write, some words hold the next number already.
        let (first, last) = (load(&fabric, region, 0), load(&fabric, region, 511));
        assert!(first.abs_diff(last) <= 1, "{first} {last}");
        fabric.reset(qp).unwrap();
    }
}

#[test]
fn write_wakes_a_sleeping_process_and_a_stopped_one_blocks_nobody() {
    let directory = TestDirectory::new();
    let mut fabric = ShmFabric::start(config(&directory.0, 0, 2)).unwrap();
    let own = region(&mut fabric, 1, Access::Write);
    let qp = fabric.connect(ProcessId(1), SERVICE, QpConfig::reliable(4, 0)).unwrap();
    let mut child = Child::start("echo", &directory, 1);
    until("ready", || {
        events(&mut fabric);
        child.line().is_some()
    });
    let region = fabric.resolve(ProcessId(1), PURPOSE).unwrap();
    let target = stentor_fabric::RemoteSpan { region, offset: 0 };
    let mut backoff = stentor_fabric::Backoff::new(WaitMode::BLOCK);
    let since = std::time::Instant::now();
    for value in 1..=300 {
        write(&mut fabric, qp, value, target, &[value], true).unwrap();
        poll(&mut fabric);
        loop {
            let back = load(&fabric, own, 0) == value;
            backoff.pause(&mut fabric, back, Duration::from_secs(10)).unwrap();
            if back {
                break;
            }
        }
    }
    // Sleeps are bounded by 100 ms. Without wake-ups this would take half a minute.
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    let pid = rustix::process::Pid::from_raw(child.pid()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    write(&mut fabric, qp, 999, target, &[999], true).unwrap();
    assert_eq!(ends(&poll(&mut fabric)), [(999, Status::Success)]);
    drop(fabric);
    child.kill();
}

#[test]
fn messages_sent_before_a_peer_ended_are_received_and_its_regions_are_removed() {
    let mut pair = Pair::new(QpConfig::reliable(4, 4));
    let local = staging(&mut pair.b, 9);
    let back = pair.b.resolve(ProcessId(0), PURPOSE).unwrap();
    for id in 1..=3 {
        pair.b.post_recv(pair.qp_b, span(local, 0, 64), id).unwrap();
    }
    send(&mut pair.a, pair.qp_a, 1, b"the last words", None);
    drop(pair.a);
    until("notified", || events(&mut pair.b) == [Event::Disconnected { qp: pair.qp_b, peer: ProcessId(0) }]);
    assert_eq!(ends(&poll(&mut pair.b)), [(1, Status::Success), (2, Status::Flushed), (3, Status::Flushed)]);
    assert_eq!(pair.b.resolve(ProcessId(0), PURPOSE), None);
    // The peer's next life has the same name, but its region has another key.
    pair.a = ShmFabric::start(config(&pair.directory.0, 0, 3)).unwrap();
    region(&mut pair.a, 1, Access::Write);
    pair.qp_a = pair.a.connect(ProcessId(1), SERVICE, QpConfig::reliable(4, 4)).unwrap();
    pair.b.reset(pair.qp_b).unwrap();
    pair.until_ready();
    assert_ne!(pair.b.resolve(ProcessId(0), PURPOSE).unwrap().key, back.key);
    let target = stentor_fabric::RemoteSpan { region: back, offset: 0 };
    write(&mut pair.b, pair.qp_b, 7, target, &[1], true).unwrap();
    assert_eq!(ends(&poll(&mut pair.b)), [(7, Status::RemoteAccess)]);
}

#[test]
fn messages_sent_before_a_break_are_received() {
    let mut pair = Pair::new(QpConfig::reliable(4, 4));
    let local = staging(&mut pair.b, 9);
    pair.b.post_recv(pair.qp_b, span(local, 0, 64), 1).unwrap();
    pair.b.post_recv(pair.qp_b, span(local, 0, 64), 2).unwrap();
    send(&mut pair.a, pair.qp_a, 1, b"before", None);
    pair.write(2, BYTES, &[1], true);
    assert_eq!(ends(&poll(&mut pair.a)), [(1, Status::Success), (2, Status::RemoteAccess)]);
    events(&mut pair.a);
    until("notified", || events(&mut pair.b) == [Event::Disconnected { qp: pair.qp_b, peer: ProcessId(0) }]);
    assert_eq!(ends(&poll(&mut pair.b)), [(1, Status::Success), (2, Status::Flushed)]);
}
