//! Another group's leader writes its timestamp (step 3).

use stentor_fabric::ProcessId;
use stentor_multicast::{ClientId, GroupId, Head, Incarnation, PeerMessage, Rejected, ReplicaConfig, Variant};

use super::process::{BOTH, Effect, Process, TWO_GROUPS, acks, head, led_by};

fn vector(counter: u64, first: u64, second: u64) -> Effect {
    Effect::Vector { head: head(1, 0, 2), counter, times: vec![first, second] }
}

#[test]
fn the_leader_raises_its_clock_and_appends_the_vector() {
    let mut leader = Process::of_two_groups(0);
    leader.message(0, 1, BOTH).expect("the body");
    assert_eq!(leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 5), Ok(vec![vector(2, 1, 5)]));
    assert_eq!(leader.replica.clock(), 5);
    let next = leader.message(1, 1, &[(0, 0)]).expect("another client's message");
    assert!(matches!(next[..], [Effect::Assign { counter: 3, time: 6, .. }]), "{next:?}");
}

#[test]
fn a_smaller_timestamp_leaves_the_clock() {
    let mut leader = Process::of_two_groups(0);
    for sequence in 1..=2 {
        leader.message(1, sequence, &[(0, sequence - 1)]).expect("client 1");
    }
    leader.message(0, 1, BOTH).expect("the body");
    assert_eq!(leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 1), Ok(vec![vector(4, 3, 1)]));
    assert_eq!(leader.replica.clock(), 3);
}

#[test]
fn a_timestamp_before_the_body_waits_for_it() {
    let mut leader = Process::of_two_groups(0);
    assert_eq!(leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 5), Ok(vec![]));
    assert_eq!(leader.replica.clock(), 0, "the clock moves with the vector");
    let effects = leader.message(0, 1, BOTH).expect("the body");
    assert!(matches!(effects[..2], [Effect::Assign { time: 1, .. }, Effect::Timestamp { to: 3, .. }]), "{effects:?}");
    assert_eq!(effects[2..], [vector(2, 1, 5)]);
    assert_eq!(leader.replica.clock(), 5);
}

#[test]
fn a_timestamp_for_a_message_that_the_fifo_rule_holds_back_is_kept() {
    let mut leader = Process::new(&[3, 1, 1], 0, Variant::V2);
    leader.message(0, 1, &[(0, 0), (1, 0)]).expect("a");
    assert_eq!(leader.message(0, 2, &[(0, 1), (2, 0)]), Ok(vec![]), "b waits until a is decided");
    assert_eq!(leader.timestamp(4, head(2, 1, 2), 1, led_by(4), 9), Ok(vec![]), "b's, from group 2");
    leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 1).expect("a's, from group 1");
    leader.ack(1, head(1, 0, 2), 0, &[1, 1]).expect("the own group's majority");
    let effects = leader.ack(3, head(1, 0, 2), 1, &[1, 1]).expect("group 1's: a is decided");
    assert!(matches!(effects[..2], [Effect::Assign { time: 2, .. }, Effect::Timestamp { to: 4, .. }]), "{effects:?}");
    assert_eq!(effects[2], Effect::Vector { head: head(2, 1, 2), counter: 4, times: vec![2, 9] });
    assert_eq!(leader.replica.clock(), 9);
}

#[test]
fn v1_passes_the_timestamp_on_and_acknowledges() {
    let mut leader = Process::new(TWO_GROUPS, 0, Variant::V1);
    leader.message(0, 1, BOTH).expect("the body");
    let effects = leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 5).expect("the other leader's");
    let passed = Effect::Remote { head: head(1, 0, 2), counter: 2, position: 1, ballot: led_by(3), time: 5 };
    assert_eq!(effects[0], passed);
    assert_eq!(effects[1..], acks(0, 1, &[1, 5]));
    assert_eq!(leader.replica.clock(), 5);
}

#[test]
fn v1_forwards_a_timestamp_that_arrived_before_the_body() {
    let mut leader = Process::new(TWO_GROUPS, 0, Variant::V1);
    leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 5).expect("the other leader's");
    let effects = leader.message(0, 1, BOTH).expect("the body");
    assert!(matches!(effects[2], Effect::Remote { counter: 2, position: 1, time: 5, .. }), "{effects:?}");
    assert_eq!(effects[3..], acks(0, 1, &[1, 5]));
}

#[test]
fn the_leader_of_a_group_of_one_acknowledges() {
    let mut leader = Process::new(&[1, 3], 0, Variant::V2);
    leader.message(0, 1, &[(0, 0), (1, 0)]).expect("the body");
    let effects = leader.timestamp(1, head(1, 0, 2), 1, led_by(1), 4).expect("the other leader's");
    let ack = |to| Effect::Ack { to, head: head(1, 0, 2), position: 0, ballot: led_by(0), times: vec![1, 4] };
    assert_eq!(effects[1..], [ack(1), ack(2), ack(3)]);
}

#[test]
fn a_repeated_timestamp_changes_nothing() {
    let mut leader = Process::of_two_groups(0);
    leader.message(0, 1, BOTH).expect("the body");
    leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 5).expect("first");
    let before = leader.replica.clone();
    assert_eq!(leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 5), Ok(vec![]));
    assert!(leader.replica == before);
}

#[test]
fn invalid_timestamps_are_refused() {
    let mut follower = Process::of_two_groups(1);
    let leader = Effect::PeerMessage {
        to: 3,
        message: PeerMessage::Announce {
            group: GroupId(0),
            ballot: led_by(0),
            incarnation: Incarnation::FIRST,
            origin: Incarnation::FIRST,
        },
    };
    assert_eq!(follower.timestamp(3, head(1, 0, 2), 1, led_by(3), 1), Ok(vec![leader]), "a follower names its leader");
    let mut leader = Process::of_two_groups(0);
    leader.message(0, 1, BOTH).expect("the body");
    let at = head(1, 0, 2);
    let sender = |process| Err(Rejected::Sender(ProcessId(process)));
    assert_eq!(leader.timestamp(4, at, 1, led_by(3), 1), sender(4), "a follower");
    assert_eq!(leader.timestamp(6, at, 1, led_by(6), 1), sender(6), "a client");
    assert_eq!(leader.timestamp(9, at, 1, led_by(9), 1), sender(9), "nobody");
    assert_eq!(leader.timestamp(0, at, 0, led_by(0), 1), sender(0), "the own group");
    assert_eq!(leader.timestamp(3, at, 0, led_by(3), 1), sender(3), "another group's position");
    let other = Err(Rejected::OtherMessage { client: 0, slot: 0, sequence: 2 });
    assert_eq!(leader.timestamp(3, head(2, 0, 2), 1, led_by(3), 1), other);
    let beyond = Err(Rejected::BeyondWindow { client: 0, slot: 2, end: 2 });
    assert_eq!(leader.timestamp(3, head(3, 2, 2), 1, led_by(3), 1), beyond);
    let nobody = Head { client: ClientId(2), ..at };
    assert_eq!(leader.timestamp(3, nobody, 1, led_by(3), 1), Err(Rejected::Client(2)));
}

/// A follower is stalled, and its ring is full. The leader does not repeat entries that were not sent, because they
/// would fill its memory.
#[test]
fn a_leader_whose_stream_is_held_up_repeats_nothing() {
    let mut leader = Process::of_two_groups(0);
    leader.message(0, 1, BOTH).expect("the body");
    leader.timestamp(3, head(1, 0, 2), 1, led_by(3), 5).expect("group 1's");
    let retry_ticks = u32::from(ReplicaConfig::RETRY_TICKS);
    let appended =
        |effects: Vec<Effect>| effects.iter().filter(|effect| matches!(effect, Effect::Vector { .. })).count();
    assert_eq!(appended(leader.ticks_while(100 * retry_ticks, true)), 0);
    assert_eq!(appended(leader.ticks(3 * retry_ticks)), 3);
}
