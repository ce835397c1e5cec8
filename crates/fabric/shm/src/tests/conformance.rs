//! The contract's own suite, over several fabrics of this process.

use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_conformance::{Testbed, suite, suite_of};

use super::support::{TestDirectory, config};
use crate::{ShmConfig, ShmFabric};

struct Host {
    fabrics: Vec<Option<ShmFabric>>,
    directory: TestDirectory,
    repeats: u64,
}

impl Host {
    fn new(processes: usize, repeats: u64) -> Self {
        let fabrics = (0..processes).map(|_| None).collect();
        let mut host = Host { fabrics, directory: TestDirectory::new(), repeats };
        (0..processes as u16).for_each(|process| host.restart(ProcessId(process)));
        host
    }
}

impl Testbed for Host {
    type F = ShmFabric;

    fn processes(&self) -> usize {
        self.fabrics.len()
    }

    fn fabric(&mut self, process: ProcessId) -> &mut ShmFabric {
        self.fabrics[process.index()].as_mut().expect("it is up")
    }

    fn advance(&mut self) {
        // Nobody else has to run for something to happen: all processes are in this thread.
        std::hint::spin_loop();
    }

    fn patience(&self) -> usize {
        400_000
    }

    fn repeats(&self) -> u64 {
        self.repeats
    }

    /// As far as that goes inside one process: see `restart.rs` for processes that are killed.
    fn crash(&mut self, process: ProcessId) {
        self.fabrics[process.index()] = None;
    }

    fn restart(&mut self, process: ProcessId) {
        let base = config(&self.directory.0, process.0, self.fabrics.len() as u16);
        let config = ShmConfig { rnr_timeout: Duration::from_millis(20), janitor: false, ..base };
        self.fabrics[process.index()] = Some(ShmFabric::start(config).unwrap());
    }
}

#[test]
fn the_suite_passes_and_skips_only_what_shared_memory_has_not() {
    let report = suite(|processes| Host::new(processes, 8));
    report.assert_ok();
    let (sets, others): (Vec<_>, Vec<_>) = report.skipped().into_iter().partition(|case| case.starts_with("set::"));
    let cut_and_tags = [
        "link::survives_a_cut",
        "tagged::exact_and_masked",
        "tagged::unexpected_messages_wait",
        "tagged::masks_find_what_came_early",
        "tagged::cancelled_receives_come_back",
    ];
    assert_eq!(others, cut_and_tags);
    assert!(!sets.contains(&"set::refused_where_there_are_none"), "{sets:?}");
}

#[test]
fn what_must_work_any_number_of_times_works_200_times() {
    let topics = ["restart::", "link::", "fence::", "heartbeat::"];
    let wanted = |case: &str| topics.iter().any(|topic| case.starts_with(topic));
    suite_of(|processes| Host::new(processes, 200), wanted).assert_ok();
}
