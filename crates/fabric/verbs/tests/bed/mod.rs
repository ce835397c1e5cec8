//! Processes of the suite that every fabric passes, all on one device.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use std::net::SocketAddr;
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_conformance::Testbed;
use stentor_fabric_verbs::{NetConfig, VerbsConfig, VerbsFabric};

use crate::processes::{addresses, start};

/// Processes, by id.
pub struct Bed {
    pub fabrics: Vec<Option<VerbsFabric>>,
    pub repeats: u64,
    pub addresses: Vec<Option<SocketAddr>>,
    pub change: fn(&mut NetConfig, &mut VerbsConfig),
}

impl Bed {
    /// All are up.
    pub fn new(count: usize, change: fn(&mut NetConfig, &mut VerbsConfig)) -> Bed {
        let fabrics = (0..count).map(|_| None).collect();
        let mut bed = Bed { fabrics, repeats: 8, addresses: addresses(count), change };
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

    fn repeats(&self) -> u64 {
        self.repeats
    }

    /// As far as that goes inside one process.
    fn crash(&mut self, process: ProcessId) {
        self.fabrics[process.index()] = None;
    }

    fn restart(&mut self, process: ProcessId) {
        self.fabrics[process.index()] = Some(start(process, &self.addresses, self.change));
    }
}
