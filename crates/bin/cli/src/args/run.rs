//! Arguments of `stentor node`, `cast` and `demo`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use stentor::runtime::WaitMode;
use stentor_neb::Lies;
use stentor_support::args::{DemoFabric, Network, OnOfi, SeededNetworks};

/// Wait mode of an idle process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Wait {
    /// Spin without a pause; needs a core for each process
    Poll,
    /// Yield the processor in each idle round, never sleep
    Yield,
    /// Spin and yield only for a moment, then sleep
    Block,
    /// Poll briefly, yield briefly, then sleep; a member without messages for a second sleeps at once
    Adaptive,
}

impl From<Wait> for WaitMode {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::Poll => WaitMode::POLL,
            Wait::Yield => WaitMode::YIELD,
            Wait::Block => WaitMode::BLOCK,
            Wait::Adaptive => WaitMode::ADAPTIVE,
        }
    }
}

/// The cluster, the directory where its processes meet, and the history of this process.
#[derive(Args, Clone, Debug)]
pub(crate) struct Meeting {
    /// The cluster's configuration
    #[arg(long, value_name = "FILE", env = "STENTOR_CONFIG", default_value = "cluster.toml", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    /// Directory for the control sockets, the same for all processes [default: below XDG_RUNTIME_DIR, or in /tmp]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
    /// Wait mode of an idle process
    #[arg(long, value_name = "MODE", default_value = "adaptive")]
    pub(crate) wait: Wait,
    /// Record the history of this process; the file must not exist
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) history: Option<PathBuf>,
    /// Record every remote write in the history, too, so that `stentor check` can judge property M7
    #[arg(long, requires = "history")]
    pub(crate) operations: bool,
    #[command(flatten)]
    pub(crate) roce: OnRoce,
}

/// Arguments for clusters with `fabric = "roce"`. The address also applies to `fabric = "verbs"` and `"ofi"`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "With fabric = \"roce\" (--bind also with \"verbs\" and \"ofi\")")]
pub(crate) struct OnRoce {
    /// This process's IP address, for its packets and for the connections by which processes meet [default: for a
    /// member, the address in the configuration; for a client, the address with a route to the first member, or
    /// 127.N.255.1 and so on if that member has the loopback address 127.N.x.y]
    #[arg(long, value_name = "ADDR")]
    pub(crate) bind: Option<IpAddr>,
    #[command(flatten)]
    pub(crate) network: Network,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Node {
    #[command(flatten)]
    pub(crate) meeting: Meeting,
    /// The id of this member
    #[arg(long, value_name = "ID")]
    pub(crate) id: String,
    /// Number of this life of the process in its history, from 1: larger after every restart [default: the time of its
    /// start, ms]
    #[arg(long, value_name = "N", requires = "history", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) life: Option<u64>,
    /// Elect leaders by ZooKeeper instead of heartbeats: the addresses of its servers
    #[cfg(feature = "zookeeper")]
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    pub(crate) zookeeper: Vec<String>,
    /// Stop when standard input ends, as well as on SIGINT and SIGTERM
    #[arg(long)]
    pub(crate) until_eof: bool,
    /// Lose packets when `stentor chaos` requests it, with fabric = "roce"; for tests only, never for a cluster in use
    #[arg(long)]
    pub(crate) faults: bool,
    /// Pid of the process that started this one: this process is killed when that one ends
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) follow: Option<i32>,
    /// Keep a state of this size, which a restarted member fetches: for measurements
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide = true)]
    pub(crate) state_bytes: u64,
}

#[derive(Args, Debug)]
pub(crate) struct Cast {
    #[command(flatten)]
    pub(crate) meeting: Meeting,
    /// The groups that every line goes to
    #[arg(long, value_name = "GROUP,…", value_delimiter = ',', required = true)]
    pub(crate) to: Vec<String>,
    /// Client id to use [default: the first free one]
    #[arg(long, value_name = "ID")]
    pub(crate) client: Option<String>,
    /// Longest time to wait for the members, and for a delivery, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Demo {
    /// Show the broadcast instead: five processes, one of which sends different values to different processes
    #[arg(long, conflicts_with_all = ["groups", "replicas", "no_kill"])]
    pub(crate) neb: bool,
    /// Lies that the liar of the broadcast tells: two-values, rewrite (a value that was read already), kill (its
    /// connections, by writing outside its region), half (a slot), old-laps, overrun, own-host, host (forges values
    /// that others keep there), garbage (in its answers), torn (answers that it claims to be writing), later-laps (old
    /// answers as new ones), gap (leaves indices out, or writes the next one in their place), too-long or silent
    #[arg(long, value_name = "LIE,…", value_delimiter = ',', default_value = "two-values", requires = "neb", value_parser = lie)]
    pub(crate) lies: Vec<String>,
    /// File whose lines are multicast [default: the project's own documents, repeated]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) input: Option<PathBuf>,
    /// Number of groups
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) groups: usize,
    /// Processes in each group
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) replicas: usize,
    /// Multicast at most this many lines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) messages_limit: Option<u64>,
    /// Wait mode of idle processes
    #[arg(long, value_name = "MODE", default_value = "adaptive")]
    pub(crate) wait: Wait,
    /// Elect leaders by ZooKeeper instead of heartbeats: the addresses of its servers
    #[cfg(feature = "zookeeper")]
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', conflicts_with = "neb")]
    pub(crate) zookeeper: Vec<String>,
    /// Keep the histories in this directory; it must be empty or absent [default: a new temporary one]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) keep: Option<PathBuf>,
    /// Kill no process; otherwise the leader of the first group is killed half-way and restarted, if its group has
    /// three or more members and the text has a hundred lines
    #[arg(long)]
    pub(crate) no_kill: bool,
    /// Fabric between the processes
    #[arg(long, value_name = "FABRIC", default_value = "shm")]
    pub(crate) fabric: DemoFabric,
    /// With --fabric roce: start a software switch, at two separate addresses, that makes the copies of writes to
    /// several receivers; the demonstration fails if the switch makes no copies
    #[arg(long)]
    pub(crate) switch: bool,
    #[command(flatten, next_help_heading = "With --fabric roce")]
    pub(crate) network: SeededNetworks,
    #[command(flatten, next_help_heading = "With --fabric ofi")]
    pub(crate) ofi: OnOfi,
}

fn lie(text: &str) -> Result<String, String> {
    let known = Lies::default().with(text).is_some();
    let names = || format!("no lie is called `{text}`; there are {}", Lies::NAMES.join(", "));
    known.then(|| text.to_owned()).ok_or_else(names)
}
