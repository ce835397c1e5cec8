//! The command line.

mod channel;
mod chaos;
mod leader;
mod roce;
mod run;
mod sim;
mod switch;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use stentor_bench::BenchCommand;
use stentor_support::args::{DemoFabric, OnOfi};

pub(crate) use channel::{ChannelCat, ChannelCommand};
pub(crate) use chaos::{Chaos, ChaosPlant, Fault};
pub(crate) use leader::{GroupCommand, GroupReset, LeaderCommand, LeaderMove, LeaderShow, Stop, Where};
pub(crate) use roce::{Pingpong, RoceCommand, Taking};
pub(crate) use run::{Cast, Demo, Node, OnRoce, Wait};
pub(crate) use sim::{SimCommand, SimMulticast, SimNeb, SimSeeds};
pub(crate) use switch::{Switch, SwitchCommand, SwitchInit, SwitchRun, SwitchShow};

/// Group communication at RDMA speed.
#[derive(Parser, Debug)]
#[command(name = "stentor", version, propagate_version = true, after_help = EXIT_CODES)]
pub(crate) struct CommandLine {
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print nothing but errors and explicitly requested output; the exit code reports the result
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 good, 1 a property or a run failed, 2 bad usage or configuration,\n\
                          3 a history that cannot be judged (`check`).\n\
                          Set NO_COLOR to have no colours.";

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Start groups of real processes, multicast a text line by line, and check every property
    Demo(Demo),
    /// Torture a cluster of real processes on this host: kill, stop, cut off and restart its members under load, and
    /// check every property
    ///
    /// Never more than a minority of a group is down at a time. A message that makes no progress for 5 s while each of
    /// its groups has a connected majority is a failure, as is a property that does not hold in the histories.
    Chaos(Chaos),
    /// Run one member of a group: deliveries go to standard output, one JSON document per line
    ///
    /// The process ends at the first delivery that it cannot print, and a slow reader of its output slows the group.
    /// With --json the process prints no deliveries, but one document when it stops.
    ///
    /// A process that receives its group's state prints {"restored":{"n":3,"skipped":2}}: the state contains all
    /// deliveries up to number 3, and the process will not print 2 of them. A group that begins with an empty state
    /// numbers its deliveries from 1.
    Node(Node),
    /// Run a client: multicast standard input to groups, line by line, and wait until a majority of each group has
    /// delivered all lines
    Cast(Cast),
    /// End the members of a cluster that run on this host, as SIGTERM does, and wait until they have ended
    Stop(Stop),
    /// Show the leaders of a running cluster's groups, or make another member the leader
    #[command(subcommand)]
    Leader(LeaderCommand),
    /// Reset a group that lost its majority, or begin one that other groups remember
    #[command(subcommand)]
    Group(GroupCommand),
    /// Write or check a cluster's configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Check recorded histories: a verdict for each property, and the smallest counter-example
    Check(Check),
    /// Simulate clusters in virtual time, each from one seed, and check every property
    #[command(subcommand)]
    Sim(SimCommand),
    /// Measure performance; each figure beside its bound, measured in the same run
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Ordered messages from one process to another
    #[command(subcommand)]
    Channel(ChannelCommand),
    /// RoCEv2 in user space, with a NIC, Soft-RoCE or this program as the peer
    #[command(subcommand)]
    Roce(RoceCommand),
    /// Run a software switch that makes the copies of a multicast, until SIGINT or SIGTERM; or show a running one
    ///
    /// Hosts write once, to the switch, over ordinary queue pairs. The switch copies each write to the receivers and
    /// addresses that the sender has named, and combines their acknowledgements into one.
    Switch(Switch),
    /// Broadcast from processes any of which may be Byzantine
    #[command(subcommand)]
    Neb(NebCommand),
    /// Remove the files that a process leaves behind when it dies
    #[command(hide = true)]
    Janitor(Janitor),
    /// One process of `stentor chaos --service`
    #[command(hide = true)]
    ChaosProcess {
        /// Specification of the process, as JSON
        spec: String,
    },
    /// Look at this machine: its capabilities, the fabrics that work here, and advice
    Doctor,
    /// Print the completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual, or write its pages to a directory
    Man {
        /// Directory for one file per command; it must exist
        #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        output: Option<PathBuf>,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum NebCommand {
    /// Run one process of the broadcast of `[neb]`: standard input is broadcast line by line, and events go to standard
    /// output, one JSON document per line, until SIGINT or SIGTERM
    Run(NebRun),
    /// Remove processes that have stopped from a broadcast of mode `all`, which needs an answer of every process: the
    /// remaining processes agree on what was delivered from each sender, exclude the removed processes, and continue
    /// without them
    ///
    /// The remaining processes must be a majority, and all of them must run on this host. If a process to be removed
    /// still runs, the command asks it to end. If the command ends early, run it again.
    Remove(NebRemove),
    /// Print the public key that belongs to a secret key, for `keys` in `[neb]`
    Key {
        /// File of the secret key, 64 hexadecimal digits; created if it does not exist
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// One process of a demonstration
    #[command(hide = true)]
    Process {
        /// Specification of the process, as JSON
        spec: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Janitor {
    /// Directory to remove when standard input ends, unless a byte arrives first
    #[arg(long)]
    pub(crate) tree: Option<PathBuf>,
    /// Paths of a socket, of its directory, and of the directory above
    pub(crate) paths: Vec<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct NebRun {
    /// The cluster's configuration
    #[arg(long, value_name = "FILE", env = "STENTOR_CONFIG", default_value = "cluster.toml", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    /// The id of this process in the group
    #[arg(long, value_name = "ID")]
    pub(crate) id: String,
    /// File of this process's secret key, needed if `[neb]` has keys; `stentor neb key` makes one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) secret: Option<PathBuf>,
    /// Directory for the control sockets, the same for all processes [default: below XDG_RUNTIME_DIR, or in /tmp]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
    /// Record the history of this process; the file must not exist
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) history: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) roce: OnRoce,
}

#[derive(Args, Debug)]
pub(crate) struct NebRemove {
    #[command(flatten)]
    pub(crate) place: Where,
    /// The processes to remove
    #[arg(long, value_name = "ID,…", value_delimiter = ',', required = true)]
    pub(crate) id: Vec<String>,
    /// Longest time to wait until the remaining processes have agreed, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) timeout: u64,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// Write a commented configuration to begin with
    Init(ConfigInit),
    /// Check a configuration; print its processes, majorities and memory
    Check {
        /// The configuration
        #[arg(value_name = "FILE", env = "STENTOR_CONFIG", default_value = "cluster.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

#[derive(Args, Debug)]
pub(crate) struct ConfigInit {
    /// The cluster's name
    #[arg(long, value_name = "NAME", default_value = "example")]
    pub(crate) cluster: String,
    /// Number of groups
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) groups: usize,
    /// Processes in each group
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) replicas: usize,
    /// The fabric. With roce and ofi each process gets a loopback address, with verbs all get the address of this
    /// host's RDMA device; replace these by the addresses of the cluster's hosts
    #[arg(long, value_name = "FABRIC", default_value = "shm")]
    pub(crate) fabric: DemoFabric,
    /// File to write
    #[arg(short, long, value_name = "FILE", default_value = "cluster.toml", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,
    /// Overwrite a file that exists
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten, next_help_heading = "With --fabric ofi")]
    pub(crate) ofi: OnOfi,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The histories of one run: one file, or one for each life of each process
    ///
    /// A run lasts from one start of the whole cluster to the next. Nothing is kept on disk, so message ids and ballots
    /// begin anew with each run. All lives of a member that was restarted while others continued belong to the same
    /// run.
    #[arg(value_name = "HISTORY.jsonl", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) histories: Vec<PathBuf>,
    /// Vouch that the run had come to rest: a message that was not delivered by its end never will be
    #[arg(long)]
    pub(crate) complete: bool,
    /// Processes of the broadcast that are known to have lied: no property says anything about their histories
    #[arg(long, value_name = "ID,…", value_delimiter = ',')]
    pub(crate) faulty: Vec<String>,
    /// Vouch that the files of each process are named in the order of its lives. Needed if the times of a process's
    /// lives come from different clocks: it was started on another host, or after a reboot
    #[arg(long)]
    pub(crate) lives_in_order: bool,
}
