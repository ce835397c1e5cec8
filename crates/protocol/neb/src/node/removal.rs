//! Removing processes, in mode `all`: what an operator asks is done here with regions and streams.

use stentor_fabric::{AccessError, Fabric, ProcessId, RegionId};

use super::{Node, Notice};
use crate::removal::{Answer, Ask, Ballot, Cut, Holding, Refusal, Seat};
use crate::value::Value;
use crate::{Config, Mode, ProcessSet};

/// Whom an operator removed, or is about to.
#[derive(Debug)]
pub(super) struct Changes {
    seat: Seat,
    /// Access that is being taken away; whether the fabric was told.
    revoking: Vec<(RegionId, ProcessId, bool)>,
    /// What this process had of the streams of those that are fenced.
    frozen: Vec<Holding>,
    /// Fenced, and not frozen yet.
    thawed: ProcessSet,
    /// Removed, and their streams have not come to their end here.
    ending: ProcessSet,
}

impl Changes {
    pub(super) fn new(config: &Config, me: ProcessId) -> Self {
        Changes {
            seat: Seat::new(config, me),
            revoking: Vec::new(),
            frozen: Vec::new(),
            thawed: ProcessSet::EMPTY,
            ending: ProcessSet::EMPTY,
        }
    }

    pub(super) fn is_fenced(&self, process: ProcessId) -> bool {
        self.seat.standing().fenced.contains(process)
    }

    #[inline]
    pub(super) fn has_left(&self) -> bool {
        self.seat.has_left()
    }
}

impl<F: Fabric> Node<F> {
    /// Answers an operator. Call it between two steps; the answer is to be sent whatever it is.
    pub fn ask<N: FnMut(Notice<'_>)>(&mut self, ask: &Ask, notify: &mut N) -> Answer {
        if self.end.config.mode != Mode::All {
            return Answer::Refused(Refusal::Mode);
        }
        self.busy = self.end.others;
        let answer = match ask {
            Ask::Stand if self.removal.has_left() => Ok(Answer::Left),
            Ask::Stand => Ok(Answer::Standing(*self.removal.seat.standing())),
            Ask::Leave => {
                self.removal.seat.leave();
                Ok(Answer::Left)
            }
            Ask::Fence { ballot, base, targets } => self.fence(*ballot, *base, *targets, notify),
            Ask::Commit { ballot, cuts } => self.commit(*ballot, cuts),
        };
        answer.unwrap_or_else(Answer::Refused)
    }

    /// Whether an operator told this process to go: it delivers and broadcasts nothing more.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.removal.has_left()
    }

    /// Who is a member: all but the removed.
    #[must_use]
    pub fn members(&self) -> ProcessSet {
        self.end.config.everybody().minus(self.removal.seat.standing().removed)
    }

    /// Who cannot reach this process any more, because an operator is removing it or has.
    #[must_use]
    pub fn fenced(&self) -> ProcessSet {
        self.removal.seat.standing().fenced
    }

    fn fence<N: FnMut(Notice<'_>)>(
        &mut self,
        ballot: Ballot,
        base: ProcessSet,
        targets: ProcessSet,
        notify: &mut N,
    ) -> Result<Answer, Refusal> {
        for target in self.removal.seat.fence(ballot, base, targets)?.iter() {
            self.removal.thawed.insert(target);
            if let Some(peer) = self.end.peers.get_mut(target) {
                peer.close();
            }
            self.removal.revoking.extend(self.end.reached_by(target).map(|region| (region, target, false)));
        }
        // What failed before is tried again by whoever asks again.
        for (region, peer, told) in self.removal.revoking.iter_mut().filter(|(_, _, told)| !told) {
            let refused = |error: AccessError| Refusal::Access { peer: *peer, why: error.to_string() };
            self.end.fabric.revoke(*region, *peer).map_err(refused)?;
            *told = true;
        }
        self.housekeep();
        if self.removal.revoking.iter().any(|(_, peer, _)| targets.contains(*peer)) {
            return Ok(Answer::Fencing);
        }
        for target in self.removal.thawed.and(targets).iter() {
            // V1: everything that had completed at the sender is here, and nothing more comes.
            while self.take_broadcast(target, notify) {}
            if let Some(stream) = &mut self.streams[target.index()] {
                self.removal.frozen.push(stream.replay.freeze());
            }
            self.removal.thawed.remove(target);
        }
        let holdings = targets.iter().filter_map(|target| self.holding(target)).collect();
        Ok(Answer::Report { ballot, holdings })
    }

    fn holding(&self, target: ProcessId) -> Option<Holding> {
        if let Some(cut) = self.removal.seat.cut(target) {
            return Some(Holding::Decided(cut.clone()));
        }
        let of = |holding: &&Holding| matches!(holding, Holding::Frozen { sender, .. } if *sender == target);
        self.removal.frozen.iter().find(of).cloned()
    }

    /// The owner of a region has lost one who used it.
    pub(super) fn revoked(&mut self, region: RegionId, peer: ProcessId) {
        self.removal.revoking.retain(|(of, from, _)| (*of, *from) != (region, peer));
    }

    fn commit(&mut self, ballot: Ballot, cuts: &[Cut]) -> Result<Answer, Refusal> {
        self.removal.seat.may_commit(ballot, cuts)?;
        for cut in cuts {
            self.check(cut)?;
        }
        for cut in cuts {
            if !self.removal.seat.commit(cut) {
                continue;
            }
            self.removal.ending.insert(cut.sender);
            self.own.stream.remove_member(cut.sender);
            if let Some(stream) = &mut self.streams[cut.sender.index()] {
                stream.replay.decide(cut);
            }
            for stream in self.streams.iter_mut().flatten() {
                stream.replay.remove_member(cut.sender);
            }
        }
        Ok(Answer::Committed)
    }

    /// Whether what is decided about a stream can be true.
    fn check(&self, cut: &Cut) -> Result<(), Refusal> {
        let Cut { sender, upto, values } = cut;
        let forged = |index: u64| Refusal::Forged { sender: *sender, index };
        let config = &self.end.config;
        let mut before = None;
        for (index, words) in values {
            let value = Value::new(words, words.len() * 8, config.signed, config.payload_bytes);
            let checked = value.and_then(|value| value.check(*sender, *index, self.authority.as_ref()));
            if checked.is_err() || index >= upto || before.is_some_and(|before| before >= index) {
                return Err(forged(*index));
            }
            before = Some(index);
        }
        if self.removal.seat.cut(*sender).is_some() || !config.mutant.freezes() {
            return Ok(());
        }
        let stream = self.streams.get(sender.index()).and_then(Option::as_ref);
        stream.map_or(Ok(()), |stream| stream.replay.may_decide(cut)).map_err(forged)
    }

    /// Tells of the removed whose streams have come to their end.
    #[inline]
    pub(super) fn tell_removed<N: FnMut(Notice<'_>)>(&mut self, notify: &mut N) -> bool {
        !self.removal.ending.is_empty() && self.tell_ended(notify)
    }

    #[cold]
    fn tell_ended<N: FnMut(Notice<'_>)>(&mut self, notify: &mut N) -> bool {
        let before = self.removal.ending;
        for sender in before.iter() {
            let upto = self.streams[sender.index()].as_ref().and_then(|stream| stream.replay.is_over());
            if let Some(upto) = upto {
                notify(Notice::Removed(sender, upto));
                self.removal.ending.remove(sender);
            }
        }
        before != self.removal.ending
    }
}
