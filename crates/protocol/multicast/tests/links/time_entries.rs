//! Time entries on nodes: in a group in which no client multicasts, and when its leader dies.

use std::time::Duration;

use stentor_fabric_sim::NetworkModel;
use stentor_multicast::{ClientId, GroupId, MessageId};

use crate::bed::{Bed, RECONNECTED_NS};

const MS: u64 = 1_000_000;
/// The client id of group 0's time entries, in a cluster with one client.
const TIME: ClientId = ClientId(1);

/// A leader orders `count` time entries, each as soon as the previous one is delivered.
fn order(bed: &mut Bed, leader: usize, count: u32) -> Vec<MessageId> {
    let mut ordered = Vec::new();
    for _ in 0..count {
        let mut tries = 0;
        while {
            let id = bed.order_time(leader, 0);
            ordered.extend(id);
            id.is_none()
        } {
            tries += 1;
            assert!(tries < 20_000, "after {} time entries", ordered.len());
            bed.run(20_000);
        }
    }
    ordered
}

#[test]
fn idle_group_delivers_time_entries_at_all_members_under_any_leader() {
    for (seed, network) in (0..6).zip([NetworkModel::adversarial(), NetworkModel::unordered()].into_iter().cycle()) {
        let mut bed = Bed::with_time_entries(&[3, 1], network, seed);
        bed.run(RECONNECTED_NS);
        // Orders more time entries than a window has slots.
        let mut ordered = order(&mut bed, 0, 40);
        assert_eq!(bed.order_time(1, 0), None, "it does not lead");
        // A time entry may be in flight when the leader dies. The leader's successor repeats the entry, or reuses its
        // name.
        bed.crash(0);
        bed.run(RECONNECTED_NS);
        bed.members[1].campaign().expect("the member can campaign");
        bed.run(RECONNECTED_NS);
        let mut after = order(&mut bed, 1, 20);
        after.retain(|id| !ordered.contains(id));
        ordered.extend(after);
        bed.run(3 * RECONNECTED_NS);
        bed.agree(&[1, 2], &ordered, &format!("seed {seed}"));
        // A member that restarts receives these entries with the application's state.
        bed.restart_member(0);
        bed.run(8 * RECONNECTED_NS);
        let leader = (0..3).find(|member| bed.members[*member].replica().is_leader()).expect("a member leads");
        ordered.extend(order(&mut bed, leader, 3));
        bed.run(3 * RECONNECTED_NS);
        bed.agree(&[0, 1, 2], &ordered, &format!("seed {seed}, with the restarted one"));
        let whole: Vec<MessageId> =
            (1..=ordered.len() as u64).map(|sequence| MessageId { client: TIME, sequence }).collect();
        assert_eq!(ordered, whole, "seed {seed}: their names follow from their slots");
        for (id, groups, enveloped) in &bed.described[leader] {
            assert_eq!((id.client, &groups[..], *enveloped), (TIME, &[GroupId(0)][..], false));
        }
        assert!(bed.delivered[3].is_empty(), "another group has none of it");
        assert_eq!(bed.rejected(), 0, "seed {seed}");
    }
}

#[test]
fn time_entries_are_ordered_among_the_messages_of_clients() {
    let mut bed = Bed::with_time_entries(&[3], NetworkModel::adversarial(), 3);
    bed.run(RECONNECTED_NS);
    for n in 0..50_u32 {
        bed.order_time(0, 0);
        let mut tries = 0;
        while bed.submit(0, &[0], &n.to_le_bytes()).is_err() {
            bed.run(20_000);
            tries += 1;
            assert!(tries < 20_000);
        }
        bed.run(u64::from(n) * 1_000);
    }
    bed.run(RECONNECTED_NS);
    let first = bed.delivered[0].clone();
    let of_client = first.iter().filter(|(id, _)| id.client == ClientId(0)).count();
    assert!(of_client == 50 && first.len() > 60, "{of_client} of {}", first.len());
    assert!(bed.delivered.iter().all(|delivered| *delivered == first));
}

/// The time of the group advances with its leader's clock, and an entry gets a later time than the one that was
/// requested.
#[test]
fn a_leader_knows_when_a_time_has_come() {
    const BEGIN: u64 = 1_795_000_000_000_000_000;
    let mut bed = Bed::with_time_entries(&[3], NetworkModel::calm(), 1);
    for _ in 0..50 {
        let now = bed.world.now_ns();
        for member in &mut bed.members {
            member.tell_wall_clock(Duration::from_nanos(now), BEGIN + now).expect("a sound clock");
        }
        bed.run(MS);
    }
    let now = Duration::from_nanos(bed.world.now_ns());
    assert_eq!(bed.members[1].group_time(now), None, "it does not lead");
    let time = bed.members[0].group_time(now).expect("the member leads");
    assert!(time.abs_diff(BEGIN + bed.world.now_ns()) < MS);
    let later = bed.members[0].group_time(now + Duration::from_millis(5)).expect("the member leads");
    assert!((later - time).abs_diff(5 * MS) < MS / 10, "without a message");
    assert!(bed.order_time(0, time + 3 * MS).is_some());
    assert!(bed.members[0].replica().clock() > time + 3 * MS);
    bed.run(MS);
    assert!(bed.delivered.iter().all(|delivered| delivered.len() == 1));
}
