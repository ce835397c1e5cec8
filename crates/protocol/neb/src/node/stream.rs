//! State that the node adds to the state machine of one sender's stream.

use stentor_fabric::seal::Seal;
use stentor_fabric::{ProcessId, SealedSlot};

use super::ask::Ask;
use super::records::Records;

use crate::layout::{broadcast_seal, credit_seal, register_seal};
use crate::{Config, Layout, Mode, Replay};

/// One sender's stream at this process.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) replay: Replay,
    /// Seal of the sender's broadcasts.
    pub(super) inbound: Seal,
    /// Seal of this process's registers.
    pub(super) outbound: Seal,
    /// Seal of each replayer's registers.
    pub(super) seals: Vec<Seal>,
    /// Records that this process publishes, by slot.
    pub(super) records: Records,
    /// State of each peer.
    pub(super) at: Vec<Peer>,
    pub(super) patience: Patience,
    pub(super) credit: SealedSlot,
    pub(super) credited: u64,
    pub(super) credit_flying: bool,
}

/// Progress with one peer for one stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    /// Next register to write at the peer, if the peer is a host.
    pub(super) posted: u64,
    /// Floor that was last posted to the peer, if the peer is a host. Registers below it may be reused there.
    pub(super) floor_posted: u64,
    /// Last floor whose write to the peer has completed.
    pub(super) floor_done: u64,
    /// Number, 0 or 1, of the proof whose write has completed at the peer, if the peer is a host. That proof is intact
    /// there.
    pub(super) proof_done: u64,
    /// Request to the peer that is in progress, if the peer is a host.
    pub(super) ask: Ask,
    /// Next of the peer's registers to poll in the local replica, if the peer is a replayer.
    pub(super) pushed: u64,
}

/// Number of rounds of the polling loop to wait for the fast path before reading. It increases with every index that
/// needs no READ, and halves with every one that does. If a replayer has stopped or is slow, the waits therefore become
/// short.
#[derive(Debug)]
pub(super) struct Patience {
    most: u32,
    limit: u32,
    waited: u32,
}

impl Patience {
    fn new(config: &Config) -> Self {
        let fast = config.fast_path && config.mode != Mode::All;
        let most = if fast { config.fast_rounds } else { 0 };
        Patience { most, limit: most, waited: 0 }
    }

    /// Returns whether to wait for one more round. The caller must then report that it has work, so that the round
    /// follows.
    #[inline]
    pub(super) fn lasts(&mut self, replay: &Replay) -> bool {
        let lasts = replay.head() < replay.next() && self.waited < self.limit;
        self.waited += u32::from(lasts);
        lasts
    }

    /// Records that an index has its outcome, with or without a READ.
    #[inline]
    pub(super) fn settled(&mut self, read: bool) {
        self.waited = 0;
        if read {
            self.limit /= 2;
        } else if self.limit < self.most {
            self.limit += 1;
        }
    }

    /// Stops waiting, because a suspected process may not write registers any more.
    pub(super) fn ends(&mut self) {
        self.limit = 0;
    }
}

impl Stream {
    pub(super) fn new(config: &Config, salt: u64, me: ProcessId, sender: ProcessId, inline_bytes: u32) -> Self {
        let seals = config.everybody().iter().map(|replayer| register_seal(config, replayer, sender, salt)).collect();
        Stream {
            replay: Replay::new(config, me, sender),
            inbound: broadcast_seal(config, sender, salt),
            outbound: register_seal(config, me, sender, salt),
            seals,
            records: Records::new(&Layout::new(config), config.window, inline_bytes),
            at: vec![Peer::default(); config.processes],
            patience: Patience::new(config),
            credit: SealedSlot::new(credit_seal(me, salt)),
            credited: 0,
            credit_flying: false,
        }
    }

    /// Returns whether the stream needs no work until the sender writes again: every index has an outcome, is published
    /// and freed.
    pub(super) fn is_at_rest(&self) -> bool {
        let (head, next) = (self.replay.head(), self.replay.next());
        let at = |host: ProcessId| {
            let at = &self.at[host.index()];
            at.ask.is_idle() && (self.replay.is_stored() || at.posted == next)
        };
        head == next
            && self.replay.next_outcome().is_none()
            && self.credited >= head
            && self.replay.hosts().iter().all(at)
    }

    /// Restarts the exchange with this peer from the state that is known to have arrived at the peer.
    pub(super) fn rewind(&mut self, peer: ProcessId) {
        let at = &mut self.at[peer.index()];
        at.posted = self.replay.published_at(peer);
        at.floor_posted = at.floor_done;
        at.ask = Ask::default();
        if peer == self.replay.sender() {
            (self.credited, self.credit_flying) = (0, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FaultModel;
    use crate::value::Value;

    fn open(config: &Config) -> Replay {
        let mut replay = Replay::new(config, ProcessId(1), ProcessId(0));
        replay.poll_bcast_bufs(&Value::trusted(&[0, 0, 0], false));
        replay
    }

    fn rounds(patience: &mut Patience, replay: &Replay) -> u32 {
        (0..1000).take_while(|_| patience.lasts(replay)).count() as u32
    }

    #[test]
    fn waits_for_a_silent_replayer_become_short() {
        let config = Config::new(4, Mode::Quorum(FaultModel::LyingSender), 1);
        let replay = open(&config);
        let mut patience = Patience::new(&config);
        let mut waited = Vec::new();
        for _ in 0..8 {
            waited.push(rounds(&mut patience, &replay));
            patience.settled(true);
        }
        assert_eq!(waited, [64, 32, 16, 8, 4, 2, 1, 0]);
        patience.settled(false);
        assert_eq!(rounds(&mut patience, &replay), 1, "the wait grows with every index that needs no READ");
        (0..200).for_each(|_| patience.settled(false));
        assert_eq!(rounds(&mut patience, &replay), config.fast_rounds);
        patience.ends();
        patience.settled(true);
        assert_eq!(rounds(&mut patience, &replay), 0);
    }

    #[test]
    fn no_wait_without_fast_path_or_open_index() {
        let all = Config::new(3, Mode::All, 0);
        assert_eq!(rounds(&mut Patience::new(&all), &open(&all)), 0);
        let quorum = Config::new(4, Mode::Quorum(FaultModel::LyingHosts), 1);
        let read = Config { fast_path: false, ..quorum };
        assert_eq!(rounds(&mut Patience::new(&read), &open(&read)), 0);
        let empty = Replay::new(&quorum, ProcessId(1), ProcessId(0));
        assert_eq!(rounds(&mut Patience::new(&quorum), &empty), 0);
    }
}
