//! The finished calls of a simulated client.

use crate::{Consistency, Group, Groups, Position, SessionId};

/// A finished call of a simulated client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub(super) session: SessionId,
    pub(super) how: Option<Consistency>,
    pub(super) groups: Groups,
    pub(super) bytes: Vec<u8>,
    pub(super) fate: Fate,
}

/// The fate of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fate {
    /// The call was applied once in each of its groups.
    Applied {
        /// Position of the call in the order, with the index of the first group. For an unordered read, the position up
        /// to which the answer reflects the order.
        position: Position,
        /// Replies of the groups, in their order. `None` if the reply was longer than
        /// [`SimCluster::reply_bytes`](super::SimCluster::reply_bytes), and is lost.
        replies: Vec<(Group, Option<Vec<u8>>)>,
    },
    /// The call was not applied and never will be: there was no room for it, it was lost with its process, or it was an
    /// unordered read that was not answered within 1 ms of virtual time.
    NotApplied,
    /// It is unknown whether the call was applied, will be applied later, or will never be applied. Its outcome can no
    /// longer be found out, because its session expired or too many calls followed it.
    Unknown,
}

impl Seen {
    /// Returns the session that made the call.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns whether the call was a read.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.how.is_some()
    }

    /// Returns the requested guarantee, if the call was a read.
    #[must_use]
    pub fn consistency(&self) -> Option<Consistency> {
        self.how
    }

    /// Returns the groups of the call.
    #[must_use]
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Returns the command or query.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the fate of the call.
    #[must_use]
    pub fn fate(&self) -> &Fate {
        &self.fate
    }

    /// Returns the reply of the first group; `None` if there is no reply.
    #[must_use]
    pub fn reply(&self) -> Option<&[u8]> {
        match &self.fate {
            Fate::Applied { replies, .. } => replies.first()?.1.as_deref(),
            Fate::NotApplied | Fate::Unknown => None,
        }
    }

    /// Returns the position of the call if it is known to be applied; for an unordered read, the position of its
    /// answer.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        match &self.fate {
            Fate::Applied { position, .. } => Some(*position),
            Fate::NotApplied | Fate::Unknown => None,
        }
    }
}
