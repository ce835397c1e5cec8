//! How a client takes over where an earlier process of its place ended.

use stentor_fabric::{Fabric, ProcessId};

use super::{Client, SubmitError};
use crate::node::outbound::Outbound;
use crate::{GroupId, ids};

/// How far a client is with taking over its place.
#[derive(Debug, Default)]
pub(super) struct Takeover {
    /// Whether it is known where an earlier process of this place ended.
    pub(super) done: bool,
    /// What members said the first time that they all were settled; they must say it again.
    once: Vec<Settled>,
    /// The beginning of this process's generation; 0 if it is the first of its place, or does not know yet.
    pub(super) first: u64,
}

/// What a member said that holds nothing undelivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Settled {
    member: ProcessId,
    freed: u64,
    held: u64,
}

impl<F: Fabric> Client<F> {
    /// Takes over where an earlier process of this place ended. Whoever the first message is for, all groups must have
    /// delivered everything that they hold: each knows only the sequences that it has seen, and a message that one group
    /// holds undelivered names slots at others.
    ///
    /// Members speak at different times. What one of them says may be over before another one says that nothing is left:
    /// this one may have passed a message on to the first in between. So they are asked twice; what they say only grows, and
    /// if all say the same again, all were settled at the moment at which they were asked the second time.
    ///
    /// No id is used twice: each process has a generation of its own, above all that members have seen or heard of. When they are
    /// asked the second time they hear which it is, so the next process will not use it, whatever comes of this one.
    ///
    /// And they hear it before all are settled: a member that was met before it had its group's state knows of no generation, and
    /// would take what an earlier process left half-written for this one's.
    pub(super) fn resume(&mut self) -> Result<(), SubmitError> {
        let seen = self.seen();
        if seen > self.takeover.first {
            self.takeover.first = ids::first_of_generation(ids::generation(seen) + 1);
            self.ask_again();
        }
        for group in self.topology.group_ids() {
            self.settled(group)?;
        }
        let targets = self.rings.iter().flat_map(|ring| &ring.targets);
        let said = targets.filter_map(|target| {
            let report = target.report?;
            Some(Settled { member: target.peer, freed: report.freed, held: report.held.slots })
        });
        let all: Vec<_> = said.collect();
        if seen > 0 {
            if self.takeover.once != all {
                self.takeover.once = all;
                self.ask_again();
                return Err(SubmitError::NotConnected { group: 0 });
            }
            self.sender.resume_sequence(self.takeover.first);
        }
        for group in self.topology.group_ids() {
            let slots = self.settled(group)?;
            self.sender.resume_slots(group, slots);
            self.count_members(group);
        }
        self.takeover.done = true;
        Ok(())
    }

    /// The highest sequence that a member has seen of this place.
    fn seen(&mut self) -> u64 {
        for ring in &mut self.rings {
            ring.read_credits(&self.fabric);
        }
        self.rings.iter().flat_map(Outbound::reports).map(|report| report.sequence).max().unwrap_or(0)
    }

    /// Has all members say anew what they hold.
    fn ask_again(&mut self) {
        for link in 0..self.links.len() {
            if self.links[link].is_ready() && !self.unsettled.contains(&link) {
                self.greet(link);
            }
        }
    }

    /// The first slot that no earlier process of this place used at a group, if its members agree.
    pub(super) fn settled(&mut self, group: GroupId) -> Result<u64, SubmitError> {
        let ring = &mut self.rings[usize::from(group.0)];
        ring.read_credits(&self.fabric);
        if ring.reports().count() < ring.targets.len() {
            return Err(SubmitError::NotConnected { group: group.0 });
        }
        let slots = ring.reports().map(|report| report.freed).max().unwrap_or(0);
        if ring.reports().any(|report| report.freed != slots || report.held.slots != report.freed) {
            return Err(SubmitError::Unfinished { client: self.sender.client().0, group: group.0 });
        }
        Ok(slots)
    }
}
