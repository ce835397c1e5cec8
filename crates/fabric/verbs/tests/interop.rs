//! Runs the conformance suite between the two RoCEv2 fabrics. One end is on the kernel's Soft-RoCE and the other in
//! user space, or the reverse. The tests are ignored by default because they need the devices and the network namespace
//! of `interop.sh`, which `cargo xtask test --only verbs-conformance` creates in a guest.

mod interop_end;
mod processes;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use interop_end::End;
use processes::{ADDRESS, KEY};
use stentor_fabric::ProcessId;
use stentor_fabric_conformance::{Testbed, suite};
use stentor_fabric_roce::{NetConfig, RoceConfig};

/// Base of the user-space processes' addresses. Process n has this address plus n.
const FAR: [u8; 4] = [10, 0, 0, 65];

/// Fabric of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Verbs,
    Roce,
}

struct Bed {
    /// Kinds of the processes with even and with odd ids.
    kinds: [Kind; 2],
    ends: Vec<Option<End>>,
    addresses: Vec<Option<SocketAddr>>,
}

impl Bed {
    fn new(count: usize, kinds: [Kind; 2]) -> Bed {
        let ends = (0..count).map(|_| None).collect();
        let mut bed = Bed { kinds, ends, addresses: addresses(count, kinds) };
        (0..count as u16).for_each(|process| bed.restart(ProcessId(process)));
        bed
    }
}

/// Returns the processes' addresses. Processes on verbs share one IP address, and each user-space process has its own.
/// No port is used twice.
fn addresses(count: usize, kinds: [Kind; 2]) -> Vec<Option<SocketAddr>> {
    static NEXT: AtomicU16 = AtomicU16::new(5000);
    let first = NEXT.fetch_add(count as u16, Ordering::Relaxed);
    let address = |n: usize| {
        let [a, b, c, d] = FAR;
        let ip = match kinds[n % 2] {
            Kind::Verbs => ADDRESS.parse().unwrap(),
            Kind::Roce => [a, b, c, d + n as u8].into(),
        };
        Some(SocketAddr::new(ip, first + n as u16))
    };
    (0..count).map(address).collect()
}

impl Testbed for Bed {
    type F = End;

    fn processes(&self) -> usize {
        self.ends.len()
    }

    fn fabric(&mut self, process: ProcessId) -> &mut End {
        self.ends[process.index()].as_mut().expect("the process is running")
    }

    /// Drives the user-space processes, and pauses so that the kernel can process packets.
    fn advance(&mut self) {
        self.ends.iter_mut().flatten().for_each(End::drive);
        std::thread::sleep(Duration::from_micros(20));
    }

    /// Returns the number of rounds to wait. Few rounds suffice, because each round takes almost a millisecond in the
    /// guest, and packets arrive while their sender is still sending.
    fn settling(&self) -> usize {
        50
    }

    /// Simulates a crash within this process by dropping the fabric.
    fn crash(&mut self, process: ProcessId) {
        self.ends[process.index()] = None;
    }

    fn restart(&mut self, process: ProcessId) {
        let end = match self.kinds[process.index() % 2] {
            Kind::Verbs => End::verbs(process, &self.addresses),
            Kind::Roce => {
                let net = NetConfig::new("test", process, self.addresses.clone()).key(KEY);
                // Some cases wait until a queue pair fails because of this timeout.
                End::roce(net, RoceConfig { rnr_timeout: Duration::from_millis(60), ..RoceConfig::default() })
            }
        };
        self.ends[process.index()] = Some(end);
    }

    /// Cuts the cable for packets that leave the end of process `from`. RDMA packets are then lost, and TCP data is
    /// delayed. Packets of other processes at the same end are lost, too, but no case depends on them.
    fn cut(&mut self, from: ProcessId, _: ProcessId) -> bool {
        tc(self.kinds[from.index() % 2], "add", &["netem", "loss", "100%"]);
        true
    }

    fn heal(&mut self, from: ProcessId, _: ProcessId) {
        tc(self.kinds[from.index() % 2], "del", &[]);
    }
}

/// Changes the queueing discipline for packets that leave one end of the cable.
fn tc(from: Kind, what: &str, discipline: &[&str]) {
    let (namespace, device): (&[&str], _) = match from {
        Kind::Verbs => (&[], "d0"),
        Kind::Roce => (&["-n", "far"], "d1"),
    };
    let mut command = Command::new("tc");
    command.args(namespace).args(["qdisc", what, "dev", device, "root"]).args(discipline);
    let done = command.status().unwrap_or_else(|error| panic!("tc (package iproute2): {error}"));
    assert!(done.success(), "{command:?}: {done}");
}

fn run(kinds: [Kind; 2]) {
    let report = suite(|count| Bed::new(count, kinds));
    println!("{report}");
    report.assert_ok();
    let skipped = [
        "tagged::exact_and_masked_tags_match",
        "tagged::unexpected_messages_wait",
        "tagged::masks_match_unexpected_messages",
        "tagged::cancelled_receives_complete_once",
    ];
    // Cases of fan-out sets are skipped because there is no switch here.
    let others: Vec<_> = report.skipped().into_iter().filter(|case| !case.starts_with("set::")).collect();
    assert_eq!(others, skipped);
}

#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs-conformance`"]
fn conformance_from_kernel_to_user_space() {
    run([Kind::Verbs, Kind::Roce]);
}

#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs-conformance`"]
fn conformance_from_user_space_to_kernel() {
    run([Kind::Roce, Kind::Verbs]);
}
