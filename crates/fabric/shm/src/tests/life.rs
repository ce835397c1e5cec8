//! Deaths, as the kernel tells them.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric::{Access, Fabric, ProcessId, QpConfig, QpId, QpState, Wake};
use stentor_host::memfd;

use super::child::Child;
use super::support::*;
use crate::ShmFabric;
use crate::life::{Life, LifeWord};
use crate::mapping::{Mapping, ReadMapping};

/// A process and a child that has much memory, which takes the kernel a while to take apart.
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

    /// The signal alone: who waits for a child's end learns that it has ended.
    fn kill(&self) {
        kill_process(Pid::from_raw(self.child.pid()).unwrap(), Signal::KILL).unwrap();
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

#[test]
fn a_death_is_told_before_the_connection_ends_and_not_of_the_next_life() {
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

/// On the wait word, and on the control sockets.
#[test]
fn a_death_wakes_whoever_sleeps() {
    let mut family = Family::start();
    for uses_fd in [false, true] {
        family.fabric.fd_used.set(uses_fd);
        // A busy host may let the life thread run late.
        let woken = (0..20).any(|_| {
            events(&mut family.fabric);
            family.fabric.arm();
            family.kill();
            assert_eq!(family.fabric.wait(Duration::from_secs(20)), Ok(Wake::Notified));
            let in_time = family.fabric.has_died(ProcessId(1)) && family.fabric.state(family.qp) == QpState::Ready;
            family.restart();
            in_time
        });
        assert!(woken, "uses the raw fd: {uses_fd}");
    }
}

#[test]
fn the_orderly_end_of_a_process_is_told_too() {
    let pair = Pair::new(QpConfig::reliable(4, 4));
    assert!(!pair.b.has_died(ProcessId(0)));
    drop(pair.a);
    assert!(pair.b.has_died(ProcessId(0)));
}

/// The pages of a process: its own view of its life words, what its peers see, and where it sleeps.
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
fn whose_word_changes_without_a_death_is_not_waited_for_any_more() {
    let ((own, _, wait), (rogue, seen, _)) = (pages(2), pages(2));
    let life = Life::begin(&own, &wait, 2).unwrap();
    let word = &rogue.words()[5 + 1];
    word.store(77, Ordering::Relaxed);
    life.watch(ProcessId(0), LifeWord::find(&seen, ProcessId(1), 2).unwrap());
    assert_eq!(life.waits_for(), 1);
    word.store(78, Ordering::Relaxed);
    // Nobody woke the thread for it: it finds that at the next change.
    life.forget(ProcessId(1));
    until("it gave that up", || life.waits_for() == 0);
}
