//! Arguments of `stentor channel`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use stentor_support::args::{ChannelFabric, Network, OnOfi};

#[derive(Subcommand, Debug)]
pub(crate) enum ChannelCommand {
    /// Pipe a file from one process to another: one side listens, the other one sends, and both compare its SHA-256
    ///
    /// `stentor channel cat --listen PLACE > copy` on one side, `stentor channel cat PLACE < file` on the other. The
    /// sender succeeds only if the receiver has written all bytes and found the same hash. A transfer that was
    /// interrupted is not resumed: start it again.
    Cat(ChannelCat),
}

#[derive(Args, Debug)]
pub(crate) struct ChannelCat {
    /// Meeting point of the two sides: HOST:PORT of the side that listens; on shared memory any name that both use
    #[arg(value_name = "PLACE")]
    pub(crate) place: String,
    /// Receive from the process that sends to PLACE; otherwise this side sends
    #[arg(short, long)]
    pub(crate) listen: bool,
    /// Send this file instead of standard input
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "listen")]
    pub(crate) input: Option<PathBuf>,
    /// Receive into this file instead of standard output; it must not exist, and is created once it is complete
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "listen")]
    pub(crate) output: Option<PathBuf>,
    /// Fabric between the two sides
    #[arg(long, value_name = "FABRIC", default_value = "shm")]
    pub(crate) fabric: ChannelFabric,
    /// Longest time without a connection, or without progress, before the command fails, seconds [default: 20 for a
    /// sender that finds no listener, otherwise unlimited]
    #[arg(short = 'w', long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: Option<u64>,
    /// With --fabric shm, directory for the control sockets, the same for both sides [default: below XDG_RUNTIME_DIR,
    /// or in /tmp]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) roce: CatOnRoce,
    #[command(flatten, next_help_heading = "With --fabric ofi")]
    pub(crate) ofi: OnOfi,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "With --fabric roce (--key and --bind also with ofi)")]
pub(crate) struct CatOnRoce {
    /// File with the key that both sides share; needed unless both sides have loopback addresses
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key: Option<PathBuf>,
    /// The sender's IP address, for its packets [default: the address with a route to the listener; on roce one of
    /// 127.N.255.x if the listener has the loopback address 127.N.x.y]
    #[arg(long, value_name = "ADDR", conflicts_with = "listen")]
    pub(crate) bind: Option<IpAddr>,
    #[command(flatten)]
    pub(crate) network: Network,
}
