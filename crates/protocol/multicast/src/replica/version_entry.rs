//! Version entries: messages of a group to itself, without a body. Each raises the version of the group's application
//! by 1.
//!
//! All members of a group must behave alike at the same position of its order. When some of them run a newer program
//! than others, all behave like the oldest program until all have been upgraded. The position after which they behave
//! like the newer ones is part of the order: it is the position of a version entry. The version is 1 before the first
//! version entry of a group's history. Each version entry raises it by 1.
//!
//! Version entries are the messages of one of the group's own client ids
//! ([`Topology::version_client`](crate::Topology::version_client)). Otherwise they are like time entries:
//! `time_entry.rs` argues why their content follows from their slots, and why no content is sent. The content of the
//! entry in slot `s` is "the version is `s + 2`".
//!
//! # The version goal
//! The shell knows which versions the programs of the members have. It reports the smallest of all as a *goal*
//! ([`Replica::set_version_goal`]), whether this member leads or not. A leader orders the entries that the goal needs
//! as soon as it learns the goal, and when it begins to lead, before it assigns anything else. So if the goal is known
//! when a group is founded, the first message of any client is processed with the version that the programs of all
//! members have.
//!
//! # Invariants
//! - *The version never falls.* No entry lowers it, and an entry is never revoked: it is a message.
//! - *The version never exceeds the goal of a leader.* A goal may have been reported before a program was replaced by
//!   an older one. The process with the older program then finds a version above its own, in the state that it adopts
//!   or in an entry, and must end.
//! - *At most a window of version entries is in progress.* A goal that is farther away is reached in several turns.

use super::leader::Leader;
use super::{Effects, Replica};
use crate::mutant::mutant;

impl<E: Effects> Leader<'_, E> {
    /// Orders the version entries that this goal needs, as far as there is room. Returns whether it ordered any.
    pub(super) fn raise_version(&mut self, goal: u32) -> bool {
        let Some(client) = self.agreement.messages.version_client() else { return false };
        let (mut ordered, target) = (false, u64::from(goal).saturating_sub(1));
        while self.agreement.messages.window(client).assigned < target && self.order_own_entry(client, 0).is_some() {
            ordered = true;
        }
        ordered
    }
}

impl Replica {
    /// Sets the version goal: the smallest version among the programs of this group's members, as far as this member
    /// knows; 0 if it does not know. The leader raises the group's version to the goal by version entries, at once or
    /// when it begins to lead. Returns whether it ordered any now.
    ///
    /// A goal below the group's version has no effect, nor has any goal in a group that orders no entries
    /// ([`time_entries`](super::ReplicaConfig::time_entries)). Report it again from time to time: at most a window of
    /// entries is ordered at once.
    pub fn set_version_goal<E: Effects>(&mut self, goal: u32, effects: &mut E) -> bool {
        if self.is_leader() || !mutant!(self.agreement.id.mutant(), GoalForgotten) {
            self.leadership.version_goal = goal;
        }
        if !self.is_leader() || self.is_superseded() {
            return false;
        }
        let ordered = self.leader(effects).raise_version(goal);
        if ordered {
            self.deliver(effects);
        }
        ordered
    }

    /// Returns the version of this group's application that is ordered here, delivered or not: 1 plus the number of
    /// version entries.
    #[must_use]
    pub fn ordered_version(&self) -> u32 {
        let client = self.agreement.messages.version_client();
        let entries = client.map_or(0, |client| self.agreement.messages.window(client).assigned);
        u32::try_from(entries + 1).unwrap_or(u32::MAX)
    }
}
