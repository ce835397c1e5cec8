//! The errors of a process of a broadcast.

use std::io;
use std::path::PathBuf;

use stentor_fabric::WaitError;
use stentor_neb::{KeyError, NodeError};
use thiserror::Error;

use crate::debug::debug_as_display;
use crate::runtime::StartError;

debug_as_display!(BroadcastError, NotSent);

/// The reason why a process of a broadcast did not start or has ended, with the remedy.
#[derive(Error)]
#[error("broadcast process {name}: {problem}; {}", .problem.remedy())]
pub struct BroadcastError {
    name: Box<str>,
    problem: Box<Problem>,
}

/// The kind of a [`BroadcastError`], by which a program can decide what to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum BroadcastErrorKind {
    /// The configuration, the name or the secret key is wrong.
    Configuration,
    /// The operating system, the fabric or a lack of memory prevents the start.
    NotStarted,
    /// A majority of the other processes refuses this one permanently: it runs for the second time, or has another key,
    /// configuration or release.
    Refused,
    /// A call of the operating system failed, at the start or later.
    Failed,
}

#[derive(Debug, Error)]
pub(super) enum Problem {
    #[error("the configuration has no [neb]")]
    NoSection,
    #[error("it is not a process of the broadcast")]
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
    #[error("the other processes refuse it: {0}")]
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

    /// Returns the kind of the error.
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

    /// Returns what to do about the error.
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
            Problem::NoSecret => "pass it by `secret_file`, or remove `keys` from the configuration of all processes",
            Problem::NothingSigned => "add `keys` to the configuration of all processes, or pass no secret",
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

/// The reason why a message was not broadcast. The call had no effect, and the sequence number is not used up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum NotSent {
    /// Some other processes have not connected yet. The broadcast waits for them, so that no process misses a message.
    /// Call `turn` and try again. In mode `quorum` the wait ends `patience_ms` of `[neb]` after a sufficient number of
    /// processes has connected.
    #[error("not all other processes have connected yet; call `turn`, and send again")]
    NotBegun,
    /// A full window of earlier messages is not freed by enough processes yet. Call `turn` and try again.
    #[error("a full `window` of [neb] messages is not delivered everywhere yet; call `turn`, and send again")]
    Full,
    /// The message is longer than the configuration permits.
    #[error(
        "a message of {bytes} bytes is longer than the limit of {limit} bytes; send it in parts, or raise `payload_bytes` in [neb]"
    )]
    TooLong {
        /// Length of the message, in bytes.
        bytes: usize,
        /// Longest permitted length, in bytes.
        limit: usize,
    },
    /// An operator removed this process.
    #[error("an operator removed this process; it can take part again when the whole broadcast starts anew")]
    Removed,
}
