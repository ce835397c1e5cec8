//! Why a process of a broadcast does not start, does not go on, or does not send.

use std::io;
use std::path::PathBuf;

use stentor_fabric::WaitError;
use stentor_neb::{KeyError, NodeError};
use thiserror::Error;

use crate::debug::debug_as_display;
use crate::runtime::StartError;

debug_as_display!(BroadcastError, NotSent);

/// Why a process of a broadcast did not start, or has ended: what happened, where, and what to do about it.
#[derive(Error)]
#[error("broadcast process {name}: {problem}; {}", .problem.remedy())]
pub struct BroadcastError {
    name: Box<str>,
    problem: Box<Problem>,
}

/// The kind of an error, by which a program decides what to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum BroadcastErrorKind {
    /// The configuration, the name or the secret key does not fit.
    Configuration,
    /// The system, the fabric or the memory does not allow it.
    NotStarted,
    /// Most other processes refuse this one for good: it runs for the second time, or has another key or configuration.
    Refused,
    /// The system failed while the process ran.
    Failed,
}

#[derive(Debug, Error)]
pub(super) enum Problem {
    #[error("the configuration has no [neb]")]
    NoSection,
    #[error("it is none of the processes of the broadcast")]
    NotOne { known: Vec<String> },
    #[error("[neb] has `keys`, and no secret key was given")]
    NoSecret,
    #[error("a secret key was given, and [neb] has no `keys`")]
    NothingSigned,
    #[error("cannot read the secret key {path}: {source}")]
    SecretFile { path: PathBuf, source: io::Error },
    #[error("{path} holds no secret key")]
    NotASecret { path: PathBuf },
    #[error("{0}")]
    Key(KeyError),
    #[error("{0}")]
    Start(#[from] StartError),
    #[error("{0}")]
    Node(NodeError),
    #[error("the others do not let it in: {0}")]
    NotLetIn(String),
    #[error("cannot wait: {0}")]
    Wait(WaitError),
    #[error("cannot {what}: {source}")]
    System { what: &'static str, source: io::Error },
}

impl BroadcastError {
    pub(super) fn new(name: &str, problem: Problem) -> Self {
        BroadcastError { name: name.into(), problem: Box::new(problem) }
    }

    /// Returns what to decide by.
    #[must_use]
    pub fn kind(&self) -> BroadcastErrorKind {
        match *self.problem {
            Problem::NoSection
            | Problem::NotOne { .. }
            | Problem::NoSecret
            | Problem::NothingSigned
            | Problem::SecretFile { .. }
            | Problem::NotASecret { .. }
            | Problem::Key(_) => BroadcastErrorKind::Configuration,
            Problem::Start(_) | Problem::Node(_) => BroadcastErrorKind::NotStarted,
            Problem::NotLetIn(_) => BroadcastErrorKind::Refused,
            Problem::Wait(_) | Problem::System { .. } => BroadcastErrorKind::Failed,
        }
    }

    /// Returns what to do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        self.problem.remedy()
    }
}

impl Problem {
    fn remedy(&self) -> String {
        const DOCTOR: &str = "`stentor doctor` says what this machine can do";
        let remedy = match self {
            Problem::NotOne { known } => return format!("name one of {}", known.join(", ")),
            Problem::Start(error) => return error.remedy(),
            Problem::NoSection => {
                "add one with `group`, `mode` and `fault_model`; the file that `stentor config init` writes shows it"
            }
            Problem::NoSecret => "give it with `secret_file`, or take `keys` out of the configuration of all processes",
            Problem::NothingSigned => "add `keys` to the configuration of all processes, or give no secret",
            Problem::SecretFile { .. } | Problem::NotASecret { .. } => {
                "name a file with 64 hexadecimal digits; `stentor neb key` makes one"
            }
            Problem::Key(_) => "give each process the secret key that belongs to its public one in the configuration",
            Problem::Node(_) => "lower `window` or `payload_bytes` in [neb], or use another fabric",
            Problem::NotLetIn(_) => {
                "a process that ended cannot take part again before the whole broadcast starts anew; otherwise start all with the \
                 same key, configuration and release"
            }
            Problem::Wait(_) | Problem::System { .. } => DOCTOR,
        };
        remedy.to_owned()
    }
}

/// Why a message was not broadcast. Nothing was done, and the sequence is not used up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum NotSent {
    /// Not all others have been there yet, and they are waited for so that nobody misses anything. Turn, and send again. In mode `quorum`
    /// this passes after `patience_ms` in `[neb]`, once as many as have to be are there.
    #[error("the other processes are still waited for; turn, and send again")]
    NotBegun,
    /// A window of messages is not freed everywhere. Turn, and send again.
    #[error("`window` in [neb] messages are not delivered everywhere yet; turn, and send again")]
    Full,
    /// The message is longer than the configuration allows.
    #[error(
        "a message of {bytes} bytes, where {limit} are the most; send it in parts, or raise `payload_bytes` in [neb]"
    )]
    TooLong {
        /// Its length, bytes.
        bytes: usize,
        /// The longest, bytes.
        limit: usize,
    },
    /// An operator removed this process.
    #[error("an operator removed this process; it can take part again when the whole broadcast starts anew")]
    Removed,
}
