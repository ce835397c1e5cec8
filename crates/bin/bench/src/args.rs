//! Command-line arguments of `stentor bench`.

use std::net::{AddrParseError, IpAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use serde::{Deserialize, Serialize};
use stentor_support::args::{ChannelFabric, LoopbackFabric, Networks, OnOfi, SeededNetworks};

/// A bench, or a process that a bench starts.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// The verbs of a fabric, between two pinned processes
    Fabric(BenchFabric),
    /// The atomic multicast, every member and client in a separate process
    Multicast(BenchMulticast),
    /// Messages of a channel between two pinned processes: each way of sending them beside the fabric's own operation
    Channel(BenchChannel),
    /// The broadcast: one process sends, all others deliver, each in a separate process
    Neb(BenchNeb),
    /// The software switch: copies beside unicast, forwarding beside a plain copier, a change of members beside new
    /// connections
    Switch(BenchSwitch),
    /// Leaders, or any processes, killed under load: the time without deliveries, and every property
    Failover(BenchFailover),
    /// A running cluster, measured by a client that joins it
    Cluster(BenchCluster),
    /// Compare two runs, each saved with --json, row by row, and report the rows that became slower
    Compare(BenchCompare),
    /// Plain datagrams between given addresses, as a multicast to one group needs them; `cargo xtask compare` sets them
    /// beside a cluster
    #[command(hide = true)]
    Bound(BenchBound),
    /// A client that a bench kills; the bench starts it itself
    #[command(hide = true)]
    Load {
        /// Specification of the process, as JSON
        spec: String,
    },
    /// A process that a bench starts and kills
    #[command(hide = true)]
    Mortal {
        /// Specification of the process, as JSON
        spec: String,
    },
    /// One process of a bench; the bench starts these itself
    #[command(hide = true)]
    Process {
        /// Specification of the process, as JSON
        spec: String,
    },
}

/// Number of measurements of each row.
#[derive(Args, Clone, Debug)]
pub struct Repeats {
    /// Iterations of each row, in all its rounds together
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pub iterations: Option<u64>,
    /// Rounds of each row: bound and subject take turns, and medians of rounds are reported
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Unmeasured iterations at the beginning of each round, percent of the measured ones
    #[arg(long, value_name = "PERCENT", default_value_t = 25, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub warm_up: u32,
}

impl Repeats {
    /// Returns the number of warm-up iterations that precede `iterations` measured ones.
    pub(crate) fn warm_up(&self, iterations: u64) -> u64 {
        iterations * u64::from(self.warm_up) / 100
    }
}

/// Payload sizes, and the length of each row.
#[derive(Args, Clone, Debug)]
pub struct BenchLength {
    /// Payload, bytes; one row for each value
    #[arg(
        short = 's',
        long,
        value_name = "BYTES,…",
        value_delimiter = ',',
        default_value = "64",
        conflicts_with = "all"
    )]
    pub size: Vec<usize>,
    /// Measure payloads of 8, 16, 32 and so on up to 65536 bytes
    #[arg(short, long)]
    pub all: bool,
    #[command(flatten)]
    pub repeats: Repeats,
    /// Seconds for each row, instead of iterations
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "iterations",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub duration: Option<u64>,
}

/// Fixed rates, in messages per second.
#[derive(Args, Clone, Debug)]
pub struct Rates {
    /// Measure a fixed rate, too, in messages per second of each sender. A message is sent at its due time, whether
    /// earlier ones were delivered or not, and its latency counts from that time. One row for each value
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub rate: Vec<u32>,
}

/// Fabrics whose verbs can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum MeasuredFabric {
    /// Shared memory
    Shm,
    /// RoCEv2 in user space, each process with its own loopback address
    Roce,
    /// The RDMA device of this host, both processes at its address (`stentor doctor` shows it)
    Verbs,
}

#[derive(Args, Debug)]
pub struct BenchFabric {
    /// The fabric
    #[arg(long, value_name = "FABRIC", default_value = "shm")]
    pub fabric: MeasuredFabric,
    /// Measure only rows whose names contain this, such as "SEND" or "rate"; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
    #[command(flatten)]
    pub length: BenchLength,
    #[command(flatten, next_help_heading = "With --fabric roce")]
    pub network: SeededNetworks,
}

#[derive(Args, Debug)]
pub struct BenchChannel {
    /// The fabric
    #[arg(long, value_name = "FABRIC", default_value = "shm")]
    pub fabric: ChannelFabric,
    /// Payload of the latency rows, bytes; one row for each value
    #[arg(short = 's', long, value_name = "BYTES,…", value_delimiter = ',', default_value = "8,4096,65536",
          value_parser = channel_payload)]
    pub size: Vec<usize>,
    /// The receiver loads and checks every byte of a message in place; otherwise it gets only the message's location
    #[arg(long)]
    pub every_byte: bool,
    /// Round trips of 8 bytes in each row; rows of longer messages have fewer
    #[command(flatten)]
    pub repeats: Repeats,
    #[command(flatten)]
    pub rates: Rates,
    #[command(flatten, next_help_heading = "With --fabric roce")]
    pub network: SeededNetworks,
    #[command(flatten, next_help_heading = "With --fabric ofi")]
    pub ofi: OnOfi,
}

/// Wait mode of an idle process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    /// Spin; needs a core for each process
    Poll,
    /// Yield the processor in each idle round, never sleep
    Yield,
    /// Spin and yield only for a moment, then sleep
    Block,
    /// Spin briefly, yield briefly, then sleep
    Adaptive,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The first version of the protocol
    V1,
    /// The current version
    V2,
}

/// Placement of the processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pinning {
    /// Not pinned: the system places the processes
    None,
    /// Each process on the next processor
    Spread,
    /// The processes of each group on one processor, the clients on the next
    Groups,
}

/// Processes that must answer before a broadcast is delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NebMode {
    /// All processes
    All,
    /// A quorum; the sender may lie, other processes only crash
    LyingSender,
    /// A quorum; any process may lie, also about the registers that it hosts
    LyingHosts,
}

#[derive(Args, Debug)]
pub struct BenchNeb {
    /// Fabric between the processes
    #[arg(long, value_name = "FABRIC", default_value = "shm")]
    pub fabric: LoopbackFabric,
    /// Processes; the first one sends
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=16))]
    pub processes: u16,
    /// Processes that must answer
    #[arg(long, value_enum, default_value_t = NebMode::LyingSender)]
    pub mode: NebMode,
    /// Switch the fast path off, so that values are read with READs
    #[arg(long)]
    pub no_fast: bool,
    /// Measure signed broadcasts, too
    #[arg(long)]
    pub signed: bool,
    /// Outstanding broadcasts in the throughput row; 1: no such row. One row for each value
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "64",
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub window: Vec<u32>,
    #[command(flatten)]
    pub rates: Rates,
    /// Wait mode of an idle process
    #[arg(long, value_enum, default_value_t = Waiting::Adaptive)]
    pub wait: Waiting,
    /// Placement of the processes, both of the bound and of the row
    #[arg(long, value_enum, default_value_t = Pinning::Spread)]
    pub pin: Pinning,
    #[command(flatten)]
    pub length: BenchLength,
    #[command(flatten, next_help_heading = "With --fabric roce")]
    pub network: SeededNetworks,
}

#[derive(Args, Debug)]
pub struct BenchMulticast {
    /// Fabric between the processes
    #[arg(long, value_name = "FABRIC", default_value = "shm")]
    pub fabric: LoopbackFabric,
    /// Groups
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub groups: u16,
    /// Processes in each group
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=15))]
    pub replicas: u16,
    /// Number of groups that each message goes to
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub dest: u16,
    /// Clients; the row with one message outstanding uses the first alone
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub clients: u16,
    /// Outstanding messages of each client in the throughput row; 1: no such row. One row for each value
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "256",
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub window: Vec<u32>,
    #[command(flatten)]
    pub rates: Rates,
    /// Wait mode of an idle process
    #[arg(long, value_enum, default_value_t = Waiting::Adaptive)]
    pub wait: Waiting,
    /// Placement of the processes, both of the bound and of the row
    #[arg(long, value_enum, default_value_t = Pinning::Groups)]
    pub pin: Pinning,
    /// The protocol
    #[arg(long, value_enum, default_value_t = Protocol::V2)]
    pub variant: Protocol,
    /// Compute, too, the latency of a cluster with a processor for each process: each process is measured alone, and
    /// the latency is the longest chain of steps that depend on each other. On shared memory, with one client and one
    /// message outstanding
    #[arg(long)]
    pub critical_path: bool,
    #[command(flatten)]
    pub length: BenchLength,
    #[command(flatten, next_help_heading = "With --fabric roce")]
    pub network: SeededNetworks,
}

#[derive(Args, Debug)]
pub struct BenchSwitch {
    /// Payload, bytes; it fits into one packet
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = 64, value_parser = payload)]
    pub size: usize,
    /// Messages of the latency row, in all its rounds together
    #[arg(short = 'n', long, value_name = "N", default_value_t = 7000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub iterations: u64,
    /// Rounds of each row: bound and subject take turns, and medians of rounds are reported
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Measure only rows whose names contain this: step, forward, last, members, packets, aggregation; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
}

/// Parses a payload: a multiple of 8 bytes, because the fabric's own operation copies only whole words, and less than
/// the payload of the bandwidth rows.
fn channel_payload(text: &str) -> Result<usize, String> {
    let size = text.parse().ok().filter(|size| (8..1 << 20).contains(size) && size % 8 == 0);
    size.ok_or_else(|| "the payload is a multiple of 8, from 8 to 1048568 bytes".to_owned())
}

fn payload(text: &str) -> Result<usize, String> {
    let size = text.parse().ok().filter(|size| (8..=1024).contains(size) && size % 8 == 0);
    size.ok_or_else(|| "the payload is a multiple of 8, from 8 to 1024 bytes".to_owned())
}

/// Processes that `bench failover` kills.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Victims {
    /// Leaders of groups
    Leader,
    /// Leaders, followers and a client, by turns
    Any,
}

#[derive(Args, Debug)]
pub struct BenchFailover {
    /// Fabric between the processes
    #[arg(long, value_name = "FABRIC", default_value = "shm")]
    pub fabric: LoopbackFabric,
    /// Number of real processes to kill, one after the other; 0: only the simulation
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub rounds: u32,
    /// Processes to kill
    #[arg(long, value_enum, default_value_t = Victims::Leader)]
    pub kill: Victims,
    /// Seed of the choice of victims, times and messages, and of the faults of the network
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Groups
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=8))]
    pub groups: u16,
    /// Processes in each group; a group of three keeps its majority when one is killed
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(3..=7))]
    pub replicas: u16,
    /// Messages per second of each of the two clients
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..=20_000))]
    pub rate: u32,
    /// Use the default limits of a cluster, and send as many messages as they allow, each to all groups, so that
    /// windows and rings are full. Remote writes are not recorded
    #[arg(long, conflicts_with = "rate")]
    pub full: bool,
    /// Silence after which a leader is replaced, ms; a leader is never suspected before half that time [default: the
    /// default of clusters]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(40..=10_000))]
    pub timeout_ms: Option<u32>,
    /// Wait mode of an idle process
    #[arg(long, value_enum, default_value_t = Waiting::Adaptive)]
    pub wait: Waiting,
    /// Elect leaders by ZooKeeper instead of heartbeats: the addresses of its servers
    #[cfg(feature = "zookeeper")]
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    pub zookeeper: Vec<String>,
    /// Keep histories and the output of the processes in this directory; it must be empty or absent [default: a
    /// temporary one, kept only after a failure]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub keep: Option<PathBuf>,
    /// Simulated fail-overs, each from another seed; 0: none
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub sim_runs: u32,
    #[command(flatten, next_help_heading = "With --fabric roce")]
    pub networks: Networks,
}

#[derive(Args, Debug)]
pub struct BenchCompare {
    /// Document that `stentor bench NAME --json` printed in the first run
    #[arg(value_name = "A.json", value_hint = ValueHint::FilePath)]
    pub before: PathBuf,
    /// Document of the second run
    #[arg(value_name = "B.json", value_hint = ValueHint::FilePath)]
    pub after: PathBuf,
    /// A row counts as slower if the whole interval of its ratio exceeds 1 by more than this, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub tolerance: u32,
}

#[derive(Args, Debug)]
pub struct BenchCluster {
    /// The cluster's configuration
    #[arg(long, value_name = "FILE", env = "STENTOR_CONFIG", default_value = "cluster.toml", value_hint = ValueHint::FilePath)]
    pub config: PathBuf,
    /// Directory for the control sockets, the same for all processes [default: below XDG_RUNTIME_DIR, or in /tmp]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,
    /// This client's IP address, on a network [default: the address with a route to the first member]
    #[arg(long, value_name = "ADDR")]
    pub bind: Option<IpAddr>,
    /// The groups that every message goes to
    #[arg(long, value_name = "GROUP,…", value_delimiter = ',', required = true)]
    pub to: Vec<String>,
    /// Outstanding messages in the throughput row; 1: no such row. One row for each value
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "256",
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub window: Vec<u32>,
    #[command(flatten)]
    pub rates: Rates,
    /// Wait mode of the client
    #[arg(long, value_enum, default_value_t = Waiting::Adaptive)]
    pub wait: Waiting,
    /// Longest time to wait for the members, and for a delivery, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    #[command(flatten)]
    pub length: BenchLength,
}

/// Location of a process of the bound.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct At {
    /// Network namespace, as `ip netns` names it. Without one, the process stays in the namespace of the command.
    pub namespace: Option<String>,
    /// Address in that namespace that no process uses for RoCEv2.
    pub address: IpAddr,
}

impl FromStr for At {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        let (namespace, address) =
            text.split_once('=').map_or((None, text), |(namespace, address)| (Some(namespace.to_owned()), address));
        Ok(At { namespace, address: address.parse()? })
    }
}

#[derive(Args, Debug)]
pub struct BenchBound {
    /// Locations of the processes: first those of the members, last that of their client
    #[arg(long, value_name = "[NAMESPACE=]ADDR,…", value_delimiter = ',', required = true)]
    pub at: Vec<At>,
    /// MTU of the links between them
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65_535))]
    pub mtu: u32,
    /// Payload, bytes
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub size: u32,
    /// Outstanding messages; 1: the row measures a latency
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub window: u32,
    /// Messages of the row
    #[arg(short = 'n', long, value_name = "N", default_value_t = 2000,
          value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub iterations: u64,
    /// Wait mode of an idle process
    #[arg(long, value_enum, default_value_t = Waiting::Adaptive)]
    pub wait: Waiting,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_in_a_namespace_or_here() {
        let address = "10.9.9.1".parse().unwrap();
        assert_eq!("h1=10.9.9.1".parse(), Ok(At { namespace: Some("h1".to_owned()), address }));
        assert_eq!("10.9.9.1".parse(), Ok(At { namespace: None, address }));
        assert!("h1".parse::<At>().is_err());
    }
}
