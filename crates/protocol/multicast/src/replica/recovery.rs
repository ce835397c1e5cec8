//! The change of a group's leader and the admission of processes without memory: campaigns, states and `Join` messages.

use stentor_fabric::ProcessId;

use super::agreement::Agreement;
use super::campaign::{Demand, Promise};
use super::install::Install;
use super::leader::Leader;
use super::leadership::{Leadership, Stage};
use super::membership::{Membership, Pledge};
use super::succession::Successions;
use super::words::Words;
use super::{Effects, Rejected};
use crate::mutant::mutant;
use crate::peer_message::{Joiner, MessageRef, PeerMessage, SlotRef};
use crate::state::{State, Succession};
use crate::{Ballot, Incarnation, Origin};

/// The part of a member that promises, campaigns, adopts states and sends them.
///
/// # Invariants
/// - One step promises a ballot and copies the state that the promise carries.
/// - A new leader's state contains every message that a majority acknowledged in an earlier ballot, with all its times:
///   see [`Campaign`].
/// - Within one ballot a member's state never shrinks: see [`Install`].
pub(super) struct Recovery<'a, E> {
    pub(super) agreement: &'a mut Agreement,
    pub(super) membership: &'a mut Membership,
    pub(super) leadership: &'a mut Leadership,
    pub(super) effects: &'a mut E,
}

/// Puts all groups into their first ballots, with empty states.
pub(super) fn begin_life(agreement: &mut Agreement, membership: &mut Membership, leadership: &mut Leadership) {
    let Agreement { id, ballots, .. } = &mut *agreement;
    ballots.begin(id.topology());
    membership.remember();
    if agreement.owns_ballot() {
        (leadership.stage, leadership.installed) = (Stage::Leading, agreement.id.bit);
    }
}

impl<E: Effects> Recovery<'_, E> {
    fn me(&self) -> ProcessId {
        self.agreement.id.me()
    }

    pub(super) fn send(&mut self, to: ProcessId, message: &PeerMessage) {
        self.effects.send(to, message);
    }

    /// Sends a message to all other members of this group.
    pub(super) fn send_to_others(&mut self, message: &PeerMessage) {
        for member in self.agreement.id.others() {
            self.effects.send(member, message);
        }
    }

    /// Returns whether `lives`, which another member knows, contain no later life of this process's member.
    ///
    /// If a later life is known, the caller must ignore the message that named it. A process with memory then stops. A
    /// joining process may still be the latest one, because the clock may have been set back. It then joins with a
    /// larger life.
    pub(super) fn is_last_of(&mut self, lives: &[u64]) -> bool {
        let Some(successor) = self.membership.lives.successor(lives) else { return true };
        if self.membership.is_joining() {
            self.on_elder(successor);
        } else {
            self.membership.supersede();
            self.leadership.stage = Stage::Idle;
        }
        false
    }

    /// Handles the report that the group remembers a process of this member with a larger life than this one's.
    pub(super) fn on_elder(&mut self, elder: u64) {
        if self.membership.outlive(elder) {
            self.join();
        }
    }

    /// Asks the group to admit this process.
    pub(super) fn join(&mut self) {
        if let Some(life) = self.membership.joining_life() {
            self.send_to_others(&PeerMessage::Join { life });
        }
    }

    /// Handles the request of a process without memory to be admitted.
    ///
    /// Its admission requires a new ballot that does not count the process's memory, because quorums of earlier ballots
    /// may have depended on what the process has forgotten.
    pub(super) fn on_join(&mut self, joiner: Joiner) {
        let Joiner { process, life } = joiner;
        let bit = self.agreement.id.bit_of(process);
        let elder = self.membership.lives.of(process);
        if life < elder {
            self.send(process, &PeerMessage::Elder { life: elder });
            return;
        }
        self.membership.lives.hear_of(process, life);
        if self.membership.is_joining() {
            self.membership.memories.forget(process);
            self.membership.note_asking(bit);
            self.membership.welcome(joiner);
            self.found_if_possible();
            return;
        }
        if self.leadership.admitted.contains(&joiner) && self.leadership.owns_ballot() {
            self.install_at(process, true);
            return;
        }
        self.membership.welcome(joiner);
        self.forget_promises();
        self.leadership.installed &= !bit;
        if !self.leadership.leads() {
            return;
        }
        if mutant!(self.agreement.id.mutant(), JoinWithoutBallot) {
            self.leadership.admitted.push(joiner);
            self.install_at(process, true);
        } else {
            let _ = self.campaign();
        }
    }

    /// Promises a ballot. From now on no smaller ballot counts here.
    pub(super) fn promise(&mut self, ballot: Ballot, incarnation: Incarnation) {
        let Agreement { id, ballots, .. } = &mut *self.agreement;
        (ballots.promised, ballots.promised_in) = (ballot, incarnation);
        ballots.hear_in(id.group, ballot, incarnation);
        self.leadership.stage = Stage::Idle;
    }

    /// Begins a campaign in a ballot larger than all known ones.
    pub(super) fn campaign(&mut self) -> Result<Ballot, Rejected> {
        if self.membership.is_superseded() {
            return Err(Rejected::Superseded);
        }
        if self.membership.is_joining() {
            return Err(Rejected::Joining);
        }
        if self.leadership.campaign().is_some_and(|campaign| campaign.resets) {
            // The reset continues until a majority has promised, or the other members have another leader.
            return Ok(self.agreement.ballots.promised);
        }
        let Agreement { id, ballots, .. } = &*self.agreement;
        let (ends, incarnation) = (self.membership.goes_on_from(ballots), ballots.promised_in);
        if ballots.is_contested() {
            return self.move_above(ends);
        }
        let highest = ballots.promised.max(ballots.known(id.group));
        let ballot = highest.next(self.me()).ok_or(Rejected::Ballot(highest))?;
        self.promise(ballot, incarnation);
        self.begin_campaign(ends, false);
        Ok(ballot)
    }

    /// Campaigns in an incarnation above all known ones, because this member knows another history of this
    /// group that is not smaller than its own.
    fn move_above(&mut self, ends: Incarnation) -> Result<Ballot, Rejected> {
        let (ballot, incarnation) = self.next_incarnation()?;
        self.promise(ballot, incarnation);
        self.begin_campaign(ends, false);
        Ok(ballot)
    }

    /// Returns the current 1A message. It also names lives that became known after the campaign began.
    pub(super) fn campaign_message(&mut self) -> PeerMessage {
        let (ballot, incarnation) = (self.agreement.ballots.promised, self.agreement.ballots.promised_in);
        let (ends, resets) =
            self.leadership.campaign().map_or((incarnation, false), |campaign| (campaign.ends, campaign.resets));
        PeerMessage::Campaign { ballot, incarnation, ends, resets, lives: self.membership.lives.all().to_vec() }
    }

    pub(super) fn state(&self) -> State {
        let state = self.agreement.state(&self.membership.lives);
        let Agreement { id, .. } = &*self.agreement;
        debug_assert_eq!(state.check(&id.config, id.group), Ok(()), "other members would refuse this state");
        state
    }

    /// Handles a candidate's request for a promise (1A). One step promises the ballot and copies the state that the
    /// promise carries.
    pub(super) fn on_campaign(&mut self, from: ProcessId, demand: &Demand<'_>) {
        if self.membership.is_joining() {
            return self.on_demand_without_memory(from, demand);
        }
        let Agreement { id, ballots, .. } = &*self.agreement;
        let (promised, incarnation) = (ballots.promised, ballots.promised_in);
        if demand.ballot == ballots.installed {
            return;
        }
        if demand.founds() {
            self.send(from, &PeerMessage::Remembered { by: id.me(), incarnation });
            return;
        }
        let same = demand.incarnation == incarnation;
        // A candidate may move above another history. A promise to such a candidate does not bind this member to the
        // candidate's incarnation until the member has installed the candidate's state.
        let goes_on =
            demand.ends == incarnation || !demand.resets && demand.ends == self.membership.goes_on_from(ballots);
        let next = demand.incarnation.number > incarnation.number && goes_on;
        if demand.ballot < promised || !(same || next) {
            self.send(from, &PeerMessage::Refuse { promised, incarnation });
            return;
        }
        if self.is_last_of(demand.lives) {
            if demand.resets {
                self.membership.promise_reset(demand.incarnation);
            }
            self.promise_to(from, demand);
        }
    }

    /// Promises the ballot that a candidate asks for.
    pub(super) fn promise_to(&mut self, from: ProcessId, demand: &Demand<'_>) {
        let Demand { ballot, incarnation, lives, .. } = *demand;
        if ballot > self.agreement.ballots.promised {
            self.promise(ballot, incarnation);
        }
        self.membership.lives.hear_of_all(lives);
        self.send(from, &PeerMessage::Promise { ballot, state: self.state() });
    }

    /// Handles the refusal of a member that has promised a larger ballot, or another history of the group.
    pub(super) fn on_refuse(&mut self, promised: Ballot, incarnation: Incarnation) {
        if self.membership.is_joining() && self.leadership.campaign().is_none_or(|campaign| campaign.founds()) {
            return self.on_refused_founding(incarnation);
        }
        let group = self.agreement.id.group;
        self.agreement.ballots.hear_in(group, promised, incarnation);
    }

    /// Handles a member's promise (1B).
    pub(super) fn on_promise(&mut self, from: ProcessId, ballot: Ballot, state: &State) {
        let asked = ballot == self.agreement.ballots.promised && self.leadership.campaign().is_some();
        if !asked || !self.is_last_of(&state.lives) {
            return;
        }
        self.membership.lives.hear_of_all(&state.lives);
        self.forget_promises();
        if self.membership.lives.is_last(from, &state.lives) {
            let Some(campaign) = self.leadership.campaign() else { return };
            if campaign.resets {
                self.take_promise_of_reset(from, state);
            } else if !campaign.founds() {
                // A process that promises is a member. It was without memory only because its group was being founded.
                self.membership.joiners.retain(|joiner| joiner.process != from);
            }
            let Some(campaign) = self.leadership.campaign() else { return };
            if campaign.promise_of(from).is_none() {
                let mut state = state.clone();
                if campaign.resets {
                    state.forget_held();
                }
                campaign.promises.push(Promise { process: from, state });
            }
        }
        self.count_promises();
    }

    fn forget_promises(&mut self) {
        if let Some(campaign) = self.leadership.campaign() {
            campaign.forget_promises(&self.membership.lives);
        }
    }

    /// Takes over if enough members have promised (at a founding all, otherwise a majority) and this candidate holds
    /// all messages that it needs. Otherwise requests the missing messages.
    pub(super) fn count_promises(&mut self) {
        let Some(campaign) = self.leadership.campaign() else { return };
        for Promise { state, .. } in &campaign.promises {
            self.agreement.messages.give_way(state, self.effects);
        }
        let Agreement { id, ballots, messages, .. } = &*self.agreement;
        let resets = campaign.resets;
        let is_wrong = |state: &State| !resets && !self.membership.may_take(ballots, state.incarnation);
        if campaign.promises.iter().all(|promise| is_wrong(&promise.state)) {
            // No promise has the state that the operator chose, and no other state may replace that.
            return;
        }
        if let Some(ahead) = campaign.ahead(id, messages) {
            self.effects.send(ahead, &PeerMessage::Behind { ballot: ballots.promised, snapshot: true });
            return;
        }
        campaign.want_held(messages, self.effects);
        let best = campaign.best(id, messages).filter(|best| !is_wrong(&best.state));
        let Some(Promise { process, state }) = best else { return };
        if self.agreement.is_parted_from(state) {
            let by = ballots.promised_in;
            return self.end(by);
        }
        let complete = *process == id.me() || mutant!(id.mutant(), StateWithoutBodies);
        let lacks: Vec<MessageRef> = if complete { Vec::new() } else { messages.lacks(state).collect() };
        if lacks.is_empty() {
            let state = state.clone();
            self.take_over(&state);
            return;
        }
        for message in lacks {
            self.effects.send(*process, &PeerMessage::WantBody(message));
        }
    }

    /// Requests the best promised state together with the application's state, because a body that the state names is
    /// not available.
    fn want_transfer(&mut self) {
        let Agreement { id, ballots, messages, .. } = &*self.agreement;
        let is_right = |best: &&Promise| self.membership.may_take(ballots, best.state.incarnation);
        let best = self.leadership.campaign().and_then(|campaign| campaign.best(id, messages)).filter(is_right);
        if let Some(donor) = best.map(|best| best.process).filter(|donor| *donor != id.me()) {
            self.effects.send(donor, &PeerMessage::Behind { ballot: ballots.promised, snapshot: true });
        }
    }

    /// Handles a promised state that comes with the application's state.
    pub(super) fn on_transfer(&mut self, from: ProcessId, ballot: Ballot, state: &State) {
        if ballot != self.agreement.ballots.promised || !self.is_last_of(&state.lives) {
            return;
        }
        let Some(promise) = self.leadership.campaign().and_then(|campaign| campaign.promise_of(from)) else { return };
        promise.state = state.clone();
        self.jump(state);
        self.count_promises();
    }

    fn jump(&mut self, state: &State) {
        self.agreement.messages.jump(state, self.agreement.id.group, self.effects);
    }

    /// Replaces this member's state by a state of the promised ballot.
    fn adopt(&mut self, state: &State, counter: u64, leads: bool) {
        self.agreement.adopt(state, counter, leads);
        self.forget_held_of_another(&state.origins);
        if self.membership.adopt(&state.lives) {
            self.say_what_is_remembered();
        }
        for client in self.agreement.messages.clients() {
            for (slot, sequence) in self.agreement.messages.window_mut(client).drop_void() {
                self.effects.dropped(client, slot, sequence);
            }
        }
        self.agreement.messages.places().for_each(|client| self.effects.place_changed(client));
    }

    /// Drops messages that are held and not assigned, if they were multicast to another history than the one with these
    /// origins. Messages of the two histories may have the same ids, if the home group of a client id has lost its
    /// memory, too.
    fn forget_held_of_another(&mut self, origins: &[Origin]) {
        if self.membership.enters(origins) {
            self.agreement.messages.drop_unassigned(self.effects);
        }
    }

    /// Announces to the members of other groups which incarnations of their groups this process remembers now.
    fn say_what_is_remembered(&mut self) {
        let Agreement { id, ballots, .. } = &*self.agreement;
        for group in id.others_groups() {
            if !ballots.incarnation(group).is_none() {
                let announce = ballots.announce(group);
                id.topology().members(group).for_each(|member| self.effects.send(member, &announce));
            }
        }
    }

    /// Adopts the state and installs it at the other members. The clock becomes the maximum over all promises.
    fn take_over(&mut self, state: &State) {
        let stage = std::mem::replace(&mut self.leadership.stage, Stage::Preparing);
        let Stage::Campaigning(campaign) = stage else { return };
        for Promise { state, .. } in &campaign.promises {
            self.agreement.clock.raise(state.clock);
            self.agreement.ballots.hear_of_all(&state.known, &state.incarnations);
        }
        // A process that has asked again under another life since the campaign began is not admitted: the members that
        // promised may not know that life.
        let joiners = &self.membership.joiners;
        self.leadership.admitted = campaign.admits.iter().filter(|joiner| joiners.contains(joiner)).copied().collect();
        self.leadership.installed = self.agreement.id.bit;
        self.leadership.age = 0;
        let revived = mutant!(self.agreement.id.mutant(), HighestBallotPerMessage).then(|| campaign.revive(state));
        let mut state = revived.unwrap_or_else(|| state.clone());
        let (from_nothing, incarnation) = (self.membership.is_joining(), self.agreement.ballots.promised_in);
        if from_nothing {
            self.effects.begin_history();
        }
        if from_nothing || state.origins.is_empty() {
            // The state has no origin, so this ballot or an earlier one of its incarnation begins the group's history,
            // and no member has installed it yet.
            state.origins = vec![Origin { incarnation, kept: 0 }];
        } else if campaign.resets {
            state.origins.push(Origin { incarnation, kept: state.delivered });
            state.lose_what_is_under_way();
        }
        self.adopt(&state, 0, true);
        self.agreement.clock.forget_recovered(self.agreement.id.mutant());
        self.agreement.ballots.relay_all();
        for group in self.agreement.id.others_groups() {
            // The followers process these words with the state.
            Leader { agreement: self.agreement, effects: self.effects }.words().begin(group);
        }
        let (ballot, clock) = (self.agreement.ballots.installed, self.agreement.clock.now());
        self.effects.recovered(ballot, clock);
        self.effects.begin_stream(ballot);
        for member in self.agreement.id.others() {
            // A history that begins with an empty state has no application state that must be sent first.
            self.install_at(member, self.admits(member) && !from_nothing);
        }
        self.lead_if_installed();
    }

    /// Returns whether the ballot that this member leads admits a process.
    fn admits(&self, process: ProcessId) -> bool {
        self.leadership.admitted.iter().any(|joiner| joiner.process == process)
    }

    /// Sends this leader's state to a member, with the application's state if `snapshot`. The stream continues after
    /// that state.
    pub(super) fn install_at(&mut self, to: ProcessId, snapshot: bool) {
        let (ballot, counter, mut state) = (self.agreement.ballots.installed, self.agreement.counter, self.state());
        if !self.admits(to) {
            state.forget_held();
        }
        // The state is sent again until the member is known to have installed it.
        self.leadership.installed &= !self.agreement.id.bit_of(to);
        let admits = self.leadership.admitted.clone();
        self.send(to, &PeerMessage::Install { ballot, counter, state, admits, snapshot });
        self.effects.begin_stream(ballot);
    }

    /// Handles the report that a member has installed this leader's state.
    pub(super) fn on_installed(&mut self, from: ProcessId, ballot: Ballot) {
        if !self.leadership.owns_ballot() || ballot != self.agreement.ballots.installed {
            return;
        }
        let Leadership { installed, admitted, .. } = &mut *self.leadership;
        *installed |= self.agreement.id.bit_of(from);
        self.membership.joiners.retain(|joiner| joiner.process != from || !admitted.contains(joiner));
        self.lead_if_installed();
    }

    fn lead_if_installed(&mut self) {
        let Agreement { id, ballots, messages, .. } = &*self.agreement;
        let enough = id.is_majority(self.leadership.installed) || mutant!(id.mutant(), ReadyAlone);
        if self.leadership.stage != Stage::Preparing || !enough {
            return;
        }
        self.leadership.stage = Stage::Leading;
        let announce = ballots.announce(id.group);
        for process in (0..id.topology().all_members() as u16).map(ProcessId) {
            if id.topology().member_bit(id.group, process).is_none() {
                self.effects.send(process, &announce);
            }
        }
        let again = !mutant!(id.mutant(), NotProposedAgain);
        let clients = || messages.clients();
        let (all, each) = (clients(), clients());
        Leader { agreement: self.agreement, effects: self.effects }.relay_ballots();
        if again {
            Leader { agreement: self.agreement, effects: self.effects }.propose_again();
            let mut successions = Successions { agreement: self.agreement, counts_in: None, effects: self.effects };
            all.for_each(|client| successions.propose_again(client));
        }
        let mut leader = Leader { agreement: self.agreement, effects: self.effects };
        let late = mutant!(leader.agreement.id.mutant(), VersionAfterMessages);
        if !late {
            leader.raise_version(self.leadership.version_goal);
        }
        each.for_each(|client| leader.assign_ready(client));
        if late {
            leader.raise_version(self.leadership.version_goal);
        }
        self.agreement.deliver_due(self.effects);
        let admitted = &self.leadership.admitted;
        if self.membership.joiners.iter().any(|joiner| !admitted.contains(joiner)) {
            // A process asked too late to be admitted by this ballot.
            let _ = self.campaign();
        }
    }

    /// Handles a leader's state.
    pub(super) fn on_install(&mut self, mut install: Install, admits: &[Joiner], snapshot: bool) {
        let Install { ballot, counter, state } = &mut install;
        let (leader, joining, incarnation) = (ballot.leader(), self.membership.joining_life(), state.incarnation);
        if joining.is_some_and(|life| !admits.contains(&Joiner { process: self.me(), life })) {
            // This ballot may depend on messages that this process has forgotten.
            return;
        }
        if joining.is_some() {
            if !self.membership.lives.is_last(leader, &state.lives) {
                // The state comes from an earlier life of its leader's process (see `founding.rs`).
                return;
            }
            let drops = |pledge: Pledge| !pledge.resets && incarnation.number < pledge.incarnation.number;
            if self.membership.pledge.is_some_and(drops) {
                self.drop_pledge();
            }
        }
        let (promised, promised_in) = (self.agreement.ballots.promised, self.agreement.ballots.promised_in);
        if *ballot < promised || incarnation.contradicts(promised_in) {
            self.send(leader, &PeerMessage::Refuse { promised, incarnation: promised_in });
            return;
        }
        if !self.is_last_of(&state.lives) {
            return;
        }
        if self.agreement.is_parted_from(state) {
            self.end(incarnation);
            return;
        }
        let again = *ballot == self.agreement.ballots.installed && joining.is_none();
        if again && *counter <= self.agreement.counter {
            if !mutant!(self.agreement.id.mutant(), StateSetBack) {
                self.pass_delivered(state, snapshot);
                return;
            }
            if !self.agreement.messages.is_behind(state) {
                self.send(leader, &PeerMessage::Installed { ballot: *ballot });
                return;
            }
        }
        if *ballot > promised {
            self.promise(*ballot, incarnation);
        }
        if joining.is_some() {
            // This must happen before the process receives bodies for the state, because those may have the ids of
            // messages that are held for the old history.
            self.forget_held_of_another(&state.origins);
        }
        if snapshot {
            self.jump(state);
        }
        if *ballot != self.agreement.ballots.installed {
            self.agreement.messages.give_way(state, self.effects);
        }
        if joining.is_none() {
            // A member with memory holds every message for which it was counted.
            state.forget_held();
        }
        self.leadership.stage = Stage::Installing(Box::new(install));
        self.leadership.age = 0;
        self.go_on_installing(true);
    }

    /// Ends this process, because the group continues without this member's history.
    pub(super) fn end(&mut self, by: Incarnation) {
        self.membership.end(by);
        self.leadership.stage = Stage::Idle;
    }

    /// Handles a state of the installed ballot that is not ahead of what this member has processed: see [`Install`].
    fn pass_delivered(&mut self, state: &State, snapshot: bool) {
        let ballot = self.agreement.ballots.installed;
        if self.agreement.messages.is_behind(state) {
            if snapshot {
                self.agreement.messages.catch_ups.overtaken += 1;
                self.jump(state);
            }
            if self.agreement.messages.is_behind(state) {
                self.send(ballot.leader(), &PeerMessage::Behind { ballot, snapshot: true });
                return;
            }
        }
        self.send(ballot.leader(), &PeerMessage::Installed { ballot });
        self.agreement.deliver_due(self.effects);
    }

    /// Installs the pending state if this member holds all bodies that the state needs. Otherwise requests the missing
    /// bodies or the application's state, if `ask` is `true`.
    pub(super) fn go_on_installing(&mut self, ask: bool) {
        let Stage::Installing(install) = &self.leadership.stage else { return };
        let (ballot, leader, messages) = (install.ballot, install.ballot.leader(), &self.agreement.messages);
        if messages.is_behind(&install.state) {
            if ask {
                self.effects.send(leader, &PeerMessage::Behind { ballot, snapshot: true });
            }
            return;
        }
        if !mutant!(self.agreement.id.mutant(), StateWithoutBodies) {
            let mut lacks = messages.lacks(&install.state).chain(messages.lacks_held(&install.state)).peekable();
            if lacks.peek().is_some() {
                if ask {
                    lacks.for_each(|message| self.effects.send(leader, &PeerMessage::WantBody(message)));
                }
                return;
            }
        }
        let Stage::Installing(install) = std::mem::replace(&mut self.leadership.stage, Stage::Idle) else { return };
        self.adopt(&install.state, install.counter, false);
        self.send(leader, &PeerMessage::Installed { ballot });
        for client in self.agreement.messages.clients() {
            // A member that has installed the state has processed the successions in it.
            let last = self.agreement.messages.window(client).heirs.last().copied();
            if let Some(Succession { generation, life, .. }) = last.filter(|last| !last.settled) {
                let about = SlotRef { client, slot: life, ballot, generation };
                self.send(leader, &PeerMessage::Succeeded(about));
            }
        }
        Words { agreement: self.agreement, effects: self.effects }.say_all_processed();
        self.agreement.acknowledge_all(None, self.effects);
        self.agreement.deliver_due(self.effects);
    }

    /// Continues an installation or takeover that may have waited for a body.
    #[inline]
    pub(super) fn body_came(&mut self) {
        match &self.leadership.stage {
            Stage::Installing(_) => self.go_on_installing(false),
            Stage::Campaigning(campaign) => {
                let Agreement { id, messages, .. } = &*self.agreement;
                let complete = |state| !messages.is_behind(state) && messages.lacks(state).next().is_none();
                if campaign.best(id, messages).is_some_and(|best| complete(&best.state)) {
                    self.count_promises();
                }
            }
            _ => {}
        }
    }

    /// Handles the report that a requested body is not available any more. Its effect is part of the application's
    /// state, so the member requests that state.
    pub(super) fn on_gone(&mut self, gone: MessageRef) {
        if self.agreement.messages.client(gone.client).is_some_and(|window| window.holds_somewhere(gone.sequence)) {
            // The body arrived by another way meanwhile.
            return;
        }
        let ballot = self.agreement.ballots.promised;
        match &self.leadership.stage {
            Stage::Campaigning(_) => self.want_transfer(),
            Stage::Idle | Stage::Installing(_) if ballot.leader() != self.me() && !self.membership.is_joining() => {
                self.send(ballot.leader(), &PeerMessage::Behind { ballot, snapshot: true });
            }
            _ => {}
        }
    }

    /// Handles a request for the state, from a member of this leader's ballot or from a candidate for which this member
    /// is the donor. The application's state is sent with it to a candidate, and to a member if `snapshot`.
    pub(super) fn on_behind(&mut self, from: ProcessId, ballot: Ballot, snapshot: bool) {
        let ballots = &self.agreement.ballots;
        if ballot == ballots.installed && self.leadership.owns_ballot() {
            self.install_at(from, snapshot);
        } else if ballot == ballots.promised && ballot.leader() == from && ballot != ballots.installed {
            self.send(from, &PeerMessage::Transfer { ballot, state: self.state() });
        }
    }

    /// Probes whether the followers support this leader's ballot, if a larger one is known.
    fn question(&mut self) {
        let Agreement { id, ballots, .. } = &*self.agreement;
        let (mut larger, ballot) = (ballots.known(id.group), ballots.installed);
        if larger <= ballot && ballots.is_contested() {
            // Another history has the same number as this one.
            larger = id.topology().before(id.group, ballot.incarnation() + 1);
        }
        if self.leadership.leads() && larger > ballot {
            self.leadership.probe.question(larger, id.bit);
            self.send_to_others(&PeerMessage::Probe { ballot });
            self.campaign_if_refuted();
        }
    }

    /// Handles the probe at a follower, or the answer to it at the leader.
    pub(super) fn on_probe(&mut self, from: ProcessId, ballot: Ballot) {
        let ballots = &self.agreement.ballots;
        if self.membership.is_joining() || ballot != ballots.installed || !ballots.is_current() {
            return;
        }
        if ballot.leader() == from {
            self.send(from, &PeerMessage::Probe { ballot });
        } else if self.leadership.leads() {
            self.leadership.probe.support(self.agreement.id.bit_of(from));
            self.campaign_if_refuted();
        }
    }

    fn campaign_if_refuted(&mut self) {
        let Agreement { id, ballots, .. } = &*self.agreement;
        if self.leadership.probe.is_refuted(id, ballots.installed) {
            // The campaign is refused only if there is no larger ballot.
            let _ = self.campaign();
        }
    }

    /// Repeats messages that may have been lost and had no effect.
    pub(super) fn repeat_messages(&mut self) {
        if self.membership.is_joining() {
            self.join();
            self.membership.ask_again();
            if self.found_if_possible() {
                return;
            }
        }
        match &self.leadership.stage {
            Stage::Idle => {}
            Stage::Campaigning(_) => {
                let message = self.campaign_message();
                self.send_to_others(&message);
                self.count_promises();
            }
            // A leader with a majority repeats its state, too, because another member may reconnect.
            Stage::Preparing | Stage::Leading => {
                let installed = self.leadership.installed;
                for member in self.agreement.id.others() {
                    if installed & self.agreement.id.bit_of(member) == 0 && self.effects.reaches(member) {
                        self.install_at(member, false);
                    }
                }
                self.question();
            }
            Stage::Installing(_) => self.go_on_installing(true),
        }
    }

    /// Handles the reconnection of a member of this group. Everything in flight in either direction is lost.
    pub(super) fn on_connected(&mut self, peer: ProcessId) {
        match &self.leadership.stage {
            Stage::Campaigning(_) => {
                let message = self.campaign_message();
                self.send(peer, &message);
            }
            Stage::Preparing | Stage::Leading => self.install_at(peer, false),
            Stage::Idle | Stage::Installing(_) => {}
        }
    }
}
