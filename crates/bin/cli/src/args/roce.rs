//! `stentor roce`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use serde::{Deserialize, Serialize};
use stentor_fabric_roce::peer::PATH_MTUS;

#[derive(Subcommand, Debug)]
pub(crate) enum RoceCommand {
    /// Play ping-pong with a NIC, with Soft-RoCE or with this command: speaks the handshake of `ibv_rc_pingpong -g`
    ///
    /// Server without HOST, client with it. The other side: `ibv_rc_pingpong -g GID_INDEX [HOST]`, with the index of an
    /// IPv4-mapped GID, and the same -n, -s, -m and -p.
    Pingpong(Pingpong),
}

/// How packets are taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Taking {
    /// From a raw socket where that is permitted, otherwise from a plain one; the report says which
    Auto,
    /// From a raw socket: the ICRC is checked whole (CAP_NET_RAW)
    Raw,
    /// From a plain UDP socket, unprivileged: the ICRC is checked but for the IPv4 identification
    Plain,
}

#[derive(Args, Debug)]
pub(crate) struct Pingpong {
    /// The server; without it this is the server
    #[arg(value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Round trips
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
    /// This side's address [default: the one with a route to HOST; a server must name it]
    #[arg(long, value_name = "ADDR", required_unless_present = "host")]
    pub(crate) bind: Option<IpAddr>,
    /// How packets are taken in
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) mode: Taking,
    #[command(flatten)]
    pub(crate) network: Network,
}

/// A capture, and a bad network.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Network {
    /// Write every packet to a capture for Wireshark; the file must not exist
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pcap: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) bad: BadNetwork,
    /// Seed of the bad network
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// The same for a command that starts several processes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Networks {
    /// Write every packet to captures for Wireshark, one of each process, with what it sent and what came to it:
    /// `run.pcap` becomes `run-g1.1.pcap` and so on, and `run-g1.1.2.pcap` when that process is started again. None of
    /// them may exist; `mergecap -w all.pcap run-*.pcap` joins them
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pcap: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) bad: BadNetwork,
}

/// The same with a seed.
#[derive(Args, Clone, Debug)]
pub(crate) struct SeededNetworks {
    #[command(flatten)]
    pub(crate) networks: Networks,
    /// Seed of the bad network; each process has its own bad luck
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// What a network does to packets.
#[derive(Args, Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct BadNetwork {
    /// Lose packets of both directions with this chance
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = chance)]
    pub(crate) drop_chance: f64,
    /// Repeat packets with this chance
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = chance)]
    pub(crate) duplicate_chance: f64,
    /// Let later packets overtake with this chance
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = chance)]
    pub(crate) reorder_chance: f64,
    /// Damage a bit of packets with this chance
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = chance)]
    pub(crate) corrupt_chance: f64,
    /// Delay every packet, microseconds
    #[arg(long, value_name = "US", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(crate) delay: u64,
}

fn mtu(text: &str) -> Result<u16, String> {
    let mtu = text.parse().ok().filter(|mtu| PATH_MTUS.contains(mtu));
    mtu.ok_or_else(|| "it is one of 256, 512, 1024, 2048, 4096".to_owned())
}

fn chance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(chance) if (0.0..=1.0).contains(&chance) => Ok(chance),
        _ => Err("a chance is a number from 0 to 1".to_owned()),
    }
}
