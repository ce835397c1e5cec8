//! A call of a simulated client that has ended.

use crate::{Consistency, Group, Groups, Position, SessionId};

/// A call of a simulated client that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub(super) session: SessionId,
    pub(super) how: Option<Consistency>,
    pub(super) groups: Groups,
    pub(super) bytes: Vec<u8>,
    pub(super) fate: Fate,
}

/// What became of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fate {
    /// It was applied once in each of its groups.
    Applied {
        /// Its place in the order; the index is that of the first group. Of a read that is not ordered: the place up to which the answer
        /// contains the order.
        position: Position,
        /// The reply of each group, in their order. `None`: it was longer than
        /// [`SimCluster::reply_bytes`](super::SimCluster::reply_bytes), and is lost.
        replies: Vec<(Group, Option<Vec<u8>>)>,
    },
    /// It was not applied and never will be: there was no room for it, or it was lost with its process. Or a read that is not ordered was not
    /// answered in time, within 1 ms of virtual time.
    NotApplied,
    /// It was applied once, or will be, or never: nobody can say any more, because its session ran out or too much came after it.
    Unknown,
}

impl Seen {
    /// Returns the session under which it was called.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns whether it was a read.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.how.is_some()
    }

    /// Returns the guarantee that was asked for, if it was a read.
    #[must_use]
    pub fn consistency(&self) -> Option<Consistency> {
        self.how
    }

    /// Returns where it went.
    #[must_use]
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Returns the command or query.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns what became of it.
    #[must_use]
    pub fn fate(&self) -> &Fate {
        &self.fate
    }

    /// Returns the reply of the first group; `None` if the call has none.
    #[must_use]
    pub fn reply(&self) -> Option<&[u8]> {
        match &self.fate {
            Fate::Applied { replies, .. } => replies.first()?.1.as_deref(),
            Fate::NotApplied | Fate::Unknown => None,
        }
    }

    /// Returns its place in the order, if it is known to be applied; of a read that is not ordered, that of its answer.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        match &self.fate {
            Fate::Applied { position, .. } => Some(*position),
            Fate::NotApplied | Fate::Unknown => None,
        }
    }
}
