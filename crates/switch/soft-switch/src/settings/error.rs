//! What can be wrong with a switch's configuration, where, and what to do.

use std::ops::Range;

use stentor_fabric_net::config_file::{self, Flaw, Remedy};
use stentor_switch::registers::MOST;
use thiserror::Error;

/// A configuration was refused.
pub type ConfigError = config_file::ConfigError<Problem>;

/// A problem and where in the text it is (bytes).
pub(super) type Misplaced = (Range<usize>, Problem);

/// What is wrong with a configuration.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The file cannot be read.
    #[error("cannot read the switch's configuration: {reason}")]
    Unreadable {
        /// What the system said.
        reason: String,
    },
    /// Not of the form that a configuration has.
    #[error(transparent)]
    Form(#[from] Flaw),
    /// A name that no file could have.
    #[error("`{}` is not a valid name", .name.escape_debug())]
    BadName {
        /// The name.
        name: String,
    },
    /// An address that no host of IPv4 has.
    #[error("{key}: bad address `{}`", .address.escape_debug())]
    BadAddress {
        /// The key.
        key: &'static str,
        /// What stands there.
        address: String,
    },
    /// One address for both.
    #[error("`forward` and `backward` are both {address}")]
    OneAddress {
        /// The address.
        address: String,
    },
    /// A word that means nothing there.
    #[error("unknown {key} `{}`", .word.escape_debug())]
    UnknownWord {
        /// The key.
        key: &'static str,
        /// The word.
        word: String,
        /// What is known.
        known: &'static str,
    },
    /// Neither `env:NAME` nor `file:PATH`.
    #[error("the key must say where it is, not what it is")]
    BadKey,
    /// One of `control` and `key` alone.
    #[error("`{there}` without `{missing}`")]
    Unpaired {
        /// What there is.
        there: &'static str,
        /// What there is not.
        missing: &'static str,
    },
    /// Nobody could ever use it.
    #[error("no set is given, and nobody can ask for one")]
    Useless,
    /// A number outside its limits.
    #[error("{key} = {value} is outside {min}..={max}")]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// What stands there.
        value: String,
        /// The least.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// A set or a rank twice.
    #[error("{what} {number} is there twice")]
    Twice {
        /// `gid` or `rank`.
        what: &'static str,
        /// Which.
        number: u64,
    },
    /// No hosts, or too many.
    #[error("set {gid} has {count} hosts")]
    Hosts {
        /// The set.
        gid: u64,
        /// How many.
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
                "give the switch two addresses: which one a packet comes to says which way it goes".to_owned()
            }
            Problem::UnknownWord { known, .. } => format!("use {known}"),
            Problem::BadKey => "write \"env:NAME\" or \"file:PATH\"; never the key itself".to_owned(),
            Problem::Unpaired { missing, .. } => {
                format!("add `{missing}`: whoever asks for a set shows that it has the key")
            }
            Problem::Useless => "add `control` and `key`, or a [[set]]".to_owned(),
            Problem::OutOfRange { key, min, max, .. } => format!("set {key} to a value from {min} to {max}"),
            Problem::Twice { what, .. } => format!("give each its own {what}"),
            Problem::Hosts { .. } => format!("list 1 to {MOST} hosts"),
        }
    }
}
