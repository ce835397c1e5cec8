//! The suite that every fabric passes, over real sockets on 127.x.y.z:4791: on a good network, on a bad one, and with the
//! largest packets.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_conformance::{Testbed, suite, suite_of};
use stentor_fabric_roce::driver::Chances;
use stentor_fabric_roce::{NetConfig, RoceConfig, RoceFabric};

/// Bootstrap connections.
const TCP_PORT: u16 = 4791;

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
    fabrics: Vec<Option<RoceFabric>>,
    addresses: Vec<Option<SocketAddr>>,
    change: fn(&mut RoceConfig),
    slow: bool,
}

impl Bed {
    fn new(count: usize, change: fn(&mut RoceConfig)) -> Bed {
        let fabrics = (0..count).map(|_| None).collect();
        let mut bed = Bed { fabrics, addresses: addresses(count), change, slow: false };
        (0..count as u16).for_each(|process| bed.restart(ProcessId(process)));
        bed
    }
}

impl Testbed for Bed {
    type F = RoceFabric;

    fn processes(&self) -> usize {
        self.fabrics.len()
    }

    fn fabric(&mut self, process: ProcessId) -> &mut RoceFabric {
        self.fabrics[process.index()].as_mut().expect("it is up")
    }

    /// What NICs do while processes do something else.
    fn advance(&mut self) {
        self.fabrics.iter_mut().flatten().for_each(RoceFabric::drive);
        if self.slow {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// As far as that goes inside one process.
    fn crash(&mut self, process: ProcessId) {
        self.fabrics[process.index()] = None;
    }

    fn restart(&mut self, process: ProcessId) {
        let net = NetConfig::new("test", process, self.addresses.clone()).key(*b"a key of this test");
        let mut config = RoceConfig::default();
        // Cases wait for a queue pair that gives up.
        config.rnr_timeout = Duration::from_millis(60);
        config.seed = process.0.into();
        (self.change)(&mut config);
        self.fabrics[process.index()] = Some(RoceFabric::start(net, config).unwrap_or_else(|error| panic!("{error}")));
    }

    fn patience(&self) -> usize {
        400_000
    }
}

#[test]
fn the_suite() {
    suite(|count| Bed::new(count, |_| {})).assert_ok();
}

#[test]
fn the_suite_with_the_largest_packets() {
    suite(|count| Bed::new(count, |config| config.mtu = 4096)).assert_ok();
}

const BAD: Chances = Chances { drop: 0.02, duplicate: 0.02, reorder: 0.02, corrupt: 0.02, delay: 0 };

/// What takes its time (a queue pair that gives up) is left out here, and so is what needs unreliable connections to be
/// in order.
#[test]
fn the_suite_on_a_bad_network() {
    let topics = ["write::", "read::", "ring::", "send::all", "atomic::", "imm::data", "queue::one", "source::"];
    let make = |count| Bed { slow: true, ..Bed::new(count, |config| config.chances = BAD) };
    let report = suite_of(make, |name| topics.iter().any(|topic| name.starts_with(topic)));
    report.assert_ok();
}
