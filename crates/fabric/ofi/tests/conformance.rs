//! The suite that every fabric passes, on the providers of libfabric that work between processes of one host.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use stentor_fabric::{Fabric, ProcessId};
use stentor_fabric_conformance::{Report, Testbed, suite_of};
use stentor_fabric_ofi::{NetConfig, OfiConfig, OfiFabric};

/// Bootstrap connections.
const TCP_PORT: u16 = 4795;

/// Addresses of this host that no other test has: by process and by testbed.
fn addresses(count: usize) -> Vec<Option<SocketAddr>> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let bed = NEXT.fetch_add(1, Ordering::Relaxed);
    let second = 64 + (std::process::id() % 128) as u8;
    let [high, low] = bed.to_be_bytes();
    let address = |n: usize| Ipv4Addr::new(127, second, low, high << 6 | (n as u8 + 1));
    (0..count).map(|n| Some(SocketAddr::new(address(n).into(), TCP_PORT))).collect()
}

struct Bed {
    // Dropped before their addresses are used again.
    fabrics: Vec<Option<OfiFabric>>,
    addresses: Vec<Option<SocketAddr>>,
    provider: &'static str,
}

impl Bed {
    fn new(count: usize, provider: &'static str) -> Bed {
        let fabrics = (0..count).map(|_| None).collect();
        let mut bed = Bed { fabrics, addresses: addresses(count), provider };
        (0..count as u16).for_each(|process| bed.restart(ProcessId(process)));
        bed
    }
}

impl Testbed for Bed {
    type F = OfiFabric;

    fn processes(&self) -> usize {
        self.fabrics.len()
    }

    fn fabric(&mut self, process: ProcessId) -> &mut OfiFabric {
        self.fabrics[process.index()].as_mut().expect("it is up")
    }

    fn advance(&mut self) {
        self.fabrics.iter_mut().flatten().for_each(OfiFabric::drive);
    }

    fn crash(&mut self, process: ProcessId) {
        self.fabrics[process.index()] = None;
    }

    fn restart(&mut self, process: ProcessId) {
        let net = NetConfig::new("test", process, self.addresses.clone()).key(*b"a key of this test");
        let mut config = OfiConfig::default();
        config.providers = vec![self.provider.to_owned()];
        // Cases wait for a queue pair that gives up.
        config.rnr_timeout = Duration::from_millis(100);
        // A machine that does something else at the same time is slow, not silent.
        config.fence_timeout = Duration::from_secs(5);
        let fabric = OfiFabric::start(net, config).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(fabric.device().provider().provider(), self.provider);
        self.fabrics[process.index()] = Some(fabric);
    }

    fn repeats(&self) -> u64 {
        4
    }

    fn patience(&self) -> usize {
        400_000
    }
}

/// Runs the suite, or what `STENTOR_CASES` names.
fn suite(provider: &'static str) -> Report {
    // One after the other: they measure time.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let only = std::env::var("STENTOR_CASES").unwrap_or_default();
    let bed = Bed::new(1, provider).fabric(ProcessId(0)).capabilities().clone();
    println!("{provider}: {bed:?}");
    let make = |count| Bed::new(count, provider);
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
