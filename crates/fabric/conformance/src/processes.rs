//! A testbed of processes in one thread, for fabrics that drive themselves.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use stentor_fabric::{Fabric, ProcessId};

use crate::Testbed;

/// Processes in one thread, created by a function. This is the testbed of fabrics whose network needs no driving.
pub struct Processes<F> {
    /// Fabrics by process; `None` for a crashed one. They are dropped before the resources that `start` owns, such as a
    /// directory.
    pub fabrics: Vec<Option<F>>,
    /// Creates the fabric of a process.
    pub start: Box<dyn FnMut(ProcessId) -> F>,
    /// Drives a fabric while time passes.
    pub drive: fn(&mut F),
    /// Additional pause of each [`advance`](Testbed::advance).
    pub pause: Duration,
    /// Result of [`Testbed::repeats`].
    pub repeats: u64,
    /// Result of [`Testbed::settling`].
    pub settling: usize,
    /// Result of [`Testbed::patience`].
    pub patience: usize,
}

impl<F: Fabric> Processes<F> {
    /// Starts `count` processes.
    pub fn start(count: usize, start: impl FnMut(ProcessId) -> F + 'static) -> Self {
        let mut processes = Processes {
            fabrics: (0..count).map(|_| None).collect(),
            start: Box::new(start),
            drive: |_| {},
            pause: Duration::ZERO,
            repeats: 8,
            settling: 500,
            patience: 40_000,
        };
        (0..count as u16).for_each(|process| processes.restart(ProcessId(process)));
        processes
    }
}

impl<F: Fabric> Testbed for Processes<F> {
    type F = F;

    fn processes(&self) -> usize {
        self.fabrics.len()
    }

    fn fabric(&mut self, process: ProcessId) -> &mut F {
        self.fabrics[process.index()].as_mut().expect("the process is up")
    }

    fn advance(&mut self) {
        self.fabrics.iter_mut().flatten().for_each(self.drive);
        if !self.pause.is_zero() {
            std::thread::sleep(self.pause);
        }
    }

    /// Drops the fabric, which is as close to a crash as one process allows.
    fn crash(&mut self, process: ProcessId) {
        self.fabrics[process.index()] = None;
    }

    fn restart(&mut self, process: ProcessId) {
        let fabric = (self.start)(process);
        self.fabrics[process.index()] = Some(fabric);
    }

    fn repeats(&self) -> u64 {
        self.repeats
    }

    fn settling(&self) -> usize {
        self.settling
    }

    fn patience(&self) -> usize {
        self.patience
    }
}

/// Returns one loopback address per process. Up to 1024 testbeds of this operating-system process have different
/// addresses, and other processes rarely have the same ones.
#[must_use]
pub fn loopback_addresses(count: usize, port: u16) -> Vec<Option<SocketAddr>> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let bed = NEXT.fetch_add(1, Ordering::Relaxed);
    let second = 64 + (std::process::id() % 128) as u8;
    let [high, low] = bed.to_be_bytes();
    let address = |n: usize| Ipv4Addr::new(127, second, low, high << 6 | (n as u8 + 1));
    (0..count).map(|n| Some(SocketAddr::new(address(n).into(), port))).collect()
}
