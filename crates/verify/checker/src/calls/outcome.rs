//! The outcomes of calls.

use super::position::Position;
use crate::ids::Group;

/// The outcome of a call, as its caller knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The call took effect once in each of its groups, and the caller has the replies.
    Answered {
        /// Time at which the caller received the answer, on the clock of the history.
        at: u64,
        /// One reply for each group of the call.
        replies: Vec<(Group, Vec<u8>)>,
        /// The position in the answer. For a multicast call, it is the call's own; for another read, it is the largest
        /// applied position. `None` if it was not recorded.
        position: Option<Position>,
    },
    /// The call took effect nowhere and never will.
    NotApplied,
    /// The outcome is unknown. Either the call takes effect once in each of its groups, at some time after its
    /// submission and possibly after the end of the history, or it never takes effect.
    Unknown,
}
