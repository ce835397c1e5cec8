//! The plan of the nemesis, drawn from the seed before the run.

use stentor_fabric::ProcessId;
use stentor_multicast::{ClientId, GroupId, Topology};

use super::profile::Weights;
use super::{Fault, Planned, Profile, Target};
use crate::chance::Chance;

/// The earliest time of a fault, in nanoseconds. All connections are established by then.
pub(super) const FROM_NS: u64 = 60_000;
/// Maximum time from a fault to one that is drawn to occur during its recovery, in nanoseconds. It is less than the
/// time of a recovery.
const SOON_NS: u64 = 80_000;

/// Time at which the faults stop, in nanoseconds.
pub(super) const UNTIL_NS: u64 = 3_000_000;

type Draw = fn(&mut Drawing<'_>) -> Fault;

/// Returns the kinds of faults with their weights.
fn kinds(weights: &Weights) -> [(u64, Draw); 13] {
    [
        (weights.crash_leader, |draw| Fault::Crash { who: draw.leader(), back_after_ns: draw.back_after() }),
        (weights.crash_anybody, |draw| Fault::Crash { who: draw.anybody(), back_after_ns: draw.back_after() }),
        (weights.crash_at_post, |draw| {
            let who = if draw.chance.between(0, 1) == 0 { draw.leader() } else { draw.anybody() };
            Fault::CrashAtPost { who, post: draw.chance.between(1, 30), back_after_ns: draw.back_after() }
        }),
        (weights.client_crash, |draw| Fault::ClientCrashAfterWrite {
            client: ClientId(draw.chance.between(0, draw.topology.clients() as u64 - 1) as u16),
            write: draw.chance.between(1, 16),
            // A quarter of the client ids are not taken over.
            back_after_ns: Some(draw.chance.between(20_000, 793_000)).filter(|after| *after < 600_000),
        }),
        (weights.deafen, |draw| Fault::Cut { from: None, to: Some(draw.leader()), for_ns: draw.cut_ns() }),
        (weights.mute, |draw| Fault::Cut { from: Some(draw.leader()), to: None, for_ns: draw.cut_ns() }),
        (weights.cut_link, |draw| Fault::Cut {
            from: Some(draw.anybody()),
            to: Some(draw.anybody()),
            for_ns: draw.cut_ns(),
        }),
        (weights.isolate, |draw| Fault::Isolate { who: draw.anybody(), for_ns: draw.cut_ns() }),
        (weights.stall_leader, |draw| Fault::Stall { who: draw.leader(), for_ns: draw.chance.between(1_000, 500_000) }),
        (weights.stall_anybody, |draw| Fault::Stall {
            who: draw.anybody(),
            for_ns: draw.chance.between(1_000, 500_000),
        }),
        (weights.suspect, |draw| {
            let group = draw.group();
            Fault::Suspect { group, leader: draw.member(group) }
        }),
        (weights.flap, |draw| Fault::Flap {
            group: draw.group(),
            period_ns: draw.chance.between(5_000, 60_000),
            for_ns: draw.chance.between(50_000, 400_000),
        }),
        (weights.hand_over, |draw| {
            let group = draw.group();
            Fault::HandOver { group, to: draw.member(group) }
        }),
    ]
}

struct Drawing<'a> {
    chance: &'a mut Chance,
    topology: &'a Topology,
    /// Groups that may lose a member, or all groups if there is none.
    groups: Vec<GroupId>,
    /// The last group that was hit. The next fault is likely to hit it, too.
    last: Option<GroupId>,
}

/// Draws the plan of a seed, in order of time.
pub(super) fn draw(chance: &mut Chance, profile: Profile, topology: &Topology) -> Vec<Planned> {
    let kinds = kinds(&profile.weights());
    let total: u64 = kinds.iter().map(|(weight, _)| weight).sum();
    if total == 0 {
        return Vec::new();
    }
    let larger: Vec<GroupId> = topology.group_ids().filter(|group| topology.size(*group) > 2).collect();
    let groups = if larger.is_empty() { topology.group_ids().collect() } else { larger };
    let mut drawing = Drawing { chance, topology, groups, last: None };
    let count = drawing.chance.between(3, 12);
    let (mut plan, mut at_ns) = (Vec::new(), drawing.chance.between(FROM_NS, UNTIL_NS));
    for _ in 0..count {
        let mut pick = drawing.chance.between(0, total - 1);
        let kind = kinds.iter().find(|(weight, _)| {
            let hit = pick < *weight;
            pick = pick.saturating_sub(*weight);
            hit
        });
        let Some((_, fault)) = kind else { continue };
        let fault = fault(&mut drawing);
        plan.push(Planned { at_ns, fault });
        // Half of the faults occur while the previous one still has effects, and often in the same group.
        if drawing.chance.between(0, 1) == 0 {
            at_ns = (at_ns + drawing.chance.between(0, SOON_NS)).min(UNTIL_NS);
        } else {
            at_ns = drawing.chance.between(FROM_NS, UNTIL_NS);
            drawing.last = None;
        }
    }
    plan.sort_by_key(|planned| planned.at_ns);
    plan
}

/// Draws, in some runs of profiles in which clients crash, a cut of a client, which stays up, from a group. The cut
/// lasts longer than the leader waits before it asks for missing messages, and longer than a queue pair retries. The
/// client's messages of this time reach the group through other members, after a gap.
pub(super) fn cut_client(chance: &mut Chance, profile: Profile, topology: &Topology) -> Option<Planned> {
    if profile.weights().client_crash == 0 || chance.between(0, 2) > 0 {
        return None;
    }
    let client = ClientId(chance.between(0, topology.clients() as u64 - 1) as u16);
    let groups: Vec<GroupId> = topology.group_ids().collect();
    let (group, for_ns) = (chance.pick(&groups), chance.between(600_000, 1_400_000));
    let at_ns = chance.between(FROM_NS, UNTIL_NS - for_ns);
    Some(Planned { at_ns, fault: Fault::CutClient { client, group, for_ns } })
}

/// Draws, in some runs of profiles in which clients crash, a group whose members all stop running for some time. Their
/// NICs continue to serve their memory, and clients crash and restart meanwhile.
pub(super) fn silence_group(chance: &mut Chance, profile: Profile, topology: &Topology) -> Vec<Planned> {
    if profile.weights().client_crash == 0 || topology.groups() < 2 || chance.between(0, 2) > 0 {
        return Vec::new();
    }
    let groups: Vec<GroupId> = topology.group_ids().collect();
    let (group, for_ns) = (chance.pick(&groups), chance.between(500_000, 900_000));
    let at_ns = chance.between(FROM_NS, UNTIL_NS - for_ns);
    let mut plan = vec![Planned { at_ns, fault: Fault::Silence { group, for_ns } }];
    for _ in 0..chance.between(1, 4) {
        let client = ClientId(chance.between(0, topology.clients() as u64 - 1) as u16);
        let (write, back) = (chance.between(1, 16), chance.between(20_000, 80_000));
        let fault = Fault::ClientCrashAfterWrite { client, write, back_after_ns: Some(back) };
        plan.push(Planned { at_ns: at_ns + chance.between(0, for_ns / 2), fault });
    }
    plan.sort_by_key(|planned| planned.at_ns);
    plan
}

/// Draws cuts of links from a client to one member, in profile [`Profile::Rings`]. Most of these cuts last longer than
/// a member waits before it asks other members for missing messages, but not as long as a queue pair retries.
pub(super) fn late_links(chance: &mut Chance, profile: Profile, topology: &Topology) -> Vec<Planned> {
    if profile != Profile::Rings {
        return Vec::new();
    }
    let members: Vec<ProcessId> = (0..topology.all_members() as u16).map(ProcessId).collect();
    let count = chance.between(12, 24);
    let cut = |_| {
        let client = ClientId(chance.between(0, topology.clients() as u64 - 1) as u16);
        let member = chance.pick(&members);
        let for_ns =
            if chance.between(0, 5) == 0 { chance.between(200_000, 900_000) } else { chance.between(90_000, 190_000) };
        let at_ns = chance.between(FROM_NS, UNTIL_NS - for_ns);
        Planned { at_ns, fault: Fault::CutMember { client, member, for_ns } }
    };
    (0..count).map(cut).collect()
}

/// Draws stops of members and clients in profile [`Profile::Stops`]. Each lasts for at least a quarter of the time with
/// faults.
pub(super) fn stops(chance: &mut Chance, profile: Profile, topology: &Topology) -> Vec<Planned> {
    if profile != Profile::Stops {
        return Vec::new();
    }
    let groups: Vec<GroupId> = topology.group_ids().collect();
    let count = chance.between(2, 5);
    let stop = |_| {
        let group = chance.pick(&groups);
        let members: Vec<ProcessId> = topology.members(group).collect();
        let who = match chance.between(0, 5) {
            0 if topology.clients() > 1 => Target::Process(
                topology.client_process(ClientId(chance.between(1, topology.clients() as u64 - 1) as u16)),
            ),
            1 | 2 => Target::Leader(group),
            _ => Target::Process(chance.pick(&members)),
        };
        let at_ns = chance.between(FROM_NS, UNTIL_NS / 2);
        Planned { at_ns, fault: Fault::Stop { who, for_ns: chance.between(UNTIL_NS / 4, UNTIL_NS - at_ns) } }
    };
    (0..count).map(stop).collect()
}

impl Drawing<'_> {
    fn group(&mut self) -> GroupId {
        let again = self.last.filter(|_| self.chance.between(0, 3) > 0);
        let group = again.unwrap_or_else(|| self.chance.pick(&self.groups));
        self.last = Some(group);
        group
    }

    fn leader(&mut self) -> Target {
        Target::Leader(self.group())
    }

    fn member(&mut self, group: GroupId) -> ProcessId {
        let members: Vec<ProcessId> = self.topology.members(group).collect();
        self.chance.pick(&members)
    }

    fn anybody(&mut self) -> Target {
        let group = self.group();
        Target::Process(self.member(group))
    }

    fn cut_ns(&mut self) -> u64 {
        // Some cuts end before a queue pair breaks, and some do not.
        match self.chance.between(0, 2) {
            0 => self.chance.between(1_000, 100_000),
            _ => self.chance.between(100_000, 1_200_000),
        }
    }

    fn back_after(&mut self) -> Option<u64> {
        match self.chance.between(0, 3) {
            0 => None,
            _ => Some(self.chance.between(5_000, 800_000)),
        }
    }
}
