//! The errors of channels.

use std::io;
use std::time::Duration;

use stentor_channel::{Cause, ChannelError as Failure, EndpointError, OpenError};
use stentor_fabric::WaitError;
use thiserror::Error;

use crate::debug::debug_as_display;
use crate::runtime::StartError;

debug_as_display!(ChannelError);

/// The reason why a channel was not opened, did not accept a message, or has failed, with the remedy.
#[derive(Error)]
#[error("channel {place}: {problem}; {}", .problem.remedy())]
pub struct ChannelError {
    place: Box<str>,
    problem: Box<Problem>,
}

/// The kind of a [`ChannelError`], by which a program can decide what to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ChannelErrorKind {
    /// This end cannot be opened. For example, an argument is invalid, the place or address is in use, the fabric is
    /// not available, or there is too little memory.
    NotStarted,
    /// The other end was not open in time.
    PeerAbsent,
    /// The other end was opened with another key, configuration, limit or release.
    Mismatch,
    /// The message is longer than the channel permits. It is not sent. The channel remains usable.
    TooLong,
    /// This end has finished sending or is closed. The message is not sent.
    Finished,
    /// The call has timed out, and has neither sent nor received a message. The channel remains usable.
    TimedOut,
    /// The other end has ended, has aborted the channel, or cannot be reached any more. Open another channel.
    PeerGone,
    /// The channel has failed for another reason. Open another channel.
    Failed,
}

#[derive(Debug, Error)]
pub(super) enum Problem {
    #[error("{0}")]
    Start(StartError),
    #[error("{what}")]
    Impossible { what: String, remedy: &'static str },
    #[error("{0}")]
    Endpoint(EndpointError),
    #[error("{0}")]
    Open(OpenError),
    #[error("the other end was not open within {}", seconds(.0))]
    Absent(Duration),
    #[error("the two ends did not connect within {}: {why}", seconds(.waited))]
    Unmet { waited: Duration, why: String },
    #[error("the other end refuses this one: {0}")]
    NotLetIn(String),
    #[error("a message of {bytes} bytes is longer than the limit of {limit} bytes")]
    TooLong { bytes: u64, limit: u64 },
    #[error("this end has finished sending")]
    Finished,
    #[error("{what} took longer than {}", seconds(.waited))]
    TimedOut { what: &'static str, waited: Duration },
    #[error("a future of `send` was leaked after it had sent a part of its message, so no message can follow")]
    Leaked,
    #[error("{}: {}", .0.operation, .0.cause)]
    Failed(Failure),
    #[error("cannot wait: {0}")]
    Wait(WaitError),
    #[error("cannot {what}: {source}")]
    System { what: &'static str, source: io::Error },
}

fn seconds(time: &Duration) -> String {
    format!("{} s", time.as_millis() as f64 / 1e3)
}

impl ChannelError {
    pub(super) fn new(place: &str, problem: Problem) -> Self {
        ChannelError { place: place.into(), problem: Box::new(problem) }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ChannelErrorKind {
        self.problem.kind()
    }

    /// Returns what to do about the error.
    #[must_use]
    pub fn remedy(&self) -> String {
        self.problem.remedy()
    }
}

impl Problem {
    pub(super) fn kind(&self) -> ChannelErrorKind {
        match self {
            Problem::Start(_) | Problem::Impossible { .. } | Problem::Endpoint(_) | Problem::Open(_) => {
                ChannelErrorKind::NotStarted
            }
            Problem::Absent(_) | Problem::Unmet { .. } => ChannelErrorKind::PeerAbsent,
            Problem::NotLetIn(_) => ChannelErrorKind::Mismatch,
            Problem::TooLong { .. } => ChannelErrorKind::TooLong,
            Problem::Finished => ChannelErrorKind::Finished,
            Problem::TimedOut { .. } => ChannelErrorKind::TimedOut,
            Problem::Failed(failure) => match failure.cause {
                Cause::Disagree { .. } | Cause::Version { .. } => ChannelErrorKind::Mismatch,
                Cause::Fabric(_) | Cause::Broken | Cause::PeerGaveUp(_) => ChannelErrorKind::PeerGone,
                _ => ChannelErrorKind::Failed,
            },
            Problem::Leaked | Problem::Wait(_) | Problem::System { .. } => ChannelErrorKind::Failed,
        }
    }

    fn remedy(&self) -> String {
        const DOCTOR: &str = "`stentor doctor` says what this machine can do";
        let remedy = match self {
            Problem::Start(error) => return error.remedy(),
            Problem::Impossible { remedy, .. } => remedy,
            Problem::Endpoint(_) => DOCTOR,
            Problem::Open(_) => "report this as a bug",
            Problem::Absent(_) | Problem::Unmet { .. } => {
                "one end listens and one connects, both at the same place, on the same fabric, in the same directory; start the \
                 other one, or set a longer `patience`"
            }
            Problem::NotLetIn(_) => "open both ends with the same key, configuration and release",
            Problem::TooLong { .. } => "send it in parts, or open both ends with a larger `message_bytes`",
            Problem::Finished => "open another channel, or send before `finish`",
            Problem::TimedOut { .. } => "check the other end, or wait again",
            Problem::Leaked => "drop each future of `send` instead of leaking it",
            Problem::Failed(failure) => match failure.cause {
                Cause::Disagree { .. } | Cause::Version { .. } => "open both ends with the same options and release",
                Cause::Aborted | Cause::TimedOut(_) => "open another channel at both ends",
                Cause::Fabric(_) | Cause::Broken | Cause::PeerGaveUp(_) => {
                    "start the other end if it is down, and open another channel at both ends; a channel cannot be resumed"
                }
                _ => "report this as a bug, with the releases of both ends",
            },
            Problem::Wait(_) | Problem::System { .. } => DOCTOR,
        };
        remedy.to_owned()
    }
}
