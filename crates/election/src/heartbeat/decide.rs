//! Who leads, from what was read.

use stentor_fabric::ProcessId;

use super::{Claim, Heartbeat, Kind, Life, Peer};
use crate::Change;
use crate::plant::planted;

/// What the stream has told, resignations apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum View {
    Pending,
    Led { epoch: u64, process: ProcessId },
}

impl Heartbeat {
    /// Whether this process leads, by the largest claim that it knows.
    pub(super) fn leads(&self) -> bool {
        self.claim.is_some_and(|claim| claim.process == self.config.me && claim.epoch == self.made)
    }

    /// The epoch of the next claim made here; nothing when epochs have run out.
    pub(super) fn next_epoch(&self) -> Option<u64> {
        let known = self.claim.map_or(0, |claim| claim.epoch);
        let epoch = known.max(self.made).max(self.config.floor).max(self.witnessed.0).saturating_add(1);
        (epoch < Claim::EPOCH_LIMIT).then_some(epoch)
    }

    pub(super) fn adopt(&mut self, claim: Claim) {
        self.claim = Some(claim);
        self.adopted = self.now;
        self.open_since = None;
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
            if planted!(self.config.plant, EpochOfOthers) && claim.process == self.config.me {
                self.made = claim.epoch;
                self.claim = Some(Claim { kind: Kind::Settled, ..claim });
            }
        }
        let me = self.config.me;
        let nominated = self.claim.is_some_and(|claim| claim.process == me && claim.kind == Kind::Nominated);
        let outdone = self.leads() && self.witnessed > (self.made, me);
        if (nominated && self.stands) || outdone || self.takes_back() {
            self.come_forward();
        }
        let doubted = self.doubts();
        self.doubt = if doubted { Claim::doubt(self.claim) } else { 0 };
        let open = self.open(doubted);
        self.open_since = self.open_since.or(Some(self.now)).filter(|_| open);
        if open && self.candidate() == Some(me) && self.alive() >= self.quorum() {
            self.come_forward();
        }
        self.tell();
    }

    fn takes_back(&self) -> bool {
        let lowest = self.config.members.first() == Some(&self.config.me);
        planted!(self.config.plant, LowestTakesBack) && lowest && !self.leads() && self.knows_all()
    }

    fn quorum(&self) -> usize {
        if planted!(self.config.plant, WithoutMajority) {
            return 1;
        }
        self.config.quorum.unwrap_or(self.config.members.len() / 2 + 1)
    }

    /// Members seen alive, this one included.
    fn alive(&self) -> usize {
        1 + self.peers.iter().filter(|peer| peer.detector.life == Life::Alive).count()
    }

    /// Whether every other member was heard, or waited for in vain.
    fn knows_all(&self) -> bool {
        planted!(self.config.plant, ClaimsUnheard) || self.peers.iter().all(|peer| peer.detector.life != Life::Unheard)
    }

    fn peer(&self, process: ProcessId) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.process == process)
    }

    /// Whether this process itself takes the claim for void.
    fn doubts(&self) -> bool {
        let Some(claim) = self.claim else { return self.knows_all() };
        // What names this process and is not its own leadership is of an earlier life, or unwelcome.
        let Some(peer) = self.peer(claim.process) else { return !self.leads() };
        let overdue = claim.kind == Kind::Nominated && self.now - self.adopted > self.bounds.max;
        let leaves = !peer.stands && self.candidates().next().is_some();
        peer.detector.life == Life::Suspected || overdue || leaves
    }

    /// Whether somebody else has to come forward.
    fn open(&self, doubted: bool) -> bool {
        if self.leads() {
            return false;
        }
        let Some(claim) = self.claim else { return doubted };
        let doubt = Claim::doubt(self.claim);
        // Whoever is named knows best.
        let disowned = self.peer(claim.process).is_none_or(|peer| peer.doubt == doubt);
        if disowned || planted!(self.config.plant, DoubtAlone) {
            return disowned || doubted;
        }
        let voters = self.peers.iter().filter(|p| p.detector.life == Life::Alive && p.process != claim.process);
        let (mut all, mut doubting) = (1, usize::from(doubted));
        for voter in voters {
            all += 1;
            doubting += usize::from(voter.doubt == doubt);
        }
        2 * doubting > all
    }

    /// Who could come forward, in order; without whom the claim names.
    fn candidates(&self) -> impl Iterator<Item = ProcessId> {
        let void = self.claim.map(|claim| claim.process);
        self.config.members.iter().copied().filter(move |process| Some(*process) != void && self.fit(*process))
    }

    fn fit(&self, process: ProcessId) -> bool {
        if process == self.config.me {
            return self.stands;
        }
        self.peer(process).is_some_and(|peer| peer.stands && peer.detector.life == Life::Alive)
    }

    /// Who should come forward: the first in order, and the next each time that one did not. Whom the void claim names
    /// only if there is nobody else.
    fn candidate(&self) -> Option<ProcessId> {
        let all = self.candidates().count();
        if all == 0 {
            return self.claim.map(|claim| claim.process).filter(|process| self.fit(*process));
        }
        let waited = self.now - self.open_since.unwrap_or(self.now);
        let passed = if planted!(self.config.plant, NobodyPassedOver) { 0 } else { waited / self.bounds.max };
        self.candidates().nth((passed % all as u64) as usize)
    }

    fn view(&self) -> View {
        match self.claim {
            Some(claim) if self.leads() => View::Led { epoch: claim.epoch, process: claim.process },
            Some(claim)
                if claim.kind == Kind::Settled && claim.process != self.config.me && self.open_since.is_none() =>
            {
                View::Led { epoch: claim.epoch, process: claim.process }
            }
            _ => View::Pending,
        }
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
