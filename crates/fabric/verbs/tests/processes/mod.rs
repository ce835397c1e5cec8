//! Addresses and start of the processes of the tests.
#![allow(dead_code, unreachable_pub, reason = "each test uses only a part of this module")]

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

use stentor_fabric::ProcessId;
use stentor_fabric_verbs::{NetConfig, VerbsConfig, VerbsFabric};

/// Address that the guest assigns to the interface under Soft-RoCE.
pub const ADDRESS: &str = "10.0.0.1";
/// Address of the interface under a second device.
pub const SECOND: &str = "10.0.1.1";

/// Returns addresses of this host that no other test uses.
pub fn addresses(count: usize) -> Vec<Option<SocketAddr>> {
    static NEXT: AtomicU16 = AtomicU16::new(5000);
    let ip: IpAddr = ADDRESS.parse().unwrap();
    let first = NEXT.fetch_add(count as u16, Ordering::Relaxed);
    (0..count as u16).map(|n| Some(SocketAddr::new(ip, first + n))).collect()
}

/// Key of all clusters in these tests.
pub const KEY: &[u8] = b"a key of this test";

/// Code for a receiver-not-ready timer of 10.24 ms.
const RNR_10_MS: u8 = 20;

/// Starts a process.
pub fn start(
    me: ProcessId,
    addresses: &[Option<SocketAddr>],
    change: impl Fn(&mut NetConfig, &mut VerbsConfig),
) -> VerbsFabric {
    let mut net = NetConfig::new("test", me, addresses.to_vec()).key(KEY);
    let mut config = VerbsConfig::default();
    // Some cases wait until a queue pair fails because of this timeout.
    config.tuning.rnr_timer = RNR_10_MS;
    change(&mut net, &mut config);
    VerbsFabric::start(net, config).unwrap_or_else(|error| panic!("{error}"))
}
