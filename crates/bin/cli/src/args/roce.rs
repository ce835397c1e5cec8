//! Arguments of `stentor roce`.

use std::net::IpAddr;

use clap::{Args, Subcommand, ValueEnum};
use stentor_fabric_roce::peer::PATH_MTUS;
use stentor_support::args::Network;

#[derive(Subcommand, Debug)]
pub(crate) enum RoceCommand {
    /// Play ping-pong with a NIC, with Soft-RoCE or with this command: speaks the handshake of `ibv_rc_pingpong -g`
    ///
    /// Without HOST this side is the server, with HOST it is the client. On the other side run
    /// `ibv_rc_pingpong -g GID_INDEX [HOST]`, with the index of an IPv4-mapped GID, and the same -n, -s, -m and -p.
    Pingpong(Pingpong),
}

/// The socket from which packets are received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Taking {
    /// From a raw socket where that is permitted, otherwise from a plain one; the report says which
    Auto,
    /// From a raw socket, which needs CAP_NET_RAW: the whole ICRC is checked
    Raw,
    /// From a plain UDP socket, unprivileged: the ICRC is checked except for the IPv4 identification
    Plain,
}

#[derive(Args, Debug)]
pub(crate) struct Pingpong {
    /// Host of the server; without it this side is the server
    #[arg(value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Number of round trips
    #[arg(short = 'n', long = "iters", value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iterations: u32,
    /// Bytes of a message
    #[arg(short, long, value_name = "BYTES", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub(crate) size: u32,
    /// Path MTU: 256, 512, 1024, 2048 or 4096
    #[arg(short, long, value_name = "BYTES", default_value_t = 1024, value_parser = mtu)]
    pub(crate) mtu: u16,
    /// TCP port of the handshake
    #[arg(short, long, value_name = "PORT", default_value_t = 18515, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// This side's IP address [default: the address with a route to HOST; a server has no default]
    #[arg(long, value_name = "ADDR", required_unless_present = "host")]
    pub(crate) bind: Option<IpAddr>,
    /// Socket from which packets are received
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) mode: Taking,
    #[command(flatten)]
    pub(crate) network: Network,
}

fn mtu(text: &str) -> Result<u16, String> {
    let mtu = text.parse().ok().filter(|mtu| PATH_MTUS.contains(mtu));
    mtu.ok_or_else(|| "the path MTU is one of 256, 512, 1024, 2048, 4096".to_owned())
}
