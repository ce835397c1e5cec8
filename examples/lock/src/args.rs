//! The command line of `lock`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};
use stentor::{Cluster, Group};

/// Locks with leases, fencing tokens and watches.
#[derive(Parser, Debug)]
#[command(name = "lock", version, after_help = "Exit codes: 0 success, 1 the demonstration failed, 2 any other error.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) place: Where,
    #[command(subcommand)]
    pub(crate) action: Action,
}

/// The arguments that select the cluster.
#[derive(Args, Debug)]
pub(crate) struct Where {
    /// The configuration of the cluster, whose first group has the locks; `stentor config init` writes one
    #[arg(long, global = true, default_value = "cluster.toml", value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Directory of the sockets of this host's processes, if it is not the default one
    #[arg(long, global = true, value_name = "DIRECTORY")]
    pub(crate) sockets: Option<PathBuf>,
}

impl Where {
    /// Reads the configuration. Returns the cluster and its first group, which has the locks.
    pub(crate) fn cluster(&self) -> Result<(Cluster, Group)> {
        let cluster = Cluster::load(&self.config)?;
        let cluster = match &self.sockets {
            Some(directory) => cluster.in_directory(directory),
            None => cluster,
        };
        let group = cluster.groups().next().context("the configuration has no groups: add a [[group]]")?;
        Ok((cluster, group))
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum Action {
    /// Show with real processes how a stopped holder loses its lock, and how the resource refuses its late write
    Demo {
        /// Number of holders to stop, one after the other; before each stop but the first, a node is killed and started
        /// again
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
        rounds: u16,
    },
    /// Run one node
    Node {
        /// The node's name in the configuration
        id: String,
        /// End when the standard input ends, as it does when the process that started this one dies
        #[arg(long, hide = true)]
        with_parent: bool,
    },
    /// Wait for a lock, and hold it until the standard input ends; the lease is renewed after each third of its length
    Hold(Hold),
    /// Print each end of a lease of a lock with its reason, until the standard input ends
    Watch {
        /// The lock
        name: String,
    },
    /// Print all locks that are held
    Show,
}

#[derive(Args, Debug)]
pub(crate) struct Hold {
    /// The lock
    pub(crate) name: String,
    /// The length of the lease
    #[arg(long, default_value = "6s", value_name = "TIME")]
    pub(crate) lease: Time,
    /// The socket of a resource that is used under the lock, as in `lock demo`
    #[arg(long, hide = true, value_name = "SOCKET")]
    pub(crate) resource: Option<PathBuf>,
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
