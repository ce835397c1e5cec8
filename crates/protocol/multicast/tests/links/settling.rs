//! Messages in flight to a group that is reset, at the other groups.

use std::collections::{BTreeMap, BTreeSet};

use stentor_fabric::{ProcessId, SplitMix64};
use stentor_fabric_sim::NetworkModel;
use stentor_multicast::MessageId;

use crate::bed::{Bed, RECONNECTED_NS, limits};

/// Numbers of messages in flight to all three groups that were delivered, and that were passed as no-ops.
#[derive(Default, Debug)]
struct Ends {
    delivered: u32,
    passed: u32,
}

/// Makes an operator reset a group with the state of this member, or with the empty state.
fn reset(bed: &mut Bed, chosen: usize, empty: bool, why: &str) {
    let named = bed.members[chosen].replica().reset_ends();
    bed.members[chosen].reset(named, empty).unwrap_or_else(|error| panic!("{why}: {error}"));
    bed.world.wake_at(ProcessId(chosen as u16), bed.world.now_ns());
}

/// The last of three groups loses its memory, or its majority, while messages to it are in flight and some of its
/// members do not reach some of the other groups. It is reset. The other groups agree on the messages in flight, and
/// continue.
fn settles(network: NetworkModel, seed: u64, ends: &mut Ends) {
    let (mut random, why) = (SplitMix64(seed), format!("seed {seed}"));
    let mut bed = Bed::new(&[3, 1 + 2 * (seed as usize % 2), 3], 1, limits(), network, seed);
    let (survivors, lost) = (bed.members.len() - 3, bed.members.len() - 3..bed.members.len());
    bed.run(8 * RECONNECTED_NS);
    let mut to = BTreeMap::new();
    let mut sent = |bed: &mut Bed, groups: &[u16]| {
        let id = bed.submit(0, groups, &[7]).unwrap_or_else(|error| panic!("{why}: {error}"));
        to.insert(id, BTreeSet::from_iter(groups.iter().copied()));
        id
    };
    sent(&mut bed, &[0, 1, 2]);
    bed.run(2 * RECONNECTED_NS);
    // In half of the runs, the survivors receive no acknowledgement from the lost group's followers. In the other runs,
    // about two thirds of the connections between survivors and the lost group's members are cut.
    let led = random.below(2) == 0;
    for (survivor, member) in (0..survivors).flat_map(|survivor| lost.clone().map(move |member| (survivor, member))) {
        if if led { member != lost.start } else { random.below(3) < 2 } {
            bed.cut(survivor as u16, member as u16, 20 * RECONNECTED_NS);
        }
    }
    let mut under_way = Vec::new();
    for _ in 0..1 + random.below(3) {
        let groups: &[u16] = [&[0, 1, 2][..], &[0, 2], &[1, 2], &[0, 1, 2]][random.below(4) as usize];
        under_way.push(sent(&mut bed, groups));
        bed.run(random.below(RECONNECTED_NS / 50));
    }
    bed.run(random.below(RECONNECTED_NS / 20));
    campaigns(&mut bed, &mut random);
    let remembers = random.below(2) == 0;
    let forgetful = if remembers { lost.start..lost.end - 1 } else { lost.clone() };
    forgetful.for_each(|member| bed.restart_member(member));
    bed.run(40 * RECONNECTED_NS);
    reset(&mut bed, lost.end - 1, !remembers, &why);
    bed.run(random.below(RECONNECTED_NS / 2));
    // In a quarter of the runs, a second group is lost afterwards.
    let both = random.below(4) == 0;
    if both {
        (3..survivors).for_each(|member| bed.restart_member(member));
        bed.run(40 * RECONNECTED_NS);
        reset(&mut bed, survivors - 1, true, &why);
    }
    campaigns(&mut bed, &mut random);
    bed.run(10 * RECONNECTED_NS);
    bed.restart_client(0);
    bed.run(80 * RECONNECTED_NS);
    let after = [&[0, 1][..], &[0, 1, 2], &[0], &[1, 2]].map(|groups| sent(&mut bed, groups));
    bed.run(40 * RECONNECTED_NS);
    let ids = |member: usize| bed.delivered[member].iter().map(|(id, _)| *id).collect::<Vec<MessageId>>();
    let of_group = [0..3, 3..survivors, lost];
    for (group, members) in (0..).zip(of_group) {
        let first = ids(members.start);
        let expected = after.iter().filter(|id| to[id].contains(&group)).copied();
        assert!(first.ends_with(&Vec::from_iter(expected)), "{why}: group {group} continues: {first:?}");
        members.for_each(|member| assert_eq!(ids(member), first, "{why}: group {group}"));
    }
    let common = |member: usize, other: u16| ids(member).into_iter().filter(|id| to[id].contains(&other)).collect();
    let (one, other): (Vec<MessageId>, Vec<MessageId>) = (common(0, 1), common(3, 0));
    assert!(both || one == other, "{why}: the survivors agree: {one:?} {other:?}");
    for id in under_way.iter().filter(|id| to[*id].len() == 3) {
        *(if one.contains(id) { &mut ends.delivered } else { &mut ends.passed }) += 1;
    }
}

/// Makes a random member of the first group campaign, in half of the calls.
fn campaigns(bed: &mut Bed, random: &mut SplitMix64) {
    let candidate = random.below(6) as u16;
    if candidate < 3 {
        bed.members[usize::from(candidate)].campaign().expect("a member");
        bed.world.wake_at(ProcessId(candidate), bed.world.now_ns());
    }
}

#[test]
fn messages_in_flight_to_a_group_that_is_reset_end_alike_everywhere() {
    let mut ends = Ends::default();
    for seed in 0..60 {
        let network = [NetworkModel::calm(), NetworkModel::adversarial(), NetworkModel::unordered()];
        settles(network[seed as usize % 3].clone(), seed, &mut ends);
    }
    eprintln!("settled: {ends:?}");
    assert!(ends.delivered > 10 && ends.passed > 10, "both are reached: {ends:?}");
}
