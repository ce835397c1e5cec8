//! Arguments of `stentor switch`.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use stentor_support::args::Network;

use super::run::Wait;

/// Runs a switch, or inspects one.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Switch {
    #[command(subcommand)]
    pub(crate) command: Option<SwitchCommand>,
    #[command(flatten)]
    pub(crate) run: SwitchRun,
}

#[derive(Subcommand, Debug)]
pub(crate) enum SwitchCommand {
    /// Show a running switch: sets, registers by stage, counters, injected faults, and the resources of a set
    Show(SwitchShow),
    /// Write a commented configuration to begin with
    Init(SwitchInit),
}

#[derive(Args, Debug)]
pub(crate) struct SwitchRun {
    /// The switch's configuration; `stentor switch init` writes one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = "switch.toml")]
    pub(crate) config: Option<PathBuf>,
    /// Directory for the control socket [default: below XDG_RUNTIME_DIR, or in /tmp]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
    /// Wait mode of an idle switch
    #[arg(long, value_name = "HOW", default_value = "adaptive")]
    pub(crate) wait: Wait,
    /// Stop when standard input ends, as well as on SIGINT and SIGTERM
    #[arg(long)]
    pub(crate) until_eof: bool,
    /// Faults of the network. If any chance is given, these replace those of `[faults]` in the configuration.
    #[command(flatten)]
    pub(crate) network: Network,
}

#[derive(Args, Debug)]
pub(crate) struct SwitchShow {
    /// The switch's configuration
    #[arg(long, value_name = "FILE", default_value = "switch.toml", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    /// Directory for the control socket, as the switch has it [default: below XDG_RUNTIME_DIR, or in /tmp]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
    /// Show the registers of this set, stage by stage
    #[arg(long, value_name = "GID")]
    pub(crate) set: Option<u16>,
}

#[derive(Args, Debug)]
pub(crate) struct SwitchInit {
    /// The cluster that the switch serves
    #[arg(long, value_name = "NAME", default_value = "example")]
    pub(crate) cluster: String,
    /// The switch's address for senders
    #[arg(long, value_name = "ADDR", default_value = "127.0.1.1")]
    pub(crate) forward: Ipv4Addr,
    /// The switch's address for receivers
    #[arg(long, value_name = "ADDR", default_value = "127.0.1.2")]
    pub(crate) backward: Ipv4Addr,
    /// Address where hosts request sets [default: port 7300 of its address for senders]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) control: Option<SocketAddrV4>,
    /// Location of the cluster's key
    #[arg(long, value_name = "file:PATH|env:NAME", default_value = "file:cluster.key")]
    pub(crate) key: String,
    /// File to write
    #[arg(short, long, value_name = "FILE", default_value = "switch.toml", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,
    /// Overwrite a file that exists
    #[arg(long)]
    pub(crate) force: bool,
}
