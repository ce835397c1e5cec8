//! The contract's own suite, over several fabrics of this process.

use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric::conformance::{Testbed, suite};

use super::support::{TestDirectory, config};
use crate::{ShmConfig, ShmFabric};

struct Host {
    fabrics: Vec<ShmFabric>,
    _directory: TestDirectory,
}

impl Testbed for Host {
    type F = ShmFabric;

    fn processes(&self) -> usize {
        self.fabrics.len()
    }

    fn fabric(&mut self, process: ProcessId) -> &mut ShmFabric {
        &mut self.fabrics[process.index()]
    }

    fn advance(&mut self) {
        std::thread::yield_now();
    }
}

#[test]
fn the_suite_passes_and_skips_only_tagged_messages() {
    let report = suite(|processes| {
        let directory = TestDirectory::new();
        let start = |me| {
            let rnr_timeout = Duration::from_millis(20);
            let config = ShmConfig { rnr_timeout, janitor: false, ..config(&directory.0, me, processes as u16) };
            ShmFabric::start(config).unwrap()
        };
        Host { fabrics: (0..processes as u16).map(start).collect(), _directory: directory }
    });
    report.assert_ok();
    assert_eq!(report.skipped(), ["tagged::exact_and_masked", "tagged::unexpected_messages_wait"]);
}
