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
    /// Start groups of real processes, multicast a text line by line, check everything that happened
    Demo(Demo),
    /// Torture a cluster of real processes on this host: kill, stop, cut off and restart its members under load, and
    /// judge
    ///
    /// Never more than a minority of a group is down at a time. A message that makes no progress for 5 s while each of
    /// its groups has a connected majority is a failure, as is a property that does not hold in the histories.
    Chaos(Chaos),
    /// Run one member of a group: deliveries go to standard output, one JSON document per line
    ///
    /// The first delivery that cannot be printed ends it, and a reader that is slow slows its group. With --json it
    /// prints no deliveries but one document when it stops.
    ///
    /// A process that takes over its group's state prints {"restored":{"n":3,"skipped":2}}: the state stands for all
    /// deliveries up to number 3, of which it has not printed 2. A group that begins from nothing numbers from 1.
    Node(Node),
    /// Be a client: multicast standard input to groups, line by line, and wait until a majority of each group has
    /// delivered it
    Cast(Cast),
    /// End the members of a cluster that run on this host, in order, as SIGTERM does, and wait until they have ended
    Stop(Stop),
    /// Show the leaders of a running cluster's groups, or make another member the leader
    #[command(subcommand)]
    Leader(LeaderCommand),
    /// Restart a group that lost its majority, or begin one that other groups remember
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
    /// RoCEv2 in user space, with NICs, Soft-RoCE or itself
    #[command(subcommand)]
    Roce(RoceCommand),
    /// Run a software switch that makes the copies of a multicast, until SIGINT or SIGTERM; or look into one
    ///
    /// Hosts write once, to the switch, over ordinary queue pairs. The switch copies each write to the receivers and
    /// addresses that the sender has named, and acknowledges for all of them.
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
    /// Remove processes that have stopped from a broadcast of mode `all`, which needs an answer of every process: all
    /// that remain agree on what was delivered from each sender, exclude the removed processes, and continue without
    /// them
    ///
    /// All remaining processes must be running, on this host, and be a majority. A process to be removed that still
    /// runs is asked to end. If the command ends early, run it again.
    Remove(NebRemove),
    /// Print the public key of a secret one, for `keys` in `[neb]`
    Key {
        /// The secret key: 64 hexadecimal digits; made if it does not exist
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
    /// A directory to remove, unless a byte arrives first
    #[arg(long)]
    pub(crate) tree: Option<PathBuf>,
    /// A socket, its directory, and the directory above it
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
    /// Its secret key, where `[neb]` has keys; `stentor neb key` makes one
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
    /// Longest time until all that remain have agreed, seconds
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
    /// The fabric; for roce and ofi, processes of one host with a loopback address each, and for verbs, all at the
    /// address of this host's RDMA device: to be replaced by those of real hosts
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
    /// A run lasts from a start of the whole cluster to the next one; nothing is on disk, so ids of messages and
    /// ballots begin anew with it. Members that were restarted while others continued belong to the run, with all their
    /// lives.
    #[arg(value_name = "HISTORY.jsonl", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) histories: Vec<PathBuf>,
    /// Vouch that the run had come to rest: a message that was not delivered by now never will be
    #[arg(long)]
    pub(crate) complete: bool,
    /// Processes of the broadcast that are known to have lied: nothing is promised about their histories
    #[arg(long, value_name = "ID,…", value_delimiter = ',')]
    pub(crate) faulty: Vec<String>,
    /// Vouch that the files of each process are named in the order of its lives. Needed where their times come from
    /// different clocks: a process that was started on another host, or after a reboot
    #[arg(long)]
    pub(crate) lives_in_order: bool,
}
