//! How a group changes its leader, and how a process without memory becomes a member: campaigns, states, and what members
//! that join say.

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

/// The part of a member that promises, campaigns, takes over states and hands them out.
///
/// # Invariants
/// - One step promises a ballot and takes the snapshot that the promise carries.
/// - A new leader's state contains every message that a majority acknowledged in an earlier ballot, with all its times: see
///   [`Campaign`].
/// - Of one ballot a member never has less than before: see [`Install`].
pub(super) struct Recovery<'a, E> {
    pub(super) agreement: &'a mut Agreement,
    pub(super) membership: &'a mut Membership,
    pub(super) leadership: &'a mut Leadership,
    pub(super) effects: &'a mut E,
}

/// All groups are in their first ballots, with nothing in them.
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

    /// Sends a message to all other members of the own group.
    pub(super) fn send_to_others(&mut self, message: &PeerMessage) {
        for member in self.agreement.id.others() {
            self.effects.send(member, message);
        }
    }

    /// Whether this process is the last of its member among the lives that another member has heard of. If it is not, it has
    /// no part in what that one says, or in anything any more; unless it is joining: then it may be the last one, after the
    /// clock was set back, and asks under another name.
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

    /// The group remembers a process of this member with a larger life than this one's.
    pub(super) fn on_elder(&mut self, elder: u64) {
        if self.membership.outlive(elder) {
            self.join();
        }
    }

    /// Asks the group to be taken in.
    pub(super) fn join(&mut self) {
        if let Some(life) = self.membership.joining_life() {
            self.send_to_others(&PeerMessage::Join { life });
        }
    }

    /// A process without memory wants to be taken in. That takes a new ballot, made without its memory: the quorums of
    /// earlier ones may have leaned on what it forgot.
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

    /// From now on nothing of a smaller ballot counts here.
    pub(super) fn promise(&mut self, ballot: Ballot, incarnation: Incarnation) {
        let Agreement { id, ballots, .. } = &mut *self.agreement;
        (ballots.promised, ballots.promised_in) = (ballot, incarnation);
        ballots.hear_in(id.group, ballot, incarnation);
        self.leadership.stage = Stage::Idle;
    }

    /// Begins a campaign, in a ballot larger than all that were heard of.
    pub(super) fn campaign(&mut self) -> Result<Ballot, Rejected> {
        if self.membership.is_superseded() {
            return Err(Rejected::Superseded);
        }
        if self.membership.is_joining() {
            return Err(Rejected::Joining);
        }
        if self.leadership.campaign().is_some_and(|campaign| campaign.resets) {
            // It goes on until a majority has promised, or others have another leader.
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

    /// Campaigns in an incarnation above all that were heard of: another history of this group was heard of, which is not
    /// smaller than its own.
    fn move_above(&mut self, ends: Incarnation) -> Result<Ballot, Rejected> {
        let (ballot, incarnation) = self.next_incarnation()?;
        self.promise(ballot, incarnation);
        self.begin_campaign(ends, false);
        Ok(ballot)
    }

    /// 1A, as it is now: it also names lives that were heard of since the campaign began.
    pub(super) fn campaign_message(&mut self) -> PeerMessage {
        let (ballot, incarnation) = (self.agreement.ballots.promised, self.agreement.ballots.promised_in);
        let (ends, resets) =
            self.leadership.campaign().map_or((incarnation, false), |campaign| (campaign.ends, campaign.resets));
        PeerMessage::Campaign { ballot, incarnation, ends, resets, lives: self.membership.lives.all().to_vec() }
    }

    pub(super) fn state(&self) -> State {
        let state = self.agreement.state(&self.membership.lives);
        let Agreement { id, .. } = &*self.agreement;
        debug_assert_eq!(state.check(&id.config, id.group), Ok(()), "others refuse it");
        state
    }

    /// 1A. One step: promise, and take the snapshot that the promise carries.
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
        // A promise to a candidate that moves above another history binds nobody as long as nobody has its state.
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

    /// Promises what a candidate asks for.
    pub(super) fn promise_to(&mut self, from: ProcessId, demand: &Demand<'_>) {
        let Demand { ballot, incarnation, lives, .. } = *demand;
        if ballot > self.agreement.ballots.promised {
            self.promise(ballot, incarnation);
        }
        self.membership.lives.hear_of_all(lives);
        self.send(from, &PeerMessage::Promise { ballot, state: self.state() });
    }

    /// A member has promised a larger ballot, or another history of the group.
    pub(super) fn on_refuse(&mut self, promised: Ballot, incarnation: Incarnation) {
        if self.membership.is_joining() && self.leadership.campaign().is_none_or(|campaign| campaign.founds()) {
            return self.on_refused_founding(incarnation);
        }
        let group = self.agreement.id.group;
        self.agreement.ballots.hear_in(group, promised, incarnation);
    }

    /// 1B.
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
                // A process that promises is a member: it was without memory only because its group was being founded.
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

    /// Takes over, if a majority has promised and nothing is missing; asks for what is missing.
    pub(super) fn count_promises(&mut self) {
        let Some(campaign) = self.leadership.campaign() else { return };
        for Promise { state, .. } in &campaign.promises {
            self.agreement.messages.give_way(state, self.effects);
        }
        let Agreement { id, ballots, messages, .. } = &*self.agreement;
        let resets = campaign.resets;
        let is_wrong = |state: &State| !resets && !self.membership.may_take(ballots, state.incarnation);
        if campaign.promises.iter().all(|promise| is_wrong(&promise.state)) {
            // None of them has the state that the operator chose: another one must not take its place.
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

    /// A body that the best state names is nowhere to be had: asks for that state with the application's.
    fn want_transfer(&mut self) {
        let Agreement { id, ballots, messages, .. } = &*self.agreement;
        let is_right = |best: &&Promise| self.membership.may_take(ballots, best.state.incarnation);
        let best = self.leadership.campaign().and_then(|campaign| campaign.best(id, messages)).filter(is_right);
        if let Some(donor) = best.map(|best| best.process).filter(|donor| *donor != id.me()) {
            self.effects.send(donor, &PeerMessage::Behind { ballot: ballots.promised, snapshot: true });
        }
    }

    /// A promised state, with the application's.
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

    /// Takes a state of the promised ballot in place of the own one.
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

    /// Forgets what is held and not assigned, if that was multicast to another history than the one that began so. Processes of that
    /// history may use the same ids, if the home group of their place has forgotten everything, too.
    fn forget_held_of_another(&mut self, origins: &[Origin]) {
        if self.membership.enters(origins) {
            self.agreement.messages.drop_unassigned(self.effects);
        }
    }

    /// Tells members of other groups what this process remembers of their groups from now on.
    fn say_what_is_remembered(&mut self) {
        let Agreement { id, ballots, .. } = &*self.agreement;
        for group in id.others_groups() {
            if !ballots.incarnation(group).is_none() {
                let announce = ballots.announce(group);
                id.topology().members(group).for_each(|member| self.effects.send(member, &announce));
            }
        }
    }

    /// Takes the state and installs it at the others. The clock is the maximum over all promises.
    fn take_over(&mut self, state: &State) {
        let stage = std::mem::replace(&mut self.leadership.stage, Stage::Preparing);
        let Stage::Campaigning(campaign) = stage else { return };
        for Promise { state, .. } in &campaign.promises {
            self.agreement.clock.raise(state.clock);
            self.agreement.ballots.hear_of_all(&state.known, &state.incarnations);
        }
        // If it asked again since, that is another life, of which those who promised may not have heard.
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
            // Members whose states have no beginning founded this incarnation, and nobody has installed it.
            state.origins = vec![Origin { incarnation, kept: 0 }];
        } else if campaign.resets {
            state.origins.push(Origin { incarnation, kept: state.delivered });
            state.lose_what_is_under_way();
        }
        self.adopt(&state, 0, true);
        self.agreement.clock.forget_recovered(self.agreement.id.mutant());
        self.agreement.ballots.relay_all();
        for group in self.agreement.id.others_groups() {
            // The followers process them with the state.
            Leader { agreement: self.agreement, effects: self.effects }.words().begin(group);
        }
        let (ballot, clock) = (self.agreement.ballots.installed, self.agreement.clock.now());
        self.effects.recovered(ballot, clock);
        self.effects.begin_stream(ballot);
        for member in self.agreement.id.others() {
            // A history that begins with nothing has no application's state to come first.
            self.install_at(member, self.admits(member) && !from_nothing);
        }
        self.lead_if_installed();
    }

    /// Whether the ballot led from here takes a process in.
    fn admits(&self, process: ProcessId) -> bool {
        self.leadership.admitted.iter().any(|joiner| joiner.process == process)
    }

    /// Sends this leader's state to a member, with the application's if `snapshot`; the stream goes on from there.
    pub(super) fn install_at(&mut self, to: ProcessId, snapshot: bool) {
        let (ballot, counter, mut state) = (self.agreement.ballots.installed, self.agreement.counter, self.state());
        if !self.admits(to) {
            state.forget_held();
        }
        // Sent again until it is known to be installed.
        self.leadership.installed &= !self.agreement.id.bit_of(to);
        let admits = self.leadership.admitted.clone();
        self.send(to, &PeerMessage::Install { ballot, counter, state, admits, snapshot });
        self.effects.begin_stream(ballot);
    }

    /// A member has installed this leader's state.
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
        leader.raise_version(self.leadership.version_goal);
        each.for_each(|client| leader.assign_ready(client));
        self.agreement.deliver_due(self.effects);
        let admitted = &self.leadership.admitted;
        if self.membership.joiners.iter().any(|joiner| !admitted.contains(joiner)) {
            // Somebody came too late for this ballot.
            let _ = self.campaign();
        }
    }

    /// A leader's state.
    pub(super) fn on_install(&mut self, mut install: Install, admits: &[Joiner], snapshot: bool) {
        let Install { ballot, counter, state } = &mut install;
        let (leader, joining, incarnation) = (ballot.leader(), self.membership.joining_life(), state.incarnation);
        if joining.is_some_and(|life| !admits.contains(&Joiner { process: self.me(), life })) {
            // This ballot may lean on what this process has forgotten.
            return;
        }
        if joining.is_some() {
            if !self.membership.lives.is_last(leader, &state.lives) {
                // The leader sent it before a founding that this process promised.
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
            // Before it gets what the leader holds and what the state names: those may have the same ids.
            self.forget_held_of_another(&state.origins);
        }
        if snapshot {
            self.jump(state);
        }
        if *ballot != self.agreement.ballots.installed {
            self.agreement.messages.give_way(state, self.effects);
        }
        if joining.is_none() {
            // A member that has its memory holds what it was counted for.
            state.forget_held();
        }
        self.leadership.stage = Stage::Installing(Box::new(install));
        self.leadership.age = 0;
        self.go_on_installing(true);
    }

    /// The group goes on without this member's history.
    pub(super) fn end(&mut self, by: Incarnation) {
        self.membership.end(by);
        self.leadership.stage = Stage::Idle;
    }

    /// Handles a state of the installed ballot that is no farther than what is processed here: see [`Install`].
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

    /// Installs what is pending if nothing is missing; else asks for it, if told to.
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
            // Who has the state has processed what is in it.
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

    /// A body came: a state may have waited for it.
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

    /// A body that is needed is nowhere to be had: the application's state contains it.
    pub(super) fn on_gone(&mut self, gone: MessageRef) {
        if self.agreement.messages.client(gone.client).is_some_and(|window| window.holds_somewhere(gone.sequence)) {
            // It came through its client's ring meanwhile.
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

    /// A member needs the state, with the application's if `snapshot`; or a candidate to whom this member is the donor.
    pub(super) fn on_behind(&mut self, from: ProcessId, ballot: Ballot, snapshot: bool) {
        let ballots = &self.agreement.ballots;
        if ballot == ballots.installed && self.leadership.owns_ballot() {
            self.install_at(from, snapshot);
        } else if ballot == ballots.promised && ballot.leader() == from && ballot != ballots.installed {
            self.send(from, &PeerMessage::Transfer { ballot, state: self.state() });
        }
    }

    /// Asks the followers whether they stand by this leader's ballot, if a larger one is known.
    fn question(&mut self) {
        let Agreement { id, ballots, .. } = &*self.agreement;
        let (mut larger, ballot) = (ballots.known(id.group), ballots.installed);
        if larger <= ballot && ballots.is_contested() {
            // Another history has this one's number.
            larger = id.topology().before(id.group, ballot.incarnation() + 1);
        }
        if self.leadership.leads() && larger > ballot {
            self.leadership.probe.question(larger, id.bit);
            self.send_to_others(&PeerMessage::Probe { ballot });
            self.campaign_if_refuted();
        }
    }

    /// The question, at a member that follows; or its answer.
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
            // Refused only if there is no larger ballot.
            let _ = self.campaign();
        }
    }

    /// Says again what may be lost and had no effect.
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
            // Also long after it leads: somebody may come back.
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

    /// The connections with a member of the own group are up again; what was on its way either way is lost.
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
