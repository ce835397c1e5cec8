//! The outcomes and notifications that are reported to clients.

use stentor_multicast::GroupId;
use stentor_session::{Position, Why};

/// The outcome of a call, as reported to its caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// The call is applied: group, position and reply, which is `None` if it was too long. For a read outside the
    /// order, the position is the one up to which the answer includes the order.
    Applied(Vec<(GroupId, Position, Option<Vec<u8>>)>),
    /// The call is applied nowhere and never will be. For a read outside the order: no valid answer arrived in time at
    /// the process that sent the read.
    NotApplied,
    /// The caller does not know whether the call is applied.
    Unknown(Why),
}

/// A report on the notifications of a group to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct News {
    /// The group.
    pub group: GroupId,
    /// Number of notifications that were lost before this one.
    pub missed: u64,
    /// The position at which the notification was sent, and its bytes. `None`: only losses are reported.
    pub one: Option<(Position, Vec<u8>)>,
}
