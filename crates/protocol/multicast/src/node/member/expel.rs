//! How a member goes on while others stand still: see [`pace`](crate::node::pace).
//!
//! A member writes to each other member in a ring of its own, and as a leader to all followers in one. The first holds up what goes to
//! that member, which waits in its outbox; the second holds up everybody. Both are looked at, and both connections end.

use std::time::Duration;

use stentor_fabric::memory::LINE_WORDS;
use stentor_fabric::{Fabric, ProcessId};

use super::Member;
use crate::mutant::mutant;
use crate::node::pace::{Patience, expelled};

/// Whom a member waits for no more.
#[derive(Debug, Default)]
pub(super) struct Expelling {
    patience: Patience,
    /// Members that were expelled and have not come back.
    members: Vec<ProcessId>,
    count: u64,
    /// Those of a group: kept for its memory.
    counted: Vec<(u64, bool, usize)>,
}

impl<F: Fabric> Member<F> {
    /// Sets for how long another member may free nothing of what is written to it, while a majority of its group does, before this
    /// member goes on without it; [`EXPEL_AFTER`](crate::EXPEL_AFTER) if it is not set. If there is no room for more, a tenth of
    /// that is enough.
    pub fn set_expel_after(&mut self, lag: Duration) {
        self.recovery.expelling.patience = Patience::new(lag);
    }

    /// Returns the members that this one expelled and that have not come back: they hold nobody up, and get what they missed
    /// from their group.
    pub fn expelled(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.recovery.expelling.members.iter().copied()
    }

    /// Returns how often this member expelled another one.
    #[must_use]
    pub fn expulsions(&self) -> u64 {
        self.recovery.expelling.count
    }

    /// Expels whoever stands still, of each group at most a minority.
    pub(super) fn expel_standing(&mut self, now: Duration) {
        let step = self.recovery.expelling.patience.look(now);
        let Member { fabric, peers, streams, recovery, outputs, .. } = self;
        recovery.expelling.members.retain(|member| !peers[member.index()].as_ref().is_some_and(|peer| peer.connected));
        for (peer, waiting) in peers.iter_mut().zip(&outputs.boxes) {
            let Some(peer) = peer else { continue };
            let (quiet, lap) = (peer.outbound.quiet_cells(), peer.outbound.lap_cells());
            peer.outbound.look(fabric, step, quiet, 0);
            if !peer.connected && (waiting.len() / LINE_WORDS) as u64 > lap {
                // It was never there: what it missed is said when it comes.
                peer.outbound.targets[0].give_up();
            }
        }
        let quiet = streams.outbound.quiet_cells();
        streams.outbound.look(fabric, step, quiet, 0);
        if mutant!(self.mutant, NobodyExpelled) {
            return;
        }
        let topology = self.topology.clone();
        for group in topology.group_ids() {
            let mut counted = std::mem::take(&mut self.recovery.expelling.counted);
            counted.clear();
            // Whoever does not stand is ahead of whoever does: rings to different members are not compared.
            let members = topology.members(group).filter(|process| self.is_there(*process));
            counted.extend(members.map(|process| {
                let stands = self.stands(process);
                (u64::from(!stands), stands, process.index())
            }));
            for process in expelled(&mut counted, topology.majority(group) as usize) {
                self.expel(ProcessId(process as u16));
            }
            self.recovery.expelling.counted = counted;
        }
    }

    /// Whether another member is connected; this one is.
    fn is_there(&self, process: ProcessId) -> bool {
        self.peers[process.index()].as_ref().is_none_or(|peer| peer.connected)
    }

    /// Whether another member frees nothing.
    fn stands(&self, process: ProcessId) -> bool {
        let Some(peer) = &self.peers[process.index()] else { return false };
        let patience = &self.recovery.expelling.patience;
        let (control, stream) = (&peer.outbound, &self.streams.outbound);
        let follows = stream.target_of(process).filter(|_| peer.streaming.is_some());
        control.stands(0, patience, control.is_full(&self.links))
            || follows.is_some_and(|target| stream.stands(target, patience, stream.is_full(&self.links)))
    }

    /// Ends the connections with a member, as if they had broken.
    fn expel(&mut self, process: ProcessId) {
        let Some(peer) = &self.peers[process.index()] else { return };
        for link in [Some(peer.main), peer.streaming].into_iter().flatten() {
            self.disconnect(link);
        }
        let expelling = &mut self.recovery.expelling;
        expelling.count += 1;
        if !expelling.members.contains(&process) {
            expelling.members.push(process);
        }
    }

    /// Ends a connection from this end.
    pub(super) fn disconnect(&mut self, link: usize) {
        // Refused only for a queue pair that is not this process's.
        let _ = self.fabric.disconnect(self.links[link].qp());
        if let Some(event) = self.links.check_down(&mut self.fabric, link) {
            self.on_peer_event(event);
        }
    }
}
