//! Two threads, each of which is a process on a fabric of this host.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use stentor_channel::EndpointConfig;
use stentor_fabric::{Backoff, Fabric, ProcessId, WaitMode};
use stentor_fabric_conformance::{FaultInjector, Faults};
use stentor_fabric_ofi::{OfiConfig, OfiFabric};
use stentor_fabric_roce::driver::Chances;
use stentor_fabric_roce::{NetConfig, RoceConfig, RoceFabric};
use stentor_fabric_shm::{ShmConfig, ShmFabric};

use crate::bed::Process;

/// Longest message of the fabric, in bytes.
const FABRIC_BYTES: u32 = 256 << 10;

/// The directory and the addresses by which two processes find each other.
pub(crate) struct Meeting {
    directory: PathBuf,
    place: u8,
}

impl Meeting {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let directory = std::env::temp_dir().join(format!("stentor-channel-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Meeting { directory, place: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    pub(crate) fn shm(&self, me: u16) -> ShmFabric {
        let config = ShmConfig {
            directory: self.directory.join("sockets"),
            max_bytes: 1 << 30,
            message_bytes: FABRIC_BYTES,
            janitor: false,
            ..ShmConfig::new("channel", ProcessId(me), &format!("p{me}"), 2)
        };
        ShmFabric::start(config).unwrap()
    }

    /// Returns loopback addresses that no other test of this process uses.
    fn addresses(&self) -> Vec<Option<SocketAddr>> {
        let third = (std::process::id() % 251) as u8;
        let address = |n: u8| Some(SocketAddr::from((Ipv4Addr::new(127, 60 + self.place, third, n + 1), 7399)));
        vec![address(0), address(1)]
    }

    fn net(&self, me: u16) -> NetConfig {
        NetConfig::new("channel", ProcessId(me), self.addresses()).key(*b"of both of them").max_bytes(1 << 30)
    }

    pub(crate) fn ofi(&self, me: u16, provider: &str) -> OfiFabric {
        let config = OfiConfig {
            providers: vec![provider.to_owned()],
            message_bytes: FABRIC_BYTES,
            // On a busy machine a process may post its receives late although it has not failed.
            rnr_timeout: Duration::from_secs(2),
            ..OfiConfig::default()
        };
        let fabric = OfiFabric::start(self.net(me), config).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(fabric.device().provider().provider(), provider);
        fabric
    }

    pub(crate) fn roce(&self, me: u16, chances: Chances) -> RoceFabric {
        let config =
            RoceConfig { chances, seed: u64::from(me) + 1, message_bytes: FABRIC_BYTES, ..RoceConfig::default() };
        RoceFabric::start(self.net(me), config).unwrap()
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Runs one process until 200 ms after all its connections have closed. The other process may still need control
/// messages of this one during that time.
fn run<F: Fabric, T>(fabric: F, config: EndpointConfig, lengths: &[usize], then: impl FnOnce(&Process<F>) -> T) -> T {
    let mut process = Process::new(fabric, config, lengths);
    let mut backoff = Backoff::new(WaitMode::ADAPTIVE);
    let begin = Instant::now();
    let mut rest = None;
    while rest.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(200)) {
        let worked = process.step();
        assert!(begin.elapsed() < Duration::from_secs(240), "stuck");
        if process.is_done() {
            rest.get_or_insert_with(Instant::now);
        }
        let worked = worked || process.endpoint.is_due();
        backoff.pause(process.endpoint.fabric_mut(), worked, Duration::from_millis(5)).unwrap();
    }
    process.assert_ok();
    then(&process)
}

/// Runs two processes that write messages of these lengths on every connection, and read each other's messages.
pub(crate) fn both<F: Fabric>(fabric: impl Fn(u16) -> F + Sync, config: EndpointConfig, lengths: &[usize]) {
    std::thread::scope(|scope| {
        for me in 0..2 {
            let fabric = &fabric;
            scope.spawn(move || run(fabric(me), config, lengths, |_| ()));
        }
    });
}

/// Runs [`both`] with completions that are reported in random order.
pub(crate) fn both_disordered<F: Fabric>(
    fabric: impl Fn(u16) -> F + Sync,
    config: EndpointConfig,
    lengths: &[usize],
    seed: u64,
) {
    both_under(fabric, config, lengths, |me| Faults::completions(seed + u64::from(me)));
}

/// Runs [`both`] with a fault injector of its own for each process.
pub(crate) fn both_under<F: Fabric>(
    fabric: impl Fn(u16) -> F + Sync,
    config: EndpointConfig,
    lengths: &[usize],
    disorders: impl Fn(u16) -> Faults,
) {
    std::thread::scope(|scope| {
        let threads = [0, 1].map(|me| {
            let (fabric, disorders) = (&fabric, disorders(me));
            scope.spawn(move || {
                run(FaultInjector::new(fabric(me), disorders), config, lengths, |process| {
                    process.endpoint.fabric().overtaken()
                })
            })
        });
        let overtaken: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert!(overtaken > 0, "no completion overtook another one");
    });
}
