//! Why a configuration is refused.

use std::fmt;

use crate::config::{self, Problem};
use crate::debug::debug_as_display;

/// Why a configuration is refused. Its text says what is wrong, and where.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError(pub(super) config::ConfigError);

/// The kind of an error, by which a program decides what to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// There is no such file.
    Absent,
    /// The file cannot be read.
    Unreadable,
    /// What the configuration says is not possible.
    Invalid,
    /// The configuration has no group of that name.
    UnknownGroup,
}

impl ConfigError {
    /// Returns what to decide by.
    #[must_use]
    pub fn kind(&self) -> ConfigErrorKind {
        match &self.0.problem {
            Problem::Unreadable { absent: true, .. } => ConfigErrorKind::Absent,
            Problem::Unreadable { .. } => ConfigErrorKind::Unreadable,
            Problem::UnknownGroup { .. } => ConfigErrorKind::UnknownGroup,
            _ => ConfigErrorKind::Invalid,
        }
    }

    /// Returns where the problem is: `file:line:column`, as editors take it, or the file alone.
    #[must_use]
    pub fn location(&self) -> String {
        self.0.location()
    }

    /// Returns what to do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        self.0.remedy()
    }
}

debug_as_display!(ConfigError);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ConfigError {}
