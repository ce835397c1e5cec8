//! How a group changes its leader, and how a process without memory becomes a member: campaigns, states, and what members
//! that join say.

use stentor_fabric::ProcessId;

use super::agreement::Agreement;
use super::campaign::{Campaign, Promise};
use super::install::Install;
use super::leader::Leader;
use super::leadership::{Leadership, Stage};
use super::membership::Membership;
use super::succession::Successions;
use super::{Effects, Rejected};
use crate::Ballot;
use crate::mutant::mutant;
use crate::peer_message::{Joiner, MessageRef, PeerMessage, SlotRef};
use crate::state::{State, Succession};

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

/// The group's first ballot, with nothing in it.
pub(super) fn begin_life(agreement: &mut Agreement, membership: &mut Membership, leadership: &mut Leadership) {
    let first = agreement.id.topology().first_ballot(agreement.id.group);
    agreement.ballots.begin(first);
    membership.begin();
    if agreement.owns_ballot() {
        (leadership.stage, leadership.installed) = (Stage::Leading, agreement.id.bit);
    }
}

impl<E: Effects> Recovery<'_, E> {
    fn me(&self) -> ProcessId {
        self.agreement.id.me()
    }

    fn send(&mut self, to: ProcessId, message: &PeerMessage) {
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
    fn is_last_of(&mut self, lives: &[u64]) -> bool {
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
    /// earlier ones may have leaned on what it forgot. Returns whether the group begins its life.
    pub(super) fn on_join(&mut self, joiner: Joiner) -> bool {
        let Joiner { process, life } = joiner;
        let bit = self.agreement.id.bit_of(process);
        if self.membership.is_joining() {
            self.membership.note_asking(bit);
            return self.on_begun(joiner);
        }
        let elder = self.membership.lives.of(process);
        if life < elder {
            self.send(process, &PeerMessage::Elder { life: elder });
            return false;
        }
        self.membership.lives.hear_of(process, life);
        if self.membership.genesis.contains(&joiner) {
            // It has no memory because it never had any: perhaps it only has not heard that all are there. But others may
            // have begun with an earlier life of it, and do not answer this.
            let life = self.membership.lives.own();
            self.send(process, &PeerMessage::Begun { life });
        }
        if self.leadership.admitted.contains(&joiner) && self.leadership.owns_ballot() {
            self.install_at(process, true);
            return false;
        }
        self.membership.welcome(joiner);
        self.forget_promises();
        self.leadership.installed &= !bit;
        if !self.leadership.leads() {
            return false;
        }
        if mutant!(self.agreement.id.mutant(), JoinWithoutBallot) {
            self.leadership.admitted.push(joiner);
            self.install_at(process, true);
        } else {
            let _ = self.campaign();
        }
        false
    }

    /// Another process is, or was until just now, without memory too. When all are there, the group begins its life. Returns
    /// whether it did.
    pub(super) fn on_begun(&mut self, joiner: Joiner) -> bool {
        if !self.membership.is_joining() || !self.membership.gather(&self.agreement.id, joiner) {
            return false;
        }
        // Members that have not heard that all are there hear it now.
        let life = self.membership.lives.own();
        self.send_to_others(&PeerMessage::Begun { life });
        begin_life(self.agreement, self.membership, self.leadership);
        self.effects.begin_life();
        if self.leadership.leads() {
            // Nobody promised the first ballot, so who was there for it may have forgotten that. From the next one on a
            // majority remembers that the group has begun.
            let _ = self.campaign();
        }
        true
    }

    /// From now on nothing of a smaller ballot counts here.
    fn promise(&mut self, ballot: Ballot) {
        self.agreement.ballots.promised = ballot;
        self.agreement.ballots.hear_of(self.agreement.id.group, ballot);
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
        let ballots = &self.agreement.ballots;
        let highest = ballots.promised.max(ballots.known(self.agreement.id.group));
        let ballot = highest.next(self.me()).ok_or(Rejected::Ballot(highest))?;
        self.promise(ballot);
        let mut state = self.state();
        state.forget_held();
        let (promises, admits) = (vec![Promise { process: self.me(), state }], self.membership.joiners.clone());
        self.leadership.stage = Stage::Campaigning(Box::new(Campaign { promises, admits }));
        self.leadership.age = 0;
        self.send_to_others(&self.campaign_message());
        self.count_promises();
        Ok(ballot)
    }

    /// 1A, as it is now: it also names lives that were heard of since the campaign began.
    pub(super) fn campaign_message(&self) -> PeerMessage {
        let lives = self.membership.lives.all().to_vec();
        PeerMessage::Campaign { ballot: self.agreement.ballots.promised, lives }
    }

    fn state(&self) -> State {
        self.agreement.state(&self.membership.lives)
    }

    /// 1A. One step: promise, and take the snapshot that the promise carries.
    pub(super) fn on_campaign(&mut self, from: ProcessId, ballot: Ballot, lives: &[u64]) {
        let promised = self.agreement.ballots.promised;
        if self.membership.is_joining() || ballot == self.agreement.ballots.installed {
            return;
        }
        if ballot < promised {
            self.send(from, &PeerMessage::Refuse { promised });
            return;
        }
        if !self.is_last_of(lives) {
            return;
        }
        if ballot > promised {
            self.promise(ballot);
        }
        self.membership.lives.hear_of_all(lives);
        self.send(from, &PeerMessage::Promise { ballot, state: self.state() });
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
            // A process that promises is a member: it was without memory only because its group had not begun.
            self.membership.joiners.retain(|joiner| joiner.process != from);
            let Some(campaign) = self.leadership.campaign() else { return };
            if campaign.promise_of(from).is_none() {
                campaign.promises.push(Promise { process: from, state: state.clone() });
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
        if let Some(ahead) = campaign.ahead(id, messages) {
            self.effects.send(ahead, &PeerMessage::Behind { ballot: ballots.promised, snapshot: true });
            return;
        }
        campaign.want_held(messages, self.effects);
        let Some(Promise { process, state }) = campaign.best(id, messages) else { return };
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
        let best = self.leadership.campaign().and_then(|campaign| campaign.best(id, messages));
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
        self.membership.adopt(&state.lives);
        for client in self.agreement.messages.clients() {
            for (slot, sequence) in self.agreement.messages.window_mut(client).drop_void() {
                self.effects.dropped(client, slot, sequence);
            }
            self.effects.place_changed(client);
        }
    }

    /// Takes the state and installs it at the others. The clock is the maximum over all promises.
    fn take_over(&mut self, state: &State) {
        let stage = std::mem::replace(&mut self.leadership.stage, Stage::Preparing);
        let Stage::Campaigning(campaign) = stage else { return };
        for Promise { state, .. } in &campaign.promises {
            self.agreement.clock.raise(state.clock);
            self.agreement.ballots.hear_of_all(&state.known);
        }
        // If it asked again since, that is another life, of which those who promised may not have heard.
        let joiners = &self.membership.joiners;
        self.leadership.admitted = campaign.admits.iter().filter(|joiner| joiners.contains(joiner)).copied().collect();
        self.leadership.installed = self.agreement.id.bit;
        self.leadership.age = 0;
        let revived = mutant!(self.agreement.id.mutant(), HighestBallotPerMessage).then(|| campaign.revive(state));
        self.adopt(revived.as_ref().unwrap_or(state), 0, true);
        self.agreement.clock.forget_recovered(self.agreement.id.mutant());
        self.agreement.ballots.relay_all();
        self.effects.begin_stream(self.agreement.ballots.installed);
        for member in self.agreement.id.others() {
            self.install_at(member, self.admits(member));
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
        let announce = PeerMessage::Announce { group: id.group, ballot: ballots.installed };
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
        let (leader, joining) = (ballot.leader(), self.membership.joining_life());
        if joining.is_some_and(|life| !admits.contains(&Joiner { process: self.me(), life })) {
            // This ballot may lean on what this process has forgotten.
            return;
        }
        let promised = self.agreement.ballots.promised;
        if *ballot < promised {
            self.send(leader, &PeerMessage::Refuse { promised });
            return;
        }
        if !self.is_last_of(&state.lives) {
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
            self.promise(*ballot);
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
            if let Some(Succession { generation, .. }) = last.filter(|last| !last.settled) {
                let about = SlotRef { client, slot: 0, ballot, generation };
                self.send(leader, &PeerMessage::Succeeded(about));
            }
        }
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
        let (larger, ballot) = (ballots.known(id.group), ballots.installed);
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
        }
        match &self.leadership.stage {
            Stage::Idle => {}
            Stage::Campaigning(_) => {
                self.send_to_others(&self.campaign_message());
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
            Stage::Campaigning(_) => self.send(peer, &self.campaign_message()),
            Stage::Preparing | Stage::Leading => self.install_at(peer, false),
            Stage::Idle | Stage::Installing(_) => {}
        }
    }
}
