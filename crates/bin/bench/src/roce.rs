//! Processes of a bench on RoCEv2. All run on this host, each with its own loopback address.

use std::net::{Ipv4Addr, SocketAddr};

use stentor::runtime::RoceFabric;
use stentor_fabric::ProcessId;
use stentor_fabric_roce::{NetConfig, RoceConfig};
use stentor_support::Failure;
use stentor_support::args::{Network, SeededNetworks};
use stentor_support::live::{Captures, refuse_network};

use super::workers::KEY;

/// Port of the connection manager. Packets use another port.
const PORT: u16 = 7399;
/// Largest size of all regions of one process, in bytes.
const MAX_BYTES: u64 = 4 << 30;

/// Returns the captures and faults of the processes' network. Refuses them on fabrics other than RoCEv2.
pub(super) fn captures(args: &SeededNetworks, is_roce: bool, place: &str) -> Result<Captures, Failure> {
    let captures = Captures::from(args);
    if !is_roce {
        refuse_network(None, captures.asked(), place)?;
    }
    Ok(captures)
}

/// Returns the name of a process of a bench without a cluster configuration.
pub(super) fn name(process: usize) -> String {
    format!("p{process}")
}

/// Starts one of the processes. `longest` is the length of the longest message or write, in bytes.
pub(super) fn start(
    network: u8,
    me: ProcessId,
    processes: usize,
    longest: usize,
    traffic: &Network,
) -> Result<RoceFabric, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::run(error, "bench", "run `stentor doctor`");
    let key = std::env::var(KEY).map_err(|error| failed(&error))?;
    let address = |process: u8| SocketAddr::from((Ipv4Addr::new(127, network, 1, process + 1), PORT));
    let addresses = (0..processes as u8).map(|process| Some(address(process))).collect();
    let net = NetConfig::new("bench", me, addresses).key(key).max_bytes(MAX_BYTES);
    let config = RoceConfig::default();
    let config = RoceConfig {
        message_bytes: config.message_bytes.max(longest as u32),
        pcap: traffic.pcap.clone(),
        chances: traffic.bad.chances(),
        seed: traffic.seed.wrapping_add(me.0.into()),
        ..config
    };
    RoceFabric::start(net, config).map_err(|error| failed(&error))
}
