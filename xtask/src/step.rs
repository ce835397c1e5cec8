//! The steps and their outcomes.

use anyhow::Result;

use crate::cargo::Context;

/// A step of `cargo xtask test` or `cargo xtask nightly`.
#[derive(Debug)]
pub(crate) struct Step {
    /// The step's name on the command line.
    pub name: &'static str,
    /// The purpose of the step, for `--help`.
    pub what: &'static str,
    /// Runs the step. An error is a failure; its text names what failed and where.
    pub run: fn(&Context) -> Result<Outcome>,
}

/// The outcome of a step that did not fail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// All checks of the step passed.
    Passed,
    /// The step passed, except for the checks that need this component, which is not installed.
    PassedWithout(Component),
    /// The step could not run, because it needs this component of another toolchain. It neither passed nor failed.
    NotRun(Component),
}

/// A component of a Rust toolchain. A step may lack only such a component; a step that lacks anything else fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Component {
    /// The component's name.
    pub name: &'static str,
    /// The command that installs the component.
    pub remedy: &'static str,
}
