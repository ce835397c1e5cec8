//! What a caller was told of a call.

use stentor_multicast::GroupId;
use stentor_session::{Position, Why};

/// What a caller was told of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// Group, place and reply, `None` if it was too long.
    Applied(Vec<(GroupId, Position, Option<Vec<u8>>)>),
    /// It is applied nowhere, and never will be.
    NotApplied,
    /// Nobody knows.
    Unknown(Why),
}
