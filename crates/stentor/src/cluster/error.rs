//! Why a configuration is refused.

use std::fmt;

use crate::config;

/// Why a configuration is refused. Its text says what is wrong, and where.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError(pub(super) config::ConfigError);

impl ConfigError {
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

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ConfigError {}
