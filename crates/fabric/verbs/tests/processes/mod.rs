//! Processes of tests, all on one device.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

use stentor_fabric::ProcessId;
use stentor_fabric_verbs::{NetConfig, VerbsConfig, VerbsFabric};

/// The guest gives this address to the interface under Soft-RoCE.
pub const ADDRESS: &str = "10.0.0.1";
/// And this one to the interface under a second one.
pub const SECOND: &str = "10.0.1.1";

/// Addresses that no other test has; all are one host's.
pub fn addresses(count: usize) -> Vec<Option<SocketAddr>> {
    static NEXT: AtomicU16 = AtomicU16::new(5000);
    let ip: IpAddr = ADDRESS.parse().unwrap();
    let first = NEXT.fetch_add(count as u16, Ordering::Relaxed);
    (0..count as u16).map(|n| Some(SocketAddr::new(ip, first + n))).collect()
}

/// The key of all clusters here.
pub const KEY: &[u8] = b"a key of this test";

/// The code of 10.24 ms.
const RNR_10_MS: u8 = 20;

/// Starts a process.
pub fn start(
    me: ProcessId,
    addresses: &[Option<SocketAddr>],
    change: impl Fn(&mut NetConfig, &mut VerbsConfig),
) -> VerbsFabric {
    let mut net = NetConfig::new("test", me, addresses.to_vec()).key(KEY);
    let mut config = VerbsConfig::default();
    // Cases wait for a queue pair that gives up.
    config.tuning.rnr_timer = RNR_10_MS;
    change(&mut net, &mut config);
    VerbsFabric::start(net, config).unwrap_or_else(|error| panic!("{error}"))
}
