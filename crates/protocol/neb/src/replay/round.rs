//! Reading the others' registers: one round for a run of indices.

use stentor_fabric::ProcessId;

use super::{Evidence, Replay};
use crate::authority::Authority;
use crate::value::{Value, content};
use crate::{Config, Mode, ProcessSet, mutant};

/// What a replayer's register showed for an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen<'a> {
    /// Nothing, or an older index: no conflict.
    Empty,
    /// A value for this index.
    Value(Value<'a>),
    /// A newer index: the register was used again.
    Newer,
    /// Half a record. `reusable`: the replayer had announced, when this was looked up *after* the register was read, that
    /// it may use the register again; `None`: not looked up yet.
    Torn {
        /// See above.
        reusable: Option<bool>,
    },
}

/// Indices whose registers are being read.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Round {
    /// Tells rounds apart.
    pub serial: u64,
    /// The first index.
    pub lo: u64,
    /// The index after the last.
    pub hi: u64,
    /// Hosts that answered for every replayer and every index.
    pub answered: ProcessSet,
}

impl Replay {
    /// The hosts to read from: in mode `quorum` everybody who keeps registers, one's own host included, because only what a
    /// READ through its NIC returns is what others have published there; in mode `all` every member for itself.
    #[must_use]
    pub fn hosts(&self) -> ProcessSet {
        match self.config.mode {
            Mode::Quorum(_) => self.replicas,
            Mode::All => self.members.without(self.sender).without(self.me),
        }
    }

    /// Whose registers to read at a host.
    #[must_use]
    pub fn replayers_at(&self, host: ProcessId) -> ProcessSet {
        replayers(&self.config, self.me, self.sender, host)
    }

    /// The round in progress.
    #[must_use]
    pub fn round(&self) -> Option<&Round> {
        self.round.as_ref()
    }

    /// Begins the next round, if something is published that was not read and no round is in progress. Returns whether
    /// one began.
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
        // With two processes there is nobody left to read from.
        self.settle_round();
        true
    }

    /// A register was read in the round in progress. Returns whether that is an answer (otherwise it is to be read again)
    /// and, if it is the first conflict about this index, the evidence.
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
            // Not yet there when the floor was looked up after it: its publication is not complete at this host, so if its
            // owner is correct it will read after we published.
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

    /// A host has answered for everything in the round of this number.
    pub fn answered(&mut self, host: ProcessId, serial: u64) {
        match &mut self.round {
            Some(round) if round.serial == serial => round.answered.insert(host),
            _ if mutant!(self.config.mutant, DeliverAgain) && self.head > 0 => self.again = Some(self.head - 1),
            _ => {}
        }
        self.settle_round();
    }

    /// Ends the round if everybody answered who must.
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
        // What was given up meanwhile has left its slot to a later index, which this round is not about.
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
