//! A group that lost all its memory begins anew, with small ballots; other groups remember larger ones of it.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::NetworkModel;
use stentor_multicast::GroupId;

use crate::bed::{Bed, RECONNECTED_NS, SETTLED_NS, limits};

/// A leader is deposed, and cut off from its successor only. Everybody else tells it so, and it leaves that one in peace.
#[test]
fn a_leader_that_does_not_hear_its_successor_does_not_depose_it() {
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

/// Group 1 changes its leader so often, then all its members are replaced at once; what is multicast to both groups
/// afterwards, by a new process, is delivered by all.
fn begins_anew_after(changes: u16, size: u16, network: NetworkModel, seed: u64) {
    let why = format!("{changes} changes in a group of {size}, seed {seed}");
    let mut bed = Bed::new(&[3, usize::from(size)], 1, limits(), network, seed);
    bed.run(RECONNECTED_NS);
    for change in 0..changes {
        let candidate = 3 + change % size.min(2);
        bed.members[usize::from(candidate)].campaign().expect("a member");
        bed.world.wake_at(ProcessId(candidate), bed.world.now_ns());
        bed.run(4 * SETTLED_NS);
    }
    let before = bed.submit(0, &[0, 1], b"before").expect("all are connected");
    bed.run(4 * RECONNECTED_NS);
    assert!(bed.delivered.iter().all(|delivered| delivered.len() == 1), "{why}");
    let remembered = bed.members[0].replica().known(GroupId(1));
    let mut anew = 3..usize::from(3 + size);
    for member in anew.clone() {
        bed.restart_member(member);
    }
    bed.run(10 * RECONNECTED_NS);
    assert!(anew.all(|member| !bed.members[member].replica().is_joining()), "{why}: it begins anew");
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
fn a_group_that_begins_anew_delivers_with_groups_that_remember_larger_ballots_of_it() {
    for (seed, network) in (0..).zip([NetworkModel::calm(), NetworkModel::adversarial(), NetworkModel::unordered()]) {
        for (changes, size) in [(0, 3), (1, 3), (4, 3), (4, 1), (3, 2)] {
            begins_anew_after(changes, size, network.clone(), seed);
        }
    }
}
