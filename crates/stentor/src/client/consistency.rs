//! Guarantees of reads.

use stentor_multicast::{GroupId, Incarnation, Timestamp};
use stentor_session::ReadGuarantee;

use crate::Position;

/// A guarantee of a [read](super::Client::read): how much of the order its answer contains.
///
/// | guarantee | groups | who answers | writes for a read at a group of three |
/// |---|---|---|---|
/// | `Ordered` | any number, at one cut | the leader of each | those of a command |
/// | `Leader` | one | the leader | the question, 2 to the followers, the answer; reads that come together share the 2 |
/// | `After` | one | any member | the question, the answer |
/// | `Local` | one | any member | the question, the answer |
///
/// All but `Ordered` have no place in the global order. They are sent when they are called, so a read may overtake a command of the same
/// client that is not answered yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Consistency {
    /// The query has a place in the global order, as a command has, and each group answers there. So the answer misses nothing that any
    /// client was answered by these groups before the query was sent. The answers of several groups show one cut through the order. An
    /// ordered read costs what a command costs.
    #[default]
    Ordered,
    /// The leader answers, after a majority of the group has shown that it still led when the question came. The answer misses nothing that
    /// any client was answered by this group before the query was sent, nor anything that this session has heard of, from whatever group.
    /// Nothing is ordered for it, unless the session has heard of a later time than the group has reached: then the leader orders a time
    /// entry.
    Leader,
    /// Any member of the group answers that has applied the command at this position: what its session has written there is in the
    /// answer. A position that another group applied stands for its time: the member waits until it has applied a command that is not
    /// earlier.
    After(Position),
    /// Any member of the group answers at once, from what it has applied. That may be arbitrarily old, and is never from two orders.
    Local,
}

impl Consistency {
    /// Returns what members of a group are asked for, by a client that has heard of the order up to a time. No member is asked for an ordered
    /// read: that is a request of the session.
    pub(crate) fn guarantee(self, group: GroupId, heard: u64) -> ReadGuarantee {
        match self {
            Consistency::Leader | Consistency::Ordered => ReadGuarantee::Leader { not_before: heard },
            Consistency::After(position) => after(group, &position),
            Consistency::Local => ReadGuarantee::Local,
        }
    }
}

/// What a read of a group after a position waits for.
fn after(group: GroupId, position: &Position) -> ReadGuarantee {
    let Position { time, group: by, index, incarnation, .. } = *position;
    if position.is_counted_in(group) {
        return ReadGuarantee::After { index, incarnation: Incarnation::from_word(incarnation) };
    }
    ReadGuarantee::Past { timestamp: Timestamp { time, group: by.0.0 } }
}
