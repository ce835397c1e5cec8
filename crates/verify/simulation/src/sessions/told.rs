//! What a caller was told of a call.

use stentor_multicast::GroupId;
use stentor_session::{Position, Why};

/// What a caller was told of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// Group, place and reply, `None` if it was too long. Of a read outside the order: the place up to which the answer contains the order.
    Applied(Vec<(GroupId, Position, Option<Vec<u8>>)>),
    /// It is applied nowhere, and never will be. Of a read outside the order: nobody has answered in time, or to this process.
    NotApplied,
    /// Nobody knows.
    Unknown(Why),
}

/// What a client has heard of the notifications of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct News {
    /// The group.
    pub group: GroupId,
    /// So many were lost before this.
    pub missed: u64,
    /// The place at which one was sent, and what it says. `None`: some were lost, and none has come.
    pub one: Option<(Position, Vec<u8>)>,
}
