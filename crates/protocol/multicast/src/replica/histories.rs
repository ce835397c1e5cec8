//! A member's knowledge of the histories of groups: queries about it, and the reports that connections bring.

use stentor_fabric::ProcessId;

use super::agreement::Agreement;
use super::leadership::Stage;
use super::reset::check_reset;
use super::unsettled::Settling;
use super::{Contradiction, Effects, Hindrance, Rejected, Replica};
use crate::{Ballot, GroupId, Incarnation, Origin, ProcessRole, Word};

/// Queries about incarnations and their end.
impl Replica {
    /// Returns the incarnation of its group in which this member has a state, or [`Incarnation::NONE`] if it has none.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.agreement.ballots.installed_in
    }

    /// Returns the founding and the resets of this member's history, the oldest first; empty if it has no state.
    #[must_use]
    pub fn origins(&self) -> &[Origin] {
        &self.agreement.ballots.origins
    }

    /// Ends this process, because its group continues in incarnation `by`, whose history lacks deliveries of this
    /// member's application.
    pub(crate) fn end(&mut self, by: Incarnation) {
        self.membership.end(by);
        self.leadership.stage = Stage::Idle;
    }

    /// Returns the known incarnation of a group, or [`Incarnation::NONE`] if none is known.
    #[must_use]
    pub fn known_incarnation(&self, group: GroupId) -> Incarnation {
        self.agreement.ballots.incarnation(group)
    }

    /// Returns the incarnation that a [reset](Replica::reset) at this process must name as the one to end.
    ///
    /// With memory, this is the incarnation of the largest ballot that this member has promised. Without memory, it is
    /// the largest incarnation that this process knows or has promised to begin by a reset.
    #[must_use]
    pub fn reset_ends(&self) -> Incarnation {
        self.membership.ended_by_reset(&self.agreement.ballots, self.agreement.id.group)
    }

    /// Begins a new incarnation of this member's group with this member's state, and returns its ballot. With `empty`,
    /// a process without memory begins it with an empty state.
    ///
    /// Agreements of the ended incarnation that are not in that state are lost. A majority must promise; its members
    /// need no memory. As with [`campaign`](Replica::campaign), the stream regions must have been fenced against all
    /// processes.
    ///
    /// # Errors
    /// Returns [`Rejected::Incarnation`] if `ends` is not the [incarnation](Replica::reset_ends) that is known here;
    /// [`Rejected::Joining`] if the process has no memory and `empty` is `false`; [`Rejected::Remembers`] if the
    /// process has memory and `empty` is `true`; [`Rejected::Ahead`] if the process is receiving another member's
    /// state; [`Rejected::Superseded`] if a later process has replaced it; [`Rejected::Ballot`] if there is no larger
    /// incarnation.
    pub fn reset<E: Effects>(&mut self, ends: Incarnation, empty: bool, effects: &mut E) -> Result<Ballot, Rejected> {
        self.recovery(effects).reset(ends, empty)
    }

    /// Returns whether this process has begun to reset its group, and no majority has promised yet.
    pub(crate) fn is_resetting(&self) -> bool {
        matches!(&self.leadership.stage, Stage::Campaigning(campaign) if campaign.resets)
    }

    /// Checks whether a [reset](Replica::reset) may begin at this process.
    ///
    /// # Errors
    /// Returns the errors of [`reset`](Replica::reset).
    pub(crate) fn check_reset(&self, ends: Incarnation, empty: bool) -> Result<(), Rejected> {
        check_reset(&self.agreement, &self.membership, ends, empty)
    }

    /// Returns the other members that recently asked to be admitted because they have no memory. Returns none if this
    /// process has memory.
    ///
    /// If a majority of the group has no memory, no process is admitted.
    pub fn also_without_memory(&self) -> impl Iterator<Item = ProcessId> {
        let (id, asking) = (&self.agreement.id, self.membership.asking());
        id.others().filter(move |process| asking & id.bit_of(*process) != 0)
    }

    /// Returns why a process without memory does not found its group together with all others.
    ///
    /// Returns `None` if the process has memory, or knows of no obstacle.
    #[must_use]
    pub fn hindrance(&self) -> Option<Hindrance> {
        self.membership.hindrance(&self.agreement.id)
    }

    /// Returns whether some process remembered a smaller incarnation of the group when this member received its memory.
    ///
    /// If the member's history began with an empty state nevertheless, an operator has reset the group.
    #[must_use]
    pub fn was_remembered(&self) -> bool {
        let remembered = self.membership.remembered;
        !remembered.is_none() && remembered.number < self.incarnation().number
    }

    /// Returns the word of another group that this group's stream contains.
    #[must_use]
    pub fn word(&self, group: GroupId) -> Word {
        self.agreement.ballots.word(group)
    }

    /// Returns the conditions for which this member still waits since the history of a group began anew, or `None` if
    /// there are none.
    #[must_use]
    pub fn settling(&self, group: GroupId) -> Option<Settling> {
        self.agreement.settling(group)
    }

    /// Returns the last contradiction between incarnations of one group that was reported to this process.
    #[must_use]
    pub fn contradiction(&self) -> Option<Contradiction> {
        self.agreement.ballots.contradiction()
    }

    /// Returns the incarnation of its group that continues without this member's history, because the group was reset
    /// or founded anew.
    ///
    /// Such a member is [inactive](Replica::is_superseded), and a process without memory in its place is admitted.
    #[must_use]
    pub fn ended_by(&self) -> Option<Incarnation> {
        self.membership.ended_by()
    }
}

/// Reports in hellos, and the time to wait for them.
impl Replica {
    /// Processes the hello of another process. `own` is the incarnation of the sender's own group in which the sender
    /// has a state, or [`Incarnation::NONE`]. `yours` is the incarnation of this member's group that the sender
    /// remembers, or [`Incarnation::NONE`]. Call it before [`on_connected`](Replica::on_connected).
    ///
    /// # Errors
    /// Returns [`Contradiction`] if the hello names another history than the one that this member knows, with the same
    /// number. The caller must then pass on nothing that the sender writes.
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
            // This member's own hello names its installed incarnation, so the other end compares with the same value.
            let known = if group == mine { ballots.installed_in } else { ballots.incarnation(group) };
            ballots.hear_in(group, topology.before(group, said.number), said);
            if known.contradicts(said) {
                return Err(Contradiction { group, known, said });
            }
        }
        // A member of another group that has no state of its own group has nothing in flight to this group. Its memory
        // of this group only repeats reports of others, so it does not count.
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

    /// Records the number of ticks that were skipped before the next one. They count towards the time for which a
    /// process without memory waits for others.
    pub(crate) fn skip_ticks(&mut self, ticks: u16) {
        self.membership.skip(ticks);
    }

    /// Handles the loss of the connection with a process.
    pub fn on_disconnected(&mut self, peer: ProcessId) {
        self.membership.memories.forget(peer);
    }
}
