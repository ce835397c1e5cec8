//! A client's first step by the network's own copies: one write to the members of all destination groups that the client's
//! set reaches; everybody else is written to by a queue pair, as without a set.
//!
//! # Invariants
//! - A record goes to a target by one way. Only if the set broke before its completion the same bytes go to the same place
//!   by a queue pair, at once.
//! - No place is written for another record, by any way, before the set's write that carried the last one there is done, or
//!   the target is settled ([`Fabric::set_settled`]).
//! - A target whose link broke is started again only when nothing of the set can land there any more.
//! - Nobody waits for the set to be there, or to come back.

use stentor_fabric::{
    Completion, ConnectError, Event, Fabric, PostError, ProcessId, QpConfig, QpId, QpState, SendQueue, SetSpec,
    SetTarget, SetWrite, Status,
};

use super::outbound::Outbound;
use super::posting::Link;
use super::{NodeError, SEND_DEPTH};
use crate::plant::planted;
use crate::{ClientId, Plant, Topology};

/// Joins the set of a client, if the network makes copies here and the cluster fits into a set.
pub(super) fn join<F: Fabric>(
    fabric: &mut F,
    topology: &Topology,
    client: ClientId,
    depth: u32,
) -> Result<Option<QpId>, NodeError> {
    let sender = topology.client_process(client);
    let members: Vec<_> = std::iter::once(sender).chain((0..topology.all_members() as u16).map(ProcessId)).collect();
    if !fabric.capabilities().hardware_multicast {
        return Ok(None);
    }
    let depth = depth.min(fabric.capabilities().max_send_depth);
    match fabric.join_set(SetSpec { number: sender.0, members: &members }, QpConfig::reliable(depth, 0)) {
        Ok(set) => Ok(Some(set)),
        // The fabric has said so.
        Err(ConnectError::Set { .. }) if members.len() > SetSpec::MOST => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The sets in which a member gets copies.
#[derive(Debug, Default)]
pub(super) struct Joined(Vec<QpId>);

impl Joined {
    /// Of all clients.
    pub(super) fn new<F: Fabric>(fabric: &mut F, topology: &Topology) -> Result<Self, NodeError> {
        let clients = (0..topology.clients() as u16).map(ClientId);
        let joined = clients.map(|client| join(fabric, topology, client, 1)).collect::<Result<Vec<_>, _>>()?;
        Ok(Joined(joined.into_iter().flatten().collect()))
    }

    /// Joins again where a set broke. What fails is tried again.
    pub(super) fn check<F: Fabric>(&self, fabric: &mut F) {
        for set in &self.0 {
            if fabric.state(*set) == QpState::Error {
                let _ = fabric.reset(*set);
            }
        }
    }
}

/// A copy of the record in work: whose, and where in which ring.
#[derive(Clone, Copy, Debug)]
struct Part {
    ring: usize,
    target: usize,
    link: usize,
    position: u64,
}

/// A client's end of its set.
#[derive(Debug)]
pub(super) struct Fan {
    qp: QpId,
    queue: SendQueue,
    ready: bool,
    /// By link: whether its peer gets copies.
    reached: Vec<bool>,
    /// The copies of the record in work, and what they are.
    targets: Vec<SetTarget>,
    parts: Vec<Part>,
    /// The lap that it is sealed for, and its words.
    lap: u64,
    words: usize,
    copies: u64,
    plant: Plant,
}

impl Fan {
    pub(super) fn new<F: Fabric>(fabric: &F, qp: QpId, links: usize, plant: Plant) -> Self {
        Fan {
            qp,
            queue: SendQueue::new(SEND_DEPTH.min(fabric.capabilities().max_send_depth)),
            ready: false,
            reached: vec![false; links],
            targets: Vec::with_capacity(links),
            parts: Vec::with_capacity(links),
            lap: 0,
            words: 0,
            copies: 0,
            plant,
        }
    }

    /// Copies that the network made.
    pub(super) fn copies(&self) -> u64 {
        self.copies
    }

    /// Whether a write can be posted now.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.ready && self.queue.free() > 0
    }

    /// Whether a record that is sealed for this lap is another one than that in work.
    #[inline]
    pub(super) fn is_other(&self, lap: u64) -> bool {
        !self.parts.is_empty() && self.lap != lap
    }

    #[inline]
    pub(super) fn reaches(&self, link: usize) -> bool {
        self.reached[link]
    }

    /// Another copy of the record in work.
    #[inline]
    pub(super) fn take(
        &mut self,
        (ring, target, link): (usize, usize, usize),
        to: SetTarget,
        position: u64,
        (lap, words): (u64, usize),
    ) {
        (self.lap, self.words) = (lap, words);
        self.targets.push(to);
        self.parts.push(Part { ring, target, link, position });
    }

    /// Writes the record in work to all who were taken: by the set, or if it cannot, to each by its link. Returns the number
    /// of posts.
    pub(super) fn write<F: Fabric>(
        &mut self,
        fabric: &mut F,
        links: &mut [Link],
        rings: &mut [Outbound],
        record: &[u64],
    ) -> u64 {
        if self.parts.is_empty() {
            return 0;
        }
        let data = zerocopy::IntoBytes::as_bytes(&record[..self.words]);
        let id = self.queue.next_id();
        // Signalled, each: its places wait for it.
        let posted = fabric.post_set(self.qp, SetWrite { id, data, targets: &self.targets, signalled: true });
        let mut writes = 1;
        if posted.is_ok() {
            let request = self.queue.posted(true);
            self.copies += self.parts.len() as u64;
            for part in &self.parts {
                rings[part.ring].fanned(part.target, request, part.position);
            }
        } else {
            // If it broke, the event that says so is still to come.
            self.ready &= matches!(posted, Err(PostError::SendQueueFull { .. }));
            writes = 0;
            for (part, to) in self.parts.iter().zip(&self.targets) {
                writes += u64::from(links[part.link].write_inline(fabric, data, to.to, false).is_some());
            }
        }
        self.targets.clear();
        self.parts.clear();
        writes
    }

    /// Whether a completion is one of this set's; takes it.
    pub(super) fn completed(&mut self, completion: &Completion) -> bool {
        if completion.qp != self.qp {
            return false;
        }
        if completion.status == Status::Success {
            self.queue.completed(completion.id);
        }
        true
    }

    /// Whether an event is one of this set's; takes it. When it broke, completions of it were polled.
    pub(super) fn happened<F: Fabric>(&mut self, fabric: &mut F, event: &Event, links: &[Link]) -> bool {
        match *event {
            Event::Connected { qp, .. } if qp == self.qp => {
                self.ready = fabric.state(qp) == QpState::Ready;
                for (reached, link) in self.reached.iter_mut().zip(links) {
                    *reached = self.ready && fabric.set_reaches(qp, link.peer);
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

    /// The set is broken: joins again, and has the rings write what may not have arrived.
    pub(super) fn mend<F: Fabric>(&mut self, fabric: &mut F, rings: &mut [Outbound]) {
        self.ready = false;
        let forgets = planted!(self.plant, BrokenSetForgotten);
        for ring in rings {
            ring.fan_broke(self.queue.done(), forgets);
        }
        // Refused only while something is short; it is asked again until it works.
        let _ = fabric.reset(self.qp);
        self.queue.completed(u64::MAX);
    }

    /// What a ring asks before it writes to a place again.
    #[inline]
    pub(super) fn past<'a, F: Fabric>(&self, fabric: &'a F) -> Past<'a, F> {
        Past { fabric, set: self.qp, done: self.queue.done(), plant: self.plant }
    }
}

/// What is over of a set's writes.
pub(super) struct Past<'a, F: Fabric> {
    fabric: &'a F,
    set: QpId,
    pub(super) done: u64,
    plant: Plant,
}

impl<F: Fabric> Past<'_, F> {
    /// Whether nothing of a broken set's writes can land at a peer any more.
    pub(super) fn is_settled(&self, peer: ProcessId) -> bool {
        self.fabric.set_settled(self.set, peer)
    }

    /// Planted: whether places are written again without asking.
    pub(super) fn is_ignored(&self) -> bool {
        planted!(self.plant, PlaceReusedUnderSet)
    }

    /// Planted: whether targets are started again without asking.
    pub(super) fn is_ignored_at_start(&self) -> bool {
        planted!(self.plant, UnsettledStart)
    }
}
