//! Runs the conformance suite of all fabrics on the libfabric providers that work between processes of one host.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use stentor_fabric::{Fabric, ProcessId};
use stentor_fabric_conformance::{Processes, Report, Testbed, loopback_addresses, suite_of};
use stentor_fabric_ofi::{NetConfig, OfiConfig, OfiFabric};

/// Port of the control connections.
const TCP_PORT: u16 = 4795;

fn bed(count: usize, provider: &'static str) -> Processes<OfiFabric> {
    let addresses = loopback_addresses(count, TCP_PORT);
    let start = move |process: ProcessId| {
        let net = NetConfig::new("test", process, addresses.clone()).key(*b"a key of this test");
        let config = OfiConfig {
            providers: vec![provider.to_owned()],
            // Some cases wait until a queue pair fails because of this timeout.
            rnr_timeout: Duration::from_millis(100),
            // On a busy machine, a peer that works may confirm a fence slowly.
            fence_timeout: Duration::from_secs(5),
            ..OfiConfig::default()
        };
        let fabric = OfiFabric::start(net, config).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(fabric.device().provider().provider(), provider);
        fabric
    };
    Processes { drive: OfiFabric::drive, repeats: 4, patience: 400_000, ..Processes::start(count, start) }
}

/// Runs the suite, or the cases whose names begin with the value of `STENTOR_CASES`.
fn suite(provider: &'static str) -> Report {
    // The suites run one after another because they measure time.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let only = std::env::var("STENTOR_CASES").unwrap_or_default();
    let capabilities = bed(1, provider).fabric(ProcessId(0)).capabilities().clone();
    println!("{provider}: {capabilities:?}");
    let make = |count| bed(count, provider);
    let report = suite_of(make, |name| name.starts_with(&only));
    println!("{report}");
    report
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn the_suite_on_tcp() {
    suite("tcp;ofi_rxm").assert_ok();
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn the_suite_on_shm() {
    suite("shm").assert_ok();
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn the_suite_on_sockets() {
    suite("sockets").assert_ok();
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn the_suite_on_udp() {
    suite("udp;ofi_rxd").assert_ok();
}
