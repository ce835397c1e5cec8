//! The suite that every fabric passes, on the kernel's Soft-RoCE: all processes on one device. Ignored unless asked for: it
//! needs that device, which `cargo xtask test --only verbs` makes in a guest.

mod processes;

use std::net::SocketAddr;
use std::time::Duration;

use processes::{addresses, start};
use stentor_fabric::ProcessId;
use stentor_fabric::conformance::{Testbed, suite};
use stentor_fabric_verbs::{VerbsConfig, VerbsFabric};

struct Bed {
    fabrics: Vec<Option<VerbsFabric>>,
    addresses: Vec<Option<SocketAddr>>,
    change: fn(&mut VerbsConfig),
}

impl Bed {
    fn new(count: usize, change: fn(&mut VerbsConfig)) -> Bed {
        let fabrics = (0..count).map(|_| None).collect();
        let mut bed = Bed { fabrics, addresses: addresses(count), change };
        (0..count as u16).for_each(|process| bed.restart(ProcessId(process)));
        bed
    }
}

impl Testbed for Bed {
    type F = VerbsFabric;

    fn processes(&self) -> usize {
        self.fabrics.len()
    }

    fn fabric(&mut self, process: ProcessId) -> &mut VerbsFabric {
        self.fabrics[process.index()].as_mut().expect("it is up")
    }

    /// The kernel works while this process does not.
    fn advance(&mut self) {
        std::thread::sleep(Duration::from_micros(20));
    }

    /// A round takes the guest most of a millisecond, and packets come while they are sent.
    fn settling(&self) -> usize {
        50
    }

    /// As far as that goes inside one process.
    fn crash(&mut self, process: ProcessId) {
        self.fabrics[process.index()] = None;
    }

    fn restart(&mut self, process: ProcessId) {
        self.fabrics[process.index()] = Some(start(process, &self.addresses, self.change));
    }
}

#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn the_suite() {
    let report = suite(|count| Bed::new(count, |_| {}));
    println!("{report}");
    report.assert_ok();
    let skipped = [
        "link::survives_a_cut",
        "tagged::exact_and_masked",
        "tagged::unexpected_messages_wait",
        "tagged::masks_find_what_came_early",
        "tagged::cancelled_receives_come_back",
    ];
    // Nothing here copies for a set.
    let others: Vec<_> = report.skipped().into_iter().filter(|case| !case.starts_with("set::")).collect();
    assert_eq!(others, skipped);
}
