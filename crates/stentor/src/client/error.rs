//! How a command ended that was not answered with a reply.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use stentor_session::COMMAND_OVERHEAD;
use thiserror::Error;

use super::Ticket;
use crate::Group;
use crate::debug::debug_as_display;
use crate::runtime::{self, RunError};

debug_as_display!(CallError, Refused, Why, ClientError);

/// How a command ended that has no reply.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallError {
    /// The command is certainly not applied, anywhere, ever.
    #[error("not applied: {0}")]
    NotApplied(Refused),
    /// The command is applied once, or never; nobody here knows. [`Client::resolve`](super::Client::resolve) settles it, in this process or
    /// in a later one that takes up the session.
    #[error("it is not known whether it is applied: {1}; `Client::resolve` with the ticket in this error settles it")]
    Unknown(Ticket, Why),
    /// The command is applied, and the reply of this group is longer than `reply_bytes` in `[limits]`. The reply is lost.
    #[error("it is applied, but a reply is longer than `reply_bytes` in [limits], and lost; reply less, or raise it")]
    ReplyTooLong(Group),
}

/// Why a command is not applied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum Refused {
    /// Too many commands are under way to this group, or in this process. Wait for one of them.
    #[error("no room for one more command now; wait for an answer to an earlier one")]
    Busy(Group),
    /// The command is longer than the cluster takes.
    #[error(
        "a command of {bytes} bytes; the cluster takes up to {limit}: send it in parts, or raise `message_bytes` in [limits], which is \
         {COMMAND_OVERHEAD} more"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest.
        limit: usize,
    },
    /// The command names no group, or one that this cluster has not.
    #[error("a command goes to one group or more, all of this cluster; `Cluster::group` gives them")]
    NoGroups,
    /// The session has these groups not yet, or no majority of this group was reached in time.
    #[error(
        "a group was not reached in time; start a majority of its nodes: `NodeHandle::status` and the log of a node say what it lacks"
    )]
    Unavailable(Group),
    /// The command was closed before anybody applied it: by a later [`resolve`](super::Client::resolve), or because it was lost on its way.
    #[error("it was closed before anybody applied it; send it again if it is wanted still")]
    Closed,
    /// The command was [prepared](super::Client::prepare), and not sent in time.
    #[error("it was prepared, and not sent in time; prepare it again, and send it within the client's patience")]
    TooLate,
    /// The session has ended: it was not renewed in time.
    #[error("the session has ended; open another one")]
    SessionNotOpen,
    /// Another process has taken the session up, and this client ends.
    #[error("another process has taken the session up; leave it to that one, or connect without it")]
    Superseded,
    /// A group has as many sessions as it may have.
    #[error("the group has as many sessions as `sessions` in [limits] allows; wait until one ends")]
    TooManySessions(Group),
    /// The group stands at a command that its state machine cannot apply.
    #[error("the group is halted at a command where its state machine panicked; `Status::halted` says what to do")]
    Halted(Group),
    /// The ticket is of another session. Take that session up, and ask again.
    #[error("the ticket is of another session; take that one up")]
    OtherSession,
    /// This client ended before the command was sent; [`Client::failure`](super::Client::failure) says why.
    #[error("this client has ended; `Client::failure` says why; connect again")]
    ClientEnded,
    /// The thread that waits is one without which the call has no outcome: the one that turns the node in which the client is embedded, or
    /// the one on which that node's state machine runs. Wait on another thread, or poll the call.
    #[error("this thread would wait for itself; wait for the call on another one, or poll it")]
    WouldDeadlock,
    /// A [position](crate::Position) that was to come before is farther ahead of all time that is known here than clocks may be apart: it is of
    /// another cluster, or a clock is wrong.
    #[error(
        "a position that lies ahead of time, by more than `clock_bound_ms` in [limits]: it is of another cluster, or a clock is wrong"
    )]
    AheadOfTime,
    /// A read that is not [`Ordered`](super::Consistency::Ordered) names more than one group.
    #[error("a read of several groups is `Consistency::Ordered`; ask each of them otherwise")]
    OneGroupOnly,
    /// No member answered a read in time that may answer it. It changed nothing: ask again.
    #[error(
        "no member of the group that may answer the read did so in time; ask again: `NodeHandle::status` says what the nodes lack"
    )]
    Unanswered(Group),
    /// The group was reset since this client connected. Connect again.
    #[error("the group began anew since this client connected; connect again")]
    GroupReset(Group),
}

/// Why nobody here knows whether a command is applied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum Why {
    /// It could not be asked what became of the command, by [`resolve`](super::Client::resolve): this says why. Ask again.
    #[error("it could not be asked: {0}")]
    NotAsked(Refused),
    /// The wait ended first.
    #[error("no answer came in time")]
    TimedOut,
    /// The thread that waits would wait for itself: see [`Refused::WouldDeadlock`]. The command was sent, and goes on.
    #[error("this thread would wait for itself")]
    WouldDeadlock,
    /// Another process has this client's place, or has taken its session up.
    #[error("another process took this client's place, or has taken its session up")]
    Superseded,
    /// This client ended.
    #[error("this client has ended")]
    ClientEnded,
    /// The session ended while the command was under way.
    #[error("the session ended meanwhile")]
    SessionEnded,
    /// The group does not keep what came of it any more.
    #[error("the group does not keep its outcome any more")]
    Forgotten,
    /// The group was reset.
    #[error("the group began anew meanwhile")]
    GroupReset(Group),
    /// An operator had the group skip the command.
    #[error("an operator had the group skip it")]
    Skipped(Group),
    /// The group stands at a command that its state machine cannot apply.
    #[error("the group is halted at a command where its state machine panicked")]
    Halted(Group),
}

/// Why a client did not connect, or ended: what happened, and what to do about it. Cloning it is cheap.
#[derive(Clone, Error)]
#[error("{problem}; {}", .problem.remedy())]
pub struct ClientError {
    problem: Arc<Problem>,
}

/// The kind of an error, by which a program decides what to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ClientErrorKind {
    /// This process cannot take part: its configuration, its fabric, its memory or the system does not allow it.
    NotStarted,
    /// An argument is wrong: bytes that are no session or ticket, groups of another cluster, or an impossible time to live.
    Argument,
    /// The sizes in `[limits]` leave no room for a session.
    Limits,
    /// All places for clients are taken, or belong to groups that are not there.
    NoPlace,
    /// A majority of a group was not there, or did not answer, in time. Try again when it runs.
    Unreachable,
    /// A group has as many sessions as it may have. Try again when one has ended.
    TooManySessions,
    /// The session that was to be taken up has ended or run out. Connect without it, which opens another one.
    SessionGone,
    /// A group began anew, and does not know the session that was to be taken up. Connect without it, which opens another one.
    GroupReset,
    /// Another process took this client's place while it ran: connect again, and take the session up. Or another process has taken the
    /// session up: leave it to that one.
    Superseded,
    /// The thread that asks is one that an embedded client needs: do it on another one.
    WouldDeadlock,
    /// The client failed otherwise. Connect again.
    Failed,
}

#[derive(Debug, Error)]
pub(super) enum Problem {
    #[error("the client does not start: {0}")]
    Start(runtime::StartError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("no client's place is free")]
    NoPlace,
    #[error("not reached in time: {}", .absent.join(", "))]
    Late { absent: Vec<String> },
    #[error("all members are there, but they do not answer")]
    Unanswered,
    #[error("the session was not opened: {0}")]
    NotOpened(Refused),
    #[error("the session cannot be taken up: {}", gone(.0))]
    NotTakenUp(Refused),
    #[error("the groups did not agree about the session")]
    Disagreed,
    #[error("the time of group {0} is behind this host's clock by more than a session may live")]
    Behind(String),
    #[error("these bytes are no {what}: {why}")]
    Bytes { what: &'static str, why: String },
    #[error("`reply_bytes` is 0 in [limits], so no client is answered")]
    NoReplies,
    #[error("`message_bytes` in [limits] is less than the {needs} bytes that open a session")]
    ShortMessages { needs: usize },
    #[error(
        "a session cannot live for {}: from {} to {} are possible",
        seconds(.asked), seconds(.between.start()), seconds(.between.end())
    )]
    TimeToLive { asked: Duration, between: RangeInclusive<Duration> },
    #[error("another clone of the client has closed it, and its session has ended")]
    Closed,
    #[error("no random number is to be had: {0}")]
    Random(std::io::Error),
    #[error("{0}")]
    System(std::io::Error),
    #[error("another process took the client's place")]
    Superseded,
    #[error("another process has taken the session up")]
    TakenUp,
    #[error("the session was not renewed in time, and has run out in group {0}")]
    RanOut(String),
    #[error("the client's thread has panicked")]
    Panicked,
    #[error(
        "this thread turns the node in which the client is embedded, or applies its commands: it would wait for itself"
    )]
    WouldDeadlock,
    #[error("a node on the fabric {0} cannot have embedded clients yet")]
    NotEmbedded(&'static str),
    #[error("the client's calls have not ended in time")]
    NotEnded,
}

impl ClientError {
    /// Returns what to decide by.
    #[must_use]
    pub fn kind(&self) -> ClientErrorKind {
        self.problem.kind()
    }

    /// Returns what happened, without what to do about it.
    #[cfg(feature = "unstable-core")]
    #[must_use]
    pub fn what(&self) -> String {
        self.problem.to_string()
    }

    /// Returns what to do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        self.problem.remedy()
    }
}

impl From<runtime::StartError> for Problem {
    fn from(error: runtime::StartError) -> Self {
        Problem::Start(error)
    }
}

impl From<Problem> for ClientError {
    fn from(problem: Problem) -> Self {
        ClientError { problem: Arc::new(problem) }
    }
}

fn seconds(time: &Duration) -> String {
    format!("{} s", time.as_millis() as f64 / 1e3)
}

/// What the refusal of a taking up says of the session.
fn gone(why: &Refused) -> String {
    match why {
        Refused::SessionNotOpen => "it has ended, or was not renewed in time".to_owned(),
        Refused::GroupReset(_) => "a group began anew, and does not know it".to_owned(),
        why => why.to_string(),
    }
}

impl Problem {
    fn kind(&self) -> ClientErrorKind {
        match self {
            Problem::Start(runtime::StartError::Fabric(stentor_host::StartError::Starting { .. })) => {
                ClientErrorKind::Unreachable
            }
            Problem::Start(_) => ClientErrorKind::NotStarted,
            Problem::Bytes { .. } | Problem::TimeToLive { .. } => ClientErrorKind::Argument,
            Problem::NoReplies | Problem::ShortMessages { .. } => ClientErrorKind::Limits,
            Problem::NoPlace => ClientErrorKind::NoPlace,
            Problem::Late { .. } | Problem::Unanswered | Problem::Behind(_) => ClientErrorKind::Unreachable,
            Problem::NotOpened(why) | Problem::NotTakenUp(why) => match why {
                Refused::TooManySessions(_) => ClientErrorKind::TooManySessions,
                Refused::Unavailable(_) | Refused::Busy(_) => ClientErrorKind::Unreachable,
                Refused::GroupReset(_) => ClientErrorKind::GroupReset,
                Refused::SessionNotOpen if matches!(self, Problem::NotTakenUp(_)) => ClientErrorKind::SessionGone,
                _ => ClientErrorKind::Failed,
            },
            Problem::Closed | Problem::RanOut(_) => ClientErrorKind::SessionGone,
            Problem::WouldDeadlock => ClientErrorKind::WouldDeadlock,
            Problem::NotEmbedded(_) => ClientErrorKind::NotStarted,
            Problem::NotEnded => ClientErrorKind::Unreachable,
            Problem::Superseded | Problem::TakenUp => ClientErrorKind::Superseded,
            Problem::Run(_) | Problem::Random(_) | Problem::System(_) | Problem::Disagreed | Problem::Panicked => {
                ClientErrorKind::Failed
            }
        }
    }

    fn remedy(&self) -> String {
        let remedy = match self {
            Problem::Start(error) => return error.remedy(),
            Problem::Run(_) | Problem::Random(_) | Problem::System(_) => {
                "`stentor doctor` says what this machine can do"
            }
            Problem::NoPlace => {
                "wait until a client ends, start the groups that are down, or give the cluster more places: `clients` in [limits]"
            }
            Problem::Late { .. } => {
                "start a majority of each group that the client calls; `stentor leader show`, `NodeHandle::status` and the log of a node say \
                 what its group lacks"
            }
            Problem::Unanswered => {
                "look at each group: `stentor leader show`, `NodeHandle::status` and the logs of its nodes say whether it works, and what it lacks"
            }
            Problem::Behind(_) => {
                "set the clocks of this host and of the group's hosts; members that do not reach each other know the time only after a while"
            }
            Problem::NoReplies => "raise `reply_bytes` in the configuration of all processes",
            Problem::ShortMessages { .. } => "raise `message_bytes` in the configuration of all processes",
            Problem::NotTakenUp(Refused::SessionNotOpen | Refused::GroupReset(_)) => {
                "connect without it, which opens another session; what its tickets name stays unknown"
            }
            Problem::NotOpened(_) | Problem::NotTakenUp(_) | Problem::Disagreed => "connect again",
            Problem::Bytes { .. } => "give the bytes that `to_bytes` returned, whole",
            Problem::TimeToLive { .. } => "give `ClientBuilder::session_ttl` a time between these",
            Problem::Closed => {
                "leave before any clone closes; to go on, connect without it, which opens another session"
            }
            Problem::Superseded => "connect again, and take the session up",
            Problem::TakenUp => {
                "leave the session to that process, and end; to go on beside it, connect without the session"
            }
            Problem::RanOut(_) => {
                "connect again without the session, which opens another one; what the session held is released. To be away for longer, set \
                 `ClientBuilder::session_ttl`"
            }
            Problem::Panicked => "report this as a bug",
            Problem::WouldDeadlock => "do it on another thread",
            Problem::NotEmbedded(_) => "use `Cluster::client`, which has a thread and connections of its own",
            Problem::NotEnded => "look at the node: `NodeHandle::status` and its log say whether its group works",
        };
        remedy.to_owned()
    }
}
