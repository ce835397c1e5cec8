//! Expels members that are stalled, so that the client can proceed: see [`pace`](crate::node::pace).

use std::time::Duration;

use stentor_fabric::{Fabric, ProcessId};

use super::{Client, counts};
use crate::GroupId;
use crate::mutant::mutant;
use crate::node::expelling::{Candidate, expelled};
use crate::node::pace::Patience;

impl<F: Fabric> Client<F> {
    /// Sets how long a member may owe something and free nothing, while a majority of its group is ahead of it, before
    /// this client expels it; [`EXPEL_AFTER`](crate::EXPEL_AFTER) by default. While the window or ring is full, a tenth
    /// of that time is enough.
    pub fn set_expel_after(&mut self, lag: Duration) {
        self.expelling.patience = Patience::new(lag);
    }

    /// Expels members that are stalled. Call it every few milliseconds; `now` is the time since an arbitrary fixed
    /// moment. A client that never calls it waits for each member that counts.
    pub fn tick(&mut self, now: Duration) {
        let step = self.expelling.patience.look(now);
        let Client { expelling, sender, topology, .. } = self;
        expelling.forget(|member| counts(sender, topology, member));
        for group in (0..self.rings.len() as u16).map(GroupId) {
            // Nothing was multicast to a group whose first slot is unknown, so its members' progress has no meaning.
            if self.takeover.is_opened(group) {
                self.expel_from(group, step);
            }
        }
    }

    /// Returns the members that this client expelled and that have not reconnected. The client no longer waits for
    /// them. When they reconnect, they get the messages that they missed.
    pub fn expelled(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.expelling.members()
    }

    /// Returns the number of times that this client expelled a member.
    #[must_use]
    pub fn expulsions(&self) -> u64 {
        self.expelling.count()
    }

    fn expel_from(&mut self, group: GroupId, step: Duration) {
        let at = usize::from(group.0);
        let Client { fabric, links, rings, sender, expelling, topology, fanout, .. } = self;
        let ring = &mut rings[at];
        if let Some(fanout) = fanout {
            // Otherwise only submissions settle doubts, and they do not get that far while the window is full.
            ring.settle_doubts(&fanout.completed_writes(fabric));
        }
        ring.look(fabric, step, 0, sender.next(group));
        let full = ring.is_full(links) || sender.check(&[group]).is_err();
        let counting = ring.targets.iter().enumerate().filter(|(_, target)| target.is_started());
        let candidates = counting.map(|(member, target)| {
            // A broken fan-out set may still write to this member. Until that is impossible, the client cannot reuse
            // the ring positions that the set wrote, so the member counts as having freed nothing.
            let is_clear = !target.is_in_doubt();
            let progress = target.report.filter(|_| is_clear).map_or(0, |report| report.freed);
            Candidate { progress, stands: ring.stands(member, &expelling.patience, full), member }
        });
        let candidates = candidates.collect();
        let mut majority = topology.majority(group) as usize;
        if mutant!(self.sender.mutant(), NobodyExpelled) {
            majority = usize::MAX;
        }
        for member in expelled(candidates, majority) {
            self.expel(at, member);
        }
    }

    /// Ends the connection with a member.
    fn expel(&mut self, group: usize, member: usize) {
        let target = &self.rings[group].targets[member];
        let (peer, link) = (target.peer, target.link);
        if mutant!(self.sender.mutant(), ExpelledInPlace) {
            self.sender.expel(GroupId(group as u16), member);
            return self.rings[group].leave_unfreed(member);
        }
        if let Some(event) = self.links.disconnect(&mut self.fabric, link) {
            self.on_peer_event(event);
        }
        self.expelling.note(peer);
        self.gate.disturb();
    }
}
