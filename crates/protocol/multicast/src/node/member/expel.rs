//! How a member goes on while others stand still: see [`pace`](crate::node::pace).
//!
//! A member writes to each other member through a control ring of its own, and a leader writes to all followers through
//! one stream. A full control ring holds up what goes to that member, which waits in its outbox. A full stream holds up
//! all followers. Both are checked, and expelling a member ends both of its connections.

use std::time::Duration;

use stentor_fabric::memory::LINE_WORDS;
use stentor_fabric::{Fabric, ProcessId};

use super::Member;
use crate::mutant::mutant;
use crate::node::expelling::{Candidate, expelled};
use crate::node::pace::Patience;

impl<F: Fabric> Member<F> {
    /// Sets how long another member may free nothing, while a majority of its group frees, before this member expels it;
    /// [`EXPEL_AFTER`](crate::EXPEL_AFTER) by default. A tenth of that time suffices while a ring to it is full.
    pub fn set_expel_after(&mut self, lag: Duration) {
        self.recovery.expelling.patience = Patience::new(lag);
    }

    /// Returns the members that this one expelled and that have not come back. They hold nobody up, and their group sends
    /// them what they missed.
    pub fn expelled(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.recovery.expelling.members()
    }

    /// Returns how often this member expelled another one.
    #[must_use]
    pub fn expulsions(&self) -> u64 {
        self.recovery.expelling.count()
    }

    /// Expels whoever stands still, of each group at most a minority.
    pub(super) fn expel_standing(&mut self, now: Duration) {
        let step = self.recovery.expelling.patience.look(now);
        let Member { fabric, peers, streams, recovery, outputs, .. } = self;
        recovery.expelling.forget(|member| outputs.is_connected(member));
        for ((peer, waiting), connected) in peers.iter_mut().zip(&outputs.boxes).zip(&outputs.connected) {
            let Some(peer) = peer else { continue };
            let (quiet, lap) = (peer.outbound.quiet_cells(), peer.outbound.lap_cells());
            peer.outbound.look(fabric, step, quiet, 0);
            if !connected && (waiting.len() / LINE_WORDS) as u64 > lap {
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
        let full_stream = self.streams.outbound.is_full(&self.links);
        for group in topology.group_ids() {
            let counting = topology.members(group).filter(|process| self.is_there(*process));
            // Members that do not stand still are ahead of those that do: rings to different members are not compared.
            let candidates = counting.map(|process| {
                let stands = self.stands(process, full_stream);
                Candidate { progress: u64::from(!stands), stands, member: process.index() }
            });
            for process in expelled(candidates.collect(), topology.majority(group) as usize) {
                self.expel(ProcessId(process as u16));
            }
        }
    }

    /// Whether another member is connected; this one is.
    fn is_there(&self, process: ProcessId) -> bool {
        self.peers[process.index()].is_none() || self.outputs.is_connected(process)
    }

    /// Whether another member frees nothing. `full_stream`: there is no room in the stream.
    fn stands(&self, process: ProcessId, full_stream: bool) -> bool {
        let Some(peer) = &self.peers[process.index()] else { return false };
        let patience = &self.recovery.expelling.patience;
        let (control, stream) = (&peer.outbound, &self.streams.outbound);
        control.stands(0, patience, control.is_full(&self.links))
            || stream.target_of(process).is_some_and(|target| stream.stands(target, patience, full_stream))
    }

    /// Ends the connections with a member.
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
