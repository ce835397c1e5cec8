//! Expels members that are stalled, so that the others can proceed: see [`pace`](crate::node::pace).
//!
//! A member writes to each other member through a separate control ring, and a leader writes to all followers through
//! one stream. A full control ring blocks only the items for the member that reads it, which stay in the outbox for
//! that member. A full stream blocks all followers. Both rings are checked, and expelling a member ends all connections
//! with it.

use std::time::Duration;

use stentor_fabric::memory::LINE_WORDS;
use stentor_fabric::{Fabric, ProcessId};

use super::Member;
use crate::mutant::mutant;
use crate::node::expelling::{Candidate, expelled};
use crate::node::pace::Patience;

impl<F: Fabric> Member<F> {
    /// Sets how long another member may owe something and free nothing, while a majority of its group is not stalled,
    /// before this member expels it; [`EXPEL_AFTER`](crate::EXPEL_AFTER) by default. While a ring to it is full, a
    /// tenth of that time is enough.
    pub fn set_expel_after(&mut self, lag: Duration) {
        self.recovery.expelling.patience = Patience::new(lag);
    }

    /// Returns the members that this one expelled and that have not reconnected. This member no longer waits for them.
    /// When they reconnect, they get the items that they missed.
    pub fn expelled(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.recovery.expelling.members()
    }

    /// Returns how often this member expelled another one.
    #[must_use]
    pub fn expulsions(&self) -> u64 {
        self.recovery.expelling.count()
    }

    /// Expels stalled members, at most a minority of each group.
    pub(super) fn expel_standing(&mut self, now: Duration) {
        let step = self.recovery.expelling.patience.look(now);
        let Member { fabric, peers, streams, recovery, outputs, .. } = self;
        recovery.expelling.forget(|member| outputs.is_connected(member));
        for ((peer, waiting), connected) in peers.iter_mut().zip(&outputs.boxes).zip(&outputs.connected) {
            let Some(peer) = peer else { continue };
            let (quiet, lap) = (peer.outbound.quiet_cells(), peer.outbound.lap_cells());
            peer.outbound.look(fabric, step, quiet, 0);
            if !connected && (waiting.len() / LINE_WORDS) as u64 > lap {
                // A member that never connected is no longer waited for once its outbox exceeds a lap. When it
                // connects, it receives the items that it missed.
                peer.outbound.targets[0].give_up();
            }
        }
        let quiet = streams.outbound.quiet_cells();
        streams.outbound.look(fabric, step, quiet, 0);
        if mutant!(self.mutant, NobodyExpelled) {
            return;
        }
        let topology = self.topology.clone();
        let full_stream = self.streams.outbound.is_full(&self.links);
        for group in topology.group_ids() {
            let counting = topology.members(group).filter(|process| self.is_there(*process));
            // Members that are not stalled rank ahead of those that are. Progress in rings to different members is not
            // comparable.
            let candidates = counting.map(|process| {
                let stands = self.stands(process, full_stream);
                Candidate { progress: u64::from(!stands), stands, member: process.index() }
            });
            for process in expelled(candidates.collect(), topology.majority(group) as usize) {
                self.expel(ProcessId(process as u16));
            }
        }
    }

    /// Returns whether a member is connected; true for this member.
    fn is_there(&self, process: ProcessId) -> bool {
        self.peers[process.index()].is_none() || self.outputs.is_connected(process)
    }

    /// Returns whether another member is stalled. `full_stream`: the stream ring is full (`Outbound::is_full`).
    fn stands(&self, process: ProcessId, full_stream: bool) -> bool {
        let Some(peer) = &self.peers[process.index()] else { return false };
        let patience = &self.recovery.expelling.patience;
        let (control, stream) = (&peer.outbound, &self.streams.outbound);
        control.stands(0, patience, control.is_full(&self.links))
            || stream.target_of(process).is_some_and(|target| stream.stands(target, patience, full_stream))
    }

    /// Ends the connections with a member and records that it is expelled.
    fn expel(&mut self, process: ProcessId) {
        let Some(peer) = &self.peers[process.index()] else { return };
        let links = [Some(peer.main), peer.streaming];
        self.recovery.expelling.note(process);
        for link in links.into_iter().flatten() {
            self.disconnect(link);
        }
    }

    /// Ends a connection from this end.
    pub(super) fn disconnect(&mut self, link: usize) {
        if let Some(event) = self.links.disconnect(&mut self.fabric, link) {
            self.on_peer_event(event);
        }
    }
}
