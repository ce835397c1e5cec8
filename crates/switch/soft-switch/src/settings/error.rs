//! What can be wrong with a switch's configuration, where, and what to do.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use stentor_switch::registers::MOST;
use thiserror::Error;

/// A configuration was refused.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{}: {problem}; {}", self.location(), problem.remedy())]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// The place in it; `None` when the file could not be read at all.
    pub place: Option<Place>,
    /// What is wrong.
    pub problem: Problem,
}

/// A place in a text file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
}

impl Place {
    fn of(text: &str, byte: usize) -> Self {
        let byte = (0..=byte.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let before = &text[..byte];
        let line = before.rsplit('\n').next().unwrap_or(before);
        Place { line: before.matches('\n').count() + 1, column: line.chars().count() + 1 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl ConfigError {
    pub(super) fn unreadable(file: &Path, error: &std::io::Error) -> Self {
        ConfigError { file: file.to_owned(), place: None, problem: Problem::Unreadable { reason: error.to_string() } }
    }

    pub(super) fn at(file: &Path, text: &str, span: Range<usize>, problem: Problem) -> Self {
        ConfigError { file: file.to_owned(), place: Some(Place::of(text, span.start)), problem }
    }

    /// `file:line:column`, as editors take it.
    #[must_use]
    pub fn location(&self) -> String {
        let file = self.file.display();
        self.place.map_or_else(|| file.to_string(), |place| format!("{file}:{place}"))
    }

    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        self.problem.remedy()
    }
}

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
    /// Not TOML.
    #[error("not valid TOML: {message}")]
    Syntax {
        /// What the parser said.
        message: String,
    },
    /// A key that means nothing here.
    #[error("unknown key `{key}`")]
    UnknownKey {
        /// The key.
        key: String,
        /// What is known here.
        known: Vec<String>,
    },
    /// A key is missing.
    #[error("the key `{key}` is missing")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A number for a string, and so on.
    #[error("{message}")]
    WrongType {
        /// What the parser said.
        message: String,
    },
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

impl Problem {
    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Problem::Unreadable { .. } => {
                "name a file that this user may read; `stentor switch init` writes one".to_owned()
            }
            Problem::Syntax { .. } => {
                "correct this line; `stentor switch init` writes a file to compare with".to_owned()
            }
            Problem::UnknownKey { known, .. } => {
                format!("remove it or correct its spelling; known here: {}", known.join(", "))
            }
            Problem::MissingKey { key } => format!("add `{key} = …` here"),
            Problem::WrongType { .. } => "give a value of the expected type".to_owned(),
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
