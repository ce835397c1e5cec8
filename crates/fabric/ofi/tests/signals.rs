//! Checks the signal handlers after libfabric is loaded. The test has its own process, because the library is loaded
//! only once per process.

use std::fs;

use stentor_fabric_ofi::{Libfabric, Needs, Wish, choose};

/// Returns the masks of caught signals and of ignored signals.
fn answers() -> Vec<String> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().filter(|line| line.starts_with("SigCgt") || line.starts_with("SigIgn")).map(str::to_owned).collect()
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn loading_libfabric_keeps_the_signal_handlers() {
    let before = answers();
    assert_eq!(before.len(), 2, "{before:?}");
    let library = Libfabric::load().expect("libfabric loads; otherwise: apt-get install libfabric1");
    let wish = Wish { provider: None, address: None, device: None, turn: 0, same_host: true };
    choose(library, &wish, Needs::default()).expect("a provider");
    assert_eq!(answers(), before);
}
