//! What ends a command early: what, where, remedy.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use stentor::config::ConfigError;

/// How a command that did its work ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Exit code 0.
    Good,
    /// A property or a run failed: exit code 1.
    Bad,
}

impl Verdict {
    pub(crate) fn of(good: bool) -> Self {
        if good { Verdict::Good } else { Verdict::Bad }
    }
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Good => ExitCode::SUCCESS,
            Verdict::Bad => ExitCode::from(1),
        }
    }
}

/// A command could not do its work.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Failure {
    /// What is wrong.
    pub(crate) what: String,
    /// The place.
    #[serde(rename = "where")]
    pub(crate) place: String,
    /// What to do.
    pub(crate) remedy: String,
    /// 1 when a run failed, 2 for bad usage or configuration.
    pub(crate) exit_code: u8,
}

impl Failure {
    /// Bad usage or configuration.
    pub(crate) fn usage(what: impl fmt::Display, place: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Failure { what: what.to_string(), place: place.to_string(), remedy: remedy.to_string(), exit_code: 2 }
    }

    /// A run failed.
    pub(crate) fn run(what: impl fmt::Display, place: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Failure { exit_code: 1, ..Failure::usage(what, place, remedy) }
    }

    /// A file that cannot be written.
    pub(crate) fn cannot_write(path: &Path, error: &std::io::Error) -> Self {
        Failure::usage(
            format_args!("cannot write: {error}"),
            path.display(),
            "name a place that this user may write to",
        )
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Failure::usage(&error.problem, error.location(), error.remedy())
    }
}

/// One block.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  where:  {}\n  remedy: {}", self.what, self.place, self.remedy)
    }
}
