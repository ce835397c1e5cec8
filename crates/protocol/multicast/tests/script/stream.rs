//! A follower processes its leader's stream (step 4).

use stentor_multicast::{ClientId, Head, Rejected, Variant};

use super::process::{BOTH, Effect, Process, TWO_GROUPS, acks, delivery, head, led_by};

fn follower_with_body(variant: Variant) -> Process {
    let mut follower = Process::new(TWO_GROUPS, 1, variant);
    follower.message(0, 1, BOTH).expect("the body");
    follower
}

#[test]
fn an_assignment_alone_is_not_acknowledged() {
    let mut follower = follower_with_body(Variant::V2);
    assert_eq!(follower.assign(head(1, 0, 2), 1, 0, led_by(0), 3), Ok(vec![]));
    assert_eq!(follower.replica.clock(), 3);
}

#[test]
fn through_the_vector_entry_it_acknowledges_to_all_other_destinations() {
    let mut follower = follower_with_body(Variant::V2);
    follower.assign(head(1, 0, 2), 1, 0, led_by(0), 3).expect("the assignment");
    assert_eq!(follower.vector(head(1, 0, 2), 2, &[3, 8]), Ok(acks(1, 1, &[3, 8])));
    assert_eq!(follower.replica.clock(), 8);
}

#[test]
fn for_one_group_it_acknowledges_the_assignment_and_delivers() {
    let mut follower = Process::of_two_groups(1);
    follower.message(0, 1, &[(0, 0)]).expect("the body");
    let effects = follower.assign(head(1, 0, 1), 1, 0, led_by(0), 1).expect("the assignment");
    let ack = |to| Effect::Ack { to, head: head(1, 0, 1), position: 0, ballot: led_by(0), times: vec![1] };
    // Two votes of three are a majority: the follower's own vote, and the leader's, which the assignment implies.
    assert_eq!(effects, [ack(0), ack(2), delivery(1, 0, 1, 0, 1)]);
    assert_eq!(follower.replica.first_held(ClientId(0)), 1);
}

#[test]
fn in_v1_the_other_groups_timestamp_completes_the_vector() {
    let mut follower = follower_with_body(Variant::V1);
    follower.assign(head(1, 0, 2), 1, 0, led_by(0), 3).expect("the assignment");
    assert_eq!(follower.remote(head(1, 0, 2), 2, 1, led_by(3), 8), Ok(acks(1, 1, &[3, 8])));
    assert_eq!(follower.replica.clock(), 8);
}

#[test]
fn the_stream_waits_for_the_body() {
    let mut follower = Process::of_two_groups(1);
    assert!(follower.waits(head(1, 0, 2), 1));
    let early = Err(Rejected::NotHeld { client: 0, slot: 0 });
    assert_eq!(follower.assign(head(1, 0, 2), 1, 0, led_by(0), 3), early);
    follower.message(0, 1, BOTH).expect("the body");
    assert_eq!(follower.assign(head(1, 0, 2), 1, 0, led_by(0), 3), Ok(vec![]));
}

#[test]
fn stream_waits_for_the_state_with_the_lost_entries() {
    // An entry waits while an earlier one is missing. A connection lost that one, and the state with it is in flight.
    let mut follower = follower_with_body(Variant::V2);
    assert!(!follower.waits(head(1, 0, 2), 1));
    assert!(follower.waits(head(1, 0, 2), 2));
    follower.assign(head(1, 0, 2), 1, 0, led_by(0), 3).expect("the next one");
    assert!(!follower.waits(head(1, 0, 2), 1) && !follower.waits(head(1, 0, 2), 2));
    assert!(follower.waits(head(1, 0, 2), 3));
}

#[test]
fn an_undecided_message_blocks_a_later_decided_one() {
    let mut follower = follower_with_body(Variant::V2);
    follower.message(1, 1, &[(0, 0)]).expect("client 1's body");
    follower.assign(head(1, 0, 2), 1, 0, led_by(0), 1).expect("first");
    let second = Head { client: ClientId(1), ..head(1, 0, 1) };
    let effects = follower.assign(second, 2, 0, led_by(0), 2).expect("second, decided by its own vote");
    assert!(effects.iter().all(|effect| matches!(effect, Effect::Ack { .. })), "{effects:?}");
    // Decided at (5, group 1): the second message precedes the first after all.
    follower.vector(head(1, 0, 2), 3, &[1, 5]).expect("the first one's vector");
    let effects = follower.ack(4, head(1, 0, 2), 1, &[1, 5]).expect("the other group's majority");
    let Effect::Deliver(first) = effects[0] else { panic!("{effects:?}") };
    assert_eq!((first.id.client, first.timestamp.time), (ClientId(1), 2));
    assert_eq!(effects[1..], [delivery(1, 0, 5, 1, 2)]);
}

#[test]
fn an_unfinished_message_does_not_hold_back_an_earlier_one() {
    let mut follower = follower_with_body(Variant::V2);
    follower.message(1, 1, &[(0, 0)]).expect("client 1's body");
    let first = Head { client: ClientId(1), ..head(1, 0, 1) };
    // The unfinished message may wait long for the other group. It blocks only messages with larger timestamps.
    follower.assign(head(1, 0, 2), 1, 0, led_by(0), 7).expect("unfinished, at 7");
    let effects = follower.assign(first, 2, 0, led_by(0), 3).expect("decided by its own vote, at 3");
    assert!(matches!(effects.last(), Some(Effect::Deliver(first)) if first.timestamp.time == 3), "{effects:?}");
}

#[test]
fn invalid_stream_entries_are_refused() {
    let mut leader = Process::of_two_groups(0);
    leader.message(0, 1, BOTH).expect("the body");
    assert_eq!(leader.assign(head(1, 0, 2), 2, 0, led_by(0), 1), Err(Rejected::Role));
    let mut follower = follower_with_body(Variant::V2);
    let at = head(1, 0, 2);
    assert_eq!(follower.assign(at, 2, 0, led_by(0), 1), Err(Rejected::Counter { counter: 2, expected: 1 }));
    assert_eq!(follower.assign(at, 1, 0, led_by(2), 1), Err(Rejected::Ballot(led_by(2))));
    let other = Err(Rejected::OtherMessage { client: 0, slot: 0, sequence: 2 });
    assert_eq!(follower.assign(head(2, 0, 2), 1, 0, led_by(0), 1), other);
    let beyond = Err(Rejected::BeyondWindow { client: 0, slot: 2, end: 2 });
    assert_eq!(follower.assign(head(3, 2, 2), 1, 0, led_by(0), 1), beyond);
    let nobody = Head { client: ClientId(2), ..at };
    assert_eq!(follower.assign(nobody, 1, 0, led_by(0), 1), Err(Rejected::Client(2)));
    follower.assign(at, 1, 0, led_by(0), 1).expect("and the right one");
    assert_eq!(follower.assign(at, 1, 0, led_by(0), 1), Ok(vec![]), "an entry that is processed changes nothing");
    assert_eq!(follower.assign(at, 3, 0, led_by(0), 1), Err(Rejected::Counter { counter: 3, expected: 2 }));
}
