//! Acknowledgements arrive; the message is decided and delivered (step 5).

use stentor_fabric::ProcessId;
use stentor_multicast::{Ballot, ClientId, Head, Rejected, ShortSlot, Variant};

use super::process::{BOTH, Process, delivery, head, led_by};

const AT: Head = Head { client: ClientId(0), sequence: 1, slot: ShortSlot::of(0), groups: 2 };

/// Returns member 1, which has processed the message's vector entry.
fn acknowledged() -> Process {
    let mut follower = Process::of_two_groups(1);
    follower.message(0, 1, BOTH).expect("the body");
    follower.assign(AT, 1, 0, led_by(0), 2).expect("the assignment");
    follower.vector(AT, 2, &[2, 2]).expect("the vector");
    follower
}

#[test]
fn a_majority_of_every_group_decides_at_the_larger_pair() {
    let mut follower = acknowledged();
    // Member 4's vote implies its leader's: two of three. The times are equal, so the larger group counts.
    assert_eq!(follower.ack(4, AT, 1, &[2, 2]), Ok(vec![delivery(1, 0, 2, 1, 1)]));
    assert_eq!((follower.replica.delivered(), follower.replica.first_held(ClientId(0))), (1, 1));
}

#[test]
fn another_vector_decides_nothing() {
    let mut follower = acknowledged();
    assert_eq!(follower.ack(4, AT, 1, &[2, 3]), Ok(vec![]));
    assert_eq!(
        follower.ack(2, AT, 0, &[2, 3]),
        Ok(vec![]),
        "a majority of both groups, but not for the vector in the stream"
    );
    let effects = follower.vector(AT, 3, &[2, 3]).expect("the vector that is decided");
    assert_eq!(effects.last(), Some(&delivery(1, 0, 3, 1, 1)), "processed through its entry");
}

#[test]
fn votes_for_different_vectors_do_not_add_up() {
    let mut follower = Process::new(&[5], 1, Variant::V2);
    follower.message(0, 1, &[(0, 0)]).expect("the body");
    let at = head(1, 0, 1);
    follower.assign(at, 1, 0, led_by(0), 7).expect("the assignment");
    assert_eq!(follower.ack(2, at, 0, &[8]), Ok(vec![]), "three members of five, but two vectors");
    // The latest acknowledgement of a process counts.
    assert_eq!(follower.ack(2, at, 0, &[7]), Ok(vec![delivery(1, 0, 7, 0, 1)]));
}

/// A majority of a group counts only in one ballot of that group. The ballots of different groups are independent.
#[test]
fn votes_in_different_ballots_of_a_group_do_not_add_up() {
    let mut leader = Process::new(&[1, 5], 0, Variant::V2);
    leader.message(0, 1, &[(0, 0), (1, 0)]).expect("the body");
    leader.timestamp(1, head(1, 0, 2), 1, led_by(1), 7).expect("the other group's timestamp");
    let (at, second) = (head(1, 0, 2), Ballot::new(2, ProcessId(4)));
    assert_eq!(leader.ack_in(second, 3, at, 1, &[1, 7]), Ok(vec![]), "its own and its leader's vote in ballot 2");
    for (member, why) in [(2, "five voters of five, but two ballots"), (5, "an older ballot than the largest")] {
        assert_eq!(leader.ack(member, at, 1, &[1, 7]), Ok(vec![]), "{why}");
    }
    let third_voter = leader.ack_in(second, 5, at, 1, &[1, 7]);
    assert_eq!(third_voter, Ok(vec![delivery(1, 0, 7, 1, 1)]), "three of five in ballot 2");
}

/// Acknowledgements of the member's own group in a ballot whose state is not installed here do not count: that ballot
/// may have ordered another message before.
#[test]
fn a_newer_ballot_of_the_own_group_counts_only_when_it_is_installed() {
    let mut follower = Process::new(&[5], 1, Variant::V2);
    follower.message(0, 1, &[(0, 0)]).expect("the body");
    let (at, second) = (head(1, 0, 1), Ballot::new(2, ProcessId(3)));
    follower.assign(at, 1, 0, led_by(0), 7).expect("its own vote, in ballot 1");
    for member in [2, 4] {
        assert_eq!(follower.ack_in(second, member, at, 0, &[7]), Ok(vec![]));
    }
    assert_eq!(follower.replica.delivered(), 0, "three of five in ballot 2");
}

#[test]
fn acknowledgements_before_the_body_count() {
    let mut follower = Process::of_two_groups(1);
    follower.ack(2, AT, 0, &[2, 4]).expect("the own group's majority");
    assert_eq!(follower.ack(5, AT, 1, &[2, 4]), Ok(vec![]), "a majority, but no body");
    assert_eq!(follower.message(0, 1, BOTH), Ok(vec![]), "decided, but not in the stream");
    assert_eq!(follower.assign(AT, 1, 0, led_by(0), 2), Ok(vec![]), "in the stream, but not through its vector");
    let effects = follower.vector(AT, 2, &[2, 4]).expect("the vector");
    assert_eq!(effects.last(), Some(&delivery(1, 0, 4, 1, 1)));
    assert_eq!(effects.len(), 6, "it acknowledges all the same: {effects:?}");
}

#[test]
fn a_leader_delivers_on_its_followers_acknowledgements() {
    let mut leader = Process::of_two_groups(0);
    leader.message(0, 1, BOTH).expect("the body");
    leader.timestamp(3, AT, 1, led_by(3), 1).expect("the other leader's");
    assert_eq!(leader.ack(4, AT, 1, &[1, 1]), Ok(vec![]), "its own group has only its own vote");
    assert_eq!(leader.ack(2, AT, 0, &[1, 1]), Ok(vec![delivery(1, 0, 1, 1, 1)]));
}

#[test]
fn late_acknowledgements_of_a_freed_message_change_nothing() {
    let mut follower = acknowledged();
    follower.ack(4, AT, 1, &[2, 2]).expect("decided and delivered");
    let before = follower.replica.clone();
    for (from, position) in [(5, 1), (2, 0), (3, 1)] {
        assert_eq!(follower.ack(from, AT, position, &[2, 2]), Ok(vec![]));
    }
    assert!(follower.replica == before);
}

#[test]
fn a_repeated_acknowledgement_counts_once() {
    let mut follower = Process::new(&[5], 1, Variant::V2);
    follower.message(0, 1, &[(0, 0)]).expect("the body");
    for _ in 0..3 {
        assert_eq!(follower.ack(2, head(1, 0, 1), 0, &[1]), Ok(vec![]));
    }
    let effects = follower.assign(head(1, 0, 1), 1, 0, led_by(0), 1).expect("the third voter of five is itself");
    assert_eq!(effects.last(), Some(&delivery(1, 0, 1, 0, 1)));
}

#[test]
fn invalid_acknowledgements_are_refused() {
    let mut follower = Process::of_two_groups(1);
    let sender = |process| Err(Rejected::Sender(ProcessId(process)));
    assert_eq!(follower.ack(6, AT, 1, &[1, 1]), sender(6), "a client");
    assert_eq!(follower.ack(9, AT, 1, &[1, 1]), sender(9), "nobody");
    let by_a_stranger = follower.ack_in(led_by(0), 4, AT, 1, &[1, 1]);
    assert_eq!(by_a_stranger, sender(4), "a ballot that is led from outside the group");
    let nobody = Head { client: ClientId(2), ..AT };
    assert_eq!(follower.ack(4, nobody, 1, &[1, 1]), Err(Rejected::Client(2)));
    let beyond = Err(Rejected::BeyondWindow { client: 0, slot: 2, end: 2 });
    assert_eq!(follower.ack(4, head(1, 2, 2), 1, &[1, 1]), beyond);
    follower.message(0, 1, BOTH).expect("the body");
    assert_eq!(follower.ack(4, AT, 0, &[1, 1]), sender(4), "another group's position");
    let other = |sequence| Err(Rejected::OtherMessage { client: 0, slot: 0, sequence });
    assert_eq!(follower.ack(4, head(2, 0, 2), 1, &[1, 1]), other(2));
    assert_eq!(follower.ack(2, head(1, 0, 1), 0, &[1]), other(1), "another number of groups");
}
