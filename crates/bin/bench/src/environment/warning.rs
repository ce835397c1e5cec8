//! What on this machine would make a figure mislead.

use std::fmt;

use serde::Serialize;

/// Something about the machine that makes figures mislead, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Warning {
    /// What was found, and why it matters.
    pub(crate) what: String,
    pub(crate) remedy: String,
}

impl Warning {
    pub(super) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Warning { what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.remedy)
    }
}
