//! Draws the processes that lose their memory in profile [`Profile::Forgets`], and the times.

use stentor_fabric::ProcessId;
use stentor_multicast::{ClientId, GroupId, Topology};

use super::{Fault, Planned, Profile};
use crate::chance::Chance;

/// Minimum and maximum time of the first loss, in nanoseconds. Messages are in flight by then.
const FROM_NS: (u64, u64) = (200_000, 1_200_000);
/// Minimum and maximum time for which a process is down, in nanoseconds. The minimum is more than [`AT_ONCE_NS`].
const BACK_NS: (u64, u64) = (25_000, 300_000);
/// Time within which the members of a group lose their memory in a simultaneous loss, in nanoseconds.
const AT_ONCE_NS: u64 = 20_000;
/// Minimum and maximum time for which a process with memory is silent, in nanoseconds.
const SILENT_NS: (u64, u64) = (100_000, 2_000_000);

/// Draws the losses of a seed.
pub(super) fn draw(chance: &mut Chance, profile: Profile, topology: &Topology) -> Vec<Planned> {
    if profile != Profile::Forgets {
        return Vec::new();
    }
    let mut losses = Losses { chance, topology, plan: Vec::new() };
    let groups: Vec<GroupId> = topology.group_ids().collect();
    let (at, group) = (losses.chance.between(FROM_NS.0, FROM_NS.1), losses.chance.pick(&groups));
    let other = losses.chance.pick(&groups);
    match losses.chance.between(0, 11) {
        0 | 1 => losses.whole(at, group, None),
        2..=4 => {
            let survivor = losses.member(group);
            losses.silence(at, survivor);
            losses.whole(at, group, Some(survivor));
        }
        5 => {
            let silent = losses.member(other);
            losses.silence(at, silent);
            losses.whole(at, group, None);
        }
        6 => {
            groups.iter().for_each(|group| losses.whole(at, *group, None));
            losses.clients(at);
        }
        7 => groups.iter().for_each(|group| losses.whole(at, *group, None)),
        8 | 9 => losses.one_after_the_other(at, group),
        _ => {
            losses.whole(at, group, None);
            let later = at + losses.chance.between(0, 1_000_000);
            losses.whole(later, other, None);
        }
    }
    losses.plan
}

struct Losses<'a> {
    chance: &'a mut Chance,
    topology: &'a Topology,
    plan: Vec<Planned>,
}

impl Losses<'_> {
    fn member(&mut self, group: GroupId) -> ProcessId {
        let members: Vec<ProcessId> = self.topology.members(group).collect();
        self.chance.pick(&members)
    }

    fn lose(&mut self, at_ns: u64, who: ProcessId) {
        let back_after_ns = self.chance.between(BACK_NS.0, BACK_NS.1);
        self.plan.push(Planned { at_ns, fault: Fault::Lose { who, back_after_ns } });
    }

    /// Adds the loss of memory of all members of a group at once, except for the survivor.
    fn whole(&mut self, at_ns: u64, group: GroupId, survivor: Option<ProcessId>) {
        for member in self.topology.members(group).filter(|member| Some(*member) != survivor) {
            let at_ns = at_ns + self.chance.between(0, AT_ONCE_NS);
            self.lose(at_ns, member);
        }
    }

    fn clients(&mut self, at_ns: u64) {
        for client in 0..self.topology.clients() as u16 {
            let at_ns = at_ns + self.chance.between(0, AT_ONCE_NS);
            self.lose(at_ns, self.topology.client_process(ClientId(client)));
        }
    }

    /// Adds a stall or an isolation of a process with memory.
    fn silence(&mut self, at_ns: u64, who: ProcessId) {
        let for_ns = self.chance.between(SILENT_NS.0, SILENT_NS.1);
        let fault = match self.chance.between(0, 1) {
            0 => Fault::Survive { who, for_ns },
            _ => Fault::Isolate { who: super::Target::Process(who), for_ns },
        };
        self.plan.push(Planned { at_ns: at_ns - self.chance.between(0, 100_000), fault });
    }

    /// Adds repeated restarts of members, faster than the group admits them.
    fn one_after_the_other(&mut self, mut at_ns: u64, group: GroupId) {
        for _ in 0..self.chance.between(3, 10) {
            let member = self.member(group);
            self.lose(at_ns, member);
            at_ns += self.chance.between(0, 150_000);
        }
    }
}
