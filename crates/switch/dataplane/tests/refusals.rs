//! Bad input causes no panic, is counted, and changes no register.

mod common;

use common::{BACKWARD, Bed, FIRST, FORWARD, GID, LEASE, acked, address, link, receives_from, refused};
use proptest::test_runner::{Config as Cases, TestRunner};
use stentor_switch::control::{self, Head, Link, MAX_CONTROL_BYTES, Operation};
use stentor_switch::registers::Arrays;
use stentor_switch::{Cause, CreateError, Switch};
use stentor_wire::{Bth, Headers, Message, Psn, Repr, Reth, RnrTimer, Syndrome};

/// Returns a set in the middle of a session, half a lease after its holder last renewed it.
fn bed() -> Bed {
    let mut bed = Bed::new(4).linked(&[1, 2]);
    bed.left(&Bed::send(0, FIRST + 1));
    bed.left(&Bed::feedback(1, receives_from(1), Syndrome::ACK, 1));
    bed.left(&Bed::feedback(2, receives_from(2), Syndrome::ACK, 1));
    bed.now_ns = LEASE.as_nanos() as u64 / 2;
    bed
}

/// Returns all registers, the renewal time of the lease among them.
fn kept(bed: &Bed) -> Arrays {
    bed.switch.arrays().clone()
}

fn head(operation: Operation) -> Head {
    Head { operation, lock_id: 77, epoch: 0, sqpn: 0x100, psn: Psn::new(FIRST + 2), msn: 2 }
}

fn payload(head: &Head, links: &[Link]) -> Vec<u8> {
    let mut bytes = [0; MAX_CONTROL_BYTES];
    let len = control::emit(head, &[], links, &mut bytes).unwrap();
    bytes[..len].to_vec()
}

#[test]
fn invalid_control_packet_is_refused_by_cause() {
    let good = head(Operation::Link);
    let cases: Vec<(&str, Vec<u8>, Cause)> = vec![
        ("another lock", payload(&Head { lock_id: 78, ..good }, &[link(1)]), Cause::WrongLock),
        ("another epoch", payload(&Head { epoch: 9, ..good }, &[link(1)]), Cause::WrongLock),
        ("another queue pair", payload(&Head { sqpn: 5, ..good }, &[link(1)]), Cause::BadControl),
        ("another PSN", payload(&Head { psn: Psn::new(9), ..good }, &[link(1)]), Cause::BadControl),
        ("another count of messages", payload(&Head { msn: 3, ..good }, &[link(1)]), Cause::BadControl),
        ("a receiver outside the set", payload(&good, &[link(1), link(4)]), Cause::BadControl),
        ("a receiver twice", payload(&good, &[link(1), link(1)]), Cause::BadControl),
        ("no receiver", payload(&good, &[]), Cause::BadControl),
        ("a rank above 31", payload(&good, &[link(32)]), Cause::BadControl),
        ("an empty payload", vec![], Cause::BadControl),
        ("a payload of zeros", vec![0; 48], Cause::BadControl),
    ];
    for (what, payload, cause) in cases {
        let mut bed = bed();
        let before = kept(&bed);
        let (left, causes) = bed.all(&Bed::control_of(0, FIRST + 2, &payload));
        assert_eq!(causes, [cause], "{what}");
        assert_eq!(left[0].psn, Psn::new(FIRST + 2), "{what}");
        assert_eq!(kept(&bed), before, "{what}");
        assert_eq!(bed.switch.counters().of(cause), 1, "{what}");
    }
}

/// An invalid control packet does not renew the lease of its sender.
#[test]
fn invalid_control_packet_renews_no_lease() {
    let mut bed = bed();
    let wrong = [vec![0; 48], payload(&Head { lock_id: 78, ..head(Operation::Link) }, &[link(1)])];
    for payload in &wrong {
        bed.left(&Bed::control_of(0, FIRST + 2, payload));
    }
    bed.now_ns = LEASE.as_nanos() as u64 * 5 / 4;
    acked(&bed.left(&Bed::control(3, (FIRST, 0), Operation::Link, &[link(1)])), FIRST, 1);
    // A valid control packet renews the lease.
    let mut bed = self::bed();
    acked(&bed.left(&Bed::control_of(0, FIRST + 2, &payload(&head(Operation::Query), &[]))), FIRST + 2, 3);
    bed.now_ns = LEASE.as_nanos() as u64 * 5 / 4;
    let busy = Syndrome::RnrNak(RnrTimer::from_code(12));
    refused(&bed.left(&Bed::control(3, (FIRST, 0), Operation::Link, &[link(1)])), FIRST, busy);
}

#[test]
fn strangers_and_foreign_operations_are_dropped_or_refused() {
    let from = |source, to, qpn, headers, payload: &[u8]| {
        let bth = Bth::new(qpn, Psn::new(FIRST + 2));
        common::packet(source, to, &Repr { bth, headers, payload_bytes: payload.len() }, payload)
    };
    let send = Headers::Rc(Message::SendOnly);
    let own = Switch::vrqpn(GID, 0);
    let read = Headers::ReadRequest(Reth { va: 0, rkey: 0, bytes: 8 });
    let cases = [
        (from(address(9), FORWARD, own, send, b"x"), Cause::WrongSource),
        (from(address(0), FORWARD, Switch::vrqpn(GID, 1), send, b"x"), Cause::WrongSource),
        (from(address(0), FORWARD, Switch::vrqpn(GID, 32), send, b"x"), Cause::WrongSource),
        (from(address(0), FORWARD, Switch::vrqpn(2, 0), send, b"x"), Cause::WrongSource),
        (from(address(0), FORWARD, Switch::vrqpn(400, 0), send, b"x"), Cause::UnknownSet),
        (from(address(0), FORWARD, own, read, b""), Cause::Invalid),
        (from(address(0), FORWARD, own, Headers::SendOnlyInvalidate(7), b""), Cause::Invalid),
        (from(address(0), FORWARD, own, Headers::Uc(Message::SendOnly), b"x"), Cause::WrongOpcode),
        (from(address(0), BACKWARD, own, send, b"x"), Cause::WrongOpcode),
        (from(address(0), address(1), own, send, b"x"), Cause::Plain),
        (Bed::feedback(0, receives_from(0), Syndrome::ACK, 1), Cause::Foreign),
        (Bed::feedback(3, receives_from(3), Syndrome::ACK, 1), Cause::Foreign),
        (Bed::feedback(1, receives_from(1) + 1, Syndrome::ACK, 1), Cause::Foreign),
        (Bed::feedback(1, receives_from(1) + (1 << 23), Syndrome::ACK, 1), Cause::Foreign),
        (Bed::feedback(1, receives_from(1), Syndrome::Reserved(0x45), 1), Cause::Foreign),
        (vec![0x45; 19], Cause::Malformed),
        (vec![], Cause::Malformed),
    ];
    for (n, (bytes, cause)) in cases.iter().enumerate() {
        let mut bed = bed();
        let before = kept(&bed);
        assert_eq!(bed.all(bytes).1, [*cause], "case {n}");
        assert_eq!(kept(&bed), before, "case {n}");
    }
    let mut bed = bed();
    let mut dying = Bed::send(0, FIRST + 2);
    dying[8] = 1;
    assert_eq!(bed.all(&dying).1, [Cause::Expired]);
}

/// Sends mutated payloads of a control packet in valid packets from the right host. Nothing panics, loops end, and only
/// a payload that is a valid control packet changes a register.
#[test]
fn any_control_payload_is_carried_out_or_changes_nothing() {
    let mut runner = TestRunner::new(Cases::with_cases(4000));
    let change = (0..MAX_CONTROL_BYTES, proptest::num::u8::ANY);
    let strategy = (proptest::collection::vec(change, 0..6), 0_usize..200, proptest::bool::ANY, 0_u32..5);
    let unchanged = std::cell::Cell::new(0);
    let outcome = runner.run(&strategy, |(changes, len, cut, ahead)| {
        let mut bytes = payload(&head(Operation::Link), &[link(1), link(3)]);
        if cut {
            bytes.truncate(len);
        }
        for (at, value) in &changes {
            let len = bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(at % len) {
                *byte = *value;
            }
        }
        let mut bed = bed();
        let before = kept(&bed);
        let packet = Bed::control_of(0, FIRST + ahead, &bytes);
        let (left, causes) = bed.all(&packet);
        assert!(left.len() <= 1 && causes.len() <= 34, "{causes:?}");
        if !matches!(causes.last(), Some(Cause::Began | Cause::Released)) {
            assert_eq!(kept(&bed), before, "{causes:?}");
            unchanged.set(unchanged.get() + 1);
        }
        Ok(())
    });
    outcome.unwrap();
    assert!(unchanged.get() > 1000, "{unchanged:?}");
}

/// Sends packets with changed bytes and a correct ICRC. Nothing panics, loops end, and no done PSN moves back.
#[test]
fn mutated_packets_never_panic_or_move_a_done_psn_back() {
    let mut runner = TestRunner::new(Cases::with_cases(300));
    let step = (0_usize..6, 0_u8..4, 0_u32..6, proptest::collection::vec((0_usize..120, 0_u8..=255), 0..3));
    let outcome = runner.run(&proptest::collection::vec(step, 1..80), |steps| {
        let mut bed = bed();
        for (kind, rank, ahead, changes) in steps {
            let mut bytes = match kind {
                0 | 1 => Bed::send(rank, FIRST + ahead),
                2 => Bed::control(rank, (FIRST + ahead, ahead), Operation::Link, &[link(0), link(2)]),
                3 => Bed::control(rank, (FIRST + ahead, ahead), Operation::Release, &[]),
                _ => Bed::feedback(rank, receives_from(rank) + ahead, Syndrome::ACK, ahead),
            };
            for (at, value) in changes {
                let len = bytes.len();
                bytes[at % len] = value;
            }
            common::reseal(&mut bytes);
            let done = |bed: &Bed| (0..4).map(|rank| bed.switch.arrays().view(GID).unwrap().done(rank).0).collect();
            let before: Vec<Psn> = done(&bed);
            let mut bridge = None;
            for pass in 0.. {
                assert!(pass <= 34, "the loop does not end");
                bridge = bed.pass(&bytes, bridge).mirror;
                if bridge.is_none() {
                    break;
                }
            }
            let after: Vec<Psn> = done(&bed);
            assert!(before.iter().zip(&after).all(|(before, after)| after.distance(*before) >= 0));
        }
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn rank_without_a_host_neither_sends_nor_is_linked() {
    let mut bed = Bed::new(4);
    let some: Vec<_> = (0..4).map(|rank| Some(common::host(rank)).filter(|_| rank != 2)).collect();
    bed.switch.create_some(GID, common::LEASE, &some).unwrap();
    let with_it = Bed::control(0, (FIRST, 0), Operation::Link, &[link(1), link(2)]);
    assert_eq!(bed.pass(&with_it, None).cause, Cause::BadControl);
    let of_it = Bed::control(2, (FIRST, 0), Operation::Link, &[link(1)]);
    assert_eq!(bed.pass(&of_it, None).cause, Cause::WrongSource);
    let left = bed.left(&Bed::control(0, (FIRST, 0), Operation::Link, &[link(1), link(3)]));
    assert_eq!(left[0].aeth().syndrome, stentor_wire::Syndrome::ACK);
    let nobody = bed.switch.create_some(GID, common::LEASE, &[None; 3]);
    assert_eq!(nobody, Err(CreateError::Hosts(3)));
}
