//! What a member knows of the histories of groups, and is told of them when connections come and go.

use stentor_fabric::ProcessId;

use super::agreement::Agreement;
use super::reset::check_reset;
use super::{Contradiction, Hindrance, Rejected, Replica};
use crate::{GroupId, Incarnation, ProcessRole};

/// Questions about incarnations.
impl Replica {
    /// Returns the incarnation of its group in which this member has a state; none, if it has none.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.agreement.ballots.installed_in
    }

    /// Returns the incarnation of a group that this process has heard of; none, if it has heard of none.
    #[must_use]
    pub fn known_incarnation(&self, group: GroupId) -> Incarnation {
        self.agreement.ballots.incarnation(group)
    }

    /// Returns the incarnation that a [reset](Replica::reset) at this process has to name: that of this member's state, or the
    /// largest of which this process, without memory, was told.
    #[must_use]
    pub fn reset_ends(&self) -> Incarnation {
        self.membership.ended_by_reset(&self.agreement.ballots, self.agreement.id.group)
    }

    /// Checks whether a [reset](Replica::reset) may begin at this process.
    ///
    /// # Errors
    /// Those of [`reset`](Replica::reset).
    pub fn check_reset(&self, ends: Incarnation, empty: bool) -> Result<(), Rejected> {
        check_reset(&self.agreement, &self.membership, ends, empty)
    }

    /// Returns why a process without memory does not found its group together with all others. `None`: it has memory, or
    /// nothing hinders them, as far as this process can tell.
    #[must_use]
    pub fn hindrance(&self) -> Option<Hindrance> {
        self.membership.hindrance(&self.agreement.id)
    }

    /// Returns the last contradiction between incarnations of one group that this process was told.
    #[must_use]
    pub fn contradiction(&self) -> Option<Contradiction> {
        self.agreement.ballots.contradiction()
    }

    /// Returns the incarnation of its group that goes on without what this member has, because an operator reset the group. It
    /// [does nothing any more](Replica::is_superseded): a process without memory in its place is taken in.
    #[must_use]
    pub fn ended_by(&self) -> Option<Incarnation> {
        self.membership.ended_by()
    }
}

/// What greetings say.
impl Replica {
    /// A process greeted: it has a state of its own group in incarnation `own`, if it has one, and remembers `yours` of
    /// this member's group. Call it before [`on_connected`](Replica::on_connected).
    ///
    /// # Errors
    /// [`Contradiction`] if what it says is another history than that of which this member knows, with the same number:
    /// nothing of it may be handed over.
    pub fn on_greeting(&mut self, from: ProcessId, own: Incarnation, yours: Incarnation) -> Result<(), Contradiction> {
        let Agreement { id, ballots, .. } = &mut self.agreement;
        let (topology, mine) = (id.config.topology.clone(), id.group);
        let (theirs, client) = match topology.role(from) {
            Some(ProcessRole::Member { group, .. }) => (Some(group), false),
            role => (None, role.is_some()),
        };
        let joining = self.membership.is_joining();
        let said = theirs.map(|group| (group, own)).into_iter().chain([(mine, yours)]);
        for (group, said) in said.filter(|(_, said)| !said.is_none()) {
            // Of the own group it is what this member says of it: the other end judges by that.
            let known = if group == mine { ballots.installed_in } else { ballots.incarnation(group) };
            if known.contradicts(said) {
                ballots.hear_in(group, topology.before(group, said.number), said);
                return Err(Contradiction { group, known, said });
            }
            ballots.hear_in(group, topology.before(group, said.number), said);
        }
        // Who is without its own group's state has nothing under way to this one, and says what it has heard.
        let said = match theirs {
            Some(group) if group == mine => own,
            _ if client || !own.is_none() => yours,
            _ => Incarnation::NONE,
        };
        if joining {
            self.membership.memories.hear(from, said);
        }
        Ok(())
    }

    /// The connection with a process is down.
    pub fn on_disconnected(&mut self, peer: ProcessId) {
        self.membership.memories.forget(peer);
    }
}
