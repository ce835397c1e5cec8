//! Reuse of the slots of a window.

use stentor_multicast::{ClientId, Rejected, Variant};

use super::process::{Process, delivery, head, led_by};

/// Passes one complete message through member 1 of a group of three.
fn pass(follower: &mut Process, sequence: u64) {
    let slot = sequence - 1;
    follower.message(0, sequence, &[(0, slot)]).expect("the body");
    let effects = follower.assign(head(sequence, slot, 1), sequence, 0, led_by(0), sequence).expect("the assignment");
    assert_eq!(effects.last(), Some(&delivery(sequence, slot, sequence, 0, sequence)));
}

#[test]
fn the_window_wraps() {
    let mut follower = Process::new(&[3], 1, Variant::V2);
    for sequence in 1..=9 {
        pass(&mut follower, sequence);
        assert_eq!(follower.replica.first_held(ClientId(0)), sequence);
    }
}

#[test]
fn leftovers_of_the_last_lap_do_not_count_in_this_lap() {
    let mut follower = Process::new(&[3], 1, Variant::V2);
    (1..=2).for_each(|sequence| pass(&mut follower, sequence));
    // Slot 2 has the position of slot 0. A late acknowledgement for slot 0 must not count for slot 2.
    follower.message(0, 3, &[(0, 2)]).expect("the body of slot 2");
    assert_eq!(follower.ack(2, head(1, 0, 1), 0, &[1]), Ok(vec![]));
    let effects = follower.assign(head(3, 2, 1), 3, 0, led_by(0), 3).expect("the assignment");
    assert_eq!(effects.last(), Some(&delivery(3, 2, 3, 0, 3)));
}

#[test]
fn a_slot_is_free_in_order_only() {
    let mut leader = Process::new(&[3, 1], 0, Variant::V2);
    leader.message(0, 1, &[(0, 0)]).expect("a");
    leader.message(0, 2, &[(0, 1)]).expect("b");
    assert_eq!(leader.ack(1, head(2, 1, 1), 0, &[2]), Ok(vec![]), "b is decided, and a can still come before it");
    assert_eq!(leader.replica.first_held(ClientId(0)), 0);
    let full = Err(Rejected::BeyondWindow { client: 0, slot: 2, end: 2 });
    assert_eq!(leader.message(0, 3, &[(0, 2)]), full);
    let effects = leader.ack(1, head(1, 0, 1), 0, &[1]);
    assert_eq!(effects, Ok(vec![delivery(1, 0, 1, 0, 1), delivery(2, 1, 2, 0, 2)]));
    assert_eq!(leader.replica.first_held(ClientId(0)), 2);
    leader.message(0, 3, &[(0, 2)]).expect("there is room now");
}

#[test]
fn an_acknowledgement_for_the_next_lap_waits_for_room() {
    let mut follower = Process::new(&[3], 1, Variant::V2);
    pass(&mut follower, 1);
    assert_eq!(follower.ack(2, head(3, 2, 1), 0, &[3]), Ok(vec![]), "slot 0 is free: slot 2 fits");
    let beyond = Err(Rejected::BeyondWindow { client: 0, slot: 3, end: 3 });
    assert_eq!(follower.ack(2, head(4, 3, 1), 0, &[4]), beyond);
}

/// An item names the lower 24 bits of a slot. An item that is a whole span older than the window is recognized by its
/// sequence.
#[test]
fn item_about_a_slot_freed_long_ago_is_dropped_for_any_lower_bits() {
    let mut follower = Process::new(&[3], 1, Variant::V2);
    (1..=5).for_each(|sequence| pass(&mut follower, sequence));
    let before = follower.replica.clone();
    for slot in [4, 5, 6, 7, 1 << 23, (1 << 24) + 5] {
        assert_eq!(follower.ack(2, head(5, slot, 1), 0, &[5]), Ok(vec![]), "slot {slot}");
        assert!(follower.replica == before, "slot {slot}");
    }
    let other = Err(Rejected::OtherMessage { client: 0, slot: 4, sequence: 6 });
    assert_eq!(
        follower.ack(2, head(6, 4, 1), 0, &[6]),
        other,
        "a later message in a delivered slot: no process sends that"
    );
}

#[test]
fn a_clients_sequences_rise() {
    let mut follower = Process::new(&[3], 1, Variant::V2);
    let not_above = |sequence, last| Err(Rejected::Sequence { client: 0, sequence, last });
    pass(&mut follower, 1);
    assert_eq!(follower.message(0, 1, &[(0, 1)]), not_above(1, 1), "of a freed message");
    follower.message(0, 9, &[(0, 1)]).expect("sequences may have gaps");
    assert_eq!(follower.message(0, 8, &[(0, 2)]), not_above(8, 9), "of a held message");
}
