//! Steps, and how they end.

use anyhow::Result;

use crate::cargo::Context;

/// One thing that is run.
#[derive(Debug)]
pub(crate) struct Step {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is for, for the usage.
    pub what: &'static str,
    /// Runs it. An error is a failure; its text says what and where.
    pub run: fn(&Context) -> Result<Outcome>,
}

/// How a step ended that did not fail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Everything it looks at is as it should be.
    Passed,
    /// The step passed, but for what this component of a toolchain checks, which is not installed.
    PassedWithout(Component),
    /// The step could not run without this component of another toolchain. Neither passed nor failed.
    NotRun(Component),
}

/// A component of a Rust toolchain, or of another one. Nothing but these may be missing: a step that lacks anything else fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Component {
    /// The component's name.
    pub name: &'static str,
    /// The command that installs it.
    pub remedy: &'static str,
}
