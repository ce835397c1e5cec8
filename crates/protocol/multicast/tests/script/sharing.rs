//! A leader limits one client's messages in progress while others multicast, too.

use stentor_multicast::{ClientId, Head, ShortSlot};

use super::process::{Effect, Process};

const WINDOW: u32 = 256;
/// Number of a client's messages that may be assigned and undelivered while others are active.
const SHARE: u64 = 64;
/// The same limit beside a modest client.
const REDUCED: u64 = 8;
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

/// Delivers what the leader has assigned in this order, which begins with this time.
fn deliver(leader: &mut Process, first: u64, assigned: &[(u16, u64)]) -> Vec<(u16, u64)> {
    let times = (first..).zip(assigned);
    let effects = times.flat_map(|(time, (client, sequence))| {
        leader.ack(1, head(*client, sequence - 1), 0, &[time]).expect("an acknowledgement")
    });
    self::assigned(&effects.collect::<Vec<_>>())
}

/// Returns a leader with a modest client, of which as many messages have been delivered as make it modest. All its
/// messages and the first one of a greedy client are delivered, and the next time is returned.
fn with_modest() -> (Process, u64) {
    let mut leader = shared();
    assert_eq!(deliver(&mut leader, 1, &[(MODEST, 1), (GREEDY, 1)]), []);
    for slot in 1..SHARE {
        hold(&mut leader, MODEST, slot..slot + 1);
        assert_eq!(deliver(&mut leader, slot + 2, &[(MODEST, slot + 1)]), []);
    }
    (leader, SHARE + 2)
}

#[test]
fn greedy_client_has_an_eighth_of_its_share_beside_a_modest_one() {
    let (mut leader, time) = with_modest();
    let first = hold(&mut leader, GREEDY, 1..200);
    assert_eq!(first.len() as u64, REDUCED);
    // Each delivery makes room for one message as long as the modest client multicasts, too.
    let mut in_order = first;
    for turn in 0..2 * SHARE {
        let next = deliver(&mut leader, time + turn, &[in_order[turn as usize]]);
        let of_greedy = u64::from(in_order[turn as usize].0 == GREEDY);
        assert_eq!(next.len() as u64, of_greedy, "turn {turn}");
        in_order.extend(next);
        if turn % 32 == 0 {
            in_order.extend(hold(&mut leader, MODEST, SHARE + turn / 32..SHARE + turn / 32 + 1));
        }
    }
}

#[test]
fn greedy_client_has_its_whole_share_again_when_the_modest_one_pauses() {
    let (mut leader, time) = with_modest();
    let mut in_order = hold(&mut leader, GREEDY, 1..200);
    assert_eq!(in_order.len() as u64, REDUCED);
    for turn in 0..SHARE - REDUCED {
        let next = deliver(&mut leader, time + turn, &[in_order[turn as usize]]);
        in_order.extend(next);
    }
    let pending = in_order.len() as u64 - (SHARE - REDUCED);
    assert_eq!(pending, SHARE, "the modest client's last message was a share of assignments ago");
}

#[test]
fn clients_that_all_have_many_messages_in_flight_have_whole_shares() {
    let mut leader = shared();
    let mut in_order = vec![(MODEST, 1), (GREEDY, 1)];
    for client in [GREEDY, MODEST] {
        let assigned = hold(&mut leader, client, 1..200);
        assert_eq!(assigned.len() as u64, SHARE - 1);
        in_order.extend(assigned);
    }
    for turn in 0..4 * SHARE {
        let (client, sequence) = in_order[turn as usize];
        let next = deliver(&mut leader, turn + 1, &[(client, sequence)]);
        let expected = if sequence + SHARE <= 200 { vec![(client, sequence + SHARE)] } else { Vec::new() };
        assert_eq!(next, expected, "turn {turn}");
        in_order.extend(next);
    }
}
