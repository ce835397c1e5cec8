//! Why a group cannot be observed.

use std::time::Duration;

use thiserror::Error;

use super::frame::Refusal;
use crate::debug::debug_as_display;

debug_as_display!(ObserveError);

/// Why an observer does not begin, or sees nothing more. It has lost nothing: [`Observer::next`](crate::Observer::next) tries again, and
/// so does a later observer that goes on from [`Observer::position`](crate::Observer::position).
#[derive(Error)]
#[error("group {group} is not observed: {problem}; {}", .problem.remedy())]
pub struct ObserveError {
    pub(super) group: String,
    pub(super) problem: Problem,
}

/// The kind of an error, by which a program decides what to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ObserveErrorKind {
    /// No member could be reached in time, or none was ready. It passes: try again.
    Unreachable,
    /// States are refused, and no member keeps what comes behind the position. Take states, or begin without the position.
    Gone,
    /// States are refused, and the position is of a history that the group has left. Take states, or begin without the position.
    Reset,
    /// An argument is wrong: the name of the member, or the position.
    Argument,
    /// The configuration, the release or the key is not that of the members, or it does not allow observers.
    Configuration,
    /// A state is larger than the observer takes.
    TooLarge,
    /// A member said what cannot be. The observer goes on with another connection at the next call.
    Broken,
    /// The system failed.
    System,
}

/// What became of an attempt at one member.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(super) enum Fault {
    /// Nobody listens, or not as a member does.
    #[error("{0}")]
    Unreached(String),
    #[error("{}", refused(.0))]
    Refused(Refusal),
    /// It said what cannot be.
    #[error("it says what cannot be: {0}")]
    Broken(String),
    #[error("it closed the connection")]
    Closed,
    #[error("it is silent")]
    Silent,
}

#[derive(Debug, Error)]
pub(super) enum Problem {
    #[error("no member serves an observer within {} ms: {}", .patience.as_millis(), told(.faults))]
    Late { patience: Duration, faults: Vec<(String, Fault)> },
    #[error("no member keeps what comes behind the position, and states are refused: {}", told(.faults))]
    Gone { first: Option<u64>, faults: Vec<(String, Fault)> },
    #[error("the group was reset, or began anew, and states are refused: the position is of its history before")]
    Reset,
    #[error("the members do not serve it: {}", told(.faults))]
    Unfit { faults: Vec<(String, Fault)> },
    #[error("`{0}` is no member of the group")]
    NoMember(String),
    #[error("the position is of another group")]
    OtherGroup,
    #[error("these bytes are no position")]
    Bytes,
    #[error("the fabric `sim` has no processes")]
    Simulated,
    #[error("its state has more than {most} bytes")]
    TooLarge { most: u64 },
    #[error("{member} says what cannot be: {what}")]
    Broken { member: String, what: String },
    #[error("{0}")]
    System(std::io::Error),
}

impl From<Problem> for ObserveError {
    fn from(problem: Problem) -> Self {
        ObserveError { group: "?".to_owned(), problem }
    }
}

impl ObserveError {
    /// Returns what to decide by.
    #[must_use]
    pub fn kind(&self) -> ObserveErrorKind {
        match &self.problem {
            Problem::Late { .. } => ObserveErrorKind::Unreachable,
            Problem::Gone { .. } => ObserveErrorKind::Gone,
            Problem::Reset => ObserveErrorKind::Reset,
            Problem::NoMember(_) | Problem::OtherGroup | Problem::Bytes => ObserveErrorKind::Argument,
            Problem::Unfit { .. } | Problem::Simulated => ObserveErrorKind::Configuration,
            Problem::TooLarge { .. } => ObserveErrorKind::TooLarge,
            Problem::Broken { .. } => ObserveErrorKind::Broken,
            Problem::System(_) => ObserveErrorKind::System,
        }
    }

    /// Returns the first index that a member keeps, if the error is that none keeps what comes behind the position.
    #[must_use]
    pub fn first_kept(&self) -> Option<u64> {
        match &self.problem {
            Problem::Gone { first, .. } => *first,
            _ => None,
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
        let remedy = match self {
            Problem::Late { .. } => "start the members; `stentor leader show` says how they stand",
            Problem::Gone { .. } => "take states, begin without the position, or raise `observed_mib` at the members",
            Problem::Reset => "take states, or begin without the position",
            Problem::Unfit { .. } => {
                "give all processes the same configuration and the same release, and let `observed_mib` not be 0"
            }
            Problem::NoMember(_) => "name a member of that group, as the configuration does",
            Problem::OtherGroup => "observe the group that `ObservedPosition::group` returns",
            Problem::Bytes => "give the bytes that `ObservedPosition::to_bytes` returned, whole",
            Problem::Simulated => "observe a cluster on another fabric",
            Problem::TooLarge { .. } => "raise `ObserverBuilder::longest_state`, or refuse states",
            Problem::Broken { .. } => "go on: the next call connects anew; if it comes again, report it as a bug",
            Problem::System(_) => "`stentor doctor` says what this machine can do",
        };
        remedy.to_owned()
    }
}

fn told(faults: &[(String, Fault)]) -> String {
    let all: Vec<_> = faults.iter().map(|(name, fault)| format!("{name}: {fault}")).collect();
    if all.is_empty() { "none was asked".to_owned() } else { all.join("; ") }
}

fn refused(refusal: &Refusal) -> String {
    let text = match refusal {
        Refusal::Version => "it speaks another version of this protocol",
        Refusal::Configuration => "it has another configuration",
        Refusal::Group => "it is a member of another group",
        Refusal::Off => "`observed_mib` is 0 there, so it has no observers",
        Refusal::Leads => "it leads, and a follower is preferred",
        Refusal::Full => "it has as many observers as it may",
        Refusal::NotReady => "it has no state of its group yet",
        Refusal::Behind => "it has not applied yet what was observed",
        Refusal::Poisoned => "its state machine has panicked",
        Refusal::Ends => "it ends",
        Refusal::Gone(first) => return format!("it keeps what comes behind index {first}"),
        Refusal::OtherHistory => "it is in another history of the group",
        Refusal::Slow => "a state was taken too slowly from it",
        Refusal::NoState => "its state cannot be written; its log says why",
    };
    text.to_owned()
}
