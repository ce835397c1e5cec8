//! A member's knowledge of the histories of groups: questions about it, and what connections say of them as they come and go.

use stentor_fabric::ProcessId;

use super::agreement::Agreement;
use super::leadership::Stage;
use super::reset::check_reset;
use super::unsettled::Settling;
use super::{Contradiction, Effects, Hindrance, Rejected, Replica};
use crate::{Ballot, GroupId, Incarnation, Origin, ProcessRole, Word};

/// Questions about incarnations, and their end.
impl Replica {
    /// Returns the incarnation of its group in which this member has a state; none, if it has none.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.agreement.ballots.installed_in
    }

    /// Returns where the history of this member's state began, and was reset: the oldest beginning first. Nothing, if it has no
    /// state.
    #[must_use]
    pub fn origins(&self) -> &[Origin] {
        &self.agreement.ballots.origins
    }

    /// The group goes on in this incarnation without what this member's application has.
    pub(crate) fn end(&mut self, by: Incarnation) {
        self.membership.end(by);
        self.leadership.stage = Stage::Idle;
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

    /// Begins a new incarnation of this member's group, with its state: with nothing, if `empty` and this process is without
    /// memory. What was agreed in the incarnation that it ends, and is not in that state, is lost. A majority has to promise,
    /// with or without memory. Nobody may be able to write this member's stream regions, as with
    /// [`campaign`](Replica::campaign). Returns the ballot.
    ///
    /// # Errors
    /// [`Rejected::Incarnation`] if `ends` is not the [incarnation](Replica::reset_ends) that is known here;
    /// [`Rejected::Joining`] without memory, unless `empty`, and [`Rejected::Remembers`] with memory, if `empty`;
    /// [`Rejected::Superseded`] if another process of this member came later; [`Rejected::Ballot`] if there is no larger
    /// incarnation.
    pub fn reset<E: Effects>(&mut self, ends: Incarnation, empty: bool, effects: &mut E) -> Result<Ballot, Rejected> {
        self.recovery(effects).reset(ends, empty)
    }

    /// Whether this process has begun to reset its group, and no majority has promised yet.
    pub(crate) fn is_resetting(&self) -> bool {
        matches!(&self.leadership.stage, Stage::Campaigning(campaign) if campaign.resets)
    }

    /// Checks whether a [reset](Replica::reset) may begin at this process.
    ///
    /// # Errors
    /// Those of [`reset`](Replica::reset).
    pub(crate) fn check_reset(&self, ends: Incarnation, empty: bool) -> Result<(), Rejected> {
        check_reset(&self.agreement, &self.membership, ends, empty)
    }

    /// While this process has no memory of its group: other members that asked lately to be taken in, because they have none
    /// either. If a majority of the group has none, nobody is taken in.
    pub fn also_without_memory(&self) -> impl Iterator<Item = ProcessId> {
        let (id, asking) = (&self.agreement.id, self.membership.asking());
        id.others().filter(move |process| asking & id.bit_of(*process) != 0)
    }

    /// Returns why a process without memory does not found its group together with all others. `None`: it has memory, or
    /// nothing hinders them, as far as this process can tell.
    #[must_use]
    pub fn hindrance(&self) -> Option<Hindrance> {
        self.membership.hindrance(&self.agreement.id)
    }

    /// Whether somebody remembered a smaller incarnation of the group when this member got its memory. If its history began from
    /// nothing all the same, an operator has reset the group.
    #[must_use]
    pub fn was_remembered(&self) -> bool {
        let remembered = self.membership.remembered;
        !remembered.is_none() && remembered.number < self.incarnation().number
    }

    /// Returns what this member was told of the history of another group, as its own group's stream says it.
    #[must_use]
    pub fn word(&self, group: GroupId) -> Word {
        self.agreement.ballots.word(group)
    }

    /// Returns what this member still waits for since the history of a group began anew; `None`, if that is settled.
    #[must_use]
    pub fn settling(&self, group: GroupId) -> Option<Settling> {
        self.agreement.settling(group)
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

/// What greetings say, and how long one waits for them.
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
            // This member greeted with the incarnation that it has installed of its own group: the other end judges by that.
            let known = if group == mine { ballots.installed_in } else { ballots.incarnation(group) };
            ballots.hear_in(group, topology.before(group, said.number), said);
            if known.contradicts(said) {
                return Err(Contradiction { group, known, said });
            }
        }
        // A process without its own group's state has nothing under way to this group, and only says what it has heard.
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

    /// Counts ticks that did not come before the next one. A process without memory has waited meanwhile for others that remember
    /// its group.
    pub(crate) fn skip_ticks(&mut self, ticks: u16) {
        self.membership.skip(ticks);
    }

    /// The connection with a process is down.
    pub fn on_disconnected(&mut self, peer: ProcessId) {
        self.membership.memories.forget(peer);
    }
}
