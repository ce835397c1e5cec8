//! A client's first step by the network's own copies: one write to the members of all destination groups that the client's
//! set reaches; everybody else is written to by a queue pair, as without a set.
//!
//! # Invariants
//! - A record goes to a target by one way. Only if the set broke before its completion the same bytes go to the same place
//!   by a queue pair, at once.
//! - No place is written for another record, by any way, before the set's write that carried the last one there is done, or
//!   the target is settled ([`FanoutSet::is_settled`]).
//! - A target whose link broke is started again only when nothing of the set can land there any more.

use stentor_fabric::{Fabric, ProcessId, SetTarget};
use stentor_link::{FanoutSet, JoinedSets};

use super::outbound::Outbound;
use super::peer_link::PeerLink;
use super::{NodeError, SEND_DEPTH};
use crate::mutant::mutant;
use crate::{ClientId, Mutant, Topology};

/// The sender, and all members.
fn set_of(topology: &Topology, client: ClientId) -> (ProcessId, Vec<ProcessId>) {
    let sender = topology.client_process(client);
    (sender, std::iter::once(sender).chain((0..topology.all_members() as u16).map(ProcessId)).collect())
}

/// Joins the sets of all clients, in which a member gets copies.
pub(super) fn join_sets<F: Fabric>(fabric: &mut F, topology: &Topology) -> Result<JoinedSets, NodeError> {
    let mut sets = JoinedSets::default();
    for client in (0..topology.clients() as u16).map(ClientId) {
        let (sender, members) = set_of(topology, client);
        sets.join(fabric, sender, &members)?;
    }
    Ok(sets)
}

/// A copy of the record in work: whose, and where in which ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Which ring.
    pub(super) ring: usize,
    /// Which target of the ring.
    pub(super) target: usize,
    /// The target's link.
    pub(super) link: usize,
    /// The record's position in the ring.
    pub(super) position: u64,
}

/// A client's end of its set.
#[derive(Debug)]
pub(super) struct FanoutSender {
    pub(super) set: FanoutSet,
    /// What the copies of the record in work are.
    parts: Vec<Part>,
    /// The lap that it is sealed for, and its words.
    lap: u64,
    words: usize,
    /// Copies that the network made.
    pub(super) copies: u64,
    mutant: Mutant,
}

impl FanoutSender {
    /// Joins the set of a client, if the network makes copies here and the cluster fits into a set.
    pub(super) fn join<F: Fabric>(
        fabric: &mut F,
        topology: &Topology,
        client: ClientId,
        mutant: Mutant,
    ) -> Result<Option<Self>, NodeError> {
        let (_, members) = set_of(topology, client);
        let set = FanoutSet::join(fabric, &members, SEND_DEPTH)?;
        let parts = Vec::with_capacity(members.len());
        Ok(set.map(|set| FanoutSender { set, parts, lap: 0, words: 0, copies: 0, mutant }))
    }

    /// Whether a record that is sealed for this lap is another one than that in work.
    #[inline]
    pub(super) fn is_other(&self, lap: u64) -> bool {
        !self.parts.is_empty() && self.lap != lap
    }

    /// Adds a copy to the record in work, which has so many `words` and is sealed for this lap.
    #[inline]
    pub(super) fn add(&mut self, part: Part, to: SetTarget, lap: u64, words: usize) {
        (self.lap, self.words) = (lap, words);
        self.set.add(to);
        self.parts.push(part);
    }

    /// Writes the record in work to all that were added: by the set, or if it cannot, to each by its link. Returns the
    /// number of posts.
    pub(super) fn write<F: Fabric>(
        &mut self,
        fabric: &mut F,
        links: &mut [PeerLink],
        rings: &mut [Outbound],
        record: &[u64],
    ) -> u64 {
        if self.parts.is_empty() {
            return 0;
        }
        let data = zerocopy::IntoBytes::as_bytes(&record[..self.words]);
        let mut writes = 1;
        if let Some(request) = self.set.post(fabric, data) {
            self.copies += self.parts.len() as u64;
            for part in &self.parts {
                rings[part.ring].fanned(part.target, request, part.position);
            }
        } else {
            writes = 0;
            for (part, to) in self.parts.iter().zip(self.set.targets()) {
                writes += u64::from(links[part.link].write_inline(fabric, data, to.to, false).is_some());
            }
        }
        self.set.begin();
        self.parts.clear();
        writes
    }

    /// The set is broken, and its completions were polled: joins again, and has the rings write what may not have arrived.
    pub(super) fn mend<F: Fabric>(&mut self, fabric: &mut F, rings: &mut [Outbound]) {
        let forgets = mutant!(self.mutant, BrokenSetForgotten);
        for ring in rings {
            ring.set_broke(self.set.done(), forgets);
        }
        self.set.mend(fabric);
    }

    /// What a ring asks before it writes to a place again.
    #[inline]
    pub(super) fn completed_writes<'a, F: Fabric>(&'a self, fabric: &'a F) -> CompletedWrites<'a, F> {
        CompletedWrites { fabric, set: &self.set, mutant: self.mutant }
    }
}

/// What is over of a set's writes.
pub(super) struct CompletedWrites<'a, F: Fabric> {
    fabric: &'a F,
    set: &'a FanoutSet,
    mutant: Mutant,
}

impl<F: Fabric> CompletedWrites<'_, F> {
    /// All writes up to this number are done.
    #[inline]
    pub(super) fn done(&self) -> u64 {
        self.set.done()
    }

    /// Whether nothing of a broken set's writes can land at a peer any more.
    pub(super) fn is_settled(&self, peer: ProcessId) -> bool {
        self.set.is_settled(self.fabric, peer)
    }

    /// Planted: whether places are written again without asking.
    pub(super) fn is_ignored(&self) -> bool {
        mutant!(self.mutant, PlaceReusedUnderSet)
    }

    /// Planted: whether targets are started again without asking.
    pub(super) fn is_ignored_at_start(&self) -> bool {
        mutant!(self.mutant, UnsettledStart)
    }
}
