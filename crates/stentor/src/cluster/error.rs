//! The error of a refused configuration.

use std::fmt;

use crate::config::{self, Problem};
use crate::debug::debug_as_display;

/// An error that explains why a configuration is refused. The text of the error describes the problem and its place.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError(pub(super) config::ConfigError);

/// The kind of an error, for a program that has to decide what to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// The file does not exist.
    Absent,
    /// The file cannot be read.
    Unreadable,
    /// The configuration is invalid.
    Invalid,
    /// The configuration has no group with that name.
    UnknownGroup,
    /// No group of the configuration has a member of that name.
    UnknownMember,
}

impl ConfigError {
    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ConfigErrorKind {
        match &self.0.problem {
            Problem::Unreadable { absent: true, .. } => ConfigErrorKind::Absent,
            Problem::Unreadable { .. } => ConfigErrorKind::Unreadable,
            Problem::UnknownGroup { .. } => ConfigErrorKind::UnknownGroup,
            Problem::UnknownMember { .. } => ConfigErrorKind::UnknownMember,
            _ => ConfigErrorKind::Invalid,
        }
    }

    /// Returns the place of the problem: `file:line:column`, as editors accept it, or only the file. For a
    /// configuration in code, returns the name of the setting.
    #[must_use]
    pub fn location(&self) -> String {
        self.0.location()
    }

    /// Returns the remedy for the problem.
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
