//! Reports of deaths by the kernel.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::futex;
use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric::{Access, Fabric, ProcessId, QpConfig, QpId, QpState, Service, Wake};
use stentor_host::memfd;

use super::child::Child;
use super::support::*;
use crate::ShmFabric;
use crate::life::{Life, LifeWord};
use crate::mapping::{Mapping, ReadMapping};
use crate::message::Message;

/// A message without effect.
const NOTHING: Message = Message::Withdraw { service: Service(99), epoch: 0 };

/// A process, and a child with so much memory that the kernel needs a while to free it.
struct Family {
    fabric: ShmFabric,
    qp: QpId,
    child: Child,
    directory: TestDirectory,
}

impl Family {
    fn start() -> Family {
        let directory = TestDirectory::new();
        let mut fabric = ShmFabric::start(config(&directory.0, 0, 2)).unwrap();
        region(&mut fabric, 1, Access::Write);
        let qp = fabric.connect(ProcessId(1), SERVICE, QpConfig::reliable(4, 4)).unwrap();
        let child = Child::start("large", &directory, 1);
        let mut family = Family { fabric, qp, child, directory };
        family.meet();
        family
    }

    fn meet(&mut self) {
        until("ready", || {
            events(&mut self.fabric);
            self.child.line().is_some()
        });
    }

    /// Kills the child without waiting for its end, because waiting would reveal that it has ended.
    fn kill(&self) {
        kill(self.child.pid());
    }

    fn restart(&mut self) {
        until("its connection has ended", || {
            events(&mut self.fabric);
            self.fabric.state(self.qp) == QpState::Error
        });
        self.child = Child::start("large", &self.directory, 1);
        self.fabric.reset(self.qp).unwrap();
        self.meet();
    }
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn death_is_reported_before_the_connection_ends_and_not_for_the_next_life() {
    let mut family = Family::start();
    for _ in 0..3 {
        assert!(!family.fabric.has_died(ProcessId(1)));
        family.kill();
        let (mut told, mut ended) = (None, None);
        until("it is over", || {
            told = told.or_else(|| family.fabric.has_died(ProcessId(1)).then(Instant::now));
            events(&mut family.fabric);
            ended = (family.fabric.state(family.qp) == QpState::Error).then(Instant::now);
            ended.is_some()
        });
        assert!(told.is_some_and(|told| Some(told) < ended), "{told:?} {ended:?}");
        assert!(family.fabric.has_died(ProcessId(1)), "it is still dead");
        family.restart();
    }
}

/// Tests the sleep on the wait word and the sleep on the control sockets.
#[test]
fn death_wakes_a_sleeping_process() {
    let mut family = Family::start();
    for uses_fd in [false, true] {
        family.fabric.fd_used.set(uses_fd);
        // A busy host may run the life thread late, so one success of 20 suffices.
        let woken = (0..20).any(|_| {
            events(&mut family.fabric);
            family.fabric.arm();
            let pid = family.child.pid();
            // Wait until this thread sleeps in the kernel, because before that it checks its wait word itself.
            let killer = thread::spawn(move || {
                thread::sleep(Duration::from_millis(20));
                kill(pid);
            });
            assert_eq!(family.fabric.wait(Duration::from_secs(20)), Ok(Wake::Notified));
            let in_time = family.fabric.has_died(ProcessId(1)) && family.fabric.state(family.qp) == QpState::Ready;
            killer.join().unwrap();
            family.restart();
            in_time
        });
        assert!(woken, "uses the descriptor: {uses_fd}");
    }
}

#[test]
fn orderly_end_of_a_process_is_reported_too() {
    let pair = Pair::new(QpConfig::reliable(4, 4));
    assert!(!pair.b.has_died(ProcessId(0)));
    drop(pair.a);
    assert!(pair.b.has_died(ProcessId(0)));
}

/// Returns the pages of a process: its own view of its life words, the peers' view of them, and the page on which it
/// sleeps.
fn pages(processes: u16) -> (Arc<Mapping>, Arc<ReadMapping>, Arc<Mapping>) {
    let words = usize::from(processes) + 5;
    let fd = memfd::create("stentor-test", (words * WORD) as u64).unwrap();
    let own = Arc::new(Mapping::shared(fd.as_fd(), words, false).unwrap());
    let seen = Arc::new(ReadMapping::shared(fd.as_fd(), words).unwrap());
    (own, seen, Arc::new(Mapping::private(8, false).unwrap()))
}

#[test]
fn every_peer_has_a_word_up_to_the_longest_list() {
    let (own, seen, wait) = pages(3000);
    assert!(LifeWord::find(&seen, ProcessId(0), 3000).is_none(), "nobody holds it");
    let life = Life::begin(&own, &wait, 3000).unwrap();
    let find = |peer| LifeWord::find(&seen, ProcessId(peer), 3000);
    let words: Vec<LifeWord> = (0..3000).filter_map(find).collect();
    assert_eq!(words.len(), 2048);
    assert!(words.iter().all(|word| !word.is_marked()));
    drop(life);
    assert!(words.iter().all(LifeWord::is_marked));
    assert!(LifeWord::find(&seen, ProcessId(0), 6000).is_none(), "the page is too short");
    assert_eq!(own.words()[..5].iter().map(|word| word.load(Ordering::Relaxed)).sum::<u64>(), 0, "not its own");
}

#[test]
fn peer_whose_word_changes_without_a_death_is_no_longer_watched() {
    let ((own, _, wait), (rogue, seen, _)) = (pages(2), pages(2));
    let life = Life::begin(&own, &wait, 2).unwrap();
    let word = &rogue.words()[5 + 1];
    word.store(77, Ordering::Relaxed);
    life.watch(ProcessId(0), LifeWord::find(&seen, ProcessId(1), 2).unwrap());
    assert_eq!(life.waits_for(), 1);
    word.store(78, Ordering::Relaxed);
    // The change woke nobody, so the thread finds it at the next change of the watched peers.
    life.forget(ProcessId(1));
    until("it gave that up", || life.waits_for() == 0);
}

/// Returns whether the thread rings within 100 ms.
fn rings(life: &Life) -> bool {
    let signal = life.event();
    let patience = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    poll(&mut [PollFd::new(&signal, PollFlags::IN)], Some(&patience)).unwrap() > 0
}

/// Returns a page on which `peers` peers seem to live.
fn crowd(peers: u16) -> (Arc<Mapping>, Arc<ReadMapping>) {
    let (rogue, seen, _) = pages(peers);
    rogue.words()[5..].iter().for_each(|word| word.store(77, Ordering::Relaxed));
    (rogue, seen)
}

/// Marks a word as the kernel does.
fn mark(page: &Mapping, word: usize) {
    page.words()[word].store(u64::from(libc::FUTEX_OWNER_DIED | libc::FUTEX_WAITERS), Ordering::Relaxed);
    let _ = futex::wake(page.futex_at(word), futex::Flags::empty(), 1);
}

#[test]
fn mark_during_a_look_wakes_the_process() {
    for round in 0..500 {
        let ((own, _, wait), (rogue, seen)) = (pages(2), crowd(120));
        let life = Life::begin(&own, &wait, 2).unwrap();
        for peer in (0..120).map(ProcessId) {
            life.watch(peer, LifeWord::find(&seen, peer, 120).unwrap());
        }
        // The thread looks again. In each round the mark arrives a little later during that look.
        life.forget(ProcessId(999));
        (0..round).for_each(|_| std::hint::spin_loop());
        mark(&rogue, 5);
        assert!(rings(&life), "round {round}");
    }
}

#[test]
fn peers_with_the_smallest_ids_are_watched_if_there_are_too_many() {
    let ((own, _, wait), (rogue, seen)) = (pages(2), crowd(200));
    let life = Life::begin(&own, &wait, 2).unwrap();
    for peer in (0..200).rev().map(ProcessId) {
        life.watch(peer, LifeWord::find(&seen, peer, 200).unwrap());
    }
    // Wait until the thread sleeps, because a thread that checks the words would see all marks.
    std::thread::sleep(Duration::from_millis(100));
    mark(&rogue, 5);
    assert!(rings(&life));
}

#[test]
fn life_thread_blocks_the_signals_of_the_process() {
    let (own, _, wait) = pages(2);
    let _life = Life::begin(&own, &wait, 2).unwrap();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let statuses = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let blocked = statuses.filter(|status| status.starts_with("Name:\tstentor-life\n")).map(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).unwrap();
        u64::from_str_radix(line, 16).unwrap() >> (Signal::TERM.as_raw() - 1) & 1 == 1
    });
    let blocked: Vec<bool> = blocked.collect();
    assert!(!blocked.is_empty() && blocked.iter().all(|blocks| *blocks), "{blocked:?}");
}

#[test]
fn process_that_drops_a_slow_peer_is_not_reported_dead() {
    let mut pair = Pair::new(QpConfig::reliable(4, 4));
    for _ in 0..6000 {
        pair.a.control.send(ProcessId(1), &NOTHING, &[]);
    }
    pair.a.pump();
    assert!(pair.a.peer_pid(ProcessId(1)).is_none(), "it gave the peer up");
    let mut told = false;
    until("the peer has heard of that", || {
        pair.b.pump();
        told |= pair.b.has_died(ProcessId(0));
        pair.b.peer_pid(ProcessId(0)).is_none()
    });
    assert!(!told);
}

#[test]
fn death_stays_reported_when_a_send_ends_the_connection() {
    let mut pair = Pair::new(QpConfig::reliable(4, 4));
    drop(pair.a);
    pair.b.control.send(ProcessId(0), &NOTHING, &[]);
    pair.b.drain();
    assert!(pair.b.peer_pid(ProcessId(0)).is_none());
    assert!(pair.b.has_died(ProcessId(0)));
}
