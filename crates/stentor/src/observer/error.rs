//! The errors of observers.

use std::time::Duration;

use thiserror::Error;

use super::frame::Refusal;
use crate::debug::debug_as_display;

debug_as_display!(ObserveError);

/// The reason why an observer does not begin or cannot continue. No event is lost:
/// [`Observer::next`](crate::Observer::next) tries again, and a later observer can continue from
/// [`Observer::position`](crate::Observer::position).
#[derive(Error)]
#[error("{}{problem}; {}", place(.group.as_deref()), .problem.remedy())]
pub struct ObserveError {
    /// Name of the group. `None` if bytes are not a position.
    pub(super) group: Option<String>,
    pub(super) problem: Problem,
}

/// The kind of an [`ObserveError`], by which a program can decide what to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ObserveErrorKind {
    /// No member was reachable or ready in time. The condition may be temporary: try again.
    Unreachable,
    /// States are refused, and no member keeps the records after the position. Accept states, or begin without the
    /// position.
    Gone,
    /// States are refused, and the position belongs to a history that the group has left. Accept states, or begin
    /// without the position.
    Reset,
    /// An argument is wrong: the name of the member, or the position.
    Argument,
    /// The configuration or the release differs from that of the members, or observers are disabled, or the fabric is
    /// simulated.
    Configuration,
    /// A state is larger than the observer accepts.
    TooLarge,
    /// A member violated the protocol. The next call continues on another connection.
    Broken,
    /// The operating system failed.
    System,
}

/// The reason why an attempt at one member failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(super) enum Fault {
    /// The member cannot be reached, or does not accept observers now.
    #[error("{0}")]
    Unreached(String),
    #[error("{}", refused(.0))]
    Refused(Refusal),
    /// The member violated the protocol.
    #[error("it violates the protocol: {0}")]
    Broken(String),
    #[error("it closed the connection")]
    Closed,
    #[error("it is silent")]
    Silent,
}

#[derive(Debug, Error)]
pub(super) enum Problem {
    #[error("no member served the observer within {} ms: {}", .patience.as_millis(), told(.faults))]
    Late { patience: Duration, faults: Vec<(String, Fault)> },
    #[error("no member keeps the records after the position, and states are refused: {}", told(.faults))]
    Gone { first: Option<u64>, faults: Vec<(String, Fault)> },
    #[error("the group was reset or began anew, and states are refused: the position belongs to an earlier history")]
    Reset,
    #[error("the members do not serve the observer: {}", told(.faults))]
    Unfit { faults: Vec<(String, Fault)> },
    #[error("`{0}` is not a member of the group")]
    NoMember(String),
    #[error("the position belongs to another group")]
    OtherGroup,
    #[error("the bytes are not a position")]
    Bytes,
    #[error("the fabric `sim` has no processes")]
    Simulated,
    #[error("the state has more than {most} bytes")]
    TooLarge { most: u64 },
    #[error("{member} violates the protocol: {what}")]
    Broken { member: String, what: String },
    #[error("{0}")]
    System(std::io::Error),
}

impl From<Problem> for ObserveError {
    fn from(problem: Problem) -> Self {
        ObserveError { group: None, problem }
    }
}

impl ObserveError {
    /// Returns the kind of the error.
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

    /// Returns the first index that a member keeps, if the error is that no member keeps the records after the
    /// position.
    #[must_use]
    pub fn first_kept(&self) -> Option<u64> {
        match &self.problem {
            Problem::Gone { first, .. } => *first,
            _ => None,
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
        let remedy = match self {
            Problem::Late { .. } => "start the members; `stentor leader show` shows their state",
            Problem::Gone { .. } => "accept states, begin without the position, or raise `observed_mib` at the members",
            Problem::Reset => "accept states, or begin without the position",
            Problem::Unfit { .. } => {
                "give all processes the same configuration and the same release, and set `observed_mib` to a value above 0"
            }
            Problem::NoMember(_) => "name a member of the group, as in the configuration",
            Problem::OtherGroup => "observe the group that `ObservedPosition::group` returns",
            Problem::Bytes => "pass all bytes that `ObservedPosition::to_bytes` returned",
            Problem::Simulated => "observe a cluster on another fabric",
            Problem::TooLarge { .. } => "raise `ObserverBuilder::longest_state`, or refuse states",
            Problem::Broken { .. } => "try again: the next call connects anew; if it fails again, report a bug",
            Problem::System(_) => "`stentor doctor` says what this machine can do",
        };
        remedy.to_owned()
    }
}

fn place(group: Option<&str>) -> String {
    group.map_or(String::new(), |group| format!("group {group} is not observed: "))
}

fn told(faults: &[(String, Fault)]) -> String {
    let all: Vec<_> = faults.iter().map(|(name, fault)| format!("{name}: {fault}")).collect();
    if all.is_empty() { "no member was tried".to_owned() } else { all.join("; ") }
}

fn refused(refusal: &Refusal) -> String {
    let text = match refusal {
        Refusal::Version => "it uses another version of this protocol",
        Refusal::Configuration => "it has another configuration",
        Refusal::Group => "it is a member of another group",
        Refusal::Off => "`observed_mib` is 0 there, so it serves no observers",
        Refusal::Leads => "it leads, and a follower is preferred",
        Refusal::Full => "it has reached its maximum number of observers",
        Refusal::NotReady => "it has no state of its group yet",
        Refusal::Behind => "it has not applied the observer's position yet",
        Refusal::Poisoned => "its state machine has panicked",
        Refusal::Ends => "it ends",
        Refusal::Gone(first) => return format!("it keeps the records after index {first}"),
        Refusal::OtherHistory => "it is in another history of the group",
        Refusal::Slow => "the observer received its state too slowly",
        Refusal::NoState => "its state cannot be written; its log says why",
    };
    text.to_owned()
}
