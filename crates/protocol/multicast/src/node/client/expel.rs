//! How a client goes on while members stand still: see [`pace`](crate::node::pace).

use std::time::Duration;

use stentor_fabric::{Fabric, ProcessId};

use super::Client;
use crate::mutant::mutant;
use crate::node::pace::{Patience, expelled};
use crate::{GroupId, ProcessRole};

/// Whom a client waits for no more.
#[derive(Debug, Default)]
pub(super) struct Expelling {
    patience: Patience,
    /// Members that were expelled and have not come back.
    members: Vec<ProcessId>,
    /// How often a member was expelled.
    count: u64,
    /// Those that count in a group: kept for its memory.
    counted: Vec<(u64, bool, usize)>,
}

impl<F: Fabric> Client<F> {
    /// Sets for how long a member may free nothing, while a majority of its group does, before this client goes on without it;
    /// [`EXPEL_AFTER`](crate::EXPEL_AFTER) if it is not set. If there is no room for more, a tenth of that is enough.
    pub fn set_expel_after(&mut self, lag: Duration) {
        self.expelling.patience = Patience::new(lag);
    }

    /// Lets time pass: members that stand still are expelled. Call it every few milliseconds; `now` is the time since any
    /// fixed moment. Without it, this client waits for each member that is connected.
    pub fn tick(&mut self, now: Duration) {
        let step = self.expelling.patience.look(now);
        let Client { expelling, sender, topology, .. } = self;
        let is_back = |member: &ProcessId| match topology.role(*member) {
            Some(ProcessRole::Member { group, index }) => sender.counts(group, usize::from(index)),
            _ => true,
        };
        expelling.members.retain(|member| !is_back(member));
        if !self.takeover.done {
            return;
        }
        for group in (0..self.rings.len() as u16).map(GroupId) {
            self.expel_from(group, step);
        }
    }

    /// Returns the members that this client expelled and that have not come back: they do not hold it up, and get what they missed
    /// from their group.
    pub fn expelled(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.expelling.members.iter().copied()
    }

    /// Returns how often this client expelled a member.
    #[must_use]
    pub fn expulsions(&self) -> u64 {
        self.expelling.count
    }

    fn expel_from(&mut self, group: GroupId, step: Duration) {
        let at = usize::from(group.0);
        let Client { fabric, links, rings, sender, expelling, topology, fanout, .. } = self;
        let ring = &mut rings[at];
        if let Some(fanout) = fanout {
            // Who is in doubt no more is so from here on, also while nothing can be submitted.
            ring.settle_doubts(&fanout.completed_writes(fabric));
        }
        ring.look(fabric, step, 0, sender.next(group));
        let full = ring.is_full(links) || sender.check(&[group]).is_err();
        let Expelling { patience, counted, .. } = expelling;
        counted.clear();
        for (member, target) in ring.targets.iter().enumerate().filter(|(_, target)| target.is_started()) {
            // Whoever may still get late copies of a broken set holds up what is written behind them.
            let is_clear = !target.is_in_doubt();
            let delivered = target.report.filter(|_| is_clear).map_or(0, |report| report.freed);
            counted.push((delivered, ring.stands(member, patience, full), member));
        }
        let mut majority = topology.majority(group) as usize;
        if mutant!(self.sender.mutant(), NobodyExpelled) {
            majority = usize::MAX;
        }
        let mut counted = std::mem::take(&mut self.expelling.counted);
        for member in expelled(&mut counted, majority) {
            self.expel(at, member);
        }
        self.expelling.counted = counted;
    }

    /// Ends the connection with a member, as if it had broken.
    fn expel(&mut self, group: usize, member: usize) {
        let target = &self.rings[group].targets[member];
        let (peer, link) = (target.peer, target.link);
        if mutant!(self.sender.mutant(), ExpelledInPlace) {
            self.sender.expel(GroupId(group as u16), member);
            return self.rings[group].leave_unfreed(member);
        }
        // Refused only for a queue pair that is not this process's.
        let _ = self.fabric.disconnect(self.links[link].qp());
        if let Some(event) = self.links.check_down(&mut self.fabric, link) {
            self.on_peer_event(event);
        }
        self.expelling.count += 1;
        if !self.expelling.members.contains(&peer) {
            self.expelling.members.push(peer);
        }
        self.gate.disturb();
    }
}
