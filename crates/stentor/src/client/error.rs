//! The errors of calls and clients.

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

/// The reason why a command or read has no reply.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallError {
    /// The command was not applied in any group, and never will be.
    #[error("not applied: {0}")]
    NotApplied(Refused),
    /// The command is applied once or never, and this client does not know which.
    /// [`Client::resolve`](super::Client::resolve) settles it if the groups still keep the outcome, in this process or
    /// in a later one that resumes the session.
    #[error(
        "it is unknown whether the command was applied: {1}; `Client::resolve` with the ticket in this error settles it"
    )]
    Unknown(Ticket, Why),
    /// The command was applied, but the reply of this group is longer than `reply_bytes` in `[limits]`. The reply is
    /// lost.
    #[error(
        "the command was applied, but a reply was longer than `reply_bytes` in [limits] and is lost; write shorter replies, or raise `reply_bytes`"
    )]
    ReplyTooLong(Group),
}

/// The reason why a command or read is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum Refused {
    /// Too many commands are in flight under this session or to this group, or too many calls wait in this process.
    /// Wait for one of them to end.
    #[error("no room for another command now; wait for the answer to an earlier one")]
    Busy(Group),
    /// The command is longer than the cluster allows.
    #[error(
        "a command of {bytes} bytes is longer than the {limit} bytes that the cluster allows: send it in parts, or raise `message_bytes` in [limits], which includes \
         {COMMAND_OVERHEAD} bytes of overhead"
    )]
    TooLong {
        /// Length of the command, in bytes.
        bytes: usize,
        /// Longest permitted length, in bytes.
        limit: usize,
    },
    /// The command names no group, or a group that this cluster does not have.
    #[error("the command names no group, or a group of another cluster; use groups that `Cluster::group` returned")]
    NoGroups,
    /// The session does not include this group yet, or the client has not reached enough members of the group.
    #[error(
        "a group was not reached in time; start a majority of its nodes: `NodeHandle::status` and the log of a node show what the group lacks"
    )]
    Unavailable(Group),
    /// The command was closed before any group applied it: by a later [`resolve`](super::Client::resolve), or because
    /// it was lost in transit. Or the session ended before a read was answered.
    #[error("the command was closed before any group applied it; send it again if it is still wanted")]
    Closed,
    /// The command was [prepared](super::Client::prepare), and not sent in time.
    #[error(
        "the command was prepared, and not sent in time; prepare it again, and send it within the client's patience"
    )]
    TooLate,
    /// The wait of [`Call::wait_for`](super::Call::wait_for) ended before the command or read was sent, and it never
    /// will be.
    #[error("the wait ended before the command was sent; call again, and wait longer")]
    NotSent,
    /// The session has ended, for example because it was not renewed in time.
    #[error("the session has ended; open another one")]
    SessionNotOpen,
    /// Another process has resumed the session, and this client ends.
    #[error("another process has resumed the session; leave the session to that process, or connect without it")]
    Superseded,
    /// The group has reached its maximum number of sessions.
    #[error("the group has as many sessions as `sessions` in [limits] allows; wait until one ends")]
    TooManySessions(Group),
    /// The group is halted at a command on which its state machine panicked.
    #[error("the group is halted at a command where its state machine panicked; `Status::halted` says what to do")]
    Halted(Group),
    /// The ticket belongs to another session. Resume that session and resolve the ticket there.
    #[error("the ticket belongs to another session; resume that session to resolve it")]
    OtherSession,
    /// This client ended before the command was sent. [`Client::failure`](super::Client::failure) returns the reason.
    #[error("this client has ended; `Client::failure` returns the reason; connect again")]
    ClientEnded,
    /// The waiting thread is needed to produce the outcome: it runs the node in which the client is embedded, or that
    /// node's state machine. Wait on another thread, or poll the call.
    #[error("this thread would wait for itself; wait for the call on another thread, or poll it")]
    WouldDeadlock,
    /// A [position](crate::Position) is ahead of the time that this client knows by more than clocks may differ. The
    /// position belongs to another cluster, or a clock is wrong.
    #[error(
        "the position is ahead of the known time by more than `clock_bound_ms` in [limits]: it belongs to another cluster, or a clock is wrong"
    )]
    AheadOfTime,
    /// A read that is not [`Ordered`](super::Consistency::Ordered) names more than one group.
    #[error("only a read with `Consistency::Ordered` may name several groups; otherwise read each group separately")]
    OneGroupOnly,
    /// No member that may answer the read did so in time. The read changed nothing and can be repeated.
    #[error(
        "no member of the group that may answer the read did so in time; read again: `NodeHandle::status` shows what the nodes lack"
    )]
    Unanswered(Group),
    /// The group was reset after this client connected: connect again. Or the position of an
    /// [`After`](super::Consistency::After) read belongs to another history of the group.
    #[error("the group was reset after this client had connected; connect again")]
    GroupReset(Group),
}

impl Refused {
    /// Returns whether the same call may be accepted later without a change in the program or in the cluster's
    /// configuration: room appears, a group is reached again, or a lost command is sent anew. Nothing was applied, so
    /// repeating the call is safe. Bound the repetitions by a time, because a group may stay down.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        match self {
            Refused::Busy(_)
            | Refused::Unavailable(_)
            | Refused::Closed
            | Refused::TooLate
            | Refused::NotSent
            | Refused::TooManySessions(_)
            | Refused::Unanswered(_) => true,
            Refused::TooLong { .. }
            | Refused::NoGroups
            | Refused::SessionNotOpen
            | Refused::Superseded
            | Refused::Halted(_)
            | Refused::OtherSession
            | Refused::ClientEnded
            | Refused::WouldDeadlock
            | Refused::AheadOfTime
            | Refused::OneGroupOnly
            | Refused::GroupReset(_) => false,
        }
    }
}

/// The reason why the outcome of a command is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum Why {
    /// [`resolve`](super::Client::resolve) could not send its question to the groups. The field contains the reason.
    /// Try again.
    #[error("the question could not be sent: {0}")]
    NotAsked(Refused),
    /// The wait ended before the outcome arrived.
    #[error("no answer arrived in time")]
    TimedOut,
    /// The waiting thread would deadlock: see [`Refused::WouldDeadlock`]. The command was sent and continues.
    #[error("this thread would wait for itself")]
    WouldDeadlock,
    /// Another process has this client's id, or has resumed its session.
    #[error("another process has acquired this client's id, or has resumed its session")]
    Superseded,
    /// This client has ended.
    #[error("this client has ended")]
    ClientEnded,
    /// The session ended while the command was in flight.
    #[error("the session ended meanwhile")]
    SessionEnded,
    /// The group no longer keeps the command's outcome.
    #[error("the group no longer keeps the outcome")]
    Forgotten,
    /// The group was reset.
    #[error("the group was reset meanwhile")]
    GroupReset(Group),
    /// An operator made the group skip the command.
    #[error("an operator made the group skip the command")]
    Skipped(Group),
    /// The group is halted at a command on which its state machine panicked.
    #[error("the group is halted at a command where its state machine panicked")]
    Halted(Group),
}

impl Why {
    /// Returns whether [`resolve`](super::Client::resolve) may find the outcome later without a change in the program.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        match self {
            Why::TimedOut => true,
            Why::NotAsked(why) => why.is_retryable(),
            Why::WouldDeadlock
            | Why::Superseded
            | Why::ClientEnded
            | Why::SessionEnded
            | Why::Forgotten
            | Why::GroupReset(_)
            | Why::Skipped(_)
            | Why::Halted(_) => false,
        }
    }
}

/// The reason why a client did not connect or has ended, with the remedy. Cloning it is cheap.
#[derive(Clone, Error)]
#[error("{problem}; {}", .problem.remedy())]
pub struct ClientError {
    problem: Arc<Problem>,
}

/// The kind of a [`ClientError`], by which a program can decide what to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ClientErrorKind {
    /// This process cannot take part. Its configuration, fabric, memory or operating system prevents it.
    NotStarted,
    /// An argument is invalid: bytes that are not a session or ticket, groups of another cluster, or an impossible time
    /// to live.
    Argument,
    /// The sizes in `[limits]` leave no room for a session.
    Limits,
    /// All client ids were in use, or needed a group that is down, for as long as the client's
    /// [patience](crate::ClientBuilder::patience).
    NoPlace,
    /// A group was not reachable, did not answer in time, or has a clock that is far behind this host's. Try again when
    /// the group runs.
    Unreachable,
    /// Members refuse the client because it has another key, configuration or release than they have, and the others of
    /// their group are no majority. Start the client again with those of the members.
    Refused,
    /// A group has reached its maximum number of sessions. Try again when one has ended.
    TooManySessions,
    /// The client's session, or the session to resume, has ended or expired. Connect without it, which opens a new
    /// session.
    SessionGone,
    /// A group was reset, and does not know the session to resume. Connect without a session, which opens a new one.
    GroupReset,
    /// Another process acquired this client's id: connect again and resume the session. Or another process has resumed
    /// the session: leave the session to that process.
    Superseded,
    /// The calling thread is needed by an embedded client. Use another thread.
    WouldDeadlock,
    /// The client failed for another reason. Connect again.
    Failed,
}

#[derive(Debug, Error)]
pub(super) enum Problem {
    #[error("the client does not start: {0}")]
    Start(runtime::StartError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("no client id is free after a wait of {}", seconds(.patience))]
    NoPlace { patience: Duration },
    #[error(
        "these members were not reached in time: {}{}", .absent.join(", "),
        .refused.as_ref().map_or(String::new(), |why| format!("; the last connection was refused: {why}"))
    )]
    Late { absent: Vec<String>, refused: Option<String> },
    #[error("this client is refused: {0}")]
    Foreign(String),
    #[error("all members are connected, but they do not answer")]
    Unanswered,
    #[error("the session was not opened: {0}")]
    NotOpened(Refused),
    #[error("the session cannot be resumed: {}", gone(.0))]
    NotTakenUp(Refused),
    #[error("the groups did not agree about the session")]
    Disagreed,
    #[error("the clock of group {0} is behind this host's clock by more than a session's time to live")]
    Behind(String),
    #[error("invalid {what}: {why}")]
    Bytes { what: &'static str, why: String },
    #[error("`reply_bytes` is 0 in [limits], so no client is answered")]
    NoReplies,
    #[error("`message_bytes` in [limits] is less than the {needs} bytes that open a session")]
    ShortMessages { needs: usize },
    #[error(
        "a session's time to live cannot be {}: it must be from {} to {}",
        seconds(.asked), seconds(.between.start()), seconds(.between.end())
    )]
    TimeToLive { asked: Duration, between: RangeInclusive<Duration> },
    #[error("another clone of this client called `close`, which ends the session")]
    Closed,
    #[error("the operating system returned no random number: {0}")]
    Random(std::io::Error),
    #[error("{0}")]
    System(std::io::Error),
    #[error("another process has acquired the client id")]
    Superseded,
    #[error("another process has resumed the session")]
    TakenUp,
    #[error("the session was not renewed in time, and has expired in group {0}")]
    RanOut(String),
    #[error("the client's thread has panicked")]
    Panicked,
    #[error(
        "this thread runs the node in which the client is embedded, or applies the node's commands: it would wait for itself"
    )]
    WouldDeadlock,
    #[error("a node on the fabric {0} cannot have embedded clients yet")]
    NotEmbedded(&'static str),
    #[error("the client's calls did not end in time")]
    NotEnded,
}

impl ClientError {
    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ClientErrorKind {
        self.problem.kind()
    }

    /// Returns whether connecting in the same way may succeed later without a change in the program or in the cluster's
    /// configuration: a group is started, or another client ends. Bound the attempts by a time.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self.kind() {
            ClientErrorKind::Unreachable | ClientErrorKind::NoPlace | ClientErrorKind::TooManySessions => true,
            ClientErrorKind::NotStarted
            | ClientErrorKind::Argument
            | ClientErrorKind::Limits
            | ClientErrorKind::Refused
            | ClientErrorKind::SessionGone
            | ClientErrorKind::GroupReset
            | ClientErrorKind::Superseded
            | ClientErrorKind::WouldDeadlock
            | ClientErrorKind::Failed => false,
        }
    }

    /// Returns what happened, without the remedy.
    #[cfg(feature = "unstable-core")]
    #[must_use]
    pub fn what(&self) -> String {
        self.problem.to_string()
    }

    /// Returns what to do about the error.
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

/// Returns what the refusal of a resumption implies for the session.
fn gone(why: &Refused) -> String {
    match why {
        Refused::SessionNotOpen => "it has ended, or was not renewed in time".to_owned(),
        Refused::GroupReset(_) => "a group was reset and does not know the session".to_owned(),
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
            Problem::NoPlace { .. } => ClientErrorKind::NoPlace,
            Problem::Late { .. } | Problem::Unanswered | Problem::Behind(_) => ClientErrorKind::Unreachable,
            Problem::Foreign(_) => ClientErrorKind::Refused,
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
            Problem::NoPlace { .. } => {
                "end a client, or wait longer with `ClientBuilder::patience` if one is ending; start the groups that are \
                 down; or raise `clients` in [limits]"
            }
            Problem::Foreign(_) => runtime::ForeignPeers::REMEDY,
            Problem::Late { .. } => {
                "start a majority of each group that the client calls; `stentor leader show`, `NodeHandle::status` and the log of a node show \
                 what its group lacks"
            }
            Problem::Unanswered => {
                "check each group: `stentor leader show`, `NodeHandle::status` and the logs of its nodes show whether it works, and what it lacks"
            }
            Problem::Behind(_) => {
                "set the clocks of this host and of the group's hosts; members that do not reach each other know the time only after a while"
            }
            Problem::NoReplies => "raise `reply_bytes` in the configuration of all processes",
            Problem::ShortMessages { .. } => "raise `message_bytes` in the configuration of all processes",
            Problem::NotTakenUp(Refused::SessionNotOpen | Refused::GroupReset(_)) => {
                "connect without the session, which opens a new one; the outcomes of its tickets stay unknown"
            }
            Problem::NotOpened(_) | Problem::NotTakenUp(_) | Problem::Disagreed => "connect again",
            Problem::Bytes { .. } => "pass groups of this cluster, or all bytes that `to_bytes` returned",
            Problem::TimeToLive { .. } => "pass a time in this range to `ClientBuilder::session_ttl`",
            Problem::Closed => {
                "call `leave` before any clone calls `close`; to continue, connect without the session, which opens a new one"
            }
            Problem::Superseded => "connect again, and resume the session",
            Problem::TakenUp => {
                "leave the session to that process, and end; to run beside it, connect without the session"
            }
            Problem::RanOut(_) => {
                "connect again without the session, which opens a new one; what the session held is released. To survive longer interruptions, raise \
                 `ClientBuilder::session_ttl`"
            }
            Problem::Panicked => "report this as a bug",
            Problem::WouldDeadlock => "call it on another thread",
            Problem::NotEmbedded(_) => "use `Cluster::client`, which has a thread and connections of its own",
            Problem::NotEnded => "check the node: `NodeHandle::status` and its log show whether its group works",
        };
        remedy.to_owned()
    }
}
