//! Groups that lost all their memory, or their majority, while others remember them.

use std::collections::BTreeMap;
use std::time::Duration;

use stentor_fabric::{ProcessId, SplitMix64};
use stentor_fabric_sim::{Fault, NetworkModel};
use stentor_multicast::{ClientId, GroupId, Hindrance, Incarnation, ReplicaConfig, SubmitError};

use crate::bed::{Bed, RECONNECTED_NS, SETTLED_NS, limits};

/// A leader is deposed, and partitioned from its successor only. All other members notify it, and it does not campaign
/// against the successor.
#[test]
fn leader_partitioned_from_its_successor_does_not_depose_it() {
    let mut bed = Bed::new(&[3, 1], 1, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    bed.cut(0, 1, 40 * RECONNECTED_NS);
    bed.run(RECONNECTED_NS);
    bed.members[1].campaign().expect("a member");
    bed.world.wake_at(ProcessId(1), bed.world.now_ns());
    bed.run(RECONNECTED_NS);
    let ballot = bed.members[1].replica().ballot();
    let sent: Vec<_> = (0..3).map(|n| bed.submit(0, &[0, 1], &[n]).expect("there is room")).collect();
    bed.run(20 * RECONNECTED_NS);
    assert!(bed.members[0].replica().known(GroupId(0)) >= ballot, "it was told");
    for member in [1, 2, 3] {
        let delivered: Vec<_> = bed.delivered[member].iter().map(|(id, _)| *id).collect();
        assert_eq!(delivered, sent, "member {member}");
    }
    bed.run(30 * RECONNECTED_NS);
    assert!((0..3).all(|member| bed.members[member].replica().ballot() == ballot), "one change is enough");
}

/// Members of group 1 campaign `changes` times, then all of them are replaced at once. Group 0 remembers group 1, which
/// therefore waits, and reports why. An operator resets it with the empty state. Messages of a new process to both
/// groups are then delivered by all members.
fn is_reset_after(changes: u16, size: u16, network: NetworkModel, seed: u64) {
    let why = format!("{changes} changes in a group of {size}, seed {seed}");
    let mut bed = Bed::new(&[3, usize::from(size)], 1, limits(), network, seed);
    bed.run(RECONNECTED_NS);
    for change in 0..changes {
        let candidate = 3 + change % size.min(2);
        bed.members[usize::from(candidate)].campaign().expect("a member");
        bed.world.wake_at(ProcessId(candidate), bed.world.now_ns());
        bed.run(4 * SETTLED_NS);
    }
    let before = bed.submit(0, &[0, 1], b"before").expect("the client is connected to all destinations");
    bed.run(4 * RECONNECTED_NS);
    assert!(bed.delivered.iter().all(|delivered| delivered.len() == 1), "{why}");
    let remembered = bed.members[0].replica().known(GroupId(1));
    let anew = 3..usize::from(3 + size);
    for member in anew.clone() {
        bed.restart_member(member);
    }
    bed.run(20 * RECONNECTED_NS);
    for member in anew.clone() {
        let replica = bed.members[member].replica();
        assert!(replica.is_joining(), "{why}: it waits");
        let by = ProcessId(0);
        assert_eq!(replica.hindrance(), Some(Hindrance::Remembered { by, incarnation: Incarnation::FIRST }), "{why}");
    }
    let chosen = usize::from(3 + size) - 1;
    let ends = bed.members[chosen].replica().reset_ends();
    bed.members[chosen].reset(ends, true).unwrap_or_else(|error| panic!("{why}: {error}"));
    bed.world.wake_at(ProcessId(chosen as u16), bed.world.now_ns());
    bed.run(10 * RECONNECTED_NS);
    for member in anew {
        let replica = bed.members[member].replica();
        assert_eq!((replica.is_joining(), replica.incarnation().number), (false, 2), "{why}: {replica:?}");
    }
    assert_eq!(bed.submit(0, &[0, 1], b"lost"), Err(SubmitError::GroupReset { group: 1 }), "{why}");
    bed.restart_client(0);
    bed.run(10 * RECONNECTED_NS);
    let after = bed.submit(0, &[0, 1], b"after").unwrap_or_else(|error| panic!("{why}: {error}"));
    bed.run(10 * RECONNECTED_NS);
    for (member, delivered) in bed.delivered.iter().enumerate() {
        let ids: Vec<_> = delivered.iter().map(|(id, _)| *id).collect();
        let expected = if member < 3 { vec![before, after] } else { vec![after] };
        assert_eq!(ids, expected, "{why}: member {member}");
    }
    let now = bed.members[3].replica().ballot();
    assert!(now >= remembered, "{why}: {now} is not below {remembered}");
    bed.run(50 * RECONNECTED_NS);
    assert_eq!(bed.members[3].replica().ballot(), now, "{why}: the group is at rest");
}

#[test]
fn a_group_that_others_remember_waits_for_an_operator_and_delivers_with_them_when_it_is_reset() {
    for (seed, network) in (0..).zip([NetworkModel::calm(), NetworkModel::adversarial(), NetworkModel::unordered()]) {
        for (changes, size) in [(0, 3), (1, 3), (4, 3), (4, 1), (3, 2)] {
            is_reset_after(changes, size, network.clone(), seed);
        }
    }
}

/// A client's home group is reset. A process that the home group has numbered continues with other groups, because no
/// process came after it. If it has multicast to its home group before, it sends nothing more there, but the next
/// process of the client id does.
#[test]
fn client_whose_home_is_reset_continues_with_other_groups() {
    // The cases: whether the process has multicast to its home group before, and whether the reset keeps a member's
    // state.
    let all = [(false, false), (true, false), (false, true), (true, true)];
    for (seed, (used, keeps)) in (1..).zip(all.into_iter().chain(all)) {
        let network = if seed < 5 { NetworkModel::calm() } else { NetworkModel::adversarial() };
        let mut bed = Bed::new(&[3, 3], 2, limits(), network, seed);
        bed.run(RECONNECTED_NS);
        bed.submit(1, &[0], b"before").expect("the client is connected to all destinations");
        if used {
            bed.submit(1, &[1], b"home").expect("the client is connected to all destinations");
        }
        bed.run(4 * RECONNECTED_NS);
        (if keeps { 4..6 } else { 3..6 }).for_each(|member| bed.restart_member(member));
        bed.run(20 * RECONNECTED_NS);
        let ends = bed.members[3].replica().reset_ends();
        bed.members[3].reset(ends, !keeps).expect("the reset names the incarnation that it ends");
        bed.world.wake_at(ProcessId(3), bed.world.now_ns());
        bed.run(20 * RECONNECTED_NS);
        assert!((3..6).all(|member| bed.members[member].replica().incarnation().number == 2), "seed {seed}");
        assert!(!bed.clients[1].is_superseded(), "seed {seed}: nobody came after it");
        let on = bed.submit(1, &[0], b"on").unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let home = bed.submit(1, &[0, 1], b"home");
        let lost = used.then_some(Err(SubmitError::GroupReset { group: 1 }));
        assert!(lost.is_none_or(|lost| home == lost), "seed {seed}: {home:?}");
        bed.run(10 * RECONNECTED_NS);
        let last = home.map_or(on.sequence, |home| home.sequence);
        assert_eq!(bed.clients[1].delivered_up_to(), last, "seed {seed}");
        bed.restart_client(1);
        bed.run(20 * RECONNECTED_NS);
        let after = bed.submit(1, &[0, 1], b"after").unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        bed.run(10 * RECONNECTED_NS);
        let last = |delivered: &Vec<(_, _)>| delivered.last().map(|(id, _)| *id);
        assert!(bed.delivered.iter().all(|delivered| last(delivered) == Some(after)), "seed {seed}");
    }
}

/// Two of three members lose their memory. The third continues with its state, together with them, when an operator
/// resets the group.
#[test]
fn remaining_member_continues_with_its_state_when_its_group_is_reset() {
    let mut bed = Bed::new(&[3, 1], 1, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    let before = bed.submit(0, &[0, 1], b"before").expect("the client is connected to all destinations");
    bed.run(RECONNECTED_NS);
    for member in [0, 2] {
        bed.restart_member(member);
    }
    bed.run(20 * RECONNECTED_NS);
    let by = Hindrance::Remembered { by: ProcessId(1), incarnation: Incarnation::FIRST };
    assert_eq!(bed.members[0].replica().hindrance(), Some(by));
    bed.members[1].reset(Incarnation::FIRST, false).expect("the reset names the incarnation that it ends");
    bed.world.wake_at(ProcessId(1), bed.world.now_ns());
    bed.run(10 * RECONNECTED_NS);
    assert!((0..3).all(|member| bed.members[member].replica().incarnation().number == 2));
    bed.restart_client(0);
    bed.run(10 * RECONNECTED_NS);
    let after = bed.submit(0, &[0, 1], b"after").expect("the client is connected to all destinations");
    bed.run(10 * RECONNECTED_NS);
    for (member, delivered) in bed.delivered.iter().enumerate() {
        assert_eq!(delivered.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [before, after], "member {member}");
    }
}

/// The remaining member campaigns while an operator resets the group without it. The member's peer message, which is
/// unread when the reset begins, does not displace the reset.
#[test]
fn a_reset_is_not_lost_beside_a_campaign() {
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    for member in [0, 2] {
        bed.restart_member(member);
    }
    bed.run(20 * RECONNECTED_NS);
    // A peer message is waiting, unread, when the operator resets the group.
    bed.world.inject(bed.world.now_ns(), Fault::Stall { process: ProcessId(0), for_ns: 4 * SETTLED_NS });
    bed.run(1_000);
    bed.members[1].campaign().expect("the member can campaign");
    bed.world.wake_at(ProcessId(1), bed.world.now_ns());
    bed.run(SETTLED_NS);
    bed.members[0].reset(Incarnation::FIRST, true).expect("the reset names the incarnation that it ends");
    bed.run(10 * RECONNECTED_NS);
    for member in [0, 2] {
        let number = bed.members[member].replica().incarnation().number;
        assert!(number >= 2, "member {member} is in incarnation {number}");
    }
}

/// The way in which a group that lost its memory continued.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum GoesOn {
    /// A majority remembered the group all the time.
    ByItself,
    /// An operator reset the group with the state of the remaining member.
    WithAState,
    /// An operator reset the group with the empty state.
    WithNothing,
    /// The processes that remembered the group were restarted, too.
    FoundedAnew,
}

/// Members of group 1 are replaced shortly after each other, as by a supervisor. After the remedy that the members
/// report is applied, messages of a new process to both groups are delivered by all members.
fn replaced_one_after_the_other(network: NetworkModel, seed: u64) -> GoesOn {
    let mut random = SplitMix64(seed);
    let mut bed = Bed::new(&[2, 3], 1, limits(), network, seed);
    bed.run(4 * RECONNECTED_NS);
    bed.submit(0, &[0, 1], b"before").expect("the client is connected to all destinations");
    bed.run(4 * RECONNECTED_NS);
    let replaced = 1 + random.below(5);
    for _ in 0..replaced {
        bed.restart_member(2 + random.below(3) as usize);
        bed.run(random.below(4 * RECONNECTED_NS));
    }
    bed.run(20 * RECONNECTED_NS);
    let joins = |bed: &Bed, member: usize| bed.members[member].replica().is_joining();
    let remembers = (2..5).find(|member| !joins(&bed, *member));
    let waits = (2..5).find(|member| joins(&bed, *member));
    let goes_on = match (waits, remembers) {
        (None, _) => GoesOn::ByItself,
        (Some(waits), _) => {
            let named = bed.members[waits].replica().hindrance();
            assert!(matches!(named, Some(Hindrance::Remembered { .. })), "seed {seed}: {named:?}");
            let (at, empty) = remembers.map_or((waits, true), |remembers| (remembers, false));
            if random.below(3) == 0 {
                (0..5).for_each(|member| bed.restart_member(member));
                GoesOn::FoundedAnew
            } else {
                let ends = bed.members[at].replica().reset_ends();
                bed.members[at].reset(ends, empty).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                bed.world.wake_at(ProcessId(at as u16), bed.world.now_ns());
                if empty { GoesOn::WithNothing } else { GoesOn::WithAState }
            }
        }
    };
    bed.run(RECONNECTED_NS);
    bed.restart_client(0);
    bed.run(40 * RECONNECTED_NS);
    let after = bed.submit(0, &[0, 1], b"after").unwrap_or_else(|error| panic!("seed {seed}, {goes_on:?}: {error}"));
    bed.run(20 * RECONNECTED_NS);
    for (member, delivered) in bed.delivered.iter().enumerate() {
        assert_eq!(delivered.last().map(|(id, _)| *id), Some(after), "seed {seed}, {goes_on:?}: member {member}");
    }
    goes_on
}

#[test]
fn members_replaced_one_after_the_other_end_in_a_working_group_or_a_remedy_that_helps() {
    let mut counts = BTreeMap::new();
    for seed in 0..60 {
        let network = [NetworkModel::calm(), NetworkModel::adversarial(), NetworkModel::unordered()];
        let network = network[seed as usize % 3].clone();
        *counts.entry(replaced_one_after_the_other(network, seed)).or_insert(0) += 1;
    }
    eprintln!("replaced one after the other: {counts:?}");
    assert!(counts.len() == 4 && counts.values().all(|count| *count >= 3), "each is reached: {counts:?}");
}

/// Group 1 is founded again while it reaches no process that remembers it. The new history has the number of the
/// previous one. The two do not mix, and the group moves above both.
#[test]
fn group_founded_beside_a_process_that_remembers_it_moves_above_the_remembered_incarnation() {
    let mut bed = Bed::new(&[1, 3], 1, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    bed.submit(0, &[0, 1], b"before").expect("the client is connected to all destinations");
    bed.run(RECONNECTED_NS);
    for (member, other) in [1, 2, 3].into_iter().flat_map(|member| [(member, 0), (member, 4)]) {
        bed.cut(member, other, 40 * RECONNECTED_NS);
    }
    (1..4).for_each(|member| bed.restart_member(member));
    bed.run(20 * RECONNECTED_NS);
    let founded = bed.members[1].replica().incarnation();
    assert!(founded.contradicts(Incarnation::FIRST), "{founded}");
    bed.run(80 * RECONNECTED_NS);
    let why = bed.members[0].replica().contradiction().expect("the member has learnt of the other incarnation");
    assert_eq!((why.group, why.known, why.said), (GroupId(1), Incarnation::FIRST, founded));
    let moved = bed.members[1].replica().incarnation();
    assert!(moved.number == 2, "{moved}");
    assert_eq!(bed.members[0].replica().known_incarnation(GroupId(1)), moved);
    assert!(bed.members.iter().all(|member| member.contradictions().count() == 0), "they are connected");
    bed.restart_client(0);
    bed.run(10 * RECONNECTED_NS);
    let after = bed.submit(0, &[0, 1], b"after").expect("the client is connected to all destinations");
    bed.run(10 * RECONNECTED_NS);
    assert!(bed.delivered.iter().all(|delivered| delivered.last().map(|(id, _)| *id) == Some(after)));
}

/// A group of one is founded again beside processes that remember it, and moves to a new incarnation while its hellos
/// are in flight. Some processes refuse its earlier hello, and their hellos do not contradict its new incarnation.
#[test]
fn member_that_moves_while_hellos_are_in_flight_sends_new_ones() {
    for seed in 0..20 {
        let mut bed = Bed::new(&[1, 3], 1, limits(), NetworkModel::adversarial(), seed);
        bed.run(RECONNECTED_NS);
        (1..5).for_each(|other| bed.cut(0, other, 2 * RECONNECTED_NS));
        bed.restart_member(0);
        // The restarted member moves soon after it has learnt of the other history, while hellos of others are still
        // arriving.
        bed.tick_ns = 5_000;
        bed.members[0].set_tick(Duration::from_nanos(bed.tick_ns));
        bed.run(RECONNECTED_NS);
        let founded = bed.members[0].replica().incarnation();
        assert!(founded.contradicts(Incarnation::FIRST), "seed {seed}: {founded}");
        bed.run(6 * RECONNECTED_NS);
        let moved = bed.members[0].replica().incarnation();
        assert_eq!(moved.number, 2, "seed {seed}: {moved}");
        for (at, member) in bed.members.iter().enumerate() {
            assert_eq!(member.contradictions().count(), 0, "seed {seed}: member {at} is connected");
            assert_eq!(member.replica().known_incarnation(GroupId(0)), moved, "seed {seed}: member {at}");
        }
    }
}

/// A client's home group is founded again, and gives a process the generation of an earlier one. Another group
/// remembers the earlier process, and lets no other process begin with its generation, because the two would use the
/// same ids.
#[test]
fn process_with_the_generation_of_an_earlier_one_begins_where_that_is_forgotten_or_gets_another() {
    let mut bed = Bed::new(&[1, 1], 1, limits(), NetworkModel::calm(), 1);
    assert_eq!(bed.topology.home(ClientId(0)), GroupId(0));
    bed.run(RECONNECTED_NS);
    let before = bed.submit(0, &[0, 1], b"before").expect("the client is connected to all destinations");
    bed.run(RECONNECTED_NS);
    bed.cut(0, 1, 40 * RECONNECTED_NS);
    bed.restart_client(0);
    bed.restart_member(0);
    bed.run(30 * RECONNECTED_NS);
    let founded = bed.members[0].replica().incarnation();
    assert!(founded.contradicts(Incarnation::FIRST), "{founded}");
    let after = bed.submit(0, &[1], b"after").expect("both groups have opened");
    assert_ne!(after, before);
    bed.run(RECONNECTED_NS);
    let delivered: Vec<_> = bed.delivered[1].iter().map(|(id, _)| *id).collect();
    assert_eq!(delivered, [before, after]);
}

/// A process without memory waits for the specified time for others that may remember its group, even if it rests and
/// is rarely called. It ticks several times meanwhile.
#[test]
fn a_group_is_founded_in_time_although_its_members_rest() {
    const LOOK_NS: u64 = 38_000_000;
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), 1);
    bed.tick_ns = LOOK_NS;
    (0..3).for_each(|member| bed.restart_member(member));
    bed.restart_client(0);
    let wait_ns = u64::from(ReplicaConfig::FOUNDING_TICKS) * 2_000_000;
    bed.run(3 * LOOK_NS);
    assert!(bed.members.iter().all(|member| member.replica().is_joining()), "it looks some times");
    // The founder's wait ends with the first tick after its duration, not several ticks later.
    bed.run(wait_ns + 4 * LOOK_NS);
    assert!(bed.members.iter().all(|member| !member.replica().is_joining()), "it is founded");
}

/// A group that is unreachable is founded again, in an incarnation with the number that others remember. It sends a
/// hello with that incarnation to a stalled process. Before that process judges the hello, the group has learnt of the
/// other incarnation, and has moved above it.
#[test]
fn process_that_refuses_an_outdated_incarnation_gets_another_hello() {
    for (seed, network) in (0..).zip([NetworkModel::calm(), NetworkModel::adversarial(), NetworkModel::unordered()]) {
        let mut bed = Bed::new(&[1, 1, 1], 1, limits(), network, seed);
        bed.run(RECONNECTED_NS);
        bed.submit(0, &[0, 1, 2], b"before").expect("the client is connected to all destinations");
        bed.run(4 * RECONNECTED_NS);
        let away = 20 * RECONNECTED_NS;
        [0, 2, 3].into_iter().for_each(|other| bed.cut(1, other, away));
        bed.restart_member(1);
        bed.run(away - RECONNECTED_NS);
        let founded = bed.members[1].replica().incarnation();
        assert!(founded.contradicts(Incarnation::FIRST), "seed {seed}: nobody reached it, {founded}");
        let stands = Fault::Stall { process: ProcessId(0), for_ns: 10 * RECONNECTED_NS };
        bed.world.inject(bed.world.now_ns(), stands);
        bed.run(8 * RECONNECTED_NS);
        assert_eq!(bed.members[1].replica().incarnation().number, 2, "seed {seed}");
        assert_eq!(bed.members[0].replica().known_incarnation(GroupId(1)), Incarnation::FIRST, "seed {seed}");
        bed.run(20 * RECONNECTED_NS);
        bed.restart_client(0);
        bed.run(20 * RECONNECTED_NS);
        let after = bed.submit(0, &[0, 1, 2], b"after").unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        bed.run(10 * RECONNECTED_NS);
        for (member, delivered) in bed.delivered.iter().enumerate() {
            assert_eq!(delivered.last().map(|(id, _)| *id), Some(after), "seed {seed}: member {member}");
        }
    }
}
