//! Own broadcasts by the network's own copies: one write to all who are to get the same next records and whom the set of
//! this process reaches; everybody else, and everybody where there is no set, is written to by a queue pair.
//!
//! The set is *away* (not joined, or broken), *ready*, or *slow*: ready, but a write of it has been under way for longer than
//! this process waits. A slow set is not written to until all its writes are done, or it broke and came back.
//!
//! A set's write is complete when its slowest member has it, and one that stands still holds it up for as long as the fabric
//! is patient. Three things keep that from stopping the broadcast: a peer that frees an index has got it, whatever the others
//! do; where the set is slow, or broke, what it alone carried goes by queue pairs as well; and who frees nothing is left
//! behind by flow control, as without a set.
//!
//! A sender that lies gains nothing: it could always write to each what it wanted, and what a set copies is judged by its
//! receivers as what a queue pair brings.
//!
//! # Invariants
//! - To a peer each index goes by one way, in order. Only what a slow or broken set carried, or what a link broke under,
//!   is posted again: the cursor goes back to what is known to be written there, and never while a write of the queue pair
//!   is on its way.
//! - "Written" is what is done by both ways: everything below the first index that only an unfinished write of the set
//!   carries, and below the first that the queue pair has not reported.
//! - No slot of a peer is written for another index, by either way, while a write of the set that carried the last one may
//!   still land there: before it is done, or is confirmed by the peer, or the peer is settled ([`Fabric::set_settled`]).
//! - A peer confirms by freeing only what was posted to it once, and not after something a window later was broadcast: then it
//!   may have skipped it.
//! - Nobody waits for the set to be there, or to come back.

use std::collections::VecDeque;
use std::ops::Range;

use stentor_fabric::{Completion, Fabric, ProcessId, Status};
use stentor_link::{FanoutSet, JoinedSets};

use super::NodeError;
use super::peer::SEND_DEPTH;
use crate::{Config, Mutant, mutant};

/// The sets of a broadcast, if the network makes copies here and the processes fit into one: the own one, and those of the
/// other senders.
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

/// A write of the set that brings a peer some indices which nothing else does.
#[derive(Clone, Copy, Debug)]
struct Flight {
    request: u64,
    first: u64,
    upto: u64,
}

/// Indices of a set's writes that are under way although they were posted again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Skipped {
    /// The last of the writes.
    request: u64,
    /// The first of the indices.
    first: u64,
}

/// What the set has under way to one peer.
#[derive(Clone, Debug, Default)]
struct PeerProgress {
    /// Oldest first, in the order of their indices.
    flights: VecDeque<Flight>,
    /// What else is under way.
    skipped: Option<Skipped>,
    /// The first index that a broken set may still bring.
    in_doubt_from: Option<u64>,
    /// The cursor has to go back.
    back: bool,
    /// Nothing from here on was posted more than once.
    once_from: u64,
}

impl PeerProgress {
    /// The first index that some write of the set may still bring.
    #[inline]
    fn first_under_way(&self) -> Option<u64> {
        let skipped = self.skipped.map(|skipped| skipped.first);
        let flying = self.flights.front().map(|flight| flight.first);
        [self.in_doubt_from, skipped, flying].into_iter().flatten().min()
    }
}

/// This process's end of its set.
#[derive(Debug)]
pub(super) struct FanoutSender {
    pub(super) set: FanoutSet,
    slow: bool,
    /// Rounds since a write was done, with others under way.
    waited: u32,
    patience: u32,
    /// By process.
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

    /// Whether a write can be posted now.
    #[inline]
    pub(super) fn is_usable(&self) -> bool {
        !self.slow && self.set.can_post()
    }

    /// Whether a peer can get the next records by the set.
    #[inline]
    pub(super) fn reaches(&self, peer: ProcessId) -> bool {
        self.set.reaches(peer) && !self.goes_back(peer)
    }

    /// Whether the cursor of a peer has to go back: nothing is posted there before.
    #[inline]
    pub(super) fn goes_back(&self, peer: ProcessId) -> bool {
        self.peers[peer.index()].back
    }

    /// The first index that only the set brings to a peer, in a write that is not known to be done.
    #[inline]
    pub(super) fn alone_from(&self, peer: ProcessId) -> Option<u64> {
        self.peers[peer.index()].flights.front().map(|flight| flight.first)
    }

    /// The first index that the set may still bring to a peer, for whatever reason it was posted.
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

    /// Posts the write in work, which brings these indices. Whether the set took it.
    #[inline]
    pub(super) fn write<F: Fabric>(&mut self, fabric: &mut F, data: &[u8], indices: Range<u64>) -> bool {
        let Some(request) = self.set.post(fabric, data) else { return false };
        for target in self.set.targets() {
            let flight = Flight { request, first: indices.start, upto: indices.end };
            self.peers[target.peer.index()].flights.push_back(flight);
        }
        true
    }

    /// Whether a completion is one of this set's; takes it.
    #[inline]
    pub(super) fn completed(&mut self, completion: &Completion) -> bool {
        let is_own = self.set.completed(completion);
        if is_own && completion.status == Status::Success {
            self.waited = 0;
        }
        is_own
    }

    /// Forgets the writes to a peer that are done.
    #[inline]
    pub(super) fn forget_done(&mut self, peer: ProcessId) {
        let done = self.set.done();
        let progress = &mut self.peers[peer.index()];
        while progress.flights.front().is_some_and(|flight| flight.request <= done) {
            progress.flights.pop_front();
        }
        progress.skipped = progress.skipped.filter(|skipped| skipped.request > done);
    }

    /// A peer has freed what is below an index, and what is below `next` was broadcast. Whether that is news.
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

    /// A round has passed. Whether the set is slow from now on, and cursors have to go back.
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

    /// The cursor of a peer goes back from here: what is under way counts no more, and may land all the same.
    pub(super) fn went_back(&mut self, peer: ProcessId, from: u64) {
        let progress = &mut self.peers[peer.index()];
        (progress.back, progress.once_from) = (false, progress.once_from.max(from));
        if let (Some(first), Some(last)) = (progress.flights.front(), progress.flights.back()) {
            let first = progress.skipped.map_or(first.first, |before| before.first.min(first.first));
            progress.skipped = Some(Skipped { request: last.request, first });
            progress.flights.clear();
        }
    }

    /// The set is broken, and its completions were taken: joins again, and has cursors go back to what may not have arrived.
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

    /// With two writes under way to the peer, of the indices 4 and 5, and 6.
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
    fn a_peer_confirms_what_was_posted_once_and_what_it_cannot_have_skipped() {
        let mut freed = fanout();
        assert!(!freed.freed(PEER, 5, 7, WINDOW) && freed.freed(PEER, 6, 7, WINDOW));
        assert_eq!((freed.alone_from(PEER), freed.freed(PEER, 7, 7, WINDOW)), (Some(6), true));
        assert_eq!(freed.alone_from(PEER), None);
        let mut posted_twice = fanout();
        posted_twice.peers[PEER.index()].once_from = 5;
        assert!(!posted_twice.freed(PEER, 7, 7, WINDOW), "what it has read may be the other copy of 4");
        let mut passed = fanout();
        assert!(passed.freed(PEER, 6, 4 + WINDOW, WINDOW));
        let mut passed = fanout();
        assert!(!passed.freed(PEER, 6, 5 + WINDOW, WINDOW), "12 was broadcast: who saw that may have skipped 4");
    }

    #[test]
    fn who_waits_too_long_goes_back_and_waits_for_all_that_is_under_way() {
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
