//! Warnings about circumstances that make figures misleading.

use std::fmt;

use serde::Serialize;

/// A circumstance that makes figures misleading, and its remedy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Warning {
    /// The circumstance, and why it matters.
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
