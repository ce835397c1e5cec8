//! Reading the others' registers: one round for a run of indices.

use stentor_fabric::ProcessId;

use super::{Evidence, Replay};
use crate::authority::Authority;
use crate::value::{Value, content};
use crate::{Config, Mode, ProcessSet, mutant};

/// Content of a replayer's register for an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen<'a> {
    /// The register is empty, or contains an older index or an invalid value. None of these is a conflict.
    Empty,
    /// A value for this index.
    Value(Value<'a>),
    /// A newer index, because the register was reused.
    Newer,
    /// A torn record.
    Torn {
        /// `true` if the replayer had announced that it may reuse the register. The announcement must be read *after*
        /// the register; `None` if it was not read yet.
        reusable: Option<bool>,
    },
}

/// Indices whose registers are being read.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Round {
    /// Number that distinguishes rounds.
    pub serial: u64,
    /// First index.
    pub lo: u64,
    /// Index after the last.
    pub hi: u64,
    /// Hosts that answered for every replayer and every index.
    pub answered: ProcessSet,
}

impl Replay {
    /// Returns the hosts to read from. In mode `quorum` these are all hosts that keep registers. The local host is
    /// included, because only a READ through its NIC returns what others have published there. In mode `all` every
    /// member but the sender and this process is read at its own host.
    #[must_use]
    pub fn hosts(&self) -> ProcessSet {
        match self.config.mode {
            Mode::Quorum(_) => self.replicas,
            Mode::All => self.members.without(self.sender).without(self.me),
        }
    }

    /// Returns the processes whose registers are read at a host.
    #[must_use]
    pub fn replayers_at(&self, host: ProcessId) -> ProcessSet {
        replayers(&self.config, self.me, self.sender, host)
    }

    /// Returns the round in progress.
    #[must_use]
    pub fn round(&self) -> Option<&Round> {
        self.round.as_ref()
    }

    /// Begins the next round, if published indices are unread and no round is in progress. Returns whether one began.
    pub fn next_round(&mut self) -> bool {
        if self.round.is_some() || self.ended.is_some_and(|ended| self.head >= ended) {
            return false;
        }
        let open = |replay: &Replay, index: u64| {
            let entry = replay.entry(index);
            !entry.lost && !entry.clear && entry.conflict.is_empty() && !replay.is_fast(entry)
        };
        let Some(lo) = (self.head..self.next).find(|index| open(self, *index)) else { return false };
        let published = |index: &u64| !self.entry(*index).lost && self.is_published(*index);
        let hi = lo + (lo..self.next).take_while(published).count() as u64;
        if hi == lo {
            return false;
        }
        self.serial += 1;
        self.round = Some(Round { serial: self.serial, lo, hi, answered: ProcessSet::EMPTY });
        // With two processes there is no other register to read.
        self.settle_round();
        true
    }

    /// Processes a register that was read in the present round. Returns whether that is an answer (otherwise the
    /// register must be read again). Also returns evidence, if this is the first conflict about the index.
    pub fn poll_read_cq(
        &mut self,
        replayer: ProcessId,
        index: u64,
        seen: Seen<'_>,
        authority: Option<&Authority>,
    ) -> (bool, Option<Evidence>) {
        if self.snapshot(index).is_none() {
            return (true, None);
        }
        match seen {
            // The register was not complete when it was read. If it was torn, the floor that was read afterwards shows
            // that it was not being reused. Its owner, if correct, therefore reads after this process has published.
            Seen::Empty | Seen::Torn { reusable: Some(false) } => self.entry_mut(index).tracker += 1,
            Seen::Torn { .. } if mutant!(self.config.mutant, TornIsEmpty) => {}
            Seen::Torn { .. } => return (false, None),
            Seen::Newer if mutant!(self.config.mutant, NewerIsEmpty) => {}
            Seen::Newer => {
                let entry = self.entry_mut(index);
                (entry.lost, entry.clear) = (true, false);
            }
            Seen::Value(value) if content(&self.entry(index).value, self.config.signed) == value.content() => {
                self.entry_mut(index).tracker += 1;
            }
            Seen::Value(value) => return (true, self.conflict(replayer, index, &value, authority)),
        }
        (true, None)
    }

    /// Records that a host has answered for all registers of the round with this number.
    pub fn answered(&mut self, host: ProcessId, serial: u64) {
        match &mut self.round {
            Some(round) if round.serial == serial => round.answered.insert(host),
            _ if mutant!(self.config.mutant, DeliverAgain) && self.head > 0 => self.again = Some(self.head - 1),
            _ => {}
        }
        self.settle_round();
    }

    /// Ends the round if a quorum of the hosts (in mode `all`: every host) has answered.
    pub(super) fn settle_round(&mut self) {
        let Some(round) = &self.round else { return };
        let (lo, hi) = (round.lo, round.hi);
        if mutant!(self.config.mutant, Counter) && self.config.mode == Mode::All {
            let threshold = self.members.len().saturating_sub(2);
            if (lo..hi).all(|index| self.entry(index).tracker >= threshold) {
                self.clear(lo, hi);
            }
            return;
        }
        let enough = match self.config.mode {
            Mode::Quorum(_) => round.answered.len() >= self.config.quorum(),
            Mode::All if mutant!(self.config.mutant, RemovedSender) => round.answered.len() + 2 >= self.members.len(),
            Mode::All => round.answered.covers(self.hosts()),
        };
        if enough {
            self.clear(lo, hi);
        }
    }

    fn clear(&mut self, lo: u64, hi: u64) {
        self.round = None;
        // An index that was given up meanwhile has left its slot to a later index, which is not part of this round.
        let lo = if mutant!(self.config.mutant, StaleRound) { lo } else { lo.max(self.head) };
        for index in lo..hi {
            let entry = self.entry_mut(index);
            entry.clear = !entry.lost;
        }
    }
}

fn replayers(config: &Config, me: ProcessId, sender: ProcessId, host: ProcessId) -> ProcessSet {
    match config.mode {
        Mode::Quorum(_) => config.everybody().without(sender).without(me),
        Mode::All => [host].into_iter().collect(),
    }
}
