//! Errors that end a command early. Each contains what is wrong, where, and what to do about it.

use std::error::Error;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use stentor::config::ConfigError;
use stentor_checker::history::{Fault, HistoryError};
use stentor_fabric::OsError;

/// The outcome of a command that did its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Exit code 0.
    Good,
    /// A property or a run failed: exit code 1.
    Bad,
    /// The input allows no judgement: exit code 3.
    Undecided,
}

impl Verdict {
    /// Returns `Good` or `Bad`.
    pub fn of(good: bool) -> Self {
        if good { Verdict::Good } else { Verdict::Bad }
    }
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Good => ExitCode::SUCCESS,
            Verdict::Bad => ExitCode::from(1),
            Verdict::Undecided => ExitCode::from(3),
        }
    }
}

/// An error that kept a command from doing its work.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Failure {
    /// Description of the problem.
    pub what: String,
    /// The file, argument or process that the problem is about.
    #[serde(rename = "where")]
    pub place: String,
    /// Advice for the user.
    pub remedy: String,
    /// Exit code: 1 if a run failed, 2 for bad usage or configuration.
    pub exit_code: u8,
}

impl Failure {
    /// Returns a failure for bad usage or configuration.
    pub fn usage(what: impl fmt::Display, place: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Failure { what: what.to_string(), place: place.to_string(), remedy: remedy.to_string(), exit_code: 2 }
    }

    /// Returns a failure of a run.
    pub fn run(what: impl fmt::Display, place: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Failure { exit_code: 1, ..Failure::usage(what, place, remedy) }
    }

    /// Returns a failure for a file that cannot be written.
    pub fn cannot_write(path: &Path, error: &std::io::Error) -> Self {
        let usual = match error.kind() {
            ErrorKind::NotFound => "make its directory first, or name another place",
            _ => "name a place that this user may write to",
        };
        let remedy = OsError::remedy_for(error).unwrap_or(usual);
        Failure::usage(format_args!("cannot write: {error}"), path.display(), remedy)
    }

    /// Returns a failure for a new file of kind `what` that cannot be created. Existing files are never overwritten.
    pub fn cannot_create(what: &str, path: &Path, error: &std::io::Error) -> Self {
        if error.kind() != ErrorKind::AlreadyExists {
            return Failure::cannot_write(path, error);
        }
        let what = format_args!("the {what} exists already; it was not changed");
        Failure::usage(what, path.display(), "name another file")
    }

    /// Returns a log line about a history that failed, for a process that continues without a history.
    pub fn while_going_on(&self) -> String {
        let Failure { what, place, remedy, .. } = self;
        format!(
            "{place}: {what}; this process goes on without it; {remedy}, and start this process anew with another history"
        )
    }

    /// Returns a failure of a run because of an error of the system. `otherwise` is the remedy if the error is not
    /// about a limit of the system.
    pub fn refused(error: &(dyn Error + 'static), place: impl fmt::Display, otherwise: &str) -> Self {
        Failure::run(error, place, OsError::remedy_in(error).unwrap_or(otherwise))
    }

    /// Returns a failure of a system call. `what` describes what was tried, which the error of the system does not
    /// contain. [`refused`](Self::refused) is for errors that contain it.
    pub fn system(what: impl fmt::Display, error: &std::io::Error, place: impl fmt::Display, otherwise: &str) -> Self {
        Failure { what: format!("{what}: {error}"), ..Failure::refused(error, place, otherwise) }
    }
}

/// Returns the remedy among the last lines that a child process printed.
pub fn remedy_of<'a>(said: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    said.into_iter().find_map(|line| line.trim().strip_prefix("remedy: "))
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Failure::usage(&error.problem, error.location(), error.remedy())
    }
}

impl From<HistoryError> for Failure {
    fn from(error: HistoryError) -> Self {
        let remedy = match &error.fault {
            Fault::Io(_) => "name a history file (JSON Lines) that this user may read",
            Fault::Empty | Fault::NotACluster => "begin each file with its first line, the event `cluster`",
            Fault::ClusterDiffers { .. } | Fault::SecondCluster => {
                "check the files of one run together, and no files of other runs"
            }
            Fault::Truncated => "leave the file out: it records nothing",
            Fault::Version(_) => "check it with the program of that version",
            Fault::NotItsOwn { .. } => {
                "correct the line or its producer: only the process itself records what it sends"
            }
            _ => "correct the line or its producer; docs/history.md has the schema",
        };
        Failure::usage(&error.fault, format_args!("{}:{}", error.file, error.line), remedy)
    }
}

/// Prints the failure as one block of lines.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  where:  {}\n  remedy: {}", self.what, self.place, self.remedy)
    }
}
