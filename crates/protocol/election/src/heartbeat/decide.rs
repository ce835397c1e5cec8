//! Decides who leads, from the beats that were read.

use stentor_fabric::ProcessId;

use super::{Claim, Heartbeat, Kind, Life, Peer};
use crate::Change;
use crate::mutant::mutant;

/// State that the stream reported last, apart from resignations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum View {
    Pending,
    Led { epoch: u64, process: ProcessId },
}

impl Heartbeat {
    /// Returns whether this process leads, by the largest claim that it knows.
    pub(super) fn leads(&self) -> bool {
        self.claim.is_some_and(|claim| claim.process == self.config.me && claim.epoch == self.made)
            && !self.reach.resigned
    }

    /// Returns the epoch of this process's next claim, or `None` if epochs are exhausted.
    pub(super) fn next_epoch(&self) -> Option<u64> {
        let known = self.claim.map_or(0, |claim| claim.epoch);
        let epoch = known.max(self.made).max(self.config.floor).max(self.witnessed.0).saturating_add(1);
        (epoch < Claim::EPOCH_LIMIT).then_some(epoch)
    }

    pub(super) fn adopt(&mut self, claim: Claim) {
        self.claim = Some(claim);
        self.adopted = self.now;
        self.ready_since = None;
        self.reach.resigned = false;
        self.reach.lacks_since = None;
    }

    fn come_forward(&mut self) {
        if let Some(epoch) = self.next_epoch() {
            self.made = epoch;
            self.adopt(Claim { epoch, kind: Kind::Settled, process: self.config.me });
        }
    }

    pub(super) fn decide(&mut self) {
        let read = self.peers.iter().filter_map(|peer| peer.claim).max();
        if let Some(claim) = read.filter(|claim| Some(*claim) > self.claim) {
            self.adopt(claim);
            if mutant!(self.config.mutant, EpochOfOthers) && claim.process == self.config.me {
                self.made = claim.epoch;
                self.claim = Some(Claim { kind: Kind::Settled, ..claim });
            }
        }
        let me = self.config.me;
        self.look_at_reach();
        let nominated = self.claim.is_some_and(|claim| claim.process == me && claim.kind == Kind::Nominated);
        let outdone = self.leads() && self.witnessed > (self.made, me);
        if (nominated && self.would_lead() && self.reached() >= self.quorum()) || outdone || self.takes_back() {
            self.come_forward();
        }
        let doubted = self.doubts();
        self.doubt = if doubted { Claim::doubt(self.claim) } else { 0 };
        self.open = self.open(doubted);
        let ready = self.open && self.reached() >= self.quorum();
        self.ready_since = self.ready_since.or(Some(self.now)).filter(|_| ready);
        if ready && self.candidate() == Some(me) {
            self.come_forward();
            self.open &= !self.leads();
        }
        self.look_at_cut();
        self.tell();
    }

    fn takes_back(&self) -> bool {
        let lowest = self.config.members.first() == Some(&self.config.me);
        mutant!(self.config.mutant, LowestTakesBack) && lowest && !self.leads() && self.knows_all()
    }

    pub(super) fn quorum(&self) -> usize {
        if mutant!(self.config.mutant, WithoutMajority) {
            return 1;
        }
        self.config.quorum.unwrap_or(self.majority())
    }

    fn majority(&self) -> usize {
        self.config.members.len() / 2 + 1
    }

    /// Returns whether every other member was seen to beat, is suspected, or was awaited for the longest timeout.
    fn knows_all(&self) -> bool {
        mutant!(self.config.mutant, ClaimsUnheard) || self.peers.iter().all(|peer| peer.detector.life != Life::Unheard)
    }

    fn peer(&self, process: ProcessId) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.process == process)
    }

    /// Returns whether this process considers the claim invalid.
    fn doubts(&self) -> bool {
        let Some(claim) = self.claim else { return self.knows_all() };
        // A claim that names this process and is not its present leadership is from an earlier life, from a reign that
        // it has resigned, or a nomination that it has not accepted.
        let Some(peer) = self.peer(claim.process) else { return !self.leads() };
        let overdue = claim.kind == Kind::Nominated && self.now - self.adopted > self.bounds.max;
        let leaves = !peer.stands && self.candidates().next().is_some();
        let resigned = peer.doubt == Claim::doubt(self.claim);
        peer.detector.life == Life::Suspected || overdue || leaves || resigned
    }

    /// Returns whether the claim is invalid, so that some process has to claim leadership.
    fn open(&self, doubted: bool) -> bool {
        if self.leads() {
            return false;
        }
        let Some(claim) = self.claim else { return doubted };
        let doubt = Claim::doubt(self.claim);
        // If the process that the claim names doubts the claim itself, the claim is invalid without a majority.
        let disowned = self.peer(claim.process).is_none_or(|peer| peer.doubt == doubt);
        if disowned || mutant!(self.config.mutant, DoubtAlone) {
            return disowned || doubted;
        }
        // The operating system reported the death of the process, so no other member has to confirm it.
        if self.peer(claim.process).is_some_and(|peer| peer.detector.dead) {
            return doubted;
        }
        let voters = self.peers.iter().filter(|p| p.detector.life == Life::Alive && p.process != claim.process);
        let (mut all, mut doubting) = (1, usize::from(doubted));
        for voter in voters {
            all += 1;
            doubting += usize::from(voter.doubt == doubt);
        }
        if self.quorum() < self.majority() || mutant!(self.config.mutant, DoubtersInSight) {
            return 2 * doubting > all;
        }
        doubting >= self.majority()
    }

    /// Returns the members that could claim leadership, in order, without the one that the claim names.
    fn candidates(&self) -> impl Iterator<Item = ProcessId> {
        let void = self.claim.map(|claim| claim.process);
        self.config.members.iter().copied().filter(move |process| Some(*process) != void && self.fit(*process))
    }

    /// Returns whether a member is seen, is willing to lead, and publishes that it sees enough members to do so.
    pub(super) fn fit(&self, process: ProcessId) -> bool {
        if process == self.config.me {
            return self.would_lead() && self.reached() >= self.quorum();
        }
        // Before the first claim, a member may not have read the others' beats yet. It is a candidate nevertheless, and
        // this process waits for its claim.
        let sees_enough = |peer: &Peer| self.claim.is_none() || peer.sees.count_ones() as usize >= self.quorum();
        self.peer(process).is_some_and(|peer| peer.stands && peer.is_seen() && sees_enough(peer))
    }

    /// Returns the member that should claim leadership. A leader that has resigned and is alive has precedence for one
    /// shortest timeout. Afterwards the candidates follow each other in order, each for one longest timeout, until one
    /// of them claims leadership. The process that the invalid claim names is then chosen only if there is no other
    /// candidate.
    fn candidate(&self) -> Option<ProcessId> {
        let void = self.claim.map(|claim| claim.process);
        let mut waited = self.now - self.ready_since.unwrap_or(self.now);
        if self.may_return() {
            if waited < self.bounds.min {
                return void.filter(|process| self.fit(*process));
            }
            waited -= self.bounds.min;
        }
        let all = self.candidates().count();
        if all == 0 {
            return void.filter(|process| self.fit(*process));
        }
        let passed = if mutant!(self.config.mutant, NobodyPassedOver) { 0 } else { waited / self.bounds.max };
        self.candidates().nth((passed % all as u64) as usize)
    }

    /// Returns whether the claim names a leader that has resigned and is alive. It still has its ballot, so if it
    /// reaches a majority again, nothing has to be recovered. Another process that is not willing to lead does not
    /// qualify: it pauses, or it has restarted without its memory.
    fn may_return(&self) -> bool {
        let Some(claim) = self.claim.filter(|claim| claim.kind == Kind::Settled) else { return false };
        if mutant!(self.config.mutant, NoPrecedence) {
            return false;
        }
        match self.peer(claim.process) {
            Some(peer) => peer.is_seen() && peer.stands && peer.doubt == Claim::doubt(self.claim),
            None => self.reach.resigned,
        }
    }

    fn view(&self) -> View {
        match self.claim {
            Some(claim) if self.leads() => View::Led { epoch: claim.epoch, process: claim.process },
            Some(claim)
                if claim.kind == Kind::Settled && claim.process != self.config.me && !self.open && !self.is_lost() =>
            {
                View::Led { epoch: claim.epoch, process: claim.process }
            }
            _ => View::Pending,
        }
    }

    /// Returns whether this process doubts the claim and cannot learn whether others do, because it reaches no
    /// majority.
    fn is_lost(&self) -> bool {
        self.doubt != 0 && self.reached() < self.quorum()
    }

    fn tell(&mut self) {
        let view = self.view();
        let before = self.told.replace(view);
        if before == Some(view) {
            return;
        }
        let me = self.config.me;
        if let Some(View::Led { epoch, process }) = before
            && process == me
            && !matches!(view, View::Led { process, .. } if process == me)
        {
            self.changes.push_back(Change::Resigned { epoch });
        }
        self.changes.push_back(match view {
            View::Pending => Change::Pending,
            View::Led { epoch, process } => Change::Leader { epoch, process },
        });
    }
}
