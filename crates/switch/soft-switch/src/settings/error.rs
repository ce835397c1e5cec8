//! Problems of a switch's configuration, with their place and remedy.

use std::ops::Range;

use stentor_fabric_net::config_file::{self, Flaw, Remedy};
use stentor_switch::registers::MOST;
use thiserror::Error;

/// Error that reports a problem of a configuration.
pub type ConfigError = config_file::ConfigError<Problem>;

/// A problem and its place in the text, in bytes.
pub(super) type Misplaced = (Range<usize>, Problem);

/// A problem of a configuration.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The file cannot be read.
    #[error("cannot read the switch's configuration: {reason}")]
    Unreadable {
        /// Message of the operating system.
        reason: String,
    },
    /// The file does not have the form of a configuration.
    #[error(transparent)]
    Form(#[from] Flaw),
    /// A name has invalid characters or an invalid length.
    #[error("`{}` is not a valid name", .name.escape_debug())]
    BadName {
        /// The invalid name.
        name: String,
    },
    /// An address cannot belong to an IPv4 host.
    #[error("{key}: bad address `{}`", .address.escape_debug())]
    BadAddress {
        /// Configuration key whose value is the address.
        key: &'static str,
        /// The configured address.
        address: String,
    },
    /// Both addresses of the switch are the same.
    #[error("`forward` and `backward` are both {address}")]
    OneAddress {
        /// The address that both `forward` and `backward` have.
        address: String,
    },
    /// A value is not one of the known words.
    #[error("unknown {key} `{}`", .word.escape_debug())]
    UnknownWord {
        /// Configuration key whose value is the word.
        key: &'static str,
        /// The configured word.
        word: String,
        /// The words that are valid for this key.
        known: &'static str,
    },
    /// The location of the cluster's secret key is neither `env:NAME` nor `file:PATH`.
    #[error("the key must say where it is, not what it is")]
    BadKey,
    /// Only one of `control` and `key` is configured.
    #[error("`{there}` is configured without `{missing}`")]
    Unpaired {
        /// The configuration key that is present.
        there: &'static str,
        /// The configuration key that is missing.
        missing: &'static str,
    },
    /// No host could ever use this switch.
    #[error("no set is configured, and no host can join one")]
    Useless,
    /// A number is out of range.
    #[error("{key} = {value} is outside {min}..={max}")]
    OutOfRange {
        /// Configuration key whose value is the number.
        key: &'static str,
        /// The configured value.
        value: String,
        /// Smallest valid value.
        min: u64,
        /// Largest valid value.
        max: u64,
    },
    /// A set or a rank occurs twice.
    #[error("{what} {number} occurs twice")]
    Twice {
        /// The kind of the number: `gid` or `rank`.
        what: &'static str,
        /// The number that occurs twice.
        number: u64,
    },
    /// A set has no host, or too many.
    #[error("set {gid} has {count} hosts")]
    Hosts {
        /// Number of the set.
        gid: u64,
        /// Number of hosts.
        count: usize,
    },
}

impl Remedy for Problem {
    fn remedy(&self) -> String {
        match self {
            Problem::Unreadable { .. } => {
                "name a file that this user may read; `stentor switch init` writes one".to_owned()
            }
            Problem::Form(flaw) => flaw.remedy("stentor switch init"),
            Problem::BadName { .. } => {
                "use 1 to 64 letters, digits, `.`, `-` or `_`, beginning with a letter or digit".to_owned()
            }
            Problem::BadAddress { key: "control", .. } => {
                "write an IPv4 address and a port, such as 127.0.1.1:7300".to_owned()
            }
            Problem::BadAddress { .. } => "write an IPv4 address of a host, such as 127.0.1.1".to_owned(),
            Problem::OneAddress { .. } => {
                "give the switch two addresses: senders write to `forward`, receivers answer to `backward`".to_owned()
            }
            Problem::UnknownWord { known, .. } => format!("use {known}"),
            Problem::BadKey => "write \"env:NAME\" or \"file:PATH\"; never the key itself".to_owned(),
            Problem::Unpaired { missing, .. } => {
                format!("add `{missing}`: hosts join sets at `control` and prove that they have the `key`")
            }
            Problem::Useless => "add `control` and `key`, or a [[set]]".to_owned(),
            Problem::OutOfRange { key, min, max, .. } => format!("set {key} to a value from {min} to {max}"),
            Problem::Twice { what, .. } => format!("give each its own {what}"),
            Problem::Hosts { .. } => format!("list 1 to {MOST} hosts"),
        }
    }
}
