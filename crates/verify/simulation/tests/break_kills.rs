//! Followers crash under load, and the other members deliver everything.

mod break_bed;

use break_bed::{Bed, limits};
use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Fault, NetworkModel};
use stentor_multicast::MessageId;

/// Submits 120 messages in turn from two clients to changing destinations. Followers 1 and 4 crash at their post number
/// `post`.
fn run(network: NetworkModel, post: u64) -> (Bed, u64) {
    let mut bed = Bed::new(&[3, 3, 1], 2, limits(8, 256, 4096), network);
    bed.run(2_000_000, true);
    for process in [1, 4] {
        bed.world.inject(0, Fault::CrashAtPost { process: ProcessId(process), post });
    }
    let sets: [&[u16]; 5] = [&[0, 1], &[0], &[0, 1, 2], &[1], &[1, 2]];
    let (mut sent, mut patience) = (0_u64, 0);
    while sent < 120 && patience < 20_000 {
        let (client, to) = ((sent % 2) as u16, sets[(sent / 2 % 5) as usize]);
        match bed.submit(client, to, &sent.to_le_bytes(), sent.is_multiple_of(7)) {
            Ok(_) => sent += 1,
            Err(_) => bed.run(2_000, true),
        }
        patience += 1;
    }
    bed.run(20_000_000, true);
    (bed, sent)
}

#[test]
fn everything_is_delivered_in_one_order_when_a_follower_of_each_group_dies() {
    for post in [1, 2, 7, 20, 45] {
        for network in [NetworkModel::calm(), NetworkModel::adversarial(), NetworkModel::unordered()] {
            let (bed, sent) = run(network, post);
            assert_eq!(sent, 120, "post {post}");
            assert!(!bed.world.is_up(ProcessId(1)) && !bed.world.is_up(ProcessId(4)), "post {post}");
            let ids = |member: usize| bed.delivered[member].iter().map(|(id, _)| *id).collect::<Vec<MessageId>>();
            for (alive, dead) in [([0, 2], 1), ([3, 5], 4)] {
                assert_eq!(ids(alive[0]), ids(alive[1]));
                assert!(ids(alive[0]).starts_with(&ids(dead)), "post {post}");
            }
            assert_eq!((ids(0).len(), ids(3).len(), ids(6).len()), (72, 96, 48), "post {post}");
            let in_both = |member: usize, other: &[MessageId]| {
                ids(member).into_iter().filter(|id| other.contains(id)).collect::<Vec<_>>()
            };
            assert_eq!(in_both(0, &ids(3)), in_both(3, &ids(0)));
            assert_eq!(bed.members.iter().map(|member| member.counts().rejected).sum::<u64>(), 0);
        }
    }
}
