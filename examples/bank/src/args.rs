//! The command line of `bank`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use stentor::Cluster;

/// A bank whose accounts are spread over several groups.
#[derive(Parser, Debug)]
#[command(name = "bank", version, after_help = "Exit codes: 0 success, 1 a cut was wrong, 2 any other error.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) place: Where,
    #[command(subcommand)]
    pub(crate) action: Action,
}

/// The arguments that select the cluster.
#[derive(Args, Debug)]
pub(crate) struct Where {
    /// The configuration of the cluster; `stentor config init` writes one
    #[arg(long, global = true, default_value = "cluster.toml", value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Directory of the sockets of this host's processes, if it is not the default one
    #[arg(long, global = true, value_name = "DIRECTORY")]
    pub(crate) sockets: Option<PathBuf>,
}

impl Where {
    /// Reads the configuration.
    pub(crate) fn cluster(&self) -> Result<Cluster> {
        let cluster = Cluster::load(&self.config)?;
        Ok(match &self.sockets {
            Some(directory) => cluster.in_directory(directory),
            None => cluster,
        })
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum Action {
    /// Start a cluster of real processes, transfer with several clients, kill some, and check the sum at every cut
    Demo(Demo),
    /// Run one node
    Node {
        /// The node's name in the configuration
        id: String,
        /// End when the standard input ends, as it does when the process that started this one dies
        #[arg(long, hide = true)]
        with_parent: bool,
    },
    /// Transfer at random, as a client of `bank demo`
    #[command(hide = true)]
    Teller(TellerArguments),
    /// Open an account
    Open {
        account: u64,
        /// The amount of a first deposit; without it the account is empty
        #[arg(default_value_t = 0)]
        amount: u64,
    },
    /// Deposit an amount into an account
    Deposit { account: u64, amount: u64 },
    /// Withdraw an amount from an account
    Withdraw { account: u64, amount: u64 },
    /// Transfer from one account to another
    Transfer { from: u64, to: u64, amount: u64 },
    /// Print the sums of all groups at one position of their order
    Sum,
    /// End transfers that their clients have left in flight
    Finish {
        /// End only transfers that began at least this long ago
        #[arg(long, default_value = "10s", value_name = "TIME")]
        older_than: Time,
        /// Cancel all of these transfers, instead of settling those that can be settled
        #[arg(long)]
        cancel: bool,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// The fabric that carries the messages
    #[arg(long, value_enum, default_value_t = Fabric::Shm)]
    pub(crate) fabric: Fabric,
    /// Number of groups; each has three processes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) groups: u8,
    /// Number of transfers of all clients together
    #[arg(long, default_value_t = 3000)]
    pub(crate) transfers: u64,
    /// Number of clients that transfer at the same time
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) clients: u8,
    /// Number of times to kill and restart the process that leads a group and then a client, with one group after the
    /// other
    #[arg(long, value_name = "TIMES", num_args = 0..=1, default_value_t = 0, default_missing_value = "1")]
    pub(crate) kills: u16,
}

#[derive(Args, Debug)]
pub(crate) struct TellerArguments {
    /// The file of the client's journal
    #[arg(long)]
    pub(crate) journal: PathBuf,
    /// Number of transfers after which the client ends, including those of its earlier processes
    #[arg(long)]
    pub(crate) transfers: u64,
    /// Number of accounts to use; their numbers begin at 0
    #[arg(long)]
    pub(crate) accounts: u64,
    /// The seed of the random choices
    #[arg(long)]
    pub(crate) seed: u64,
}

/// A fabric that needs no devices, so it works on every host.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fabric {
    /// Shared memory
    Shm,
    /// RoCEv2 in user space
    Roce,
}

/// A duration: a number with the unit `ms` or `s`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Time(Duration);

impl From<Time> for Duration {
    fn from(time: Time) -> Duration {
        time.0
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0.as_millis())
    }
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Time, String> {
        let number = |digits: &str| digits.parse::<u64>().ok();
        let ms = text.strip_suffix("ms").and_then(number).map(Duration::from_millis);
        let s = || text.strip_suffix('s').and_then(number).map(Duration::from_secs);
        ms.or_else(s).map(Time).ok_or_else(|| format!("`{text}` is not a duration: write `500ms` or `10s`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!("10s".parse(), Ok(Time(Duration::from_secs(10))));
        assert_eq!("5ms".parse(), Ok(Time(Duration::from_millis(5))));
        for wrong in ["", "s", "10", "-1s", "1 s"] {
            assert!(wrong.parse::<Time>().is_err(), "{wrong}");
        }
    }
}
