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

use stentor_fabric::{
    Completion, ConnectError, Event, Fabric, PostError, ProcessId, QpConfig, QpId, QpState, RemoteSpan, SendQueue,
    SetSpec, SetTarget, SetWrite, Status,
};

use super::NodeError;
use super::link::SEND_DEPTH;
use crate::{Config, Plant, planted};

/// The sets of a broadcast, if the network makes copies here and the processes fit into one: by sender.
pub(super) fn join<F: Fabric>(fabric: &mut F, config: &Config) -> Result<Vec<QpId>, NodeError> {
    let (me, members): (_, Vec<ProcessId>) = (fabric.me(), config.everybody().iter().collect());
    if !fabric.capabilities().hardware_multicast {
        return Ok(Vec::new());
    }
    let mut sets = Vec::with_capacity(members.len());
    for sender in &members {
        // Who receives posts nothing.
        let depth = if *sender == me { depth(fabric) } else { 1 };
        let spec = SetSpec { number: sender.0, members: &members };
        match fabric.join_set(spec, QpConfig::reliable(depth, 0)) {
            Ok(set) => sets.push(set),
            // The fabric has said so.
            Err(ConnectError::Set { .. }) if members.len() > SetSpec::MOST => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sets)
}

fn depth<F: Fabric>(fabric: &F) -> u32 {
    SEND_DEPTH.min(fabric.capabilities().max_send_depth)
}

/// A write of the set that brings a peer some indices which nothing else does.
#[derive(Clone, Copy, Debug)]
struct Flight {
    request: u64,
    first: u64,
    upto: u64,
}

/// What the set has under way to one peer.
#[derive(Clone, Debug, Default)]
struct Course {
    reached: bool,
    /// Oldest first, in the order of their indices.
    flights: VecDeque<Flight>,
    /// What else is under way, of indices that were posted again: the last request, the first index.
    waived: Option<(u64, u64)>,
    /// The first index that a broken set may still bring.
    haunted: Option<u64>,
    /// The cursor has to go back.
    back: bool,
    /// Nothing from here on was posted more than once.
    once_from: u64,
}

/// This process's end of its set.
#[derive(Debug)]
pub(super) struct Fan {
    qp: QpId,
    queue: SendQueue,
    ready: bool,
    slow: bool,
    /// Rounds since a write was done, with others under way.
    waited: u32,
    patience: u32,
    /// The copies of the write in work.
    targets: Vec<SetTarget>,
    /// By process.
    courses: Vec<Course>,
    plant: Plant,
}

impl Fan {
    pub(super) fn new<F: Fabric>(fabric: &F, config: &Config, qp: QpId) -> Self {
        let flights = config.window as usize;
        let course = || Course { flights: VecDeque::with_capacity(flights), ..Course::default() };
        Fan {
            qp,
            queue: SendQueue::new(depth(fabric)),
            ready: false,
            slow: false,
            waited: 0,
            patience: config.set_rounds,
            targets: Vec::with_capacity(config.processes),
            courses: config.everybody().iter().map(|_| course()).collect(),
            plant: config.plant,
        }
    }

    /// Whether a write can be posted now.
    #[inline]
    pub(super) fn is_usable(&self) -> bool {
        self.ready && !self.slow && self.queue.free() > 0
    }

    /// Whether a peer can get the next records by the set.
    #[inline]
    pub(super) fn reaches(&self, peer: ProcessId) -> bool {
        let course = &self.courses[peer.index()];
        course.reached && !course.back
    }

    /// Whether the cursor of a peer has to go back: nothing is posted there before.
    #[inline]
    pub(super) fn goes_back(&self, peer: ProcessId) -> bool {
        self.courses[peer.index()].back
    }

    /// The first index that only the set brings to a peer, in a write that is not known to be done.
    #[inline]
    pub(super) fn alone_from(&self, peer: ProcessId) -> Option<u64> {
        self.courses[peer.index()].flights.front().map(|flight| flight.first)
    }

    /// The first index that the set may still bring to a peer, for whatever reason it was posted.
    #[inline]
    pub(super) fn unfinished<F: Fabric>(&mut self, fabric: &F, peer: ProcessId) -> Option<u64> {
        let course = &mut self.courses[peer.index()];
        if course.haunted.is_some() && fabric.set_settled(self.qp, peer) {
            course.haunted = None;
        }
        if planted!(self.plant, PlaceReusedUnderSet) {
            return None;
        }
        let waived = course.waived.map(|(_, first)| first);
        let flying = course.flights.front().map(|flight| flight.first);
        [course.haunted, waived, flying].into_iter().flatten().min()
    }

    /// Begins a write.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.targets.clear();
    }

    /// A copy of the write in work.
    #[inline]
    pub(super) fn take(&mut self, peer: ProcessId, to: RemoteSpan) {
        self.targets.push(SetTarget { peer, to });
    }

    /// The copies of the write in work.
    #[inline]
    pub(super) fn taken(&self) -> impl Iterator<Item = ProcessId> {
        self.targets.iter().map(|target| target.peer)
    }

    /// Posts the write in work, which brings these indices. Whether the set took it.
    #[inline]
    pub(super) fn write<F: Fabric>(&mut self, fabric: &mut F, data: &[u8], (first, upto): (u64, u64)) -> bool {
        let id = self.queue.next_id();
        // Signalled, each: its slots wait for it.
        let posted = fabric.post_set(self.qp, SetWrite { id, data, targets: &self.targets, signalled: true });
        if posted.is_err() {
            // If it broke, the event that says so is still to come.
            self.ready &= matches!(posted, Err(PostError::SendQueueFull { .. }));
            return false;
        }
        let request = self.queue.posted(true);
        for target in &self.targets {
            self.courses[target.peer.index()].flights.push_back(Flight { request, first, upto });
        }
        true
    }

    /// Whether a completion is one of this set's; takes it.
    #[inline]
    pub(super) fn completed(&mut self, completion: &Completion) -> bool {
        if completion.qp != self.qp {
            return false;
        }
        if completion.status == Status::Success {
            self.queue.completed(completion.id);
            self.waited = 0;
        }
        true
    }

    #[inline]
    fn is_idle(&self) -> bool {
        self.queue.done() + 1 == self.queue.next_id()
    }

    /// Forgets the writes to a peer that are done.
    #[inline]
    pub(super) fn forget_done(&mut self, peer: ProcessId) {
        let done = self.queue.done();
        let course = &mut self.courses[peer.index()];
        while course.flights.front().is_some_and(|flight| flight.request <= done) {
            course.flights.pop_front();
        }
        course.waived = course.waived.filter(|(request, _)| *request > done);
    }

    /// A peer has freed what is below an index, and what is below `next` was broadcast. Whether that is news.
    pub(super) fn freed(&mut self, peer: ProcessId, freed: u64, (next, window): (u64, u64)) -> bool {
        let course = &mut self.courses[peer.index()];
        let before = course.flights.len();
        let once_from = course.once_from;
        let is_there =
            |flight: &Flight| flight.upto <= freed && flight.first >= once_from && next <= flight.first + window;
        while course.flights.front().is_some_and(is_there) {
            course.flights.pop_front();
        }
        course.flights.len() != before
    }

    /// A round has passed. Whether the set is slow from now on, and cursors have to go back.
    #[inline]
    pub(super) fn tend(&mut self) -> bool {
        if self.is_idle() {
            (self.waited, self.slow) = (0, false);
            return false;
        }
        self.waited = self.waited.saturating_add(1);
        if self.waited <= self.patience || self.slow {
            return false;
        }
        self.slow = true;
        for course in &mut self.courses {
            course.back |= !course.flights.is_empty();
        }
        true
    }

    /// The cursor of a peer goes back from here: what is under way counts no more, and may land all the same.
    pub(super) fn went_back(&mut self, peer: ProcessId, from: u64) {
        let course = &mut self.courses[peer.index()];
        (course.back, course.once_from) = (false, course.once_from.max(from));
        if let (Some(first), Some(last)) = (course.flights.front(), course.flights.back()) {
            let before = course.waived.map_or(first.first, |(_, before)| before.min(first.first));
            course.waived = Some((last.request, before));
            course.flights.clear();
        }
    }

    /// Whether an event is one of this set's; takes it.
    pub(super) fn happened<F: Fabric>(&mut self, fabric: &F, event: &Event) -> bool {
        match *event {
            Event::Connected { qp, .. } if qp == self.qp => {
                self.ready = fabric.state(qp) == QpState::Ready;
                for (peer, course) in self.courses.iter_mut().enumerate() {
                    course.reached = self.ready && fabric.set_reaches(qp, ProcessId(peer as u16));
                }
                true
            }
            Event::Disconnected { qp, .. } => qp == self.qp,
            _ => false,
        }
    }

    #[inline]
    pub(super) fn is_broken<F: Fabric>(&self, fabric: &F) -> bool {
        fabric.state(self.qp) == QpState::Error
    }

    /// The set is broken, and its completions were taken: joins again, and has cursors go back to what may not have arrived.
    pub(super) fn mend<F: Fabric>(&mut self, fabric: &mut F) {
        (self.ready, self.slow, self.waited) = (false, false, 0);
        for course in &mut self.courses {
            let waived = course.waived.take().map(|(_, first)| first);
            let flying = course.flights.front().map(|flight| flight.first);
            course.haunted = [course.haunted, waived, flying].into_iter().flatten().min();
            course.back |= flying.is_some() && !planted!(self.plant, BrokenSetForgotten);
            course.flights.clear();
        }
        // Refused only while something is short; it is asked again until it works.
        let _ = fabric.reset(self.qp);
        self.queue.completed(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FaultModel, Mode};

    const PEER: ProcessId = ProcessId(1);
    const WINDOW: u64 = 8;

    /// With two writes under way to the peer, of the indices 4 and 5, and 6.
    fn fan() -> Fan {
        let config = Config::new(4, Mode::Quorum(FaultModel::LyingSender), 1);
        let flights = [Flight { request: 1, first: 4, upto: 6 }, Flight { request: 2, first: 6, upto: 7 }];
        let mut courses = vec![Course::default(); config.processes];
        courses[PEER.index()].flights.extend(flights);
        let mut queue = SendQueue::new(8);
        flights.iter().for_each(|_| _ = queue.posted(true));
        let (targets, plant) = (Vec::new(), config.plant);
        Fan { qp: QpId(0), queue, ready: true, slow: false, waited: 0, patience: 2, targets, courses, plant }
    }

    #[test]
    fn a_peer_confirms_what_was_posted_once_and_what_it_cannot_have_skipped() {
        let mut freed = fan();
        assert!(!freed.freed(PEER, 5, (7, WINDOW)) && freed.freed(PEER, 6, (7, WINDOW)));
        assert_eq!((freed.alone_from(PEER), freed.freed(PEER, 7, (7, WINDOW))), (Some(6), true));
        assert_eq!(freed.alone_from(PEER), None);
        let mut posted_twice = fan();
        posted_twice.courses[PEER.index()].once_from = 5;
        assert!(!posted_twice.freed(PEER, 7, (7, WINDOW)), "what it has read may be the other copy of 4");
        let mut passed = fan();
        assert!(passed.freed(PEER, 6, (4 + WINDOW, WINDOW)));
        let mut passed = fan();
        assert!(!passed.freed(PEER, 6, (5 + WINDOW, WINDOW)), "12 was broadcast: who saw that may have skipped 4");
    }

    #[test]
    fn who_waits_too_long_goes_back_and_waits_for_all_that_is_under_way() {
        let mut fan = fan();
        assert_eq!([(); 4].map(|()| fan.tend()), [false, false, true, false]);
        assert!(fan.goes_back(PEER) && !fan.goes_back(ProcessId(2)) && !fan.is_usable());
        fan.went_back(PEER, 7);
        assert_eq!((fan.alone_from(PEER), fan.goes_back(PEER)), (None, false));
        let course = &fan.courses[PEER.index()];
        assert_eq!((course.waived, course.once_from), (Some((2, 4)), 7));
        fan.queue.completed(1);
        fan.forget_done(PEER);
        assert!(fan.courses[PEER.index()].waived.is_some() && !fan.tend() && !fan.is_usable());
        fan.queue.completed(2);
        fan.forget_done(PEER);
        assert!(fan.courses[PEER.index()].waived.is_none() && !fan.tend() && fan.is_usable());
    }
}
