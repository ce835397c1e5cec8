//! A leader that lags behind its followers: they delivered messages, forgot them, and continued, and the leader has not
//! learnt of that. In the first test, one follower alone has delivered a message.

use stentor_multicast::{Item, Mutant, Variant};

use super::cluster::Cluster;
use super::net::{Parcel, Wire};

/// Delivers all messages in flight, except those that `lost` selects.
fn settle(cluster: &mut Cluster, lost: fn(Wire) -> bool) {
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for wire in cluster.net.filled() {
            if lost(wire) {
                cluster.net.queues.remove(&wire);
            } else {
                moved |= cluster.take(wire, None).expect("nothing is refused");
            }
        }
    }
}

/// One follower gets a group's acknowledgements, no other member does, and that group is dead for good. All members
/// must deliver what this follower has delivered.
#[test]
fn all_members_deliver_what_one_delivered_although_the_other_group_is_dead() {
    for variant in [Variant::V2, Variant::V1] {
        let mut cluster = Cluster::new(&[3, 1], 1, (variant, 4, Mutant::None));
        assert!(cluster.submit(0, &[0, 1], None));
        while let Some(wire) = cluster.net.filled().first().copied() {
            let queue = cluster.net.queues.get_mut(&wire).expect("a filled wire has a queue");
            let acknowledges = |words: &[u64]| matches!(Item::decode(words, 0), Ok((Item::Ack(_), _)));
            let lost = matches!((wire, queue.front()), (Wire::Control { from: 3, to: 0 | 2 }, Some(Parcel::Item(words))) if acknowledges(words));
            if lost {
                queue.pop_front();
            } else {
                assert_eq!(cluster.take(wire, None), Ok(true), "nothing waits here");
            }
        }
        let delivered = |cluster: &Cluster| cluster.members.iter().map(|member| member.log.len()).collect::<Vec<_>>();
        assert_eq!(delivered(&cluster), [0, 1, 0, 1], "{variant:?}");
        cluster.crash(3);
        for _ in 0..20 {
            (0..3).for_each(|member| cluster.tick(member).expect("the processes accept the input"));
            settle(&mut cluster, |_| false);
        }
        assert_eq!(delivered(&cluster)[..3], [1, 1, 1], "{variant:?}");
    }
}

#[test]
fn leader_without_acknowledgements_takes_over_its_followers_state() {
    for variant in [Variant::V2, Variant::V1] {
        for sizes in [&[3][..], &[3, 1], &[5]] {
            let to: Vec<u16> = (0..sizes.len() as u16).collect();
            let mut cluster = Cluster::new(sizes, 1, (variant, 1, Mutant::None));
            assert!(cluster.submit(0, &to, None));
            settle(&mut cluster, |wire| matches!(wire, Wire::Control { to: 0, from } if from != 3));
            // The client no longer counts the leader, and reuses the only slot: the followers forget the message in it.
            cluster.cut_client(0, 0);
            assert!(cluster.submit(0, &to, None), "{sizes:?}: the followers have delivered");
            settle(&mut cluster, |wire| wire.receiver() == 0);
            assert!(cluster.members[0].log.is_empty());
            for _ in 0..60 {
                (0..cluster.members.len() as u16)
                    .for_each(|member| cluster.tick(member).expect("the processes accept the input"));
                settle(&mut cluster, |_| false);
            }
            for (process, member) in cluster.members.iter().enumerate() {
                assert_eq!(member.log.len(), 2, "{sizes:?} {variant:?}: member {process}");
                assert_eq!(member.log[0], cluster.members[1].log[0]);
            }
        }
    }
}
