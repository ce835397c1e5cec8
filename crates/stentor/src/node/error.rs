//! Why a node did not start, or ended.

use stentor_election::HandOverError;
use stentor_host::StartError as SeatError;
use thiserror::Error;

use crate::Position;
use crate::debug::debug_as_display;
use crate::runtime::{self, InUse, RunError};

debug_as_display!(StartError, NodeError);

/// Why a node did not start. Nothing of it is left then.
#[derive(Error)]
#[error("{name} does not start: {}; {}", .cause.what(self.address.as_deref()), .cause.remedy())]
pub struct StartError {
    pub(super) name: String,
    /// The address in the configuration, where it was read from a file.
    pub(super) address: Option<String>,
    pub(super) cause: Box<runtime::StartError>,
}

/// The kind of an error, by which a program decides what to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum StartErrorKind {
    /// The configuration, the name, the key or an address does not fit, or this program was built without the fabric.
    Configuration,
    /// Another process runs in the node's place.
    AlreadyRunning,
    /// Less memory is left than the node needs.
    NoMemory,
    /// The state machine cannot write the value with which it was started.
    State,
    /// The system or the fabric does not allow it.
    NotStarted,
}

/// The kind of an error, by which a program decides what to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum NodeErrorKind {
    /// Another process runs in the node's place. Leave it to that one.
    Superseded,
    /// The group was reset and goes on without this node's state. Start it again.
    GroupReset,
    /// The state of another member was not taken over.
    Restore,
    /// The state machine has panicked.
    Panicked,
    /// The state machine took too long to apply what was delivered.
    Slow,
    /// The node does not lead, or the member that was named cannot lead now. The node goes on.
    NotHandedOver,
    /// The node has ended before it was asked.
    Gone,
    /// The node's own thread asked, and would wait for itself. The node goes on.
    OwnThread,
    /// The system failed while the node ran.
    Failed,
}

impl StartError {
    /// Returns what to decide by.
    #[must_use]
    pub fn kind(&self) -> StartErrorKind {
        use runtime::StartError as Cause;
        match &*self.cause {
            Cause::UnknownProcess(_)
            | Cause::Role(..)
            | Cause::Topology(_)
            | Cause::Key(_)
            | Cause::Address(_)
            | Cause::Election(_)
            | Cause::Servers { .. }
            | Cause::Simulated
            | Cause::NotBuiltIn(_) => StartErrorKind::Configuration,
            Cause::Room(_) => StartErrorKind::NoMemory,
            Cause::State { .. } => StartErrorKind::State,
            Cause::Fabric(SeatError::AlreadyRunning { .. }) => StartErrorKind::AlreadyRunning,
            cause if cause.in_use().is_some() => StartErrorKind::AlreadyRunning,
            _ => StartErrorKind::NotStarted,
        }
    }

    /// Returns what to do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        self.cause.remedy()
    }
}

/// Why a node ended by itself, or did not do what it was asked.
#[derive(Error)]
#[error("{name}: {problem}; {}", .problem.remedy())]
pub struct NodeError {
    pub(super) name: String,
    pub(super) problem: Problem,
}

#[derive(Debug, Error)]
pub(super) enum Problem {
    #[error("{}", ended(.0))]
    Ended(RunError),
    #[error("does not hand over to {to}: {}", .why.as_ref().map_or("it is no other member of the group".to_owned(), ToString::to_string))]
    HandOver { to: String, why: Option<HandOverError> },
    #[error("its thread has ended")]
    Gone,
    #[error("its own thread cannot wait for its answer")]
    Itself,
    #[error("its state machine has panicked{}", .0.map_or(String::new(), |at| format!(" at command {}", at.index)))]
    Panicked(Option<Position>),
    #[error(
        "its state machine has not applied {0} of the commands that were delivered, and was not waited for any longer"
    )]
    Slow(usize),
    #[error("it cannot start over after its state machine has panicked: {0}")]
    StartOver(Box<runtime::StartError>),
}

/// What ended a member, without its number: the name stands before it.
fn ended(error: &RunError) -> String {
    match error {
        RunError::Wait(error) => error.to_string(),
        RunError::Ended { by, .. } => {
            format!("its group was reset and goes on in incarnation {by}, without this process's state")
        }
        RunError::Superseded(_) => "another process has taken its place in the group".to_owned(),
        RunError::Restore(_, why) => format!("another member's state was not taken over: {why}"),
    }
}

impl NodeError {
    /// Returns what to decide by.
    #[must_use]
    pub fn kind(&self) -> NodeErrorKind {
        match &self.problem {
            Problem::Ended(RunError::Wait(_)) => NodeErrorKind::Failed,
            Problem::Ended(RunError::Ended { .. }) => NodeErrorKind::GroupReset,
            Problem::Ended(RunError::Superseded(_)) => NodeErrorKind::Superseded,
            Problem::Ended(RunError::Restore(..)) => NodeErrorKind::Restore,
            Problem::HandOver { .. } => NodeErrorKind::NotHandedOver,
            Problem::Gone => NodeErrorKind::Gone,
            Problem::Itself => NodeErrorKind::OwnThread,
            Problem::Panicked(_) | Problem::StartOver(_) => NodeErrorKind::Panicked,
            Problem::Slow(_) => NodeErrorKind::Slow,
        }
    }

    /// Returns what happened, without the name of the node.
    #[must_use]
    pub fn what(&self) -> String {
        self.problem.to_string()
    }

    /// Returns what to do about it.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        self.problem.remedy()
    }
}

impl Problem {
    fn remedy(&self) -> &'static str {
        match self {
            Problem::Ended(RunError::Wait(_)) => "`stentor doctor` says what this machine can do",
            Problem::Ended(RunError::Ended { .. }) => "start it again with the same command: the group takes it in",
            Problem::Ended(RunError::Superseded(_)) => {
                "leave the place to the other one; if there is none, the clock was set back: start this one again"
            }
            Problem::Ended(RunError::Restore(..)) => {
                "run the same program at all members, in the newest version that any of them has, and start this one again"
            }
            Problem::HandOver { .. } => {
                "ask the leader, and name a connected member of its group: `stentor leader show` names both"
            }
            Problem::Gone => "`NodeHandle::stop` returns why",
            Problem::Itself => "ask from another thread, not in a method of the state machine and not in `inspect`",
            Problem::Slow(_) => "start the node again: it takes the state of the others",
            Problem::StartOver(_) => "mend the state machine, and start the node again: the group takes it in",
            Problem::Panicked(_) => "mend the state machine, and start the node again: the group takes it in",
        }
    }
}
