//! Reset: an operator begins a new incarnation of a group that lost its majority, or that cannot be founded because a
//! process remembers it.
//!
//! A reset is a campaign for the first ballot of an incarnation above all known ones. It names the incarnation that it
//! ends. It begins with the state of the candidate, whatever states others have: the operator chose that member, or a
//! process without state. A majority promises, and may include members without memory.
//!
//! # States of a group
//! *in incarnation (n, t)* → a member campaigns for (m, u), which ends (n, t) → a majority has promised → *in
//! incarnation (m, u)*. If a reset finds no majority, the members that promised it wait. They stop waiting when other
//! members return and the reset continues, when a leader of (n, t) learns of it and moves above it
//! (`Recovery::campaign`), or when another reset ends (m, u).
//!
//! # Invariants
//! - *A process that has promised to end (n, t) by (m, u) refuses to end it by another incarnation*, with memory or
//!   without. Two majorities have a member in common. If that member lost its memory in between, it promised in two
//!   lives. The candidate that counts the second promise knows the later life, and names it. So at most one reset of
//!   (n, t) that was not abandoned continues.
//! - *Once a reset has a majority, nothing is agreed in the incarnation that it ended.* A majority of (n, t) has a
//!   member in common with the members that promised. If that member had memory, it promised a larger ballot. If it had
//!   none, it was in no majority of (n, t) in this life before, and installs no state of a ballot below the promised
//!   one.
//! - *The history of a running member is never replaced by another one.* A state names where its history began, and how
//!   many deliveries each reset kept. A member *ends* if it has delivered more than its own history has in common with
//!   a state that it receives. It is inactive afterwards, and a process without memory in its place is admitted.
//! - *A campaign continues from the incarnation of its candidate's state* (`Membership::goes_on_from`), also when the
//!   candidate moves above another history and tries again. A promise to a candidate that moves is binding only for the
//!   candidate's ballot: until a majority has installed that ballot, nothing is agreed in it. A member that promised a
//!   reset continues only from the incarnation of that reset, and leads only with a state of it.
//! - Members without memory that promised are admitted by the ballot itself. They sent nothing in the previous
//!   incarnation, and their promises name their lives to the candidate before it takes over.
//!
//! Messages that were agreed in (n, t) and are not in the candidate's state are lost. So are messages that were in
//! flight to it; other groups settle those (`settling.rs`; see `docs/guarantees.md`, "After loss of memory").

use stentor_fabric::ProcessId;

use super::agreement::Agreement;
use super::campaign::Demand;
use super::membership::{Membership, Pledge};
use super::recovery::Recovery;
use super::{Effects, Rejected};
use crate::peer_message::{Joiner, PeerMessage};
use crate::state::State;
use crate::{Ballot, Incarnation};

/// Checks whether a reset can begin at this process.
///
/// # Errors
/// Returns the errors of [`Replica::reset`](super::Replica::reset).
pub(super) fn check_reset(
    agreement: &Agreement,
    membership: &Membership,
    ends: Incarnation,
    empty: bool,
) -> Result<(), Rejected> {
    if membership.is_superseded() {
        return Err(Rejected::Superseded);
    }
    match (membership.is_joining(), empty) {
        (true, false) => return Err(Rejected::Joining),
        (false, true) => return Err(Rejected::Remembers),
        // The process received a state, and waits for bodies that the state names.
        (true, true) if agreement.messages.delivered > 0 => return Err(Rejected::Ahead),
        _ => {}
    }
    let known = membership.ended_by_reset(&agreement.ballots, agreement.id.group);
    if ends == known { Ok(()) } else { Err(Rejected::Incarnation { named: ends, known }) }
}

impl<E: Effects> Recovery<'_, E> {
    /// Begins a new incarnation, which ends the incarnation `ends`, with this member's state, or with an empty state if
    /// `empty`.
    pub(super) fn reset(&mut self, ends: Incarnation, empty: bool) -> Result<Ballot, Rejected> {
        check_reset(self.agreement, self.membership, ends, empty)?;
        let (ballot, incarnation) = self.next_incarnation()?;
        if empty {
            self.pledge(ballot, incarnation, true);
        } else {
            self.membership.promise_reset(incarnation);
            self.promise(ballot, incarnation);
        }
        self.begin_campaign(ends, true);
        Ok(ballot)
    }

    /// Handles the request for a promise to reset the group (1A) at a process without memory.
    pub(super) fn on_reset(&mut self, from: ProcessId, demand: &Demand<'_>) {
        if self.is_pledged_to(demand) {
            return self.promise_to(from, demand);
        }
        let other = self.membership.memories.first_hand().filter(|(_, incarnation)| *incarnation > demand.ends);
        if let Some((by, incarnation)) = other {
            return self.send(from, &PeerMessage::Remembered { by, incarnation });
        }
        let ends_another = |pledge: Pledge| pledge.resets && pledge.incarnation != demand.ends;
        let free = !self.membership.pledge.is_some_and(ends_another);
        self.pledge_to(from, demand, free);
    }

    /// Admits a process that promises a reset without memory.
    pub(super) fn take_promise_of_reset(&mut self, from: ProcessId, state: &State) {
        let life = self.membership.lives.of(from);
        let Some(campaign) = self.leadership.campaign().filter(|_| state.synced == Ballot::NONE) else { return };
        let joiner = Joiner { process: from, life };
        campaign.admits.retain(|known| known.process != from);
        campaign.admits.push(joiner);
        self.membership.welcome(joiner);
    }
}
