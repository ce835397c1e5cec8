//! Phase 1: a member takes over its group. It asks for promises (1A); who promises sends what it has processed (1B); from a
//! majority of the configured group it takes the state that goes farthest.
//!
//! # Invariants
//! Members lose their memory and are taken in again, as other *lives* of the same processes (`lives.rs`), while letters of
//! old campaigns are on their way. A ballot is *complete* when its candidate takes over.
//! 1. *A ballot takes in only lives that had asked before its campaign began*, and its 1A names them. So all who promised it
//!    had heard of them by then.
//! 2. *A promise carries the lives that its sender has heard of, of its own place itself; and a state those of its leader. A
//!    promise counts only if nobody whose promise counts has heard of a later life of its sender.*
//! 3. *Who hears of a later life of its own place has no part in what it is told with that, and stops* (`is_last_of`). It may
//!    live still, where nothing keeps two processes out of one place. So if whoever takes over a ballot has heard of a life,
//!    none that came before it in its place processes anything in that ballot, leads it, or says there what it holds.
//!
//! **Lemma.** Let e < c be complete ballots, and let all who promised e, in the lives in which they did, have heard of a
//! life L by then. Then c's candidate has, when it takes over.
//! *Proof*, by induction over c, then over e. The two majorities have a process z in common, which promised e in its life Z
//! and c in Z'. If Z = Z' it promised e first, because what it promises rises, and its promise of c said so. Else:
//! - Z' is the later one. It was taken in by a complete ballot d, and d < c, because it promised c afterwards. If d = e or
//!   d > e then the state by which it was taken in names L: e's candidate promised e, too, and d's had heard of L by the
//!   lemma for e and d. So its promise of c names L. If d < e: all who promised d had heard of Z'. By the lemma for d and e,
//!   e's candidate had, too, and did not count what Z promised: a contradiction.
//! - Z is the later one. It was taken in by a complete ballot d, and d < e, because it promised e afterwards. All who
//!   promised d had heard of Z; by the lemma for d and c, c's candidate had: it did not count what Z' promised.
//!
//! (A life that began with its group is never the later one, unless a majority forgot: nobody begins with the group as long
//! as anybody remembers that it began.)
//!
//! **Theorem.** What a majority processed in a ballot d, each in one life, is in the state of every complete c > d.
//! *Proof*, by induction over c. Some z processed it in its life Y and promised c in X. If X = Y, it did so in this order,
//! and what it promised with is of d, at least as far, or of a ballot between, which has it by induction. Else:
//! - X is the later one, taken in by e < c. If e > d, e's state has it. e = d is impossible: by 1, whoever took over d had
//!   heard of X, and by 3 Y processed nothing in it. If e < d, that is so by the lemma for e and d.
//! - Y is the later one, taken in by e, and e = d or e < d, so e < c. By the lemma for e and c, c's candidate had heard of Y,
//!   and did not count what X promised.
//!
//! The same with *holds, and says so in its installed ballot d* in place of *processed in d* shows that what is synced is
//! held by whoever takes over a larger ballot: see [`count_promises`](Replica::count_promises).
//!
//! Without 2 one crash in a group of five breaks the order (`tests/failure/amnesia.rs`). That of virtual synchrony's and
//! viewstamped replication's recoveries without disks is the same idea: Michael, Ports, Sharma and Szekeres call it
//! crash-consistent quorums (*Recovering Shared Objects Without Stable Storage*, DISC 2017).
//!
//! Adopting "the highest ballot that each message was accepted in" instead breaks total order in five steps:
//! A(b1) assigns m1@1 to itself alone; B(b2, with C) assigns m2@1 and m2 is delivered; A(b3, with B) revives m1@1 before it.

use stentor_fabric::ProcessId;

use super::{Rejected, Replica, Stage};
use crate::peer_message::{Admitted, MessageRef, PeerMessage};
use crate::plant::planted;
use crate::state::State;
use crate::{Ballot, ClientId, Effects, GroupId};

/// A campaign under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Candidacy {
    /// Who promised, and what it has processed.
    promises: Vec<(ProcessId, State)>,
    /// Who had asked to be taken in when it began: all who promise have heard of these lives from the candidate.
    admits: Vec<Admitted>,
}

impl Candidacy {
    /// For the planted bug that adopts what anybody accepted: the state, and behind it what only other states have.
    fn revive(&self, state: &State) -> State {
        let mut revived = state.clone();
        for (_, promised) in &self.promises {
            for (client, other) in revived.clients.iter_mut().zip(&promised.clients) {
                let known = client.assigned().saturating_sub(other.from) as usize;
                client.entries.extend(other.entries.iter().skip(known).cloned());
            }
        }
        revived
    }
}

impl Replica {
    /// Begins a campaign for this group's leadership, in a ballot larger than all that were heard of. Nobody may be able to
    /// write this member's stream regions, as with [`PeerMessage::fences`]. Returns the ballot.
    ///
    /// # Errors
    /// [`Rejected::Joining`] without memory; [`Rejected::Superseded`] if another process has taken this one's place;
    /// [`Rejected::Ballot`] if there is no larger one.
    pub fn campaign<E: Effects>(&mut self, effects: &mut E) -> Result<Ballot, Rejected> {
        if self.superseded {
            return Err(Rejected::Superseded);
        }
        if self.is_joining() {
            return Err(Rejected::Joining);
        }
        let highest = self.promised.max(self.known(self.group));
        let ballot = Ballot::new(highest.number() + 1, self.config.me);
        if ballot < highest {
            return Err(Rejected::Ballot(highest));
        }
        self.promise(ballot);
        let mut own = self.state();
        own.forget_held();
        let (promises, admits) = (vec![(self.config.me, own)], self.joiners.clone());
        self.stage = Stage::Campaigning(Box::new(Candidacy { promises, admits }));
        self.age = 0;
        for member in self.others() {
            effects.send(member, &self.campaign_letter());
        }
        self.count_promises(effects);
        Ok(ballot)
    }

    /// 1A, as it is now: it also names lives that were heard of since the campaign began.
    pub(super) fn campaign_letter(&self) -> PeerMessage {
        PeerMessage::Campaign { ballot: self.promised, lives: self.lives.all().to_vec() }
    }

    /// The other members of the own group.
    pub(super) fn others(&self) -> impl Iterator<Item = ProcessId> + use<> {
        let me = self.config.me;
        self.config.topology.members(self.group).filter(move |member| *member != me)
    }

    /// From now on nothing of a smaller ballot counts here.
    pub(super) fn promise(&mut self, ballot: Ballot) {
        self.promised = ballot;
        self.hear_of(self.group, ballot);
        self.leads = false;
        self.stage = Stage::Idle;
    }

    /// 1A. One step: promise, and take the snapshot that the promise carries.
    pub(super) fn on_campaign<E: Effects>(&mut self, from: ProcessId, ballot: Ballot, lives: &[u64], effects: &mut E) {
        if self.is_joining() || ballot == self.ballot {
            return;
        }
        if ballot < self.promised {
            effects.send(from, &PeerMessage::Refuse { promised: self.promised });
            return;
        }
        if !self.is_last_of(lives, effects) {
            return;
        }
        if ballot > self.promised {
            self.promise(ballot);
        }
        self.lives.hear_of_all(lives);
        effects.send(from, &PeerMessage::Promise { ballot, state: self.state() });
    }

    /// 1B.
    pub(super) fn on_promise<E: Effects>(&mut self, from: ProcessId, ballot: Ballot, state: &State, effects: &mut E) {
        let asked = ballot == self.promised && matches!(self.stage, Stage::Campaigning(_));
        if !asked || !self.is_last_of(&state.lives, effects) {
            return;
        }
        self.lives.hear_of_all(&state.lives);
        self.forget_promises();
        let alive = self.lives.is_last(from, &state.lives);
        // Whoever promises is a member: it was without memory only because its group had not begun.
        self.joiners.retain(|(process, _)| !(alive && *process == from));
        let Stage::Campaigning(candidacy) = &mut self.stage else { return };
        if alive && candidacy.promises.iter().all(|(process, _)| *process != from) {
            candidacy.promises.push((from, state.clone()));
        }
        self.count_promises(effects);
    }

    /// What lives promised that are over does not count.
    pub(super) fn forget_promises(&mut self) {
        let Stage::Campaigning(candidacy) = &mut self.stage else { return };
        let lives = &self.lives;
        candidacy.promises.retain(|(process, state)| lives.is_last(*process, &state.lives));
    }

    /// Takes over, if a majority has promised and nothing is missing; asks for what is missing.
    ///
    /// A promise counts when all that its process holds is held here. So of what a majority held in one ballot, nothing is
    /// forgotten: one of them has promised, or lost its memory since and was given it with the state of a leader that had
    /// it, by the same reason (and the theorem above).
    pub(super) fn count_promises<E: Effects>(&mut self, effects: &mut E) {
        if let Some(ahead) = self.promised_ahead() {
            effects.send(ahead, &PeerMessage::Behind { ballot: self.promised });
            return;
        }
        self.want_held(effects);
        let Some((donor, state)) = self.best_promise() else { return };
        if donor == self.config.me {
            let state = state.clone();
            self.take_over(&state, effects);
            return;
        }
        let lacks: Vec<MessageRef> = self.lacks(state).collect();
        if lacks.is_empty() || planted!(self.config.plant, StateWithoutBodies) {
            let state = state.clone();
            self.take_over(&state, effects);
            return;
        }
        for subject in lacks {
            effects.send(donor, &PeerMessage::WantBody(subject));
        }
    }

    /// The ballot in which this member's word counts about what it holds, together with that of others in the same ballot:
    /// the one that is installed here. Who has only promised it may have been taken in by a smaller ballot meanwhile, and
    /// not hold it any more. And a group may begin its life more than once, until a majority remembers that it has: so its
    /// first ballot, which nobody promised, is none in which that counts, unless it is the beginning of all.
    #[must_use]
    pub fn counts_in(&self) -> Option<Ballot> {
        let begun = self.genesis.is_empty() || self.ballot != self.config.topology.first_ballot(self.group);
        let member = !self.is_joining() && !self.superseded;
        (self.promised == self.ballot && member && begun).then_some(self.ballot)
    }

    /// Asks for what processes hold that promised, and that is missing here.
    fn want_held<E: Effects>(&mut self, effects: &mut E) {
        if !matches!(self.stage, Stage::Campaigning(_)) {
            return;
        }
        let Stage::Campaigning(mut candidacy) = std::mem::replace(&mut self.stage, Stage::Idle) else { return };
        for (process, state) in &mut candidacy.promises {
            let mut lacks = self.lacks_held(state).peekable();
            if lacks.peek().is_some() {
                lacks.for_each(|subject| effects.send(*process, &PeerMessage::WantBody(subject)));
            } else {
                drop(lacks);
                state.forget_held();
            }
        }
        self.stage = Stage::Campaigning(candidacy);
    }

    /// Of a majority's promises the longest processed prefix among those with the highest synced ballot, and whose it is.
    fn best_promise(&self) -> Option<(ProcessId, &State)> {
        let Stage::Campaigning(candidacy) = &self.stage else { return None };
        let mut enough = self.config.topology.majority(self.group);
        if planted!(self.config.plant, QuorumOfConnected) {
            enough = 1;
        }
        if planted!(self.config.plant, WaitsForAll) {
            enough = self.config.topology.size(self.group) as u32;
        }
        let mut complete = candidacy.promises.iter().filter(|(_, state)| self.lacks_held(state).next().is_none());
        if (complete.clone().count() as u32) < enough {
            return None;
        }
        let mut best = complete.next()?;
        for promise in complete {
            let farther = if planted!(self.config.plant, CounterBeforeBallot) {
                (promise.1.counter, promise.1.synced) > (best.1.counter, best.1.synced)
            } else {
                (promise.1.synced, promise.1.counter) > (best.1.synced, best.1.counter)
            };
            if farther && !planted!(self.config.plant, FirstPromiseOnly) {
                best = promise;
            }
        }
        Some((best.0, &best.1))
    }

    /// Who promised and has forgotten what is not delivered here: the best state, or another one, whose process delivered
    /// what the best one's, a leader's, does not know to be decided.
    fn promised_ahead(&self) -> Option<ProcessId> {
        let Stage::Campaigning(candidacy) = &self.stage else { return None };
        if (candidacy.promises.len() as u32) < self.config.topology.majority(self.group) {
            return None;
        }
        let mut ahead = candidacy.promises.iter().filter(|(_, state)| self.is_behind(state));
        ahead.next().map(|(process, _)| *process)
    }

    /// The state to take over, once a majority has promised.
    pub(super) fn best_state(&self) -> Option<&State> {
        self.best_promise().map(|(_, state)| state)
    }

    pub(super) fn want_transfer<E: Effects>(&self, effects: &mut E) {
        if let Some((donor, _)) = self.best_promise().filter(|(donor, _)| *donor != self.config.me) {
            effects.send(donor, &PeerMessage::Behind { ballot: self.promised });
        }
    }

    /// A promised state, with the application's.
    pub(super) fn on_transfer<E: Effects>(&mut self, from: ProcessId, ballot: Ballot, state: &State, effects: &mut E) {
        if ballot != self.promised || !self.is_last_of(&state.lives, effects) {
            return;
        }
        let Stage::Campaigning(candidacy) = &mut self.stage else { return };
        let Some(promise) = candidacy.promises.iter_mut().find(|(process, _)| *process == from) else { return };
        promise.1 = state.clone();
        self.jump(state, effects);
        self.count_promises(effects);
    }

    /// Takes the state and installs it at the others. The clock is the maximum over all promises.
    fn take_over<E: Effects>(&mut self, state: &State, effects: &mut E) {
        let Stage::Campaigning(candidacy) = std::mem::replace(&mut self.stage, Stage::Preparing) else { return };
        for (_, promised) in &candidacy.promises {
            self.clock = self.clock.max(promised.clock);
            self.hear_of_all(&promised.known);
        }
        // If it asked again since, that is another life, of which those who promised may not have heard.
        self.admitted = candidacy.admits.iter().filter(|joiner| self.joiners.contains(joiner)).copied().collect();
        self.installed = self.bit;
        self.age = 0;
        let revived = planted!(self.config.plant, HighestBallotPerMessage).then(|| candidacy.revive(state));
        self.adopt(revived.as_ref().unwrap_or(state), self.promised, 0, true);
        self.said.clone_from(&self.known);
        effects.begin_stream(self.ballot);
        for member in self.others() {
            let admitted = self.admitted.iter().any(|(process, _)| *process == member);
            self.install_at(member, admitted, effects);
        }
        self.lead_if_installed(effects);
    }

    pub(super) fn hear_of_all(&mut self, known: &[Ballot]) {
        for (group, ballot) in known.iter().enumerate() {
            self.hear_of(GroupId(group as u16), *ballot);
        }
    }

    /// A member has installed this leader's state.
    pub(super) fn on_installed<E: Effects>(&mut self, from: ProcessId, ballot: Ballot, effects: &mut E) {
        let leads = matches!(self.stage, Stage::Preparing | Stage::Leading);
        if !leads || ballot != self.ballot {
            return;
        }
        self.installed |= self.config.topology.member_bit(self.group, from).unwrap_or(0);
        let taken_in = |joiner: &(ProcessId, u64)| joiner.0 == from && self.admitted.contains(joiner);
        self.joiners.retain(|joiner| !taken_in(joiner));
        self.lead_if_installed(effects);
    }

    fn lead_if_installed<E: Effects>(&mut self, effects: &mut E) {
        let majority = self.config.topology.majority(self.group);
        let enough = self.installed.count_ones() >= majority || planted!(self.config.plant, ReadyAlone);
        if self.stage != Stage::Preparing || !enough {
            return;
        }
        self.stage = Stage::Leading;
        self.leads = true;
        let announce = PeerMessage::Announce { group: self.group, ballot: self.ballot };
        for process in 0..self.config.topology.all_members() as u16 {
            let process = ProcessId(process);
            if self.config.topology.member_bit(self.group, process).is_none() {
                effects.send(process, &announce);
            }
        }
        self.say_known(effects);
        if !planted!(self.config.plant, NotProposedAgain) {
            self.propose_again(effects);
        }
        for client in 0..self.windows.len() as u16 {
            self.assign_ready(ClientId(client), effects);
        }
        self.deliver_due(effects);
        if self.joiners.iter().any(|joiner| !self.admitted.contains(joiner)) {
            // Somebody came too late for this ballot.
            let _ = self.campaign(effects);
        }
    }

    /// Every message that is not decided: its timestamp to the other leaders, its vector voted for under this ballot.
    fn propose_again<E: Effects>(&mut self, effects: &mut E) {
        for client in 0..self.windows.len() as u16 {
            let window = &self.windows[usize::from(client)];
            for slot in window.first_undelivered()..window.assigned {
                let message = self.windows[usize::from(client)].slot(slot);
                if message.void && !message.settled {
                    self.say_void(ClientId(client), slot, effects);
                } else if message.decided.is_none() && !message.void && message.ordered {
                    self.send_timestamps(ClientId(client), slot, effects);
                    self.vote_again(ClientId(client), slot, effects);
                }
            }
        }
    }
}
