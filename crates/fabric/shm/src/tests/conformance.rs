//! The contract's conformance suite, over several fabrics of this process.

use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_conformance::{Processes, suite, suite_of};

use super::support::{TestDirectory, config};
use crate::{ShmConfig, ShmFabric};

/// All processes are in this thread, so nothing else needs to run for progress. `restart.rs` tests processes that are
/// killed.
fn bed(processes: usize, repeats: u64) -> Processes<ShmFabric> {
    let directory = TestDirectory::new();
    let start = move |process: ProcessId| {
        let base = config(&directory.0, process.0, processes as u16);
        let config = ShmConfig { rnr_timeout: Duration::from_millis(20), janitor: false, ..base };
        ShmFabric::start(config).unwrap()
    };
    Processes { patience: 400_000, repeats, ..Processes::start(processes, start) }
}

#[test]
fn suite_passes_and_skips_only_unsupported_cases() {
    let report = suite(|processes| bed(processes, 8));
    report.assert_ok();
    let (sets, others): (Vec<_>, Vec<_>) = report.skipped().into_iter().partition(|case| case.starts_with("set::"));
    let cut_and_tags = [
        "link::survives_a_cut",
        "tagged::exact_and_masked_tags_match",
        "tagged::unexpected_messages_wait",
        "tagged::masks_match_unexpected_messages",
        "tagged::cancelled_receives_complete_once",
    ];
    assert_eq!(others, cut_and_tags);
    assert!(!sets.contains(&"set::refused_without_the_capability"), "{sets:?}");
}

#[test]
fn repeatable_cases_pass_200_times() {
    let topics = ["restart::", "link::", "fence::", "heartbeat::"];
    let wanted = |case: &str| topics.iter().any(|topic| case.starts_with(topic));
    suite_of(|processes| bed(processes, 200), wanted).assert_ok();
}
