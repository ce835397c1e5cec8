//! Processes of one thread, for fabrics that work by themselves.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use stentor_fabric::{Fabric, ProcessId};

use crate::Testbed;

/// Processes of this thread, each of which a function starts: the testbed of fabrics that need no network driven for them.
pub struct Processes<F> {
    /// By process; `None` is one that crashed. Dropped before what `start` owns, such as a directory.
    pub fabrics: Vec<Option<F>>,
    /// Starts a process.
    pub start: Box<dyn FnMut(ProcessId) -> F>,
    /// What is done with every fabric while time passes.
    pub drive: fn(&mut F),
    /// How long that takes besides.
    pub pause: Duration,
    /// See [`Testbed::repeats`].
    pub repeats: u64,
    /// See [`Testbed::settling`].
    pub settling: usize,
    /// See [`Testbed::patience`].
    pub patience: usize,
}

impl<F: Fabric> Processes<F> {
    /// Starts so many processes.
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
        self.fabrics[process.index()].as_mut().expect("it is up")
    }

    fn advance(&mut self) {
        self.fabrics.iter_mut().flatten().for_each(self.drive);
        if !self.pause.is_zero() {
            std::thread::sleep(self.pause);
        }
    }

    /// As far as that goes inside one process.
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

/// Returns loopback addresses that no other testbed of this process has, and hardly one of another, by process.
#[must_use]
pub fn loopback_addresses(count: usize, port: u16) -> Vec<Option<SocketAddr>> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let bed = NEXT.fetch_add(1, Ordering::Relaxed);
    let second = 64 + (std::process::id() % 128) as u8;
    let [high, low] = bed.to_be_bytes();
    let address = |n: usize| Ipv4Addr::new(127, second, low, high << 6 | (n as u8 + 1));
    (0..count).map(|n| Some(SocketAddr::new(address(n).into(), port))).collect()
}
