//! The consistency guarantees of reads.

use stentor_multicast::{GroupId, Incarnation, Timestamp};
use stentor_session::ReadGuarantee;

use crate::Position;

/// The consistency of a [read](super::Client::read): how much of the order its answer reflects.
///
/// | guarantee | groups | who answers | writes for a read at a group of three |
/// |---|---|---|---|
/// | `Ordered` | any number, at one cut | the leader of each | those of a command |
/// | `Leader` | one | the leader | the question, 2 to the followers, the answer |
/// | `After` | one | any member | the question, the answer |
/// | `Local` | one | any member | the question, the answer |
///
/// Concurrent `Leader` reads share the 2 writes to the followers. Only `Ordered` reads have a place in the global
/// order. The others do not wait for unanswered commands of the same client, and may overtake them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Consistency {
    /// The query has a place in the global order like a command, and each group answers at that place. The answer
    /// therefore reflects everything that these groups had answered to any client before the query was sent. The
    /// answers of several groups show one cut through the order. An ordered read costs as much as a command.
    #[default]
    Ordered,
    /// The leader answers after a majority of the group has confirmed that it still led when the question arrived. The
    /// answer reflects everything that this group had answered to any client before the query was sent, and everything
    /// that this session has received from any group. The read needs no place in the order, with one exception: if the
    /// session knows a later time than the group has reached, the leader orders a time entry.
    Leader,
    /// The query is answered by any member of the group that has applied the command at this position. The answer
    /// therefore reflects that command. If the position is from another group, only its time counts: a member answers
    /// after it has applied a command, or another entry of the order, that is not earlier.
    After(Position),
    /// Any member of the group answers at once from its current state. The state may be arbitrarily old, but it is
    /// always the state at one position of the order.
    Local,
}

impl Consistency {
    /// Returns the guarantee to request from members of a group. `heard` is the latest order time that the client
    /// knows. An ordered read is a request of the session and never reaches this function.
    pub(crate) fn guarantee(self, group: GroupId, heard: u64) -> ReadGuarantee {
        match self {
            Consistency::Leader | Consistency::Ordered => ReadGuarantee::Leader { not_before: heard },
            Consistency::After(position) => after(group, &position),
            Consistency::Local => ReadGuarantee::Local,
        }
    }
}

/// Returns the guarantee of a read of `group` after a position.
fn after(group: GroupId, position: &Position) -> ReadGuarantee {
    let Position { time, group: by, index, incarnation, .. } = *position;
    if position.is_counted_in(group) {
        return ReadGuarantee::After { index, incarnation: Incarnation::from_word(incarnation) };
    }
    ReadGuarantee::Past { timestamp: Timestamp { time, group: by.0.0 } }
}
