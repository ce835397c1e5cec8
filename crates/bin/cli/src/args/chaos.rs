//! Arguments of `stentor chaos`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use stentor_support::args::{DemoFabric, OnOfi};

use super::run::Wait;

/// A fault that the command injects into a member or a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub(crate) enum Fault {
    /// SIGKILL, and a start after 0 to 2 s
    Kill,
    /// SIGSTOP, and SIGCONT
    Stop,
    /// All packets to or from a member are lost, of one process or of all (roce)
    Cut,
    /// Some packets to and from a member are lost (roce)
    Loss,
    /// `leader move`
    Move,
    /// SIGTERM, and a start once the process has ended
    Restart,
    /// The clock of a member is set or runs at another rate, and is right again after 2 to 6 s; only if it is named
    /// here, and with the Debian package `libfaketime`
    Clock,
    /// SIGKILL of a client's process, and a start after 0 to 2 s that resumes its session (--service)
    Client,
}

/// A mutant of the command itself. Tests use it to show that the command detects such a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ChaosPlant {
    /// Stop a majority of the first group, and assume that it runs
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
    /// The cluster to torture; all its addresses must be of this host, and it must not run [default: one made for this
    /// run]
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
    /// Clients, all of which live as long as the run; with --service processes that may be killed
    #[arg(long, value_name = "C", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) clients: u16,
    /// Duration of the faults, minutes
    #[arg(long, value_name = "M", default_value_t = 1.0, value_parser = minutes)]
    pub(crate) minutes: f64,
    /// Fixes the order of the faults, the duration of each, and the messages and their destinations. It does not fix
    /// the run: faults come at times of the clock, and the system decides what else happens then [default: from the
    /// clock; it is printed]
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
    /// Messages per second of all clients together, at most; with --service calls
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rate: u32,
    /// The faults [default: all that the fabric allows]
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
    /// Inject an error on purpose
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
