//! Processes of a bench on libfabric. All run on this host, each with its own loopback address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use stentor::runtime::{OfiFabric, StartError};
use stentor_fabric::ProcessId;
use stentor_fabric_ofi::{Info, NetConfig, OfiConfig};
use stentor_support::Failure;
use stentor_support::args::OnOfi;
use stentor_support::live::unstarted;

use super::workers::KEY;

/// Port of the connection manager.
const PORT: u16 = 7398;
/// Largest size of all regions of one process, in bytes.
const MAX_BYTES: u64 = 4 << 30;

/// Returns the address of a process.
pub(super) fn address(network: u8, process: usize) -> IpAddr {
    Ipv4Addr::new(127, network, 2, process as u8 + 1).into()
}

fn net(network: u8, me: ProcessId, processes: usize, cluster: &str) -> NetConfig {
    let addresses = (0..processes).map(|process| Some(SocketAddr::new(address(network, process), PORT))).collect();
    NetConfig::new(cluster, me, addresses)
}

fn failed(error: stentor_fabric_ofi::StartError) -> Failure {
    unstarted(StartError::Ofi(error), Path::new("stentor bench"))
}

/// Returns the provider that the processes will choose.
pub(super) fn provider(args: &OnOfi, network: u8) -> Result<Info, Failure> {
    let config = OfiConfig { providers: args.providers(), ..OfiConfig::default() };
    config.choose(&net(network, ProcessId(0), 1, "bench")).map_err(failed)
}

/// Starts one of the processes. `longest` is the length of the longest message or write, in bytes.
pub(super) fn start(
    network: u8,
    me: ProcessId,
    processes: usize,
    longest: usize,
    (provider, cluster): (&str, &str),
) -> Result<OfiFabric, Failure> {
    let key = std::env::var(KEY).map_err(|error| Failure::run(error, "bench", "run `stentor doctor`"))?;
    let net = net(network, me, processes, cluster).key(key).max_bytes(MAX_BYTES);
    let config = OfiConfig::default();
    let config = OfiConfig {
        providers: vec![provider.to_owned()],
        // These processes never sleep, so completion queues need no wait objects, which cost system calls.
        waits: false,
        message_bytes: config.message_bytes.max(longest as u32),
        ..config
    };
    OfiFabric::start(net, config).map_err(failed)
}
