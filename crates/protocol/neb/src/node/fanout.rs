//! Own broadcasts by fan-out: the network copies one write to all peers that need the same records next and that the
//! fan-out set of this process reaches. Peers that the set does not reach, and all peers if there is no set, are
//! written on their queue pairs.
//!
//! The set is *away* (not joined, or broken), *ready*, or *slow*: ready, but a write of it has been outstanding for
//! longer than the configured number of rounds. A slow set gets no writes until all its writes are done, or until it
//! broke and was joined again.
//!
//! A fan-out write completes when its slowest member has received it, so a stopped member delays it until the fabric
//! times out. Three rules keep that from stopping the broadcast. A peer that frees an index has received it, whatever
//! the other peers do. If the set is slow or broke, the indices that it alone carried are also sent on queue pairs. In
//! mode `quorum`, flow control ignores a peer that frees nothing, as without a set.
//!
//! A Byzantine sender gains nothing by the set. It could always write different values to different receivers, and
//! receivers judge a copy of the set like a write of a queue pair.
//!
//! # Invariants
//! - Each index goes to a peer by one path, in order. An index is posted again only if a slow or broken set carried it,
//!   or if it was in flight when a link broke. The peer's cursor then goes back to the first index that is not known to
//!   be written at the peer, and never while a write of the queue pair is in flight.
//! - "Written" covers both paths: everything below the first index that only an unfinished fan-out write carries, and
//!   below the first index that the queue pair has not completed.
//! - No slot of a peer is written for another index, by either path, while a fan-out write of the slot's previous index
//!   may still land there. That ends when the write is done, when the peer has confirmed it, or when the peer is
//!   settled ([`Fabric::set_settled`]).
//! - By freeing, a peer confirms only indices that were posted to it once, and only until an index a window later has
//!   been broadcast. After that it may have skipped them.
//! - No caller waits for the set to be connected or to recover.

use std::collections::VecDeque;
use std::ops::Range;

use stentor_fabric::{Completion, Fabric, ProcessId, Status};
use stentor_link::{FanoutSet, JoinedSets};

use super::NodeError;
use super::peer::SEND_DEPTH;
use crate::{Config, Mutant, mutant};

/// Joins the fan-out sets of a broadcast, if the network makes copies and the processes fit into a set. Returns this
/// process's set, and those of the other senders.
pub(super) fn join<F: Fabric>(
    fabric: &mut F,
    config: &Config,
) -> Result<(Option<FanoutSender>, JoinedSets), NodeError> {
    let (me, members): (_, Vec<ProcessId>) = (fabric.me(), config.everybody().iter().collect());
    let (mut own, mut others) = (None, JoinedSets::default());
    for sender in &members {
        if *sender == me {
            own = FanoutSet::join(fabric, &members, SEND_DEPTH)?.map(|set| FanoutSender::new(set, config));
        } else {
            others.join(fabric, *sender, &members)?;
        }
    }
    Ok((own, others))
}

/// A fan-out write of indices that reach the peer by no other write.
#[derive(Clone, Copy, Debug)]
struct Flight {
    request: u64,
    first: u64,
    upto: u64,
}

/// Fan-out writes that may still land, although the cursor went back so that their indices are posted again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Skipped {
    /// Number of the last of these writes.
    request: u64,
    /// First index that one of these writes contains.
    first: u64,
}

/// State of the fan-out to one peer.
#[derive(Clone, Debug, Default)]
struct PeerProgress {
    /// Outstanding writes, oldest first, in the order of their indices.
    flights: VecDeque<Flight>,
    /// Other writes in flight, whose indices were posted again.
    skipped: Option<Skipped>,
    /// First index that a broken set may still deliver.
    in_doubt_from: Option<u64>,
    /// `true` if the cursor has to go back.
    back: bool,
    /// Index at and above which no index was posted more than once.
    once_from: u64,
}

impl PeerProgress {
    /// Returns the first index that a fan-out write may still deliver.
    #[inline]
    fn first_under_way(&self) -> Option<u64> {
        let skipped = self.skipped.map(|skipped| skipped.first);
        let flying = self.flights.front().map(|flight| flight.first);
        [self.in_doubt_from, skipped, flying].into_iter().flatten().min()
    }
}

/// This process's end of its fan-out set.
#[derive(Debug)]
pub(super) struct FanoutSender {
    pub(super) set: FanoutSet,
    slow: bool,
    /// Number of rounds since a write completed, with others outstanding.
    waited: u32,
    patience: u32,
    /// State of each process.
    peers: Vec<PeerProgress>,
    mutant: Mutant,
}

impl FanoutSender {
    fn new(set: FanoutSet, config: &Config) -> Self {
        let flights = config.window as usize;
        let peer = || PeerProgress { flights: VecDeque::with_capacity(flights), ..PeerProgress::default() };
        FanoutSender {
            set,
            slow: false,
            waited: 0,
            patience: config.set_rounds,
            peers: config.everybody().iter().map(|_| peer()).collect(),
            mutant: config.mutant,
        }
    }

    /// Returns whether a write can be posted now.
    #[inline]
    pub(super) fn is_usable(&self) -> bool {
        !self.slow && self.set.can_post()
    }

    /// Returns whether a peer can get the next records through the set.
    #[inline]
    pub(super) fn reaches(&self, peer: ProcessId) -> bool {
        self.set.reaches(peer) && !self.goes_back(peer)
    }

    /// Returns whether the cursor of a peer has to go back. Nothing may be posted to it before.
    #[inline]
    pub(super) fn goes_back(&self, peer: ProcessId) -> bool {
        self.peers[peer.index()].back
    }

    /// Returns the first index that only the set carries to a peer, in a write that is not known to be done.
    #[inline]
    pub(super) fn alone_from(&self, peer: ProcessId) -> Option<u64> {
        self.peers[peer.index()].flights.front().map(|flight| flight.first)
    }

    /// Returns the first index that the set may still deliver to a peer, whether it was posted again or not.
    #[inline]
    pub(super) fn unfinished<F: Fabric>(&mut self, fabric: &F, peer: ProcessId) -> Option<u64> {
        let progress = &mut self.peers[peer.index()];
        if progress.in_doubt_from.is_some() && self.set.is_settled(fabric, peer) {
            progress.in_doubt_from = None;
        }
        if mutant!(self.mutant, PlaceReusedUnderSet) {
            return None;
        }
        progress.first_under_way()
    }

    /// Posts the write that is being built, which carries these indices. Returns whether the set accepted it.
    #[inline]
    pub(super) fn write<F: Fabric>(&mut self, fabric: &mut F, data: &[u8], indices: Range<u64>) -> bool {
        let Some(request) = self.set.post(fabric, data) else { return false };
        for target in self.set.targets() {
            let flight = Flight { request, first: indices.start, upto: indices.end };
            self.peers[target.peer.index()].flights.push_back(flight);
        }
        true
    }

    /// Processes a completion. Returns whether it belongs to this set.
    #[inline]
    pub(super) fn completed(&mut self, completion: &Completion) -> bool {
        let is_own = self.set.completed(completion);
        if is_own && completion.status == Status::Success {
            self.waited = 0;
        }
        is_own
    }

    /// Removes the writes to a peer that are done.
    #[inline]
    pub(super) fn forget_done(&mut self, peer: ProcessId) {
        let done = self.set.done();
        let progress = &mut self.peers[peer.index()];
        while progress.flights.front().is_some_and(|flight| flight.request <= done) {
            progress.flights.pop_front();
        }
        progress.skipped = progress.skipped.filter(|skipped| skipped.request > done);
    }

    /// Records that a peer has freed all indices below an index, when all indices below `next` have been broadcast.
    /// Returns whether that confirms a write.
    pub(super) fn freed(&mut self, peer: ProcessId, freed: u64, next: u64, window: u64) -> bool {
        let progress = &mut self.peers[peer.index()];
        let before = progress.flights.len();
        let once_from = progress.once_from;
        let is_there =
            |flight: &Flight| flight.upto <= freed && flight.first >= once_from && next <= flight.first + window;
        while progress.flights.front().is_some_and(is_there) {
            progress.flights.pop_front();
        }
        progress.flights.len() != before
    }

    /// Counts a round. Returns whether the set has become slow, so that cursors have to go back.
    #[inline]
    pub(super) fn tend(&mut self) -> bool {
        if self.set.is_idle() {
            (self.waited, self.slow) = (0, false);
            return false;
        }
        self.waited = self.waited.saturating_add(1);
        if self.waited <= self.patience || self.slow {
            return false;
        }
        self.slow = true;
        for progress in &mut self.peers {
            progress.back |= !progress.flights.is_empty();
        }
        true
    }

    /// Records that the cursor of a peer goes back from index `from`. Outstanding writes no longer count, although they
    /// may still land.
    pub(super) fn went_back(&mut self, peer: ProcessId, from: u64) {
        let progress = &mut self.peers[peer.index()];
        (progress.back, progress.once_from) = (false, progress.once_from.max(from));
        if let (Some(first), Some(last)) = (progress.flights.front(), progress.flights.back()) {
            let first = progress.skipped.map_or(first.first, |before| before.first.min(first.first));
            progress.skipped = Some(Skipped { request: last.request, first });
            progress.flights.clear();
        }
    }

    /// Joins a broken set again, and makes cursors go back to the indices that may not have arrived. All completions of
    /// the set must have been processed before.
    pub(super) fn mend<F: Fabric>(&mut self, fabric: &mut F) {
        (self.slow, self.waited) = (false, 0);
        for progress in &mut self.peers {
            progress.in_doubt_from = progress.first_under_way();
            progress.back |= !progress.flights.is_empty() && !mutant!(self.mutant, BrokenSetForgotten);
            progress.skipped = None;
            progress.flights.clear();
        }
        self.set.mend(fabric);
    }
}

#[cfg(test)]
mod tests {
    use stentor_fabric::{Opcode, QpId};

    use super::*;
    use crate::{FaultModel, Mode};

    const PEER: ProcessId = ProcessId(1);
    const WINDOW: u64 = 8;

    /// Creates a set with two outstanding writes to the peer: one of the indices 4 and 5, one of index 6.
    fn fanout() -> FanoutSender {
        let config = Config::new(4, Mode::Quorum(FaultModel::LyingSender), 1);
        let flights = [Flight { request: 1, first: 4, upto: 6 }, Flight { request: 2, first: 6, upto: 7 }];
        let set = FanoutSet::stand_in(config.processes, flights.len());
        let mut fanout = FanoutSender { patience: 2, ..FanoutSender::new(set, &config) };
        fanout.peers[PEER.index()].flights.extend(flights);
        fanout
    }

    fn complete(fanout: &mut FanoutSender, id: u64) {
        let (opcode, status) = (Opcode::Write, Status::Success);
        assert!(fanout.completed(&Completion { qp: QpId(0), id, opcode, status, bytes: 0, imm: None, tag: 0 }));
    }

    #[test]
    fn freeing_confirms_only_writes_posted_once_and_not_skipped() {
        let mut freed = fanout();
        assert!(!freed.freed(PEER, 5, 7, WINDOW) && freed.freed(PEER, 6, 7, WINDOW));
        assert_eq!((freed.alone_from(PEER), freed.freed(PEER, 7, 7, WINDOW)), (Some(6), true));
        assert_eq!(freed.alone_from(PEER), None);
        let mut posted_twice = fanout();
        posted_twice.peers[PEER.index()].once_from = 5;
        assert!(!posted_twice.freed(PEER, 7, 7, WINDOW), "the peer may have read the other copy of 4");
        let mut passed = fanout();
        assert!(passed.freed(PEER, 6, 4 + WINDOW, WINDOW));
        let mut passed = fanout();
        assert!(!passed.freed(PEER, 6, 5 + WINDOW, WINDOW), "a peer that saw 12 may have skipped 4");
    }

    #[test]
    fn slow_set_moves_cursors_back_and_waits_until_idle() {
        let mut fanout = fanout();
        assert_eq!([(); 4].map(|()| fanout.tend()), [false, false, true, false]);
        assert!(fanout.goes_back(PEER) && !fanout.goes_back(ProcessId(2)) && !fanout.is_usable());
        fanout.went_back(PEER, 7);
        assert_eq!((fanout.alone_from(PEER), fanout.goes_back(PEER)), (None, false));
        let progress = &fanout.peers[PEER.index()];
        assert_eq!((progress.skipped, progress.once_from), (Some(Skipped { request: 2, first: 4 }), 7));
        complete(&mut fanout, 1);
        fanout.forget_done(PEER);
        assert!(fanout.peers[PEER.index()].skipped.is_some() && !fanout.tend() && !fanout.is_usable());
        complete(&mut fanout, 2);
        fanout.forget_done(PEER);
        assert!(fanout.peers[PEER.index()].skipped.is_none() && !fanout.tend() && fanout.is_usable());
    }
}
