//! Access of members to the stream rings of others.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::NetworkModel;

use crate::bed::{Bed, RECONNECTED_NS, SETTLED_NS, limits};

#[test]
fn fenced_leader_writes_nothing_more_and_its_link_reconnects() {
    for seed in 0..20 {
        let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::adversarial(), seed);
        bed.run(RECONNECTED_NS);
        bed.submit(0, &[0], b"before").expect("the client is connected to all destinations");
        bed.run(5 * SETTLED_NS);
        for follower in [1, 2] {
            while !bed.members[follower].fence(None) {
                bed.run(1_000);
            }
        }
        bed.submit(0, &[0], b"fenced").expect("there is room");
        bed.run(RECONNECTED_NS);
        assert!(bed.world.fault_counts().remote_access_errors > 0, "seed {seed}: the stream broke");
        assert!(bed.members.iter().all(|member| member.is_connected()), "seed {seed}: and was reconnected");
        // When access is granted again, the stream continues. Entries written meanwhile are kept for members that
        // count.
        for follower in [1, 2] {
            bed.members[follower].grant_stream(ProcessId(0));
        }
        bed.run(RECONNECTED_NS);
        bed.submit(0, &[0], b"after").expect("there is room");
        bed.run(RECONNECTED_NS);
        assert_eq!(
            [0, 1, 2].map(|member| bed.delivered[member].len()),
            [3; 3],
            "seed {seed}: the stream is read again"
        );
    }
}

#[test]
fn fence_spares_the_member_that_it_excepts() {
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::adversarial(), 3);
    bed.run(RECONNECTED_NS);
    for follower in [1, 2] {
        while !bed.members[follower].fence(Some(ProcessId(0))) {
            bed.run(1_000);
        }
    }
    bed.submit(0, &[0], b"as before").expect("the client is connected to all destinations");
    bed.run(5 * SETTLED_NS);
    assert_eq!([0, 1, 2].map(|member| bed.delivered[member].len()), [1; 3]);
    assert_eq!(bed.world.fault_counts().remote_access_errors, 0);
}
