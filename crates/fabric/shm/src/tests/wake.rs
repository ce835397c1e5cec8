//! Sleeping and waking, between threads.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll as poll_fds};
use rustix::fs::Timespec;
use stentor_fabric::{Access, Backoff, Fabric, ProcessId, QpConfig, RemoteSpan, Status, WaitMode, Wake};

use super::support::*;
use crate::ShmFabric;

const QP: QpConfig = QpConfig::reliable(16, 4);

/// Passes a number back and forth. Each side sleeps until it arrives.
fn ping_pong(fabric: &mut ShmFabric, turn: u64, rounds: u64) {
    let peer = ProcessId(1 - fabric.me().0);
    let target = RemoteSpan { region: fabric.resolve(peer, PURPOSE).unwrap(), offset: 0 };
    let (qp, own) = (stentor_fabric::QpId(0), stentor_fabric::RegionId(0));
    let mut backoff = Backoff::new(WaitMode::BLOCK);
    for round in (turn..rounds).step_by(2) {
        while round > 0 && load(fabric, own, 0) < round {
            backoff.pause(fabric, false, Duration::from_secs(20)).unwrap();
        }
        backoff.pause(fabric, true, Duration::ZERO).unwrap();
        write(fabric, qp, round, target, &[round + 1], true).unwrap();
        while poll(fabric).is_empty() {}
    }
}

#[test]
fn no_wake_up_is_lost() {
    let Pair { mut a, mut b, directory, .. } = Pair::new(QP);
    let since = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| ping_pong(&mut a, 0, 20_000));
        scope.spawn(|| ping_pong(&mut b, 1, 20_000));
    });
    // Each lost wake-up costs 100 ms. The delays of a busy machine stay below the limit.
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
    drop(directory);
}

#[test]
fn only_data_that_lands_after_arming_wakes() {
    let mut pair = Pair::new(QP);
    events(&mut pair.b);
    let since = Instant::now();
    pair.b.arm();
    assert_eq!(pair.b.wait(Duration::from_millis(30)), Ok(Wake::TimedOut));
    assert!(since.elapsed() >= Duration::from_millis(30));
    pair.b.arm();
    pair.write(1, 0, &[1], true);
    pair.a.flush();
    let since = Instant::now();
    assert_eq!(pair.b.wait(Duration::from_secs(20)), Ok(Wake::Notified));
    assert!(since.elapsed() < Duration::from_secs(5));
}

/// A quiet write lands and completes like any other, but does not end the peer's sleep. The next write that is not
/// quiet does.
#[test]
fn a_quiet_write_lands_and_wakes_nobody() {
    let mut pair = Pair::new(QP);
    events(&mut pair.b);
    let quiet = |pair: &mut Pair, id: u64| {
        let target = RemoteSpan { region: pair.at_b(), offset: 0 };
        pair.a.write_quietly(pair.qp_a, id, &id.to_ne_bytes(), target, true).unwrap();
        assert_eq!(ends(&poll(&mut pair.a)), [(id, Status::Success)]);
    };
    pair.b.arm();
    quiet(&mut pair, 1);
    assert_eq!(pair.b.wait(Duration::from_millis(30)), Ok(Wake::TimedOut));
    assert_eq!(pair.word_b(0), 1);
    pair.b.arm();
    quiet(&mut pair, 2);
    pair.write(3, 8, &[3], true);
    assert_eq!(ends(&poll(&mut pair.a)), [(3, Status::Success)]);
    assert_eq!(pair.b.wait(Duration::from_secs(20)), Ok(Wake::Notified));
    pair.b.revoke(pair.region_b, ProcessId(0)).unwrap();
    let target = RemoteSpan { region: pair.at_b(), offset: 0 };
    pair.a.write_quietly(pair.qp_a, 4, &[4; 8], target, true).unwrap();
    assert_eq!(ends(&poll(&mut pair.a)), [(4, Status::RemoteAccess)], "it is fenced like any other");
}

#[test]
fn a_control_event_ends_the_sleep() {
    let mut pair = Pair::new(QP);
    pair.b.arm();
    drop(pair.a);
    assert_eq!(pair.b.wait(Duration::from_secs(20)), Ok(Wake::Notified));
    assert_eq!(events(&mut pair.b).len(), 1);
}

fn readable(fabric: &ShmFabric) -> bool {
    let fd = fabric.descriptor().unwrap();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll_fds(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}

#[test]
fn the_descriptor_becomes_readable_when_something_lands_after_arming() {
    let mut pair = Pair::new(QP);
    for value in 1..10 {
        assert!(!readable(&pair.b) || value > 1);
        pair.b.arm();
        assert!(!readable(&pair.b), "round {value}");
        pair.write(value, 0, &[value], true);
        poll(&mut pair.a);
        until("readable", || readable(&pair.b));
        assert_eq!(pair.word_b(0), value);
    }
}

/// A ring must not cost a receive from each control socket.
#[test]
fn ring_makes_no_control_socket_readable() {
    let mut pair = Pair::new(QP);
    assert!(readable(&pair.b) || pair.b.fd_used.get(), "it sleeps on its epoll instance");
    for value in 1..10 {
        pair.b.arm();
        pair.write(value, 0, &[value], true);
        poll(&mut pair.a);
        until("readable", || readable(&pair.b));
        assert_eq!(pair.b.control.readable(Duration::ZERO), Ok(false), "round {value}");
        assert!(pair.b.control.has_taken_ring);
        assert_eq!(pair.b.wait(Duration::ZERO), Ok(Wake::Notified));
        assert!(!readable(&pair.b), "nothing is left");
    }
}

#[test]
fn nonsense_in_the_wait_word_costs_a_bounded_sleep() {
    let mut pair = Pair::new(QP);
    let bell = pair.a.data.bells[1].take().unwrap();
    pair.b.arm();
    // Clear the word as a rogue may do: the sleeper sees no ring, and the ringing process sees no sleeper.
    bell.word.words()[0].store(0, stentor_fabric::memory::Ordering::SeqCst);
    pair.write(1, 0, &[1], false);
    pair.a.flush();
    assert_eq!(pair.b.wait(Duration::from_secs(20)), Ok(Wake::Notified));
    for nonsense in [1, 2, 3, u64::MAX] {
        bell.word.words()[0].store(nonsense, stentor_fabric::memory::Ordering::SeqCst);
        bell.ring();
        assert_eq!(bell.word.words()[0].load(stentor_fabric::memory::Ordering::SeqCst), 0);
    }
    let _ = region(&mut pair.b, 2, Access::Read);
    let since = Instant::now();
    pair.b.arm();
    assert_eq!(pair.b.wait(Duration::from_millis(250)), Ok(Wake::TimedOut));
    assert!(since.elapsed() < Duration::from_secs(5));
}
