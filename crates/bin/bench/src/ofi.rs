//! Processes of a bench on libfabric: on this host, each with a loopback address of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use stentor::runtime::{OfiFabric, StartError};
use stentor_fabric::ProcessId;
use stentor_fabric_ofi::{Info, NetConfig, OfiConfig};
use stentor_support::Failure;
use stentor_support::args::OnOfi;
use stentor_support::live::unstarted;

use super::workers::KEY;

/// Where connections are made.
const PORT: u16 = 7398;
/// Room for all regions of one process, bytes.
const MAX_BYTES: u64 = 4 << 30;

/// Where a process is.
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

/// The provider that the processes will take.
pub(super) fn provider(args: &OnOfi, network: u8) -> Result<Info, Failure> {
    let config = OfiConfig { providers: args.providers(), ..OfiConfig::default() };
    config.choose(&net(network, ProcessId(0), 1, "bench")).map_err(failed)
}

/// Starts one of them. `longest` is the longest message or write, bytes.
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
        // Its processes never sleep.
        waits: false,
        message_bytes: config.message_bytes.max(longest as u32),
        ..config
    };
    OfiFabric::start(net, config).map_err(failed)
}
