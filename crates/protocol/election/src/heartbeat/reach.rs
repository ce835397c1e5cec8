//! Decides whether this process reaches a majority, and whether it therefore resigns or is cut off.

use super::Heartbeat;
use crate::mutant::mutant;

/// Longest pause after a resignation, as a multiple of the longest timeout. Each pause is twice the one before, up to
/// this limit.
const LONGEST_PAUSE: u64 = 8;
/// Number of resignations that are not followed by a pause. The count restarts once the process has led and reached a
/// majority for the longest timeout without interruption.
const FREE_RETURNS: u32 = 2;

/// Contact of this process with a majority.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach {
    /// `true` if this process led, reached no majority and resigned, and no process has claimed leadership since.
    pub resigned: bool,
    /// Time since which this process leads without reaching a majority, in polled time.
    pub lacks_since: Option<u64>,
    /// Time since which this process has led and reached a majority without interruption, in polled time.
    sound_since: Option<u64>,
    /// Number of resignations since this process last led and reached a majority for the longest timeout.
    failures: u32,
    /// Time before which this process does not claim leadership.
    pause_until: u64,
    /// Time since which this process neither leads, nor reaches the leader, nor could claim leadership, in polled time.
    cut_since: Option<u64>,
}

impl Heartbeat {
    /// Returns the mask of members whose counters move, over links that work, this process included.
    pub(super) fn sees(&self) -> u64 {
        self.peers.iter().filter(|peer| peer.is_seen()).fold(self.bit, |mask, peer| mask | peer.bit)
    }

    /// Returns the mask of members that this process sees and that see it, itself included.
    pub(super) fn reached_mask(&self) -> u64 {
        let one_way = mutant!(self.config.mutant, OneWaySight);
        let mutual = self.peers.iter().filter(|peer| peer.is_seen() && (one_way || peer.sees & self.bit != 0));
        mutual.fold(self.bit, |mask, peer| mask | peer.bit)
    }

    /// Returns whether this process is willing to lead: it stands for leadership, and does not pause after a
    /// resignation.
    pub(super) fn would_lead(&self) -> bool {
        self.stands && self.now >= self.reach.pause_until
    }

    /// Returns whether this process has been cut off for at least the longest timeout: it does not reach the process
    /// that the claim names, and cannot claim leadership itself.
    pub(super) fn is_left_out(&self) -> bool {
        self.reach.cut_since.is_some_and(|since| self.now - since >= self.bounds.max)
    }

    /// Updates the time since which this process has been cut off. The caller has updated the claim and the doubts
    /// before.
    pub(super) fn look_at_cut(&mut self) {
        let mask = self.reached_mask();
        let could = self.open && mask.count_ones() as usize >= self.quorum();
        let named = self.claim.and_then(|claim| self.peers.iter().find(|peer| peer.process == claim.process));
        let reached = !self.open && named.is_some_and(|peer| mask & peer.bit != 0);
        let cut =
            !mutant!(self.config.mutant, NeverCutOff) && self.claim.is_some() && !self.leads() && !reached && !could;
        self.reach.cut_since = self.reach.cut_since.or(Some(self.now)).filter(|_| cut);
    }

    /// Resigns if this process leads and has reached no majority for the shortest timeout.
    pub(super) fn look_at_reach(&mut self) {
        if !self.leads() {
            self.reach.sound_since = None;
            return;
        }
        if self.reached() >= self.quorum() {
            self.reach.lacks_since = None;
            let since = *self.reach.sound_since.get_or_insert(self.now);
            if self.now - since >= self.bounds.max {
                self.reach.failures = 0;
            }
            return;
        }
        self.reach.sound_since = None;
        let since = *self.reach.lacks_since.get_or_insert(self.now);
        if self.now - since >= self.bounds.min && !mutant!(self.config.mutant, NeverResigns) {
            self.resign();
        }
    }

    fn resign(&mut self) {
        let reach = &mut self.reach;
        (reach.resigned, reach.lacks_since) = (true, None);
        reach.failures = reach.failures.saturating_add(1);
        if reach.failures > FREE_RETURNS && !mutant!(self.config.mutant, NoPause) {
            let doublings = (reach.failures - FREE_RETURNS - 1).min(LONGEST_PAUSE.ilog2());
            reach.pause_until = self.now + (self.bounds.max << doublings);
        }
    }
}
