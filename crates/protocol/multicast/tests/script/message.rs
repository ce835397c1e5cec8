//! A client's message arrives (steps 1 and 2).

use stentor_multicast::{Rejected, RemoteTimestamp, Variant};

use super::process::{BOTH, Effect, Process, TWO_GROUPS, delivery, head, led_by};

#[test]
fn leader_assigns_and_writes_to_its_followers_and_the_other_leader() {
    let mut leader = Process::of_two_groups(0);
    let effects = leader.message(0, 1, BOTH);
    let item = RemoteTimestamp { head: head(1, 1, 2), position: 0, ballot: led_by(0), time: 1 };
    assert_eq!(
        effects,
        Ok(vec![
            Effect::Assign { head: head(1, 0, 2), counter: 1, position: 0, ballot: led_by(0), time: 1 },
            // The slot is the one at the receiver's group.
            Effect::Timestamp { to: 3, item },
        ])
    );
    assert_eq!((leader.replica.clock(), leader.replica.delivered()), (1, 0));
}

#[test]
fn the_second_group_s_leader_names_its_own_position() {
    let mut leader = Process::of_two_groups(3);
    let effects = leader.message(0, 1, &[(0, 7), (1, 0)]);
    let item = RemoteTimestamp { head: head(1, 7, 2), position: 1, ballot: led_by(3), time: 1 };
    assert_eq!(
        effects,
        Ok(vec![
            Effect::Assign { head: head(1, 0, 2), counter: 1, position: 1, ballot: led_by(3), time: 1 },
            Effect::Timestamp { to: 0, item },
        ])
    );
}

#[test]
fn for_one_group_the_assignment_is_the_vector() {
    let mut leader = Process::of_two_groups(0);
    let assign = Effect::Assign { head: head(1, 0, 1), counter: 1, position: 0, ballot: led_by(0), time: 1 };
    assert_eq!(leader.message(0, 1, &[(0, 0)]), Ok(vec![assign]));
    assert_eq!(leader.replica.delivered(), 0, "no follower has acknowledged");
}

#[test]
fn in_v1_the_leader_acknowledges_like_a_follower() {
    let mut leader = Process::new(TWO_GROUPS, 0, Variant::V1);
    let effects = leader.message(0, 1, &[(0, 0)]).expect("a sound message");
    let ack = |to| Effect::Ack { to, head: head(1, 0, 1), position: 0, ballot: led_by(0), times: vec![1] };
    assert_eq!(effects[1..], [ack(1), ack(2)]);
}

#[test]
fn a_group_of_one_delivers_its_own_message_at_once() {
    let mut alone = Process::new(&[1], 0, Variant::V2);
    let effects = alone.message(0, 1, &[(0, 0)]).expect("a sound message");
    assert_eq!(effects.last(), Some(&delivery(1, 0, 1, 0, 1)));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Ack { .. })), "nobody needs acknowledgements");
}

#[test]
fn follower_holds_the_body_and_sends_nothing() {
    let mut follower = Process::of_two_groups(1);
    assert!(follower.waits(head(1, 0, 2), 1));
    assert_eq!(follower.message(0, 1, BOTH), Ok(vec![]));
    assert!(!follower.waits(head(1, 0, 2), 1));
    assert_eq!(follower.replica.clock(), 0);
}

#[test]
fn each_client_has_its_own_ring_and_all_share_one_clock() {
    let mut leader = Process::of_two_groups(0);
    leader.message(0, 1, &[(0, 0)]).expect("client 0");
    let effects = leader.message(1, 1, &[(0, 0)]).expect("client 1");
    assert!(matches!(effects[..], [Effect::Assign { counter: 2, time: 2, .. }]), "{effects:?}");
}

/// M6: a message waits while an earlier one of its client, to a group that is not among its own destinations, is
/// undecided.
#[test]
fn the_fifo_rule_holds_back_until_the_earlier_message_is_decided() {
    let mut leader = Process::of_two_groups(0);
    leader.message(0, 1, BOTH).expect("a");
    assert_eq!(leader.message(0, 2, &[(0, 1)]), Ok(vec![]), "b waits");
    let vector = leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 1).expect("the other leader's timestamp");
    assert!(matches!(vector[..], [Effect::Vector { .. }]), "a full vector is not a decision: {vector:?}");
    assert_eq!(leader.ack(1, head(1, 0, 2), 0, &[1, 1]), Ok(vec![]), "the own group's majority is not enough");
    let decided = leader.ack(4, head(1, 0, 2), 1, &[1, 1]).expect("the other group's");
    let assign = Effect::Assign { head: head(2, 1, 1), counter: 3, position: 0, ballot: led_by(0), time: 2 };
    assert_eq!(decided, [assign, delivery(1, 0, 1, 1, 1)]);
}

#[test]
fn a_message_to_more_groups_does_not_wait() {
    let mut leader = Process::of_two_groups(0);
    leader.message(0, 1, &[(0, 0)]).expect("a");
    let effects = leader.message(0, 2, &[(0, 1), (1, 0)]).expect("b, to a superset");
    assert!(matches!(effects[0], Effect::Assign { counter: 2, time: 2, .. }), "{effects:?}");
}

#[test]
fn invalid_messages_are_refused() {
    let mut member = Process::of_two_groups(1);
    assert_eq!(member.message(2, 1, BOTH), Err(Rejected::Client(2)));
    assert_eq!(member.message(0, 1, &[(1, 0)]), Err(Rejected::NotForUs));
    member.message(0, 2, &[(0, 1)]).expect("slot 1: forwarded, before slot 0");
    member.message(0, 1, &[(0, 0)]).expect("slot 0");
    let before = member.replica.clone();
    assert_eq!(member.message(0, 2, &[(0, 1)]), Ok(vec![]), "once more");
    assert!(member.replica == before, "a message that is held already changes nothing");
    assert_eq!(member.message(0, 3, &[(0, 2)]), Err(Rejected::BeyondWindow { client: 0, slot: 2, end: 2 }));
}

#[test]
fn a_message_must_be_the_one_that_its_slot_was_named_for() {
    let mut member = Process::of_two_groups(1);
    member.ack(4, head(1, 0, 2), 1, &[1, 1]).expect("an acknowledgement before the body");
    let other = |sequence| Err(Rejected::OtherMessage { client: 0, slot: 0, sequence });
    assert_eq!(member.message(0, 1, &[(0, 0)]), other(1), "another number of groups");
    assert_eq!(member.message(0, 1, BOTH), Ok(vec![]));
}
