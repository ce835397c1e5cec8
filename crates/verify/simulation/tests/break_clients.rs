//! Clients that wait for credits, that restart, or that are far ahead at one group.

mod break_bed;

use break_bed::{Bed, limits};
use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Delay, Fault, NetworkModel};
use stentor_multicast::{GroupId, MessageId, SubmitError};

/// Time in which everything in flight completes, in nanoseconds.
const SETTLED_NS: u64 = 100_000;
/// Time in which a broken queue pair is detected and reconnected, in nanoseconds.
const RECONNECTED_NS: u64 = 4_000_000;

#[test]
fn credit_found_while_submitting_frees_the_window_too() {
    // Each record has two cells, so seven records fill the fourteen cells of the ring. The window of eight has one more
    // slot.
    let mut bed = Bed::new(&[1], 1, limits(8, 64, 14 * 64), NetworkModel::uniform(1_000));
    bed.run(SETTLED_NS, true);
    for n in 0..7 {
        assert!(bed.submit(0, &[0], &[n; 64], false).is_ok(), "message {n}");
    }
    // The credit for the seven messages arrives between the client's last round and its next message.
    bed.run(SETTLED_NS, false);
    assert!(bed.submit(0, &[0], &[7; 64], false).is_ok());
    bed.run(SETTLED_NS, true);
    assert_eq!(bed.delivered_by(0).len(), 8);
    assert!(bed.submit(0, &[0], &[8; 64], false).is_ok(), "seven slots were credited");
}

#[test]
fn credit_found_by_a_rejected_message_counts_too() {
    let mut bed = Bed::new(&[1, 1], 1, limits(8, 64, 14 * 64), NetworkModel::uniform(1_000));
    bed.run(SETTLED_NS, true);
    bed.world.inject(0, Fault::Stall { process: ProcessId(1), for_ns: 10 * SETTLED_NS });
    bed.run(1_000, true);
    let mut sent = 0;
    for group in [0, 1] {
        // Fill the ring but not the window.
        while bed.submit(0, &[group], &[1; 64], true).is_ok() {
            sent += 1;
        }
    }
    assert!((2..16).contains(&sent), "{sent} messages, the windows are not full");
    bed.run(SETTLED_NS, false);
    assert_eq!(bed.submit(0, &[0, 1], &[2; 64], true), Err(SubmitError::Busy { group: 1 }));
    bed.client(0).step();
    assert_eq!(bed.client(0).outstanding(), sent / 2, "group 0 has acknowledged its messages");
}

#[test]
fn undelivered_messages_survive_a_new_owner_of_the_client_id() {
    let mut bed = Bed::new(&[3, 1], 1, limits(64, 64, 8192), NetworkModel::uniform(1_000));
    bed.run(SETTLED_NS, true);
    // Group 1 does not answer for a while, so group 0 holds the message but cannot deliver it.
    bed.world.inject(0, Fault::Stall { process: ProcessId(3), for_ns: 3 * RECONNECTED_NS });
    bed.submit(0, &[0, 1], b"first", false).expect("a quiet cluster takes a message");
    bed.run(SETTLED_NS, true);
    assert!(bed.delivered.iter().all(Vec::is_empty));
    bed.replace_client(0);
    bed.run(RECONNECTED_NS, true);
    let early = bed.submit(0, &[0], b"second", false);
    bed.run(3 * RECONNECTED_NS, true);
    let late = if early.is_ok() { early } else { bed.submit(0, &[0], b"second", false) };
    bed.run(SETTLED_NS, true);
    let id = late.expect("the client id is open");
    for member in 0..3 {
        assert_eq!(bed.delivered_by(member), [1, id.sequence], "member {member}");
    }
}

#[test]
fn new_owner_of_a_client_id_never_reuses_a_message_id() {
    let mut bed = Bed::new(&[1, 1], 1, limits(8, 64, 8192), NetworkModel::uniform(1_000));
    bed.run(SETTLED_NS, true);
    for _ in 0..3 {
        bed.submit(0, &[1], b"to group 1 only", true).expect("a quiet cluster takes a message");
    }
    bed.run(SETTLED_NS, true);
    assert_eq!(bed.delivered_by(1), [1, 2, 3]);
    bed.world.inject(0, Fault::Stall { process: ProcessId(1), for_ns: 2 * RECONNECTED_NS });
    bed.replace_client(0);
    bed.run(RECONNECTED_NS, true);
    // Group 1 has not reported its count for the client id yet. A message to group 0 alone does not need that count.
    let id = bed.submit(0, &[0], b"to group 0 only", true).expect("the message needs no count of group 1");
    assert!(id.sequence > 3, "{id} is already in use");
    bed.run(2 * RECONNECTED_NS, true);
    let id = bed.submit(0, &[0], b"to group 0 only", true).expect("the client id is open");
    assert!(id.sequence > 3, "{id} is already in use");
}

#[test]
fn client_id_with_many_unread_messages_is_taken_over() {
    // All messages are unread when the client dies. They are more than a member processes in one step.
    let mut bed = Bed::new(&[1], 1, limits(256, 64, 65536), NetworkModel::uniform(1_000));
    bed.run(SETTLED_NS, true);
    bed.world.inject(0, Fault::Stall { process: ProcessId(0), for_ns: 2 * RECONNECTED_NS });
    bed.run(1_000, true);
    for n in 0..200_u8 {
        bed.submit(0, &[0], &[n; 8], false).expect("the window is larger");
    }
    bed.run(SETTLED_NS, true);
    bed.replace_client(0);
    bed.run(4 * RECONNECTED_NS, true);
    let id = bed.submit(0, &[0], b"next", true).expect("all earlier messages are delivered");
    bed.run(SETTLED_NS, true);
    assert_eq!(id.sequence, (1 << MessageId::GENERATION_BITS) + 1);
    assert_eq!(bed.delivered_by(0), (1..=200).chain([id.sequence]).collect::<Vec<_>>());
}

#[test]
fn unresponsive_group_costs_a_client_of_other_groups_no_memory() {
    let mut bed = Bed::new(&[1, 1], 1, limits(4, 64, 8192), NetworkModel::uniform(1_000));
    bed.run(SETTLED_NS, true);
    bed.world.inject(0, Fault::Stall { process: ProcessId(0), for_ns: 1_000_000_000 });
    bed.run(1_000, true);
    let first = bed.submit(0, &[0], b"stuck", true).expect("a quiet cluster takes a message");
    for n in 0..500_u32 {
        let sent = bed.submit(0, &[1], b"flows", true);
        assert!(sent.is_ok(), "message {n}: {sent:?}");
        bed.run(10_000, true);
    }
    assert_eq!(bed.delivered_by(1).len(), 500);
    assert_eq!(bed.client(0).delivered_up_to(), first.sequence - 1);
    // All messages but the first are known to be delivered.
    assert_eq!(bed.client(0).outstanding(), 1);
}

#[test]
fn full_window_rejects_messages_and_opens_again() {
    let mut bed = Bed::new(&[3], 1, limits(1, 0, 0), NetworkModel::uniform(1_000));
    bed.run(SETTLED_NS, true);
    for n in 1..=50 {
        let id = bed.submit(0, &[0], b"", false).expect("the window of one is open");
        assert_eq!(id.sequence, n);
        assert_eq!(bed.submit(0, &[0], b"", false), Err(SubmitError::Busy { group: 0 }));
        bed.run(SETTLED_NS, true);
    }
    assert!(bed.delivered.iter().all(|delivered| delivered.len() == 50));
    assert_eq!((bed.client(0).delivered_up_to(), bed.client(0).outstanding()), (50, 0));
}

#[test]
fn half_written_message_does_not_block_the_client_id() {
    let mut bed = Bed::new(&[1, 1], 1, limits(8, 64, 8192), NetworkModel::uniform(1_000));
    bed.run(SETTLED_NS, true);
    // The client dies after its first write. Group 0 has the message; group 1 never receives it but learns of it.
    bed.world.inject(0, Fault::CrashAtPost { process: ProcessId(2), post: 1 });
    bed.run(1_000, true);
    bed.submit(0, &[0, 1], b"half written", true).expect("a quiet cluster takes a message");
    bed.run(RECONNECTED_NS, true);
    bed.replace_client(0);
    bed.run(RECONNECTED_NS, true);
    assert!(bed.client(0).is_connected(&[GroupId(0), GroupId(1)]));
    let next = bed.submit(0, &[1], b"next", true).expect("the client id is open");
    bed.run(RECONNECTED_NS, true);
    assert_eq!(bed.delivered_by(1).last(), Some(&next.sequence));
}

#[test]
fn client_id_changes_owner_while_its_credits_are_flushed() {
    // The old client does not acknowledge credits, until its queue pair breaks. The new client connects at once, while
    // more credits are being flushed than a member processes in one round.
    let network = NetworkModel {
        control: Delay::exactly(0),
        step: Delay::exactly(100),
        retry_ns: 200_000,
        ..NetworkModel::uniform(1_000)
    };
    for cut_ns in (200_000..206_000).step_by(200) {
        let mut bed = Bed::new(&[1], 1, limits(256, 64, 65536), network.clone());
        bed.run(SETTLED_NS, true);
        bed.world.inject(0, Fault::Cut { from: ProcessId(0), to: ProcessId(1), for_ns: cut_ns });
        for n in 0..190_u8 {
            assert!(bed.submit(0, &[0], &[n; 8], true).is_ok(), "message {n}");
            bed.run(1_000, false);
        }
        bed.run(5_000, false);
        bed.replace_client(0);
        bed.run(RECONNECTED_NS, true);
        let next = bed.submit(0, &[0], b"next", true);
        assert!(next.is_ok(), "cut for {cut_ns} ns: {next:?}");
        bed.run(SETTLED_NS, true);
        assert_eq!(bed.client(0).outstanding(), 0, "the credit arrived");
    }
}

#[test]
fn the_newest_credit_counts_if_writes_overtake_each_other() {
    let mut bed = Bed::new(&[3], 1, limits(64, 64, 65536), NetworkModel::unordered());
    bed.run(SETTLED_NS, true);
    for round in 0..300 {
        for n in 0..3 {
            assert!(bed.submit(0, &[0], &[n; 8], true).is_ok(), "round {round}");
            bed.run(1_500, true);
        }
        bed.run(10 * SETTLED_NS, true);
        assert_eq!(bed.client(0).outstanding(), 0, "round {round}");
    }
}
