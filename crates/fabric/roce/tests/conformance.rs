//! The suite that every fabric passes, over real sockets on 127.x.y.z:4791: on a good network, on a bad one, and with the
//! largest packets.

use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_conformance::{Processes, loopback_addresses, suite, suite_of};
use stentor_fabric_roce::driver::Chances;
use stentor_fabric_roce::{NetConfig, RoceConfig, RoceFabric};

/// Control connections.
const TCP_PORT: u16 = 4791;

fn bed(count: usize, change: fn(&mut RoceConfig)) -> Processes<RoceFabric> {
    let addresses = loopback_addresses(count, TCP_PORT);
    let start = move |process: ProcessId| {
        let net = NetConfig::new("test", process, addresses.clone()).key(*b"a key of this test");
        // Cases wait for a queue pair that gives up.
        let rnr_timeout = Duration::from_millis(60);
        let mut config = RoceConfig { rnr_timeout, seed: process.0.into(), ..RoceConfig::default() };
        change(&mut config);
        RoceFabric::start(net, config).unwrap_or_else(|error| panic!("{error}"))
    };
    // What NICs do while processes do something else.
    Processes { drive: RoceFabric::drive, patience: 400_000, ..Processes::start(count, start) }
}

#[test]
fn the_suite() {
    suite(|count| bed(count, |_| {})).assert_ok();
}

#[test]
fn the_suite_with_the_packets_of_an_ethernet() {
    suite(|count| bed(count, |config| config.mtu = Some(1024))).assert_ok();
}

const BAD: Chances = Chances { drop: 0.02, duplicate: 0.02, reorder: 0.02, corrupt: 0.02, delay: 0 };

/// What takes its time (a queue pair that gives up) is left out here, and so is what needs unreliable connections to be
/// in order.
#[test]
fn the_suite_on_a_bad_network() {
    let topics = ["write::", "read::", "ring::", "send::all", "atomic::", "imm::data", "queue::one", "source::"];
    let make = |count| Processes { pause: Duration::from_micros(50), ..bed(count, |config| config.chances = BAD) };
    let report = suite_of(make, |name| topics.iter().any(|topic| name.starts_with(topic)));
    report.assert_ok();
}
