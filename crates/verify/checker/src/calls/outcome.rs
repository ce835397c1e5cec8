//! How a call ended.

use super::position::Position;
use crate::ids::Group;

/// How a call ended, as its caller knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The call took effect once in each of its groups, and the caller has the replies.
    Answered {
        /// When the caller had the answer, on the clock of the history.
        at: u64,
        /// One reply for each group of the call.
        replies: Vec<(Group, Vec<u8>)>,
        /// The position in the answer: of a multicast call its own, of another read the largest that was applied. `None` if
        /// it was not recorded.
        position: Option<Position>,
    },
    /// The call took effect nowhere and never will.
    NotApplied,
    /// The call took effect once in each of its groups at some time after its submission, possibly after the end of the
    /// history, or never.
    Unknown,
}
