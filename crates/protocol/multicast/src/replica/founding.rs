//! Founding: the members of a group that no process remembers begin it in a new incarnation.
//!
//! Founding is a campaign of the group's first member, the *founder*, for the first ballot of an incarnation above all
//! that it knows, with an empty state. All members promise, not only a majority. So the ballot is complete like any
//! other when it leads, and each promise names the lives that took part. The protocol needs no other information about
//! the beginning of a group.
//!
//! # States of a process without memory
//! *joining* → *pledged* (it has promised to found an incarnation; it still asks to be admitted) → *member* (it
//! installed a state; or it promised a later ballot of the incarnation that it pledged, which is like promising before
//! the first install). *Pledged* ends as *joining* again when the founding can no longer succeed.
//!
//! # Conditions of a pledge
//! A process without memory pledges only
//! 1. to the group's first member, in its last known life, which names the process's own life among those that it
//!    knows;
//! 2. while no process that it reaches remembers the group: no member of it, no member of another group that has its
//!    own group's state, and no client. Such a process has reported that in its hello, or in an announcement since. The
//!    report still counts while the process is expelled because it is stalled;
//! 3. to an incarnation whose number is above all that it pledged before, or the same incarnation again.
//!
//! If (2) is violated, the process reports to the founder which process remembers the group. If (3) is violated, it
//! reports the incarnation that it pledged. The founder waits for
//! [`founding_ticks`](super::ReplicaConfig::founding_ticks) before it asks, so that all running processes have sent
//! their hello. It begins a founding anew whenever another life of a member asks.
//!
//! # Safety
//! - *If all members have pledged one incarnation n, no process has or gains memory of a smaller one.* Suppose
//!   otherwise, and let P be the first process that has such memory after the last member has pledged. A process with
//!   memory does not pledge, and does not lose its memory within one life. So P is a later life than the one in which
//!   its member pledged, or was admitted in that life after it had pledged; in both cases by a state of a leader L that
//!   had memory. L is not a later life than the one that the pledges name, because P is the first. L is not that life,
//!   which pledged and had no memory then. L is not an earlier life in either case. If P is the life that pledged, it
//!   learned of the named lives then, and a process without memory installs no state of a leader of which it knows a
//!   later life. If P is a later life, no ballot of an earlier life of the leader names it. So there is no P.
//! - *A pledge may be dropped when a state of a smaller incarnation comes from a leader in its last known life.* By the
//!   first statement the founding has not succeeded. It will not succeed either, because the founder of a later life
//!   uses a larger number. So a group does not wait for a founder that was wrong about which members have no memory.
//! - *Two incarnations with one number have different tags*, except by chance: a founder draws the tag from its life.
//! - A group is not founded if a member reaches a process that remembers the group: see the second condition. A process
//!   that was not reached may reconnect later and remember another history. If the numbers of the two incarnations
//!   differ, the larger one counts. If they are equal, the tags differ, and the two histories never mix (`ballots.rs`).
//!
//! If a founder takes over, and the pledges are lost before a majority has its state, the founder waits with an empty
//! state, like any member whose majority is lost.

use stentor_fabric::ProcessId;

use super::campaign::{Campaign, Demand, Promise};
use super::leadership::Stage;
use super::recovery::Recovery;
use super::{Effects, Rejected};
use crate::mutant::mutant;
use crate::peer_message::PeerMessage;
use crate::{Ballot, Incarnation};

/// The part at the founder.
impl<E: Effects> Recovery<'_, E> {
    /// Begins to found the group, if all conditions hold: this process is the founder and has waited; all other members
    /// ask to be admitted; no process has itself reported that it remembers the group; the configuration allows a
    /// founding; and no founding with the same lives is in progress. Returns whether all conditions hold.
    pub(super) fn found_if_possible(&mut self) -> bool {
        let id = &self.agreement.id;
        if !self.membership.is_joining() || id.founder() != id.me() || !self.membership.has_waited(id) {
            return false;
        }
        let blind = mutant!(id.mutant(), MemoryIgnored);
        if self.membership.memories.first_hand().is_some() && !blind {
            self.abandon_founding();
            return false;
        }
        // A memory that is known only by hearsay does not prevent the request: a member that knows the memory
        // first-hand answers with a report of it.
        let all = self.membership.joiners.len() + 1 == id.topology().size(id.group);
        let enough = all || mutant!(id.mutant(), FoundedByMajority);
        if !enough || id.config.total_loss == super::TotalLoss::Refuse {
            return false;
        }
        let joiners = &self.membership.joiners;
        let same = |campaign: &Campaign| campaign.founds() && campaign.admits == *joiners;
        if matches!(&self.leadership.stage, Stage::Campaigning(campaign) if same(campaign)) {
            return false;
        }
        self.found();
        true
    }

    /// Returns an incarnation above all known ones of this group, and its first ballot, led by this process.
    ///
    /// # Errors
    /// Returns [`Rejected::Ballot`] if there is no larger incarnation number.
    pub(super) fn next_incarnation(&self) -> Result<(Ballot, Incarnation), Rejected> {
        let heard = self.agreement.ballots.incarnation(self.agreement.id.group).number;
        let remembered = self.membership.memories.any().map_or(0, |(_, incarnation)| incarnation.number);
        let promised = self.agreement.ballots.promised_in.number;
        let next = heard.max(remembered).max(promised).max(self.membership.pledged.number) + 1;
        let number = (next <= Ballot::MAX_INCARNATION).then_some(next);
        let number = number.ok_or(Rejected::Ballot(self.agreement.ballots.promised))?;
        let me = self.agreement.id.me();
        Ok((Ballot::new_in(number, 1, me), Incarnation::drawn(number, me, self.membership.lives.own())))
    }

    fn found(&mut self) {
        // If there are no more numbers, only a new configuration helps.
        let Ok((ballot, incarnation)) = self.next_incarnation() else { return };
        if self.ends_with_another_state(incarnation) {
            return;
        }
        self.pledge(ballot, incarnation, false);
        self.begin_campaign(Incarnation::NONE, false);
    }

    /// Abandons a founding, because a process remembers the group.
    fn abandon_founding(&mut self) {
        if self.leadership.campaign().is_some_and(|campaign| campaign.founds()) {
            self.drop_pledge();
        }
    }
}

/// The part at all processes without memory.
impl<E: Effects> Recovery<'_, E> {
    /// Handles a candidate's request for a promise (1A) at a process without memory.
    pub(super) fn on_demand_without_memory(&mut self, from: ProcessId, demand: &Demand<'_>) {
        if !self.is_last_of(demand.lives) || !self.membership.lives.is_last(from, demand.lives) {
            return;
        }
        if demand.founds() {
            self.on_founding(from, demand);
        } else if self.membership.has_pledged(demand.incarnation) && demand.ballot > self.agreement.ballots.promised {
            // The incarnation has begun, and this process has forgotten none of its promises in it.
            self.membership.remember();
            if self.agreement.messages.delivered == 0 {
                // Otherwise a state of this incarnation is here, and waits for bodies.
                self.effects.begin_history();
            }
            self.promise_to(from, demand);
        } else if demand.resets {
            self.on_reset(from, demand);
        }
    }

    fn on_founding(&mut self, founder: ProcessId, demand: &Demand<'_>) {
        let id = &self.agreement.id;
        let own = demand.lives.get(id.index()).copied();
        if founder != id.founder() || own != Some(self.membership.lives.own()) {
            // The sender is not the group's founder, or it knows another life of this member, or none. A founder asks
            // again when it learns of this life.
            return;
        }
        let blind = mutant!(id.mutant(), MemoryIgnored);
        if let Some((by, incarnation)) = self.membership.memories.first_hand().filter(|_| !blind) {
            self.send(founder, &PeerMessage::Remembered { by, incarnation });
            return;
        }
        if self.is_pledged_to(demand) {
            self.promise_to(founder, demand);
        } else {
            self.pledge_to(founder, demand, true);
        }
    }

    /// Returns whether this process has promised the candidate's ballot before.
    pub(super) fn is_pledged_to(&self, demand: &Demand<'_>) -> bool {
        self.membership.has_pledged(demand.incarnation) && self.agreement.ballots.promised == demand.ballot
    }

    /// Promises to begin an incarnation, if `free` is `true` and this process has pledged no incarnation that is as
    /// large or larger.
    pub(super) fn pledge_to(&mut self, from: ProcessId, demand: &Demand<'_>, free: bool) {
        let (incarnation, pledged) = (demand.incarnation, self.membership.pledged);
        if !free || incarnation.number <= pledged.number {
            let id = &self.agreement.id;
            let promised = id.topology().before(id.group, pledged.number);
            self.send(from, &PeerMessage::Refuse { promised, incarnation: pledged });
        } else if !self.ends_with_another_state(incarnation) {
            self.pledge(demand.ballot, incarnation, demand.resets);
            self.promise_to(from, demand);
        }
    }

    /// Ends this process if its application has received the state of another history and the process still waits for
    /// bodies that this state names. A process without memory in its place may promise. Returns whether the process
    /// ends.
    pub(super) fn ends_with_another_state(&mut self, by: Incarnation) -> bool {
        let given = self.agreement.messages.delivered > 0;
        if given {
            self.end(by);
        }
        given
    }

    pub(super) fn pledge(&mut self, ballot: Ballot, incarnation: Incarnation, resets: bool) {
        self.membership.pledge(incarnation, resets);
        // This promise ends the history that clients wrote to before. Clients of the next one may use the same ids.
        self.agreement.messages.drop_unassigned(self.effects);
        let ballots = &mut self.agreement.ballots;
        (ballots.promised, ballots.promised_in) = (ballot, incarnation);
        self.leadership.stage = Stage::Idle;
    }

    /// Drops the pledge, because the founding that this process promised can no longer succeed.
    pub(super) fn drop_pledge(&mut self) {
        self.membership.pledge = None;
        let ballots = &mut self.agreement.ballots;
        (ballots.promised, ballots.promised_in) = (Ballot::NONE, Incarnation::NONE);
        self.leadership.stage = Stage::Idle;
    }

    /// Handles the report that a member does not found or reset its group with this process, because a process
    /// remembers the group.
    pub(super) fn on_remembered(&mut self, from: ProcessId, by: ProcessId, incarnation: Incarnation) {
        if !self.membership.is_joining() || incarnation.is_none() {
            return;
        }
        if from == by {
            self.membership.memories.hear(by, incarnation);
            self.abandon_founding();
        } else {
            self.membership.memories.hear_say(by, incarnation);
        }
    }

    /// Handles the refusal of a member that has pledged an incarnation whose number is at least that of the one that
    /// this founder asks for.
    pub(super) fn on_refused_founding(&mut self, incarnation: Incarnation) {
        if self.leadership.campaign().is_some_and(|campaign| campaign.founds())
            && incarnation.number >= self.membership.pledged.number
        {
            self.drop_pledge();
            self.membership.pledged = self.membership.pledged.max(incarnation);
            self.found_if_possible();
        }
    }

    /// Begins a campaign for the promised ballot.
    pub(super) fn begin_campaign(&mut self, ends: Incarnation, resets: bool) {
        let mut state = self.state();
        state.forget_held();
        let (promises, admits) =
            (vec![Promise { process: self.agreement.id.me(), state }], self.membership.joiners.clone());
        self.leadership.stage = Stage::Campaigning(Box::new(Campaign { promises, admits, ends, resets }));
        self.leadership.age = 0;
        let message = self.campaign_message();
        self.send_to_others(&message);
        self.count_promises();
    }
}
