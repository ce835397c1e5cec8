//! Sends a client's messages through hardware multicast. A record that fits inline is one write to those members of the
//! destination groups that the client's fan-out set reaches, or several writes if the groups' rings are in different
//! laps. All other members, and longer records, are written through queue pairs, as without a set.
//!
//! # Invariants
//! - A record is written to a target either through the set or through a queue pair. The exception is a set that breaks
//!   before the write's completion: then the same bytes are also written to the same position through a queue pair.
//! - A position is reused for another record, in either way, only after the set's write of the last record there is
//!   done, or the target is settled ([`FanoutSet::is_settled`]).
//! - A target whose link broke is restarted only when no write of the set can land there any more.

use stentor_fabric::{Fabric, ProcessId, SetTarget};
use stentor_link::{FanoutSet, JoinedSets};

use super::outbound::Outbound;
use super::peer_link::PeerLink;
use super::{NodeError, SEND_DEPTH};
use crate::mutant::mutant;
use crate::{ClientId, Mutant, Topology};

/// Returns the sender and all processes of a client's fan-out set: the client and all members.
fn set_of(topology: &Topology, client: ClientId) -> (ProcessId, Vec<ProcessId>) {
    let sender = topology.client_process(client);
    (sender, std::iter::once(sender).chain((0..topology.all_members() as u16).map(ProcessId)).collect())
}

/// Joins the fan-out sets of all clients, in which a member receives copies.
pub(super) fn join_sets<F: Fabric>(fabric: &mut F, topology: &Topology) -> Result<JoinedSets, NodeError> {
    let mut sets = JoinedSets::default();
    for client in (0..topology.clients() as u16).map(ClientId) {
        let (sender, members) = set_of(topology, client);
        sets.join(fabric, sender, &members)?;
    }
    Ok(sets)
}

/// One copy of the record that is being written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Index of the ring.
    pub(super) ring: usize,
    /// Index of the target in the ring.
    pub(super) target: usize,
    /// Index of the target's link.
    pub(super) link: usize,
    /// The record's position in the ring.
    pub(super) position: u64,
}

/// A client's end of its fan-out set.
#[derive(Debug)]
pub(super) struct FanoutSender {
    pub(super) set: FanoutSet,
    /// Copies of the record that is being written.
    parts: Vec<Part>,
    /// The lap for which the record is sealed.
    lap: u64,
    words: usize,
    /// Number of copies that the network made.
    pub(super) copies: u64,
    mutant: Mutant,
}

impl FanoutSender {
    /// Joins a client's fan-out set. Returns `None` if the network makes no copies, or the cluster does not fit into a
    /// set.
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

    /// Returns whether a record sealed for this lap differs from the one that is being written.
    #[inline]
    pub(super) fn is_other(&self, lap: u64) -> bool {
        !self.parts.is_empty() && self.lap != lap
    }

    /// Adds a copy to the record that is being written, which is sealed for `lap` and has `words` words.
    #[inline]
    pub(super) fn add(&mut self, part: Part, to: SetTarget, lap: u64, words: usize) {
        (self.lap, self.words) = (lap, words);
        self.set.add(to);
        self.parts.push(part);
    }

    /// Writes the record to all targets that were added, through the set. If the set cannot take it, writes it to each
    /// over its link. Returns the number of posts.
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

    /// Rejoins the set after it broke and its completions were polled. The rings then write the records again that may
    /// not have arrived.
    pub(super) fn mend<F: Fabric>(&mut self, fabric: &mut F, rings: &mut [Outbound]) {
        let forgets = mutant!(self.mutant, BrokenSetForgotten);
        for ring in rings {
            ring.set_broke(self.set.done(), forgets);
        }
        self.set.mend(fabric);
    }

    /// Returns the state of the set's writes, which a ring checks before it reuses a position.
    #[inline]
    pub(super) fn completed_writes<'a, F: Fabric>(&'a self, fabric: &'a F) -> CompletedWrites<'a, F> {
        CompletedWrites { fabric, set: &self.set, mutant: self.mutant }
    }
}

/// A view of which writes of a set are complete.
pub(super) struct CompletedWrites<'a, F: Fabric> {
    fabric: &'a F,
    set: &'a FanoutSet,
    mutant: Mutant,
}

impl<F: Fabric> CompletedWrites<'_, F> {
    /// Returns the number up to which all writes are done.
    #[inline]
    pub(super) fn done(&self) -> u64 {
        self.set.done()
    }

    /// Returns whether no write of a broken set can still land at a peer.
    pub(super) fn is_settled(&self, peer: ProcessId) -> bool {
        self.set.is_settled(self.fabric, peer)
    }

    /// Returns whether the mutant that reuses positions at which writes of the set may still land is active.
    pub(super) fn is_ignored(&self) -> bool {
        mutant!(self.mutant, PlaceReusedUnderSet)
    }

    /// Returns whether the mutant that restarts targets at which writes of the set may still land is active.
    pub(super) fn is_ignored_at_start(&self) -> bool {
        mutant!(self.mutant, UnsettledStart)
    }
}
