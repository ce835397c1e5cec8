//! Arguments of `stentor chaos`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use stentor_support::args::{DemoFabric, OnOfi};

use super::run::Wait;

/// A fault that the command injects into a member or a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub(crate) enum Fault {
    /// Kill a member with SIGKILL, and start it again after 0 to 2 s
    Kill,
    /// Stop a member with SIGSTOP, and continue it with SIGCONT
    Stop,
    /// Lose all packets that a member sends, or all that it receives, to or from one process or all (roce)
    Cut,
    /// Lose some of the packets to and from a member (roce)
    Loss,
    /// Hand the leadership over to another member, as `leader move` does
    Move,
    /// End a member with SIGTERM, and start it again once it has ended
    Restart,
    /// Step a member's clock, or change its rate, for 2 to 6 s; injected only if it is named here, and needs the Debian
    /// package `libfaketime`
    Clock,
    /// Kill a client's process with SIGKILL, and start it after 0 to 2 s to resume its session (--service)
    Client,
}

/// A mutant of the command itself. Tests use it to show that the command detects the failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ChaosPlant {
    /// Stop a majority of the first group, while the command assumes that it runs
    Hang,
    /// Change a delivery in the history of a member
    History,
    /// Change the reply to a call (--service)
    Reply,
    /// Forget a command that was answered (--service)
    Lost,
    /// Apply a command twice (--service)
    Doubled,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Chaos {
    /// Configuration of the cluster to torture; all its addresses must be of this host, and the cluster must not be
    /// running [default: a cluster made for this run]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["fabric", "groups", "replicas", "provider", "as_efa"])]
    pub(crate) config: Option<PathBuf>,
    /// Torture a replicated service: nodes with a state machine, called by client processes with sessions, instead of
    /// the multicast alone
    #[arg(long)]
    pub(crate) service: bool,
    /// Fabric between the processes
    #[arg(long, value_name = "FABRIC", default_value = "shm")]
    pub(crate) fabric: DemoFabric,
    /// Number of groups
    #[arg(long, value_name = "G", default_value_t = 2)]
    pub(crate) groups: usize,
    /// Processes in each group
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) replicas: usize,
    /// Number of clients, which all run until the end; with --service they are processes that may be killed
    #[arg(long, value_name = "C", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) clients: u16,
    /// Duration of the faults, minutes
    #[arg(long, value_name = "M", default_value_t = 1.0, value_parser = minutes)]
    pub(crate) minutes: f64,
    /// Seed of the order and the durations of the faults, and of the messages and their destinations. Runs with the
    /// same seed still differ: faults are injected at times of the clock, whatever the processes do then [default:
    /// taken from the clock, and printed]
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
    /// Largest number of messages per second of all clients together; with --service, of calls
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rate: u32,
    /// Faults to inject [default: all that this cluster allows, except clock]
    #[arg(long, value_name = "FAULT,…", value_delimiter = ',')]
    pub(crate) faults: Vec<Fault>,
    /// Wait mode of idle processes
    #[arg(long, value_name = "MODE", default_value = "adaptive")]
    pub(crate) wait: Wait,
    /// Directory for the configuration, the histories and the output of the processes; it must be empty or absent, and
    /// it is kept [default: a new temporary one]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
    /// Keep the directory also after a run without failures
    #[arg(long)]
    pub(crate) keep: bool,
    /// Switch this mutant on
    #[arg(long, value_name = "WHAT", hide = true)]
    pub(crate) plant: Option<ChaosPlant>,
    #[command(flatten, next_help_heading = "With --fabric ofi")]
    pub(crate) ofi: OnOfi,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if minutes > 0.0 && minutes <= 1440.0 => Ok(minutes),
        _ => Err("give a number of minutes, more than 0 and at most 1440".to_owned()),
    }
}
