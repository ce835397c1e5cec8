//! Version entries: messages of a group to itself, without a body. Each raises the version of the group's application by 1.
//!
//! All members of a group must do the same at the same place of its order. When some of them run a newer program than others, they
//! do what the oldest of the programs does, until all are new. From which place on they do what the newer ones do is a matter of the order,
//! and a version entry is that place. The version is 1 in front of the first version entry of a group's history, and one more behind
//! each.
//!
//! Version entries are the messages of a client of the group's own ([`Topology::version_client`](crate::Topology::version_client)), and
//! in all else they are as time entries are: `time_entry.rs` argues why their content follows from their slots, and why nothing is
//! transported. The content of the entry in slot `s` is "the version is `s + 2`".
//!
//! # Who says what the version is to be
//! The shell knows which versions the programs of the members have. It reports the smallest of all as a *goal*
//! ([`Replica::set_version_goal`]), whether this member leads or not. A leader orders the entries that the goal needs: as soon as it hears
//! of it, and when it begins to lead, before anything else is assigned. So the version of a group that is founded is the one that all its
//! programs have, at the first message of any client.
//!
//! # Invariants
//! - *The version never falls.* No entry lowers it, and an entry is never taken back: it is a message.
//! - *It never exceeds the goal of a leader.* A goal may have been reported with a program that was replaced since by an older one. The
//!   process with the older program sees a version above its own, in the state that it takes over or in an entry, and must end.
//! - *At most a window of them is under way.* A goal that is farther away is reached in several turns.

use super::leader::Leader;
use super::{Effects, Replica};

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
    /// Reports the smallest version of the application that all members of this group have, as far as this member knows; 0 if it does not
    /// know. A leader raises the group's version to it by version entries, at once or when it begins to lead. Returns whether it ordered any
    /// now.
    ///
    /// A goal below the group's version changes nothing, and neither does any goal in a group that orders no entries
    /// ([`time_entries`](super::ReplicaConfig::time_entries)). Report it again from time to time: a window of entries is ordered at once,
    /// at most.
    pub fn set_version_goal<E: Effects>(&mut self, goal: u32, effects: &mut E) -> bool {
        self.leadership.version_goal = goal;
        if !self.is_leader() || self.is_superseded() {
            return false;
        }
        let ordered = self.leader(effects).raise_version(goal);
        if ordered {
            self.deliver(effects);
        }
        ordered
    }

    /// Returns the version of this group's application that is ordered here, delivered or not: 1 and the number of version entries.
    #[must_use]
    pub fn ordered_version(&self) -> u32 {
        let client = self.agreement.messages.version_client();
        let entries = client.map_or(0, |client| self.agreement.messages.window(client).assigned);
        u32::try_from(entries + 1).unwrap_or(u32::MAX)
    }
}
