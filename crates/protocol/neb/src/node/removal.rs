//! Removal of processes, in mode `all`: applies an operator's requests to regions and streams.

use stentor_fabric::{AccessError, Fabric, ProcessId, RegionId};

use super::{Node, Notice};
use crate::removal::{Answer, Ask, Ballot, Cut, Holding, Refusal, Seat};
use crate::value::Value;
use crate::{Config, Mode, ProcessSet};

/// Processes that an operator has removed or is removing.
#[derive(Debug)]
pub(super) struct Changes {
    seat: Seat,
    /// Access that is being revoked, and whether the fabric has been asked to revoke it.
    revoking: Vec<(RegionId, ProcessId, bool)>,
    /// Values that this process held of the fenced processes' streams.
    frozen: Vec<Holding>,
    /// Processes that are fenced and not frozen yet.
    thawed: ProcessSet,
    /// Removed processes whose streams have not reached their end here.
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
    /// Answers an operator's request. Call it between two steps. Every answer must be sent.
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

    /// Returns whether an operator that is removing this process has asked it to leave. It then delivers and broadcasts
    /// nothing more.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.removal.has_left()
    }

    /// Returns the members: all processes but the removed ones.
    #[must_use]
    pub fn members(&self) -> ProcessSet {
        self.end.config.everybody().minus(self.removal.seat.standing().removed)
    }

    /// Returns the processes whose access to this process is revoked or being revoked, because an operator is removing
    /// them or has removed them.
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
        // Revocations that failed before are tried again with the next request to fence.
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
            // Invariant V1: every write that had completed at the sender has arrived here, and no further one can land.
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

    /// Records that a peer's access to a region has been revoked.
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

    /// Checks that a decision about a stream can be valid.
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

    /// Reports the removed processes whose streams have reached their end. Returns whether there were any.
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
