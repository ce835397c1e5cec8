//! Arguments of `stentor leader`, `stentor group` and `stentor stop`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

#[derive(Subcommand, Debug)]
pub(crate) enum LeaderCommand {
    /// Ask every member for its leader and its progress
    Show(LeaderShow),
    /// Hand the leadership of a group to one of its members, without waiting for a timeout
    Move(LeaderMove),
}

/// The cluster, and the directory where its processes meet.
#[derive(Args, Debug)]
pub(crate) struct Where {
    /// The cluster's configuration
    #[arg(long, value_name = "FILE", env = "STENTOR_CONFIG", default_value = "cluster.toml", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    /// Directory for the control sockets, the same as that of the cluster's processes [default: below XDG_RUNTIME_DIR,
    /// or in /tmp]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct LeaderShow {
    #[command(flatten)]
    pub(crate) place: Where,
    /// Show only these groups [default: all]
    #[arg(long, value_name = "GROUP,…", value_delimiter = ',')]
    pub(crate) group: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct LeaderMove {
    #[command(flatten)]
    pub(crate) place: Where,
    /// The member that becomes the leader of its group
    #[arg(long, value_name = "ID")]
    pub(crate) to: String,
    /// Longest time to wait until the member leads, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) timeout: u64,
}

#[derive(Subcommand, Debug)]
pub(crate) enum GroupCommand {
    /// Begin a new incarnation of a group that lost its majority, or that other groups remember
    ///
    /// Without --ends the command changes nothing: it prints the states of the members, what would be lost, and the
    /// options to use. The new incarnation begins with the state of one member, or with an empty state. The group loses
    /// all other deliveries of the incarnation that ends, and the messages in flight to it. Members with another state
    /// end. Start these members again afterwards, and the clients that multicast to the group.
    Reset(GroupReset),
}

#[derive(Args, Debug)]
pub(crate) struct GroupReset {
    #[command(flatten)]
    pub(crate) place: Where,
    /// The group to reset
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: String,
    /// The incarnation to end; run the command without this option to see it
    #[arg(long, value_name = "INCARNATION")]
    pub(crate) ends: Option<String>,
    /// The member with whose state the new incarnation begins; it must run on this host
    #[arg(long, value_name = "ID", conflicts_with = "empty")]
    pub(crate) from: Option<String>,
    /// Begin with an empty state, at a member that runs on this host and has no memory of the group
    #[arg(long)]
    pub(crate) empty: bool,
    /// Longest time to wait for the promises of a majority, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) timeout: u64,
}

#[derive(Args, Debug)]
pub(crate) struct Stop {
    #[command(flatten)]
    pub(crate) place: Where,
    /// End only these members [default: all that run on this host]
    #[arg(long, value_name = "ID,…", value_delimiter = ',')]
    pub(crate) id: Vec<String>,
    /// Longest time to wait until the members have ended, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) timeout: u64,
}
