//! Problems of a configuration: what is wrong, where it is, and the remedy.

use std::fmt;
use std::path::Path;

use stentor_fabric::OsError;
use stentor_fabric_net::config_file::{self, Flaw, Remedy};
use thiserror::Error;

use super::limits::{MAX_GROUP_PROCESSES, MAX_GROUPS, MAX_NAME};

/// The error of a refused configuration.
pub type ConfigError = config_file::ConfigError<Problem>;

/// Returns the error for a file that cannot be read.
pub(super) fn unreadable(file: &Path, error: &std::io::Error) -> ConfigError {
    let problem = Problem::Unreadable {
        reason: error.to_string(),
        absent: error.kind() == std::io::ErrorKind::NotFound,
        foreign: error.kind() == std::io::ErrorKind::InvalidData,
        system: error.raw_os_error().map(OsError),
    };
    ConfigError { file: file.to_owned(), position: None, problem }
}

/// A problem and its place in the text, a range of bytes.
pub(super) type Misplaced = (std::ops::Range<usize>, Problem);

/// The place of the first of two values that exclude each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First {
    /// The place is this line of the file.
    Line(usize),
    /// The place is this setting of a configuration in code.
    Setting(String),
}

impl fmt::Display for First {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            First::Line(line) => write!(f, "in line {line}"),
            First::Setting(setting) => write!(f, "of {setting}"),
        }
    }
}

/// A problem of a configuration.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The file cannot be read.
    #[error("cannot read the configuration: {reason}")]
    Unreadable {
        /// Message of the system.
        reason: String,
        /// `true` if the file does not exist.
        absent: bool,
        /// `true` if the file is readable but not a text, or too long for a configuration.
        foreign: bool,
        /// Number of the system's error.
        system: Option<OsError>,
    },
    /// The file does not have the form of a configuration.
    #[error(transparent)]
    Form(#[from] Flaw),
    /// The file has no `[[group]]`.
    #[error("the cluster has no group")]
    NoGroups,
    /// More groups than [`MAX_GROUPS`].
    #[error("{count} groups: at most {MAX_GROUPS} are allowed")]
    TooManyGroups {
        /// Number of groups.
        count: usize,
    },
    /// A group without processes.
    #[error("group `{group}` has no process")]
    EmptyGroup {
        /// The group.
        group: String,
    },
    /// A group with more processes than [`MAX_GROUP_PROCESSES`].
    #[error("group `{group}` has {count} processes: at most {MAX_GROUP_PROCESSES} are allowed")]
    TooManyProcesses {
        /// The group.
        group: String,
        /// Number of processes.
        count: usize,
    },
    /// A name with invalid characters or of an invalid length.
    #[error("{what} `{}` is not a valid name: {reason}", .name.escape_debug())]
    BadName {
        /// `cluster`, `group id` or `process id`.
        what: &'static str,
        /// The name.
        name: String,
        /// The reason.
        reason: String,
    },
    /// A process has the name of a client id.
    #[error("process id `{name}` is the name of a client id")]
    ClientName {
        /// The name.
        name: String,
    },
    /// A name occurs twice.
    #[error("duplicate {what} `{name}`: the first is {first}")]
    Duplicate {
        /// `group id`, `process id`, `address` or, on `roce`, the IP address.
        what: &'static str,
        /// The name.
        name: String,
        /// Place of the first occurrence.
        first: First,
    },
    /// IPv4 and IPv6 addresses are mixed.
    #[error("`{address}` and the address {first} are of different kinds, IPv4 and IPv6: they cannot reach each other")]
    Families {
        /// The address.
        address: String,
        /// Place of the first address.
        first: First,
    },
    /// A malformed address, or one on which no process can listen or that none can reach.
    #[error("bad address `{}`: {reason}", .address.escape_debug())]
    BadAddress {
        /// The address.
        address: String,
        /// The reason.
        reason: &'static str,
    },
    /// An unknown fabric.
    #[error("unknown fabric `{}`", .name.escape_debug())]
    UnknownFabric {
        /// The name.
        name: String,
    },
    /// An unknown value of `total_loss`.
    #[error("unknown total_loss `{}`", .name.escape_debug())]
    UnknownTotalLoss {
        /// The value.
        name: String,
    },
    /// The fabric's name contains a provider.
    #[error("fabric `{}` names a provider, too", .name.escape_debug())]
    FabricProvider {
        /// The name.
        name: String,
    },
    /// A provider that libfabric cannot have, or that is named twice.
    #[error("{} `{}`", if *.twice { "a second provider" } else { "no provider of libfabric is called" }, .name.escape_debug())]
    BadProvider {
        /// The name.
        name: String,
        /// `true` if the provider was named before.
        twice: bool,
    },
    /// Unknown restrictions.
    #[error("no restrictions are called `{}`", .name.escape_debug())]
    BadEfa {
        /// The name.
        name: String,
    },
    /// An unknown election.
    #[error("unknown election `{}`", .name.escape_debug())]
    UnknownElection {
        /// The name.
        name: String,
    },
    /// An election that this version does not support.
    #[error("election `{name}` is not in this version")]
    AbsentElection {
        /// The name.
        name: String,
    },
    /// The value is neither `env:NAME` nor `file:PATH`.
    #[error("the key must say where it is, not what it is")]
    BadKey,
    /// A size is outside its range.
    #[error("{key} = {value} is outside {min}..={max}")]
    OutOfRange {
        /// Key of the size, with its table.
        key: &'static str,
        /// The value.
        value: i64,
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// The protocol does not support these groups.
    #[error("the cluster is impossible: {reason}")]
    Impossible {
        /// The reason.
        reason: String,
    },
    /// No group has this name.
    #[error("there is no group `{}`", .name.escape_debug())]
    UnknownGroup {
        /// The name.
        name: String,
    },
    /// No group has a member of this name.
    #[error("no group has a member `{}`", .name.escape_debug())]
    UnknownMember {
        /// The name.
        name: String,
    },
    /// The broadcast is impossible, for example because there are too few processes for the fault model.
    #[error("[neb] is impossible: {error}")]
    Neb {
        /// The reason.
        error: stentor_neb::ConfigError,
    },
    /// An unknown value in `[neb]`.
    #[error("unknown {key} `{}`", .name.escape_debug())]
    NebUnknown {
        /// Key of the value.
        key: &'static str,
        /// The value.
        name: String,
        /// The known values.
        known: &'static str,
    },
    /// A size of `[neb]` is outside its range.
    #[error("neb.{key} = {value} is outside 0..={max}")]
    NebOutOfRange {
        /// The key.
        key: &'static str,
        /// The value.
        value: i64,
        /// Largest value.
        max: u64,
    },
    /// A public key is invalid, is missing, or belongs to no process of the group.
    #[error("the key of `{}`: {reason}", .process.escape_debug())]
    NebKey {
        /// The process.
        process: String,
        /// The reason.
        reason: &'static str,
    },
    /// An RDMA device cannot have this name.
    #[error("no RDMA device is called `{}`", name.escape_debug())]
    BadDevice {
        /// The name.
        name: String,
    },
    /// A number is not a power of two.
    #[error("{key} = {value} is not a power of two")]
    NotPowerOfTwo {
        /// The key.
        key: &'static str,
        /// The value.
        value: i64,
    },
}

impl Remedy for Problem {
    fn remedy(&self) -> String {
        Problem::remedy(self)
    }
}

impl Problem {
    /// Returns the remedy for the problem.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Problem::Unreadable { absent: true, .. } => {
                "write one with `stentor config init`, or name the right file".to_owned()
            }
            Problem::Unreadable { foreign: true, .. } => {
                "name a configuration; `stentor config init` writes one".to_owned()
            }
            Problem::Unreadable { system, .. } => {
                system.and_then(OsError::remedy).unwrap_or("name a file that this user may read").to_owned()
            }
            Problem::Form(flaw) => flaw.remedy("stentor config init"),
            Problem::NoGroups => "add a [[group]] with `id` and `process`".to_owned(),
            Problem::TooManyGroups { .. } => "split the cluster in two".to_owned(),
            Problem::EmptyGroup { .. } => "list its processes, or remove the group".to_owned(),
            Problem::TooManyProcesses { .. } => "split the group in two; 3 or 5 processes are usual".to_owned(),
            Problem::BadName { .. } => {
                format!("use 1 to {MAX_NAME} letters, digits, `.`, `-` or `_`, beginning with a letter or digit")
            }
            Problem::ClientName { .. } => "choose a name that is not `c` and a number".to_owned(),
            Problem::Duplicate { what, .. } => format!("give each its own {what}"),
            Problem::Families { .. } => "give all processes IPv4 addresses, or all IPv6".to_owned(),
            Problem::BadAddress { .. } => "write host:port, such as 127.0.0.1:7101 or [::1]:7101".to_owned(),
            Problem::UnknownFabric { .. } => "use `shm`, `roce`, `verbs`, `ofi` or `sim`".to_owned(),
            Problem::UnknownTotalLoss { .. } => "use `begin` or `refuse`".to_owned(),
            Problem::FabricProvider { name } => {
                let provider = name.strip_prefix("ofi:").unwrap_or_default();
                format!("write fabric = \"ofi\", and provider = \"{}\" in [ofi]", provider.escape_debug())
            }
            Problem::BadProvider { .. } => {
                "name providers as `stentor doctor` lists them, each once, with commas between them: \"efa,tcp;ofi_rxm\""
                    .to_owned()
            }
            Problem::BadEfa { .. } => "write \"efa\" or \"efa-direct\", or leave it out".to_owned(),
            Problem::UnknownElection { .. } | Problem::AbsentElection { .. } => "use kind = \"heartbeat\"".to_owned(),
            Problem::BadKey => "write \"env:NAME\" or \"file:PATH\"; never the key itself".to_owned(),
            Problem::OutOfRange { key, min, max, .. } => format!("set {key} to a value from {min} to {max}"),
            Problem::UnknownGroup { .. } => "name a group of this configuration".to_owned(),
            Problem::UnknownMember { .. } => "name a member of this configuration".to_owned(),
            Problem::Impossible { .. } => "change the groups".to_owned(),
            Problem::Neb { .. } => "change [neb], or the processes of its group".to_owned(),
            Problem::NebUnknown { known, .. } => format!("use {known}"),
            Problem::NebOutOfRange { key, max, .. } => format!("set {key} to a value of at most {max}"),
            Problem::NebKey { .. } => {
                "give every process of the group the public key that `stentor neb key` prints for it".to_owned()
            }
            Problem::BadDevice { .. } => {
                "name a device as `stentor doctor` lists them, such as mlx5_0, or remove the key: the device with the \
                 process's address is taken"
                    .to_owned()
            }
            Problem::NotPowerOfTwo { value, .. } => {
                let (below, above) = neighbours(*value);
                format!("use {below} or {above}")
            }
        }
    }
}

/// Returns the powers of two around a value that is not one.
fn neighbours(value: i64) -> (u64, u64) {
    let above = u64::try_from(value).unwrap_or(1).max(1).next_power_of_two();
    ((above / 2).max(1), above)
}
