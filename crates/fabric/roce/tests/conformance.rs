//! Runs the conformance suite of all fabrics over real sockets on 127.x.y.z:4791: on a good network, on a faulty
//! network, and with the packet sizes of an Ethernet.

use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_conformance::{Processes, loopback_addresses, suite, suite_of};
use stentor_fabric_roce::driver::Chances;
use stentor_fabric_roce::{NetConfig, RoceConfig, RoceFabric};

/// TCP port of the control connections.
const TCP_PORT: u16 = 4791;

fn bed(count: usize, change: fn(&mut RoceConfig)) -> Processes<RoceFabric> {
    let addresses = loopback_addresses(count, TCP_PORT);
    let start = move |process: ProcessId| {
        let net = NetConfig::new("test", process, addresses.clone()).key(*b"a key of this test");
        // Some cases wait until a queue pair fails because of this timeout.
        let rnr_timeout = Duration::from_millis(60);
        let mut config = RoceConfig { rnr_timeout, seed: process.0.into(), ..RoceConfig::default() };
        change(&mut config);
        RoceFabric::start(net, config).unwrap_or_else(|error| panic!("{error}"))
    };
    // Drive the fabric between calls, as a NIC would make progress while its process does other work.
    Processes { drive: RoceFabric::drive, patience: 400_000, ..Processes::start(count, start) }
}

#[test]
fn suite_passes() {
    suite(|count| bed(count, |_| {})).assert_ok();
}

#[test]
fn suite_passes_with_ethernet_packets() {
    suite(|count| bed(count, |config| config.mtu = Some(1024))).assert_ok();
}

const BAD: Chances = Chances { drop: 0.02, duplicate: 0.02, reorder: 0.02, corrupt: 0.02, delay: 0 };

/// Omits slow cases, in which a queue pair fails by a timeout, and cases that need order on unreliable connections.
#[test]
fn suite_passes_on_a_faulty_network() {
    let topics = ["write::", "read::", "ring::", "send::all", "atomic::", "imm::data", "queue::one", "source::"];
    let make = |count| Processes { pause: Duration::from_micros(50), ..bed(count, |config| config.chances = BAD) };
    let report = suite_of(make, |name| topics.iter().any(|topic| name.starts_with(topic)));
    report.assert_ok();
}
