//! Scripted tests of the switch's answers, packet by packet.

mod common;

use common::{Bed, FIRST, LEASE, acked, address, link, receives_from, refused};
use stentor_switch::control::Operation;
use stentor_switch::registers::State;
use stentor_switch::{Aggregation, Cause, Config};
use stentor_wire::{Headers, Message, NakCode, Psn, Reth, RnrTimer, Syndrome};

const SEQUENCE: Syndrome = Syndrome::Nak(NakCode::PsnSequence);
const BUSY: Syndrome = Syndrome::RnrNak(RnrTimer::from_code(12));

fn state(bed: &Bed) -> State {
    bed.switch.arrays().view(common::GID).unwrap().session.state
}

#[test]
fn each_member_gets_a_copy_with_its_own_numbers_address_and_key() {
    let mut bed = Bed::new(4).linked(&[1, 3]);
    let reth = Reth { va: 0x40, rkey: 9, bytes: 5 };
    let (left, causes) = bed.all(&Bed::data(0, FIRST + 1, Message::WriteOnlyImm(reth, 99), b"hello"));
    assert_eq!(causes, [Cause::Copied; 2]);
    for (copy, rank) in left.iter().zip([1_u8, 3]) {
        assert_eq!((copy.to, copy.qpn), (address(rank), 0x200 + u32::from(rank)));
        assert_eq!(copy.psn, Psn::new(receives_from(rank)));
        let reth = Reth { va: link(rank).base + 0x40, rkey: link(rank).rkey, bytes: 5 };
        assert_eq!(copy.headers, Headers::Rc(Message::WriteOnlyImm(reth, 99)));
        assert_eq!(copy.payload, b"hello");
    }
    // When both members have acknowledged the packet, the switch acknowledges it to the sender, in the sender's
    // numbers.
    assert_eq!(bed.all(&Bed::feedback(1, receives_from(1), Syndrome::ACK, 1)), (vec![], vec![Cause::Noted]));
    acked(&bed.left(&Bed::feedback(3, receives_from(3), Syndrome::ACK, 1)), FIRST + 1, 2);
}

#[test]
fn psns_wrap_and_one_packet_relinks_the_members() {
    let mut bed = Bed::new(4).linked(&[1, 2]);
    for psn in 1..=3 {
        assert_eq!(bed.left(&Bed::send(0, FIRST + psn)).len(), 2);
    }
    for rank in [1, 2] {
        bed.left(&Bed::feedback(rank, receives_from(rank) + 2, Syndrome::ACK, 3));
    }
    // FIRST + 4 is after the wrap. Rank 2 stays, rank 1 is unlinked, and rank 3 is new.
    let again = Bed::control(0, (FIRST + 4, 4), Operation::Link, &[link(3), link(2)]);
    acked(&bed.left(&again), FIRST + 4, 5);
    let left = bed.left(&Bed::send(0, FIRST + 5));
    assert_eq!(left.iter().map(|copy| copy.to).collect::<Vec<_>>(), [address(3), address(2)]);
    assert_eq!(left[0].psn, Psn::new(receives_from(3)), "the first packet of rank 3");
    assert_eq!(left[1].psn, Psn::new(receives_from(2) + 3), "the fourth: no receiver sees control packets");
}

#[test]
fn done_packet_is_acknowledged_again_and_not_copied() {
    let mut bed = Bed::new(3).linked(&[1, 2]);
    bed.left(&Bed::send(0, FIRST + 1));
    bed.left(&Bed::feedback(1, receives_from(1), Syndrome::ACK, 1));
    // Rank 1 has acknowledged the packet, so only rank 2 gets a copy.
    let (left, causes) = bed.all(&Bed::send(0, FIRST + 1));
    assert_eq!(causes, [Cause::Suppressed, Cause::Copied]);
    assert_eq!((left.len(), left[0].to, left[0].psn), (1, address(2), Psn::new(receives_from(2))));
    bed.left(&Bed::feedback(2, receives_from(2), Syndrome::ACK, 1));
    acked(&bed.left(&Bed::send(0, FIRST + 1)), FIRST + 1, 2);
    let control = Bed::control(0, (FIRST, 0), Operation::Link, &[link(1)]);
    let before = bed.switch.arrays().clone();
    acked(&bed.left(&control), FIRST + 1, 2);
    assert_eq!(*bed.switch.arrays(), before, "a repeated control packet changes nothing");
    acked(&bed.left(&Bed::feedback(2, receives_from(2), Syndrome::ACK, 1)), FIRST + 1, 2);
}

#[test]
fn naks_name_the_psn_after_the_done_psn() {
    let mut bed = Bed::new(3).linked(&[1, 2]);
    bed.left(&Bed::send(0, FIRST + 1));
    // A packet is lost on its way to the switch: the sender receives one NAK.
    refused(&bed.left(&Bed::send(0, FIRST + 3)), FIRST + 1, SEQUENCE);
    assert_eq!(bed.all(&Bed::send(0, FIRST + 4)), (vec![], vec![Cause::Quiet]));
    // NAKs of receivers: rank 1 has the first packet but not the second, rank 2 has none.
    bed.left(&Bed::send(0, FIRST + 2));
    refused(&bed.left(&Bed::feedback(1, receives_from(1) + 1, SEQUENCE, 1)), FIRST + 1, SEQUENCE);
    let timer = Syndrome::RnrNak(RnrTimer::from_code(20));
    refused(&bed.left(&Bed::feedback(2, receives_from(2), timer, 0)), FIRST + 1, timer);
    let shorter = Syndrome::RnrNak(RnrTimer::from_code(5));
    refused(&bed.left(&Bed::feedback(1, receives_from(1) + 1, shorter, 0)), FIRST + 1, timer);
    // A NAK acknowledges all packets before its PSN.
    refused(&bed.left(&Bed::feedback(2, receives_from(2) + 1, SEQUENCE, 1)), FIRST + 2, SEQUENCE);
}

/// Code 0 is the longest timer, 655.36 ms, and not the shortest one.
#[test]
fn sender_waits_for_the_longest_timer_of_all_members() {
    for (first, second, longest) in [(0, 31, 0), (31, 0, 0), (0, 1, 0), (1, 0, 0), (31, 30, 31), (1, 2, 2), (0, 0, 0)] {
        let mut bed = Bed::new(3).linked(&[1, 2]);
        bed.left(&Bed::send(0, FIRST + 1));
        let timer = |code| Syndrome::RnrNak(RnrTimer::from_code(code));
        let answer = |rank, code| Bed::feedback(rank, receives_from(rank), timer(code), 0);
        refused(&bed.left(&answer(1, first)), FIRST + 1, timer(first));
        refused(&bed.left(&answer(2, second)), FIRST + 1, timer(longest));
        // The timers count until all members have made progress.
        bed.left(&Bed::feedback(1, receives_from(1), Syndrome::ACK, 1));
        bed.left(&Bed::feedback(2, receives_from(2), Syndrome::ACK, 1));
        bed.left(&Bed::send(0, FIRST + 2));
        let later = Bed::feedback(1, receives_from(1) + 1, timer(1), 1);
        refused(&bed.left(&later), FIRST + 2, timer(1));
    }
}

#[test]
fn copy_lost_in_the_loop_is_a_gap_for_later_members() {
    let mut bed = Bed::new(3).linked(&[1, 2]);
    let lost = Bed::send(0, FIRST + 1);
    assert!(bed.pass(&lost, None).mirror.is_some(), "the second pass is dropped");
    let (left, causes) = bed.all(&Bed::send(0, FIRST + 2));
    assert_eq!(causes, [Cause::Copied, Cause::Gap, Cause::Complained]);
    assert_eq!(left[0].to, address(1));
    refused(&left[1..], FIRST + 1, SEQUENCE);
    // The sender goes back: rank 1 has acknowledged both packets, rank 2 gets both.
    bed.left(&Bed::feedback(1, receives_from(1) + 1, Syndrome::ACK, 2));
    for psn in [1, 2] {
        let (left, causes) = bed.all(&Bed::send(0, FIRST + psn));
        assert_eq!(causes, [Cause::Suppressed, Cause::Copied]);
        assert_eq!(left[0].psn, Psn::new(receives_from(2) + psn - 1));
    }
    acked(&bed.left(&Bed::feedback(2, receives_from(2) + 1, Syndrome::ACK, 2)), FIRST + 2, 3);
}

#[test]
fn a_control_packet_waits_for_everything_before_it() {
    let mut bed = Bed::new(3).linked(&[1]);
    bed.left(&Bed::send(0, FIRST + 1));
    let next = Bed::control(0, (FIRST + 2, 2), Operation::Link, &[link(2)]);
    refused(&bed.left(&next), FIRST + 1, BUSY);
    let far = Bed::control(0, (FIRST + 3, 3), Operation::Link, &[link(2)]);
    refused(&bed.left(&far), FIRST + 1, SEQUENCE);
    bed.left(&Bed::feedback(1, receives_from(1), Syndrome::ACK, 1));
    acked(&bed.left(&next), FIRST + 2, 3);
}

#[test]
fn no_data_passes_while_a_control_packet_is_half_executed() {
    let mut bed = Bed::new(3);
    let control = Bed::control(0, (FIRST, 0), Operation::Link, &[link(1), link(2)]);
    let mut bridge = bed.pass(&control, None).mirror;
    bridge = bed.pass(&control, bridge).mirror;
    assert_eq!(state(&bed), State::Linking);
    refused(&bed.left(&Bed::send(0, FIRST + 1)), FIRST, SEQUENCE);
    assert_eq!(bed.all(&Bed::feedback(1, receives_from(1), Syndrome::ACK, 1)).1, [Cause::Foreign]);
    let other = Bed::control(1, (FIRST, 0), Operation::Link, &[link(0)]);
    refused(&bed.left(&other), FIRST, BUSY);
    // The control packet is sent again and overtakes its first copy.
    acked(&bed.left(&control), FIRST, 1);
    assert_eq!(bed.left(&Bed::send(0, FIRST + 1)).len(), 2);
    assert_eq!(bed.pass(&control, bridge).cause, Cause::Stale);
    assert_eq!(bed.left(&Bed::send(0, FIRST + 2)).len(), 2);
}

#[test]
fn set_moves_from_rank_to_rank() {
    let mut bed = Bed::new(3).linked(&[1, 2]);
    let other = Bed::control(1, (FIRST, 0), Operation::Link, &[link(0), link(2)]);
    refused(&bed.left(&other), FIRST, BUSY);
    assert_eq!(bed.all(&Bed::send(1, FIRST + 1)), (vec![], vec![Cause::NotHolder]));
    bed.left(&Bed::send(0, FIRST + 1));
    bed.left(&Bed::feedback(1, receives_from(1), Syndrome::ACK, 1));
    bed.left(&Bed::feedback(2, receives_from(2), Syndrome::ACK, 1));
    acked(&bed.left(&Bed::control(0, (FIRST + 2, 2), Operation::Release, &[])), FIRST + 2, 3);
    assert_eq!(state(&bed), State::Free);
    acked(&bed.left(&other), FIRST, 1);
    let left = bed.left(&Bed::send(1, FIRST + 1));
    assert_eq!(left.iter().map(|copy| copy.psn.get()).collect::<Vec<_>>(), [receives_from(0), receives_from(2) + 1]);
    // A lost last acknowledgement is repeated, whichever rank holds the set.
    acked(&bed.left(&Bed::send(0, FIRST + 1)), FIRST + 2, 3);
    acked(&bed.left(&Bed::control(0, (FIRST + 2, 2), Operation::Release, &[])), FIRST + 2, 3);
    // Answers that belong to rank 0's session no longer count.
    let late = bed.all(&Bed::feedback(1, receives_from(1), Syndrome::ACK, 1));
    assert_eq!(late, (vec![], vec![Cause::Foreign]));
}

#[test]
fn expired_lease_is_taken_over_if_nothing_is_half_executed() {
    let mut bed = Bed::new(3).linked(&[1, 2]);
    bed.left(&Bed::send(0, FIRST + 1));
    let other = Bed::control(2, (FIRST, 0), Operation::Link, &[link(1)]);
    for rank in [1, 2] {
        bed.left(&Bed::feedback(rank, receives_from(rank), Syndrome::ACK, 1));
    }
    bed.now_ns = LEASE.as_nanos() as u64;
    refused(&bed.left(&other), FIRST, BUSY);
    bed.now_ns *= 2;
    acked(&bed.left(&other), FIRST, 1);
    // The former holder: its done packets are acknowledged, its new ones refused.
    acked(&bed.left(&Bed::send(0, FIRST + 1)), FIRST + 1, 2);
    refused(&bed.left(&Bed::send(0, FIRST + 2)), FIRST + 2, Syndrome::Nak(NakCode::RemoteOperational));
    acked(&bed.left(&Bed::control(0, (FIRST + 2, 2), Operation::Release, &[])), FIRST + 2, 3);
    assert_eq!(state(&bed), State::Active, "only rank 2 can release the set");
}

#[test]
fn expired_lease_poisons_a_set_with_half_executed_packets() {
    for message in [Message::SendOnly, Message::SendFirst] {
        let mut bed = Bed::new(3).linked(&[1, 2]);
        bed.left(&Bed::data(0, FIRST + 1, message, &[5; 256]));
        let ranks: &[u8] = if message == Message::SendFirst { &[1, 2] } else { &[1] };
        for rank in ranks {
            bed.left(&Bed::feedback(*rank, receives_from(*rank), Syndrome::ACK, 1));
        }
        bed.now_ns = 2 * LEASE.as_nanos() as u64;
        let other = Bed::control(2, (FIRST, 0), Operation::Link, &[link(1)]);
        refused(&bed.left(&other), FIRST, Syndrome::Nak(NakCode::RemoteOperational));
        assert_eq!(state(&bed), State::Poisoned);
        refused(&bed.left(&other), FIRST, Syndrome::Nak(NakCode::RemoteOperational));
        acked(&bed.left(&Bed::send(0, FIRST)), FIRST + ranks.len() as u32 - 1, 1 + u32::from(ranks.len() == 2));
        assert_eq!(bed.all(&Bed::feedback(2, receives_from(2), Syndrome::ACK, 1)).1, [Cause::Foreign]);
    }
}

#[test]
fn broken_member_poisons_the_set_and_the_holder_gets_a_nak() {
    let mut bed = Bed::new(3).linked(&[1, 2]);
    bed.left(&Bed::send(0, FIRST + 1));
    let access = Syndrome::Nak(NakCode::RemoteAccess);
    let (left, causes) = bed.all(&Bed::feedback(2, receives_from(2), access, 0));
    assert_eq!(causes, [Cause::Refused, Cause::Poisons]);
    refused(&left, FIRST + 1, access);
    assert_eq!(state(&bed), State::Poisoned);
}

#[test]
fn query_advances_numbers_and_nothing_else() {
    let mut bed = Bed::new(3);
    acked(&bed.left(&Bed::control(2, (FIRST, 0), Operation::Query, &[])), FIRST, 1);
    let mut bed = bed.linked(&[1, 2]);
    refused(&bed.left(&Bed::control(2, (FIRST + 1, 1), Operation::Query, &[])), FIRST + 1, BUSY);
    acked(&bed.left(&Bed::control(0, (FIRST + 1, 1), Operation::Query, &[])), FIRST + 1, 2);
    let left = bed.left(&Bed::send(0, FIRST + 2));
    assert_eq!(left.iter().map(|copy| copy.psn.get()).collect::<Vec<_>>(), [receives_from(1), receives_from(2)]);
}

#[test]
fn no_packet_is_answered_after_a_restart() {
    let mut bed = Bed::new(3).linked(&[1, 2]);
    bed.left(&Bed::send(0, FIRST + 1));
    bed.switch.restart();
    for bytes in [
        Bed::send(0, FIRST + 1),
        Bed::control(0, (FIRST, 0), Operation::Link, &[link(1)]),
        Bed::feedback(1, receives_from(1), Syndrome::ACK, 1),
    ] {
        assert_eq!(bed.left(&bytes), []);
    }
    assert_eq!(state(&bed), State::Silent);
}

#[test]
fn a_set_that_was_removed_is_silent() {
    let mut bed = Bed::new(3).linked(&[1, 2]);
    bed.switch.remove(common::GID);
    assert_eq!(bed.all(&Bed::send(0, FIRST + 1)), (vec![], vec![Cause::WrongSource]));
    assert_eq!(bed.left(&Bed::feedback(1, receives_from(1), Syndrome::ACK, 1)), []);
    assert_eq!(state(&bed), State::Silent);
}

#[test]
fn data_to_one_member_takes_one_pass() {
    let mut bed = Bed::new(3).linked(&[2]);
    for psn in 1..=3 {
        assert_eq!(bed.all(&Bed::send(0, FIRST + psn)).1, [Cause::Copied]);
    }
}

#[test]
fn pass_after_the_end_of_the_list_is_stale() {
    // The unused slots after the end of the member list hold rank 0, and rank 0 is a member here.
    let mut bed = Bed::new(3).linked(&[0, 1]);
    let data = Bed::send(0, FIRST + 1);
    let bridge = bed.pass(&data, None).mirror.expect("a second pass");
    for slot in [2, 3, 31] {
        let departure = bed.pass(&data, Some(stentor_switch::Bridge { slot, ..bridge }));
        assert_eq!((departure.cause, departure.emission), (Cause::Stale, None), "slot {slot}");
    }
}

/// The state of the set at the second pass is that of the first, but its epoch differs.
#[test]
fn a_second_pass_acts_only_in_the_epoch_of_the_first() {
    let mut bed = Bed::new(3).linked(&[1, 2]);
    let first = Bed::control(0, (FIRST + 1, 1), Operation::Link, &[link(1)]);
    let bridge = bed.pass(&first, None).mirror;
    let access = Bed::feedback(1, receives_from(1), Syndrome::Nak(NakCode::RemoteAccess), 0);
    let departure = bed.pass(&access, None);
    let refusal = departure.mirror;
    assert!(bridge.is_some() && refusal.is_some());
    acked(&bed.left(&Bed::control(0, (FIRST + 1, 1), Operation::Link, &[link(2)])), FIRST + 1, 2);
    let before = bed.switch.arrays().clone();
    for (bytes, bridge) in [(&first, bridge), (&access, refusal)] {
        let departure = bed.pass(bytes, bridge);
        assert_eq!((departure.cause, departure.mirror), (Cause::Stale, None));
    }
    assert_eq!(*bed.switch.arrays(), before);
}

#[test]
fn congestion_notifications_are_rate_limited() {
    let mut bed = Bed::new(3).linked(&[1, 2]);
    let cnp = |rank: u8| {
        let bth = stentor_wire::Bth::new(stentor_switch::Switch::vsqpn(common::GID, rank), Psn::new(0));
        let repr = stentor_wire::Repr { bth, headers: Headers::Cnp, payload_bytes: 0 };
        common::packet(address(rank), common::BACKWARD, &repr, &[])
    };
    let (left, causes) = bed.all(&cnp(1));
    assert_eq!((left[0].to, left[0].qpn, left[0].headers), (address(0), 0x100, Headers::Cnp));
    assert_eq!(causes, [Cause::Notified]);
    assert_eq!(bed.all(&cnp(2)).1, [Cause::Thinned]);
    bed.now_ns += 200_000;
    assert_eq!(bed.all(&cnp(2)).1, [Cause::Notified]);
    assert_eq!(bed.all(&cnp(0)).1, [Cause::Foreign], "no member");
}

/// The holder receives no credits, whatever the members report, because a credit belongs to a single queue pair.
#[test]
fn acknowledgements_carry_no_credits() {
    let mut bed = Bed::new(3).linked(&[1, 2]);
    bed.left(&Bed::send(0, FIRST + 1));
    for (rank, credits) in [(1, 3), (2, 0)] {
        let syndrome = Syndrome::from_byte(credits);
        assert!(matches!(syndrome, Syndrome::Ack(_)) && syndrome != Syndrome::ACK);
        for left in bed.left(&Bed::feedback(rank, receives_from(rank), syndrome, 1)) {
            assert_eq!(left.aeth().syndrome.to_byte(), 0b000_11111);
        }
    }
    let left = bed.left(&Bed::feedback(1, receives_from(1), Syndrome::from_byte(3), 1));
    assert_eq!((left[0].psn, left[0].aeth().syndrome.to_byte()), (Psn::new(FIRST + 1), 0b000_11111));
}

/// With aggregation in rounds the last two of three packets stay unacknowledged although nothing was lost.
#[test]
fn rounds_stall_and_the_exact_minimum_does_not() {
    let run = |aggregation| {
        let mut bed = Bed::with(3, Config { aggregation, ..Config::new(common::FORWARD, common::BACKWARD) });
        bed = bed.linked(&[1, 2]);
        for psn in 1..=3 {
            assert_eq!(bed.left(&Bed::send(0, FIRST + psn)).len(), 2);
        }
        for (rank, packet) in [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)] {
            bed.left(&Bed::feedback(rank, receives_from(rank) + packet, Syndrome::ACK, 1 + packet));
        }
        bed.switch.arrays().view(common::GID).unwrap().progress.last
    };
    assert_eq!(run(Aggregation::ExactMin), Psn::new(FIRST + 3));
    assert_eq!(run(Aggregation::RoundBitmap), Psn::new(FIRST + 1));
}

#[test]
fn damaged_data_stays_damaged_and_control_packets_are_checked() {
    let mut bed = Bed::new(3).linked(&[1, 2]);
    let mut damaged = Bed::send(0, FIRST + 1);
    let at = damaged.len() - 6;
    damaged[at] ^= 0x10;
    let departure = bed.pass(&damaged, None);
    let copy = departure.emission.expect("a copy").to_vec(&damaged);
    assert!(!stentor_wire::IpPacket::new_checked(&copy).unwrap().is_intact(), "receivers drop it");
    let mut feedback = Bed::feedback(1, receives_from(1), Syndrome::ACK, 1);
    feedback[39] ^= 1;
    assert_eq!(bed.all(&feedback).1, [Cause::Damaged]);
    let mut control = Bed::control(0, (FIRST + 1, 1), Operation::Link, &[link(1)]);
    control[70] ^= 1;
    assert_eq!(bed.all(&control).1, [Cause::Damaged]);
    bed.switch.config.check_data = true;
    assert_eq!(bed.all(&damaged).1, [Cause::Damaged]);
}

#[test]
fn thirty_two_receivers_take_thirty_two_passes() {
    let ranks: Vec<u8> = (0..32).collect();
    let links: Vec<_> = ranks.iter().map(|rank| link(*rank)).collect();
    let mut bed = Bed::new(32);
    let (left, causes) = bed.all(&Bed::control(0, (FIRST, 0), Operation::Link, &links));
    acked(&left, FIRST, 1);
    assert_eq!(causes.len(), 33);
    let (left, causes) = bed.all(&Bed::send(0, FIRST + 1));
    assert_eq!((left.len(), causes.len()), (32, 32));
    for rank in &ranks[..31] {
        assert_eq!(bed.left(&Bed::feedback(*rank, receives_from(*rank), Syndrome::ACK, 1)), []);
    }
    acked(&bed.left(&Bed::feedback(31, receives_from(31), Syndrome::ACK, 1)), FIRST + 1, 2);
}
