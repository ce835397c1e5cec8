//! Tests valid operations that a side cannot execute. A responder sends "remote operational error" and its queue pair
//! breaks. A requester's queue pair breaks with the peer's error, or because its own memory is missing.

use crate::common::{Flying, Setup, Side, inline_send, inline_write, pair, settle};
use stentor_fabric::{QpKind, Status};
use stentor_fabric_roce::endpoint::{Data, Request, State};
use stentor_wire::{Aeth, Bth, Headers, NakCode, Packet, Psn, Repr, Response, Reth, Syndrome};

fn statuses(side: &mut Side) -> Vec<(u64, Status)> {
    side.completions().iter().map(|completion| (completion.id, completion.status)).collect()
}

fn refusal(packet: &Flying) -> (Psn, Syndrome) {
    let repr = Repr::parse(&Packet::new_checked(&packet.1[..]).unwrap()).unwrap();
    match repr.headers {
        Headers::Response(Response::Acknowledge(aeth)) => (repr.bth.psn, aeth.syndrome),
        other => panic!("{other}"),
    }
}

/// Returns a packet to a side, as its peer would send it.
fn made(to: &Side, psn: Psn, headers: Headers) -> Flying {
    let mut envelope = to.path().envelope;
    let (own, peer) = (envelope.ip.source(), envelope.ip.destination());
    envelope = stentor_wire::Envelope::plain(peer, 0xc0de, own).unwrap();
    let repr = Repr { bth: Bth::new(to.number, psn), headers, payload_bytes: 0 };
    let mut bytes = vec![0; repr.packet_bytes()];
    repr.emit(&mut bytes).unwrap();
    envelope.seal(&mut bytes);
    (envelope, bytes)
}

#[test]
fn receive_into_deregistered_memory_breaks_both_sides() {
    let setup = Setup::default();
    let (mut a, mut b) = pair(&setup);
    let span = b.span(0, 64);
    for id in [7, 8] {
        b.endpoint.post_receive(b.qp, span, id).unwrap();
    }
    let region = b.local;
    b.endpoint.memory_mut().deregister(region);
    a.post(1, inline_write(&[9; 8], b.remote(0)));
    a.post(2, inline_send(b"hello"));
    a.post(3, inline_send(b"again"));
    a.packets(0).iter().for_each(|packet| b.take(0, packet));
    let answers = b.packets(0);
    let last = answers.last().unwrap();
    assert_eq!(refusal(last), (Psn::new(setup.psn_a + 1), Syndrome::Nak(NakCode::RemoteOperational)));
    assert_eq!(last.1[12], 0b0110_0011, "type 11 and code 00011 on the wire");
    assert_eq!(statuses(&mut b), [(7, Status::LocalProtection), (8, Status::Flushed)]);
    answers.iter().for_each(|packet| a.take(0, packet));
    settle(0, &mut a, &mut b);
    assert_eq!(statuses(&mut a), [(1, Status::Success), (2, Status::RemoteOperational), (3, Status::Flushed)]);
    for side in [&mut a, &mut b] {
        assert_eq!(side.endpoint.state(side.qp), Some(State::Error));
        assert_eq!(side.endpoint.next_broken(), Some(side.qp));
    }
    let counters = b.endpoint.counters();
    assert_eq!((counters.operational_errors, counters.invalid_requests, counters.access_errors), (1, 0, 0));
}

/// Deregisters the memory in the middle of a message, after a part of the message was written.
#[test]
fn memory_deregistered_during_a_message_ends_it() {
    let (mut a, mut b) = pair(&Setup::default());
    let span = b.span(0, 1024);
    b.endpoint.post_receive(b.qp, span, 7).unwrap();
    a.post(1, inline_send(&[5; 600]));
    let packets = a.packets(0);
    b.take(0, &packets[0]);
    let region = b.local;
    b.endpoint.memory_mut().deregister(region);
    packets[1..].iter().for_each(|packet| b.take(0, packet));
    settle(0, &mut a, &mut b);
    assert_eq!(statuses(&mut b), [(7, Status::LocalProtection)]);
    assert_eq!(statuses(&mut a), [(1, Status::RemoteOperational)]);
}

/// A receive for an empty message succeeds even if its memory is deregistered, because the memory is not needed.
#[test]
fn empty_message_needs_no_memory() {
    let (mut a, mut b) = pair(&Setup::default());
    let span = b.span(0, 64);
    for id in [7, 8] {
        b.endpoint.post_receive(b.qp, span, id).unwrap();
    }
    let region = b.local;
    b.endpoint.memory_mut().deregister(region);
    a.post(1, inline_send(&[]));
    a.post(2, Request::Write { data: Data::Inline(&[3; 8]), remote: b.remote(0), imm: Some(4) });
    settle(0, &mut a, &mut b);
    assert_eq!(statuses(&mut b), [(7, Status::Success), (8, Status::Success)]);
    assert_eq!(statuses(&mut a), [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn unreliable_receiver_reports_the_error_only_locally() {
    let (mut a, mut b) = pair(&Setup { kind: QpKind::Unreliable, ..Setup::default() });
    let span = b.span(0, 64);
    for id in [7, 8] {
        b.endpoint.post_receive(b.qp, span, id).unwrap();
    }
    let region = b.local;
    b.endpoint.memory_mut().deregister(region);
    a.post(1, inline_send(b"hello"));
    a.packets(0).iter().for_each(|packet| b.take(0, packet));
    assert!(b.packets(0).is_empty());
    assert_eq!(statuses(&mut b), [(7, Status::LocalProtection), (8, Status::Flushed)]);
    assert_eq!(b.endpoint.counters().operational_errors, 1);
    assert_eq!(statuses(&mut a), [(1, Status::Success)]);
}

/// Whichever operation the peer refuses, the operations before it succeed, the refused one has the reported status, and
/// the later ones are flushed. If the refused one is the atomic, the READ before it has no response yet and gets the
/// status instead.
#[test]
fn requester_breaks_with_the_reported_status() {
    let setup = Setup::default();
    for at in 0..4 {
        let (mut a, b) = pair(&setup);
        let (local, remote) = (a.span(0, 8), b.remote(0));
        a.post(1, inline_write(&[1; 8], remote));
        a.post(2, inline_send(b"x"));
        a.post(3, Request::Read { local, remote });
        a.post(4, Request::FetchAdd { local, remote, add: 1 });
        assert_eq!(a.packets(0).len(), 4);
        let psn = Psn::new(setup.psn_a + at);
        let syndrome = Syndrome::Nak(NakCode::RemoteOperational);
        let word = made(&a, psn, Headers::Response(Response::Acknowledge(Aeth { syndrome, msn: at })));
        a.take(1, &word);
        // A READ or atomic completes only with its response. An error for a later operation does not replace the
        // response.
        let ended = at.min(2) as usize;
        let mut expected = vec![Status::Success; ended];
        expected.push(Status::RemoteOperational);
        expected.resize(4, Status::Flushed);
        let found: Vec<_> = statuses(&mut a).into_iter().map(|(_, status)| status).collect();
        assert_eq!(found, expected, "refused at packet {at}");
        assert_eq!(a.endpoint.state(a.qp), Some(State::Error));
        assert_eq!(a.endpoint.next_deadline(), None);
    }
}

#[test]
fn requester_without_local_memory_breaks_in_order() {
    for is_read in [false, true] {
        let (mut a, mut b) = pair(&Setup::default());
        let (span, remote) = (a.span(0, 600), b.remote(0));
        a.post(1, inline_write(&[1; 8], remote));
        let data = Data::Region(span);
        a.post(
            2,
            if is_read { Request::Read { local: span, remote } } else { Request::Write { data, remote, imm: None } },
        );
        a.post(3, inline_write(&[3; 8], remote));
        let region = a.local;
        a.endpoint.memory_mut().deregister(region);
        settle(0, &mut a, &mut b);
        let expected = [(1, Status::Success), (2, Status::LocalProtection), (3, Status::Flushed)];
        assert_eq!(statuses(&mut a), expected);
        assert_eq!(b.bytes(b.shared)[..8], [1; 8], "operations that were posted after it were not sent");
    }
}

#[test]
fn response_to_deregistered_memory_ends_the_request() {
    let (mut a, mut b) = pair(&Setup::default());
    let (local, remote) = (a.span(0, 600), b.remote(0));
    a.post(1, Request::Read { local, remote });
    a.packets(0).iter().for_each(|packet| b.take(0, packet));
    let answers = b.packets(0);
    a.take(0, &answers[0]);
    let region = a.local;
    a.endpoint.memory_mut().deregister(region);
    answers[1..].iter().for_each(|packet| a.take(0, packet));
    assert_eq!(statuses(&mut a), [(1, Status::LocalProtection)]);
}

/// Both sides have agreed on `max_dest_rd_atomic`. A requester with more outstanding requests violates the agreement.
#[test]
fn reads_beyond_the_agreed_number_are_invalid() {
    let setup = Setup { rd_atomic: 4, ..Setup::default() };
    let (_, mut b) = pair(&setup);
    let remote = b.remote(0);
    let read = Headers::ReadRequest(Reth { va: remote.va, rkey: remote.rkey, bytes: 8 });
    for n in 0..5 {
        let packet = made(&b, Psn::new(setup.psn_a + n), read);
        b.take(0, &packet);
        // A repeated request does not count as another one.
        b.take(0, &packet);
    }
    let counters = *b.endpoint.counters();
    assert_eq!((counters.invalid_requests, counters.duplicates, counters.overload), (1, 4, 0));
    assert_eq!(b.endpoint.state(b.qp), Some(State::Error));
    let answers = b.packets(0);
    assert_eq!(answers.len(), 9, "earlier requests are answered");
    let invalid = Syndrome::Nak(NakCode::InvalidRequest);
    assert_eq!(refusal(answers.last().unwrap()), (Psn::new(setup.psn_a + 4), invalid));
}
