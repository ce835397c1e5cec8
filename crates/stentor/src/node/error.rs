//! The errors of a node's start and run.

use stentor_election::HandOverError;
use stentor_host::StartError as SeatError;
use thiserror::Error;

use crate::Position;
use crate::debug::debug_as_display;
use crate::runtime::{self, InUse, RunError};

debug_as_display!(StartError, NodeError);

/// The reason why a node did not start.
#[derive(Error)]
#[error("{name} does not start: {}; {}", .cause.what(self.address.as_deref()), .cause.remedy())]
pub struct StartError {
    pub(super) name: String,
    /// The address in the configuration, if it was read from a file.
    pub(super) address: Option<String>,
    pub(super) cause: Box<runtime::StartError>,
}

/// The kind of a [`StartError`], by which a program can decide what to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum StartErrorKind {
    /// The configuration, the name, the key or an address is wrong, or this program was built without the fabric.
    Configuration,
    /// Another process of the same name is running, or another process holds the node's port or directory.
    AlreadyRunning,
    /// There is less memory than the node needs.
    NoMemory,
    /// The state machine cannot write its initial value.
    State,
    /// The operating system or the fabric prevents the start.
    NotStarted,
}

/// The kind of a [`NodeError`], by which a program can decide what to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum NodeErrorKind {
    /// The group knows another process of the same name that was started later. Leave the place to that process, or
    /// start the node again if the clock was set back.
    Superseded,
    /// The group was reset and continues without this node's state. Start the node again.
    GroupReset,
    /// Another member's state could not be restored, or the group applies a version of the state machine that this
    /// program does not know.
    Restore,
    /// The state machine has panicked or was outvoted, or the node could not start over after that.
    Panicked,
    /// The state machine took too long to apply the delivered commands.
    Slow,
    /// The node does not lead, or the name is not that of another member, or that member cannot lead now. The node
    /// continues.
    NotHandedOver,
    /// The node has ended, so it does not carry out the request.
    Gone,
    /// The node's own thread made the request and would deadlock. The node continues.
    OwnThread,
    /// The operating system failed while the node ran.
    Failed,
}

impl StartError {
    /// Returns the kind of the error.
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

    /// Returns what to do about the error.
    #[must_use]
    pub fn remedy(&self) -> String {
        self.cause.remedy()
    }
}

/// The reason why a node ended because of an error, or did not carry out a request.
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
    #[error("does not hand over to {to}: {}", .why.as_ref().map_or("the name is not that of another member of the group".to_owned(), ToString::to_string))]
    HandOver { to: String, why: Option<HandOverError> },
    #[error("its thread has ended")]
    Gone,
    #[error("the node's own thread cannot wait for the node's answer")]
    Itself,
    #[error("its state machine has panicked{}", .0.map_or(String::new(), |at| format!(" at command {}", at.index)))]
    Panicked(Option<Position>),
    #[error("its state machine did not apply {0} of the delivered commands within the time limit")]
    Slow(usize),
    #[error("it cannot start over after its state machine has panicked: {0}")]
    StartOver(Box<runtime::StartError>),
}

/// Describes the end of a member without its process number, because the node's name precedes the text.
fn ended(error: &RunError) -> String {
    match error {
        RunError::Wait(error) => error.to_string(),
        RunError::Ended { by, .. } => {
            format!("its group was reset and continues in incarnation {by}, without this process's state")
        }
        RunError::Superseded(_) => "another process has taken its place in the group".to_owned(),
        RunError::Restore(_, why) => format!("another member's state was not taken over: {why}"),
    }
}

impl NodeError {
    /// Returns the kind of the error.
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

    /// Returns what to do about the error.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        self.problem.remedy()
    }
}

impl Problem {
    fn remedy(&self) -> &'static str {
        match self {
            Problem::Ended(RunError::Wait(_)) => "`stentor doctor` says what this machine can do",
            Problem::Ended(RunError::Ended { .. }) => "start it again with the same command: the group admits it",
            Problem::Ended(RunError::Superseded(_)) => {
                "leave the place to the other process; if there is none, the clock was set back: start this process again"
            }
            Problem::Ended(RunError::Restore(..)) => {
                "run the same program at all members, in the newest version that any of them has, and start this member again"
            }
            Problem::HandOver { .. } => {
                "ask the leader, and name a connected member of its group: `stentor leader show` names both"
            }
            Problem::Gone => "`NodeHandle::stop` returns why",
            Problem::Itself => "ask from another thread, not in a method of the state machine and not in `inspect`",
            Problem::Slow(_) => "start the node again: it restores the state of another member",
            Problem::StartOver(_) => "correct the state machine, and start the node again: the group admits it",
            Problem::Panicked(_) => "correct the state machine, and start the node again: the group admits it",
        }
    }
}
