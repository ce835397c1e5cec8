//! The events that an observer receives.

use super::position::ObservedPosition;
use crate::{Group, SessionId};

/// An event in the order of a group.
///
/// The index of a [`Command`](Observed::Command) or a [`Step`](Observed::Step) is one more than the index of the
/// previous event. A [`State`](Observed::State) replaces all events up to its position.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Observed {
    /// A command that the group applied.
    Command(ObservedCommand),
    /// A place in the order at which the group applied no command: an ordered read, a copy of a command, a message of a
    /// session, a time entry or a version entry.
    Step(ObservedPosition),
    /// The value of the state machine after all commands up to a position. It replaces the observer's own value,
    /// because some earlier commands were not observed.
    State(ObservedState),
    /// The group was reset, or began anew.
    Reset(ObservedReset),
}

/// A command that a group applied.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ObservedCommand {
    /// The command's position. The time in the position is [`Context::time`](crate::Context::time).
    pub position: ObservedPosition,
    /// The name of the client that sent the command.
    pub sender: String,
    /// The session of the command. `None` if the command was sent without a session.
    pub session: Option<SessionId>,
    /// All groups that apply the command, in the order of the configuration.
    pub groups: Vec<Group>,
    /// The content of the command.
    pub bytes: Vec<u8>,
}

/// The value of a state machine.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ObservedState {
    /// The position of the last command that the value contains.
    pub position: ObservedPosition,
    /// The value, as [`Frozen::write`](crate::Frozen::write) wrote it.
    pub bytes: Vec<u8>,
}

/// The end of the observed history of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ObservedReset {
    /// The last position that was observed in the earlier history.
    pub last: ObservedPosition,
    /// `true` if the new history contains all commands up to `last`, so that commands follow. Otherwise a
    /// [`State`](Observed::State) follows, and some observed commands may be missing in the new history.
    pub goes_on: bool,
}

impl Observed {
    /// Returns the position of the event, after which a later observer can continue.
    #[must_use]
    pub fn position(&self) -> ObservedPosition {
        match self {
            Observed::Command(command) => command.position,
            Observed::Step(position) => *position,
            Observed::State(state) => state.position,
            Observed::Reset(reset) => reset.last,
        }
    }
}
