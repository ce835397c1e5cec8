//! What an observer sees.

use super::position::ObservedPosition;
use crate::{Group, SessionId};

/// The next thing in the order of a group.
///
/// The index of a [`Command`](Observed::Command) or a [`Step`](Observed::Step) is one more than that of what came before. A
/// [`State`](Observed::State) stands for everything up to its position.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Observed {
    /// A command that the group applied.
    Command(ObservedCommand),
    /// A place in the order at which the group applied no command: a read, a copy of a command, a message of a session, or the passing of
    /// time.
    Step(ObservedPosition),
    /// The value of the state machine after all commands up to a position. It replaces what was seen before, of which some commands were
    /// not seen.
    State(ObservedState),
    /// The group was reset, or began anew.
    Reset(ObservedReset),
}

/// A command that a group applied.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ObservedCommand {
    /// Its place. Its time is that of [`Context::time`](crate::Context::time).
    pub position: ObservedPosition,
    /// The name of the client that sent it.
    pub sender: String,
    /// The session under which it was sent. `None`: it was sent without one.
    pub session: Option<SessionId>,
    /// All groups that apply it, in the order of the configuration.
    pub groups: Vec<Group>,
    /// The command.
    pub bytes: Vec<u8>,
}

/// The value of a state machine.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ObservedState {
    /// The place of the last command that the value contains.
    pub position: ObservedPosition,
    /// The value, as [`Frozen::write`](crate::Frozen::write) wrote it.
    pub bytes: Vec<u8>,
}

/// The end of the history that was observed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ObservedReset {
    /// The last place that was observed of the history before.
    pub last: ObservedPosition,
    /// Whether the new history contains everything up to `last`, so that commands follow behind it. Otherwise a
    /// [`State`](Observed::State) follows: some commands that were seen may not have happened in the new history.
    pub goes_on: bool,
}

impl Observed {
    /// Returns the place of it: that from which an observer goes on behind it.
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
