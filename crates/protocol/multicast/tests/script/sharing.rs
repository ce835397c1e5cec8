//! A leader limits one client's messages in progress while others multicast, too.

use stentor_multicast::{ClientId, Head, ShortSlot};

use super::process::{Effect, Process};

const WINDOW: u32 = 256;
/// Number of a client's messages that may be assigned and undelivered while others are active.
const SHARE: u64 = 64;
const GREEDY: u16 = 0;
const MODEST: u16 = 1;

fn head(client: u16, slot: u64) -> Head {
    Head { client: ClientId(client), sequence: slot + 1, slot: ShortSlot::of(slot), groups: 1 }
}

/// Returns the client and sequence of each message that is assigned in these effects.
fn assigned(effects: &[Effect]) -> Vec<(u16, u64)> {
    let assigned = effects.iter().filter_map(|effect| match effect {
        Effect::Assign { head, .. } => Some((head.client.0, head.sequence)),
        _ => None,
    });
    assigned.collect()
}

/// Inputs messages to group 0 alone. Returns those that are assigned as a result.
fn hold(leader: &mut Process, client: u16, slots: std::ops::Range<u64>) -> Vec<(u16, u64)> {
    let held = slots.flat_map(|slot| leader.message(client, slot + 1, &[(0, slot)]).expect("the body"));
    assigned(&held.collect::<Vec<_>>())
}

/// Returns a leader whose clients have both multicast: their first messages have the times 1 and 2.
fn shared() -> Process {
    let mut leader = Process::with_window(&[3, 3], 0, WINDOW);
    hold(&mut leader, MODEST, 0..1);
    hold(&mut leader, GREEDY, 0..1);
    leader
}

#[test]
fn a_client_with_a_share_under_way_waits_and_others_do_not() {
    let mut leader = shared();
    let first = hold(&mut leader, GREEDY, 1..200);
    assert_eq!(first, (2..=SHARE).map(|sequence| (GREEDY, sequence)).collect::<Vec<_>>());
    assert_eq!(hold(&mut leader, MODEST, 1..3), [(MODEST, 2), (MODEST, 3)]);
    // A decision makes no room while earlier messages are undelivered; each delivery makes room for one more.
    let effects = leader.ack(1, head(GREEDY, 0), 0, &[2]).expect("an acknowledgement");
    assert_eq!(assigned(&effects), []);
    let effects = leader.ack(1, head(MODEST, 0), 0, &[1]).expect("an acknowledgement");
    assert_eq!(assigned(&effects), [(GREEDY, SHARE + 1)]);
    for slot in 1..4 {
        let effects = leader.ack(1, head(GREEDY, slot), 0, &[slot + 2]).expect("an acknowledgement");
        assert_eq!(assigned(&effects), [(GREEDY, SHARE + 1 + slot)]);
    }
}

#[test]
fn a_client_alone_has_its_whole_window_under_way() {
    let mut leader = Process::with_window(&[3, 3], 0, WINDOW);
    assert_eq!(hold(&mut leader, GREEDY, 0..200).len(), 200);
}

#[test]
fn messages_before_one_to_several_groups_do_not_wait() {
    let mut leader = shared();
    assert_eq!(hold(&mut leader, GREEDY, 1..200).len() as u64, SHARE - 1);
    let effects = leader.message(GREEDY, 201, &[(0, 200), (1, 0)]).expect("the body");
    assert_eq!(assigned(&effects), (SHARE + 1..=201).map(|sequence| (GREEDY, sequence)).collect::<Vec<_>>());
    assert_eq!(hold(&mut leader, GREEDY, 201..210), [], "the share is exceeded");
}

#[test]
fn a_client_has_its_whole_window_again_when_no_other_was_seen_for_long() {
    let mut leader = shared();
    leader.ack(1, head(MODEST, 0), 0, &[1]).expect("an acknowledgement");
    let (mut held, mut time) = (1, 2);
    for _ in 0..16 * WINDOW {
        leader.ack(1, head(GREEDY, held - 1), 0, &[time]).expect("an acknowledgement");
        hold(&mut leader, GREEDY, held..held + 1);
        (held, time) = (held + 1, time + 1);
    }
    assert_eq!(hold(&mut leader, GREEDY, held..held + 200).len(), 200);
}
