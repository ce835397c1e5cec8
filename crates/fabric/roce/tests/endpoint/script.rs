//! Scripts of one connection: each test applies events to an endpoint and checks its output.

use crate::common::{MS, Setup, Side, inline_send, inline_write, pair, settle};
use stentor_fabric::{Access, Opcode, PostError, QpConfig, QpId, QpKind, QpState, RegionId, Span, Status};
use stentor_fabric_roce::endpoint::{Data, Endpoint, ProtectionDomain, Request, State, TransitionError, Work};
use stentor_wire::{Aeth, Bth, Headers, IpRepr, NakCode, Packet, Psn, Repr, Response, RnrTimer, Syndrome};

fn headers(packet: &crate::common::Flying) -> Headers {
    Repr::parse(&Packet::new_checked(&packet.1[..]).unwrap()).unwrap().headers
}

fn syndrome(packet: &crate::common::Flying) -> Syndrome {
    match headers(packet) {
        Headers::Response(Response::Acknowledge(aeth)) => aeth.syndrome,
        other => panic!("{other}"),
    }
}

fn statuses(side: &mut Side) -> Vec<(u64, Status)> {
    side.completions().iter().map(|completion| (completion.id, completion.status)).collect()
}

#[test]
fn gap_is_reported_once_and_all_packets_from_it_are_retransmitted() {
    let (mut a, mut b) = pair(&Setup::default());
    let remote = b.remote(0);
    for n in 0..4 {
        a.post(n, inline_write(&[n as u8 + 1; 8], remote));
    }
    let sent = a.packets(0);
    assert_eq!(sent.len(), 4);
    for packet in &sent[1..] {
        b.take(0, packet);
    }
    let answers = b.packets(0);
    assert_eq!(answers.len(), 1, "one sequence error NAK for three packets");
    assert_eq!(syndrome(&answers[0]), Syndrome::Nak(NakCode::PsnSequence));
    a.take(1, &answers[0]);
    let again = a.packets(1);
    assert_eq!(again.len(), 4);
    again.iter().for_each(|packet| b.take(1, packet));
    let answers = b.packets(1);
    assert_eq!(answers.len(), 1, "four acknowledgements become one");
    a.take(2, &answers[0]);
    assert_eq!(statuses(&mut a), (0..4).map(|n| (n, Status::Success)).collect::<Vec<_>>());
    assert_eq!(b.bytes(b.shared)[..8], [4; 8]);
}

#[test]
fn lost_tail_is_found_by_a_probe_before_the_timeout() {
    let (mut a, mut b) = pair(&Setup::default());
    let remote = b.remote(0);
    a.post(1, inline_write(&[1; 8], remote));
    a.packets(0);
    let probe = a.endpoint.next_deadline().unwrap();
    assert!(probe < 20 * MS, "{probe}");
    a.endpoint.tick(probe);
    settle(probe, &mut a, &mut b);
    assert_eq!(statuses(&mut a), [(1, Status::Success)]);
    assert_eq!((a.endpoint.counters().probes, a.endpoint.counters().timeouts), (1, 0));
    assert_eq!(a.endpoint.next_deadline(), None, "nothing is outstanding, so no timer runs");
}

#[test]
fn exhausted_retries_break_the_queue_pair() {
    let (mut a, b) = pair(&Setup { retries: 2, timeout: 10, ..Setup::default() });
    let remote = b.remote(0);
    a.post(1, inline_write(&[1; 8], remote));
    a.post(2, inline_write(&[2; 8], remote));
    a.packets(0);
    let timeout = 4096 << 10;
    let mut now = 0;
    while let Some(next) = a.endpoint.next_deadline() {
        now = next;
        a.endpoint.tick(now);
        a.packets(now);
    }
    assert_eq!(statuses(&mut a), [(1, Status::RetryExceeded), (2, Status::Flushed)]);
    assert_eq!(a.endpoint.next_broken(), Some(a.qp));
    assert_eq!(a.endpoint.counters().timeouts, 3, "the first and two retries");
    assert!(now >= 3 * timeout && now <= 12 * timeout, "between T and 4 T each: {now}");
    assert_eq!(a.endpoint.state(a.qp), Some(State::Error));
}

/// Delivers all packets except responses to READs and atomics, until the queue pair of `a` has no deadline or 1000
/// deadlines have passed. Returns the time and the number of acknowledgements and NAKs that `a` received.
fn lose_responses(a: &mut Side, b: &mut Side) -> (u64, u64) {
    let (mut now, mut acknowledged) = (0, 0);
    for _ in 0..1000 {
        // At most three rounds per deadline: a queue pair that retransmits at each acknowledgement would never stop.
        for _ in 0..3 {
            a.packets(now).iter().for_each(|packet| b.take(now, packet));
            for answer in b.packets(now) {
                if let Headers::Response(Response::Acknowledge(_)) = headers(&answer) {
                    acknowledged += 1;
                    a.take(now, &answer);
                }
            }
        }
        let Some(next) = a.endpoint.next_deadline() else { break };
        now = next;
        a.endpoint.tick(now);
    }
    (now, acknowledged)
}

/// A path that drops long packets drops the response of a READ, but not the acknowledgements of the WRITEs behind it.
/// These acknowledgements are no progress, so the queue pair breaks with the READ as the unanswered request.
#[test]
fn acknowledgements_behind_a_missing_response_do_not_reset_the_retries() {
    let setup = Setup { retries: 2, timeout: 10, ..Setup::default() };
    let (timeout, mtu) = (4096 << 10, u32::from(setup.mtu));
    for atomic in [false, true] {
        let (mut a, mut b) = pair(&setup);
        let (remote, bytes) = (b.remote(0), if atomic { 8 } else { mtu });
        let local = a.span(0, bytes);
        let request =
            if atomic { Request::FetchAdd { local, remote, add: 1 } } else { Request::Read { local, remote } };
        a.post(1, inline_write(&[1; 8], remote));
        a.post(2, request);
        (3..9).for_each(|id| a.post(id, inline_write(&[id as u8; 8], remote)));
        let (now, acknowledged) = lose_responses(&mut a, &mut b);
        let mut expected = vec![(1, Status::Success), (2, Status::RetryExceeded)];
        expected.extend((3..9).map(|id| (id, Status::Flushed)));
        assert_eq!(statuses(&mut a), expected, "atomic: {atomic}");
        assert_eq!(a.endpoint.counters().timeouts, 3, "the first and two retries");
        assert!(now >= 3 * timeout && now <= 12 * timeout, "between T and 4 T each: {now}");
        assert!(acknowledged > 3, "WRITEs behind the missing response were acknowledged after each retry");
        let unanswered = a.endpoint.unanswered(a.qp).unwrap();
        let longest = if atomic { 8 } else { 0 };
        assert_eq!((unanswered.bytes, unanswered.longest), (bytes, longest), "the WRITE was answered, but no READ");
    }
}

/// A path may drop the long responses of a READ although it delivers long WRITEs in the other direction.
#[test]
fn answered_write_says_nothing_about_the_responses_of_reads() {
    let setup = Setup { retries: 2, timeout: 10, ..Setup::default() };
    let (mut a, mut b) = pair(&setup);
    let (remote, mtu) = (b.remote(0), u32::from(setup.mtu));
    a.post(1, Request::Write { data: Data::Region(a.span(0, mtu)), remote, imm: None });
    a.post(2, Request::Read { local: a.span(0, mtu), remote });
    lose_responses(&mut a, &mut b);
    assert_eq!(statuses(&mut a), [(1, Status::Success), (2, Status::RetryExceeded)]);
    let unanswered = a.endpoint.unanswered(a.qp).unwrap();
    assert_eq!((unanswered.bytes, unanswered.longest), (mtu, 0));
}

/// The peer acknowledges the first packet of a long WRITE and then ends. Its silence says nothing about the path.
#[test]
fn write_that_was_acknowledged_in_part_counts_as_answered() {
    let setup = Setup { retries: 2, timeout: 10, ..Setup::default() };
    let (mut a, mut b) = pair(&setup);
    let (remote, bytes) = (b.remote(0), 3 * u32::from(setup.mtu));
    a.post(1, Request::Write { data: Data::Region(a.span(0, bytes)), remote, imm: None });
    let packets = a.packets(0);
    assert_eq!(packets.len(), 3);
    for n in [0, 2] {
        b.take(0, &packets[n]);
    }
    let answers = b.packets(0);
    assert_eq!(syndrome(answers.last().unwrap()), Syndrome::Nak(NakCode::PsnSequence), "the second packet is missing");
    answers.iter().for_each(|answer| a.take(0, answer));
    while let Some(now) = a.endpoint.next_deadline() {
        a.packets(now);
        a.endpoint.tick(now);
    }
    assert_eq!(statuses(&mut a), [(1, Status::RetryExceeded)]);
    let unanswered = a.endpoint.unanswered(a.qp).unwrap();
    assert_eq!((unanswered.bytes, unanswered.longest), (bytes, bytes));
}

/// A "receiver not ready" NAK of a SEND behind an unanswered READ reports that the READ's response was lost.
#[test]
fn rnr_nak_behind_a_missing_response_does_not_reset_the_retries() {
    let (mut a, mut b) = pair(&Setup { retries: 2, timeout: 10, rnr_retries: 7, ..Setup::default() });
    a.post(1, Request::Read { local: a.span(0, 8), remote: b.remote(0) });
    a.post(2, inline_send(b"hello"));
    let (_, refused) = lose_responses(&mut a, &mut b);
    assert_eq!(statuses(&mut a), [(1, Status::RetryExceeded), (2, Status::Flushed)]);
    assert_eq!(a.endpoint.counters().timeouts, 3, "the first and two retries");
    assert!(refused > 1, "the SEND was refused again after the READ was repeated: {refused}");
}

/// Several acknowledgements behind one missing response report one loss, so the READ is requested again once.
#[test]
fn one_missing_response_is_requested_again_once() {
    let (mut a, mut b) = pair(&Setup::default());
    let remote = b.remote(0);
    a.post(1, Request::Read { local: a.span(0, 8), remote });
    let mut acknowledgements = Vec::new();
    for id in 2..6 {
        a.post(id, inline_write(&[id as u8; 8], remote));
        a.packets(0).iter().for_each(|packet| b.take(0, packet));
        acknowledgements.extend(b.packets(0).pop());
    }
    assert_eq!(acknowledgements.len(), 4);
    let mut requested = 0;
    for acknowledgement in &acknowledgements {
        a.take(1, acknowledgement);
        for packet in a.packets(1) {
            requested += u32::from(matches!(headers(&packet), Headers::ReadRequest(_)));
            b.take(1, &packet);
        }
    }
    assert_eq!(requested, 1);
    settle(1, &mut a, &mut b);
    assert_eq!(statuses(&mut a), (1..6).map(|id| (id, Status::Success)).collect::<Vec<_>>());
}

#[test]
fn receiver_not_ready_waits_and_then_breaks() {
    let (mut a, mut b) = pair(&Setup { rnr_retries: 1, rnr_code: 14, ..Setup::default() });
    a.post(1, inline_send(b"hello"));
    settle(0, &mut a, &mut b);
    assert_eq!(a.endpoint.next_deadline(), Some(1_280_000), "code 14");
    assert!(a.packets(1_000_000).is_empty(), "it waits");
    a.endpoint.tick(1_280_000);
    settle(1_280_000, &mut a, &mut b);
    assert_eq!(statuses(&mut a), [(1, Status::RnrRetryExceeded)]);
}

/// A peer that represents several receivers (a switch) may acknowledge while the requester waits after "receiver not
/// ready". During that wait no packet is sent, so none can time out.
#[test]
fn acknowledgement_during_a_receiver_not_ready_wait_starts_no_timer() {
    let (mut a, mut b) = pair(&Setup { rnr_code: 14, timeout: 5, ..Setup::default() });
    a.post(1, inline_write(b"one", b.remote(0)));
    a.post(2, inline_write(b"two", b.remote(8)));
    let sent = a.packets(0);
    b.take(0, &sent[0]);
    let one = b.packets(0).remove(0);
    let not_ready = |psn: u32| {
        let aeth = Aeth { syndrome: Syndrome::RnrNak(RnrTimer::from_code(14)), msn: 0 };
        let headers = Headers::Response(Response::Acknowledge(aeth));
        let repr = Repr { bth: Bth::new(a.number, Psn::new(psn)), headers, payload_bytes: 0 };
        let mut bytes = vec![0; repr.packet_bytes()];
        repr.emit(&mut bytes).unwrap();
        one.0.seal(&mut bytes);
        (one.0, bytes)
    };
    let refusal = not_ready(Setup::default().psn_a);
    a.take(0, &refusal);
    a.take(0, &one);
    assert_eq!(statuses(&mut a), [(1, Status::Success)]);
    assert_eq!(a.endpoint.next_deadline(), Some(1_280_000), "the next deadline is the end of the wait");
    a.endpoint.tick(1_280_000);
    settle(1_280_000, &mut a, &mut b);
    assert_eq!(statuses(&mut a), [(2, Status::Success)]);
    assert_eq!(a.endpoint.counters().timeouts, 0);
}

#[test]
fn rnr_retries_of_7_never_give_up() {
    let (mut a, mut b) = pair(&Setup { rnr_retries: 7, ..Setup::default() });
    a.post(1, inline_send(b"hello"));
    let mut now = 0;
    for _ in 0..50 {
        settle(now, &mut a, &mut b);
        now = a.endpoint.next_deadline().unwrap();
        a.endpoint.tick(now);
    }
    let span = b.span(0, 64);
    b.endpoint.post_receive(b.qp, span, 7).unwrap();
    settle(now, &mut a, &mut b);
    assert_eq!(statuses(&mut a), [(1, Status::Success)]);
    assert_eq!(b.completions()[0].bytes, 5);
}

/// Each lost "receiver not ready" NAK causes a timeout. These timeouts are not consecutive, because the peer answers in
/// between.
#[test]
fn timeouts_between_rnr_naks_are_not_consecutive() {
    let (mut a, mut b) = pair(&Setup { retries: 1, timeout: 10, ..Setup::default() });
    a.post(1, inline_send(b"hello"));
    let (mut now, mut lost) = (0, 0);
    while a.endpoint.counters().timeouts < 4 {
        assert_eq!(statuses(&mut a), []);
        a.packets(now).iter().for_each(|packet| b.take(now, packet));
        // Every other answer is lost.
        for answer in b.packets(now) {
            lost += 1;
            if lost % 2 == 0 {
                a.take(now, &answer);
            }
        }
        now = a.endpoint.next_deadline().unwrap();
        a.endpoint.tick(now);
    }
    let span = b.span(0, 64);
    b.endpoint.post_receive(b.qp, span, 7).unwrap();
    settle(now, &mut a, &mut b);
    assert_eq!(statuses(&mut a), [(1, Status::Success)]);
}

#[test]
fn repeated_atomic_gets_its_old_response() {
    let (mut a, mut b) = pair(&Setup::default());
    let (local, remote) = (a.span(0, 8), b.remote(8));
    a.post(1, Request::FetchAdd { local, remote, add: 5 });
    let request = a.packets(0);
    b.take(0, &request[0]);
    let first = b.packets(0);
    b.take(1, &request[0]);
    let second = b.packets(1);
    assert_eq!(first[0].1, second[0].1, "the same answer, bit for bit");
    assert_eq!(b.bytes(b.shared)[8..16], 5_u64.to_ne_bytes(), "added once");
    a.take(1, &second[0]);
    assert_eq!(statuses(&mut a), [(1, Status::Success)]);
    let mut old = request[0].clone();
    for n in 0..10 {
        a.post(10 + n, Request::FetchAdd { local, remote, add: 0 });
        settle(2, &mut a, &mut b);
    }
    old.0 = request[0].0;
    b.take(3, &old);
    assert!(b.packets(3).is_empty(), "a request whose response is no longer kept is not answered");
    assert_eq!(b.endpoint.counters().unrepeatable, 1);
}

#[test]
fn only_the_missing_part_of_a_read_is_requested_again() {
    let (mut a, mut b) = pair(&Setup::default());
    b.fill(b.shared, 0, &(0..=255).cycle().take(1000).collect::<Vec<u8>>());
    let (local, remote) = (a.span(0, 1000), b.remote(0));
    a.post(1, Request::Read { local, remote });
    let request = a.packets(0);
    assert_eq!(request.len(), 1);
    b.take(0, &request[0]);
    let answers = b.packets(0);
    assert_eq!(answers.len(), 4);
    a.take(0, &answers[0]);
    a.take(0, &answers[3]);
    let again = a.packets(1);
    let Headers::ReadRequest(reth) = headers(&again[0]) else { panic!("a READ request") };
    assert_eq!((reth.va, reth.bytes), (remote.va + 256, 744), "from the first packet that is missing");
    b.take(1, &again[0]);
    settle(1, &mut a, &mut b);
    assert_eq!(statuses(&mut a), [(1, Status::Success)]);
    assert_eq!(a.bytes(a.local)[..1000], b.bytes(b.shared)[..1000]);
}

#[test]
fn message_longer_than_its_receive_breaks_both_ends() {
    let (mut a, mut b) = pair(&Setup::default());
    let span = b.span(0, 16);
    b.endpoint.post_receive(b.qp, span, 7).unwrap();
    b.endpoint.post_receive(b.qp, span, 8).unwrap();
    a.post(1, inline_send(&[5; 17]));
    a.post(2, inline_send(&[5; 1]));
    settle(0, &mut a, &mut b);
    assert_eq!(statuses(&mut b), [(7, Status::LocalLength), (8, Status::Flushed)]);
    assert_eq!(statuses(&mut a), [(1, Status::RemoteInvalidRequest), (2, Status::Flushed)]);
    assert!(b.bytes(b.local).iter().all(|byte| *byte == 0));
    let both = [a.endpoint.state(a.qp), b.endpoint.state(b.qp)];
    assert_eq!(both, [Some(State::Error), Some(State::Error)]);
}

#[test]
fn revocation_during_a_read_ends_it() {
    let (mut a, mut b) = pair(&Setup::default());
    let (local, remote) = (a.span(0, 1000), b.remote(0));
    a.post(1, Request::Read { local, remote });
    let request = a.packets(0);
    b.take(0, &request[0]);
    let key = b.key;
    b.endpoint.memory_mut().revoke(key);
    settle(0, &mut a, &mut b);
    assert_eq!(statuses(&mut a), [(1, Status::RemoteAccess)]);
}

#[test]
fn congestion_notification_halves_the_window() {
    let (mut a, mut b) = pair(&Setup { window: 16, ..Setup::default() });
    let remote = b.remote(0);
    a.post(0, inline_write(&[1; 8], remote));
    for mut packet in a.packets(0) {
        let IpRepr::V4(ip) = &mut packet.0.ip else { panic!("IPv4") };
        ip.tos = 3;
        b.take(0, &packet);
        b.take(1, &packet);
    }
    let answers = b.packets(1);
    let notices = answers.iter().filter(|packet| headers(packet) == Headers::Cnp).count();
    assert_eq!(notices, 1, "one per 50 µs");
    answers.iter().for_each(|packet| a.take(2, packet));
    let data = vec![1; 256 * 20];
    a.post(1, inline_write(&data, remote));
    assert_eq!(a.packets(3).len(), 8, "half of 16");
}

#[test]
fn solicited_message_is_reported() {
    let (mut a, mut b) = pair(&Setup::default());
    let span = b.span(0, 64);
    for n in 0..2 {
        b.endpoint.post_receive(b.qp, span, n).unwrap();
    }
    let request = inline_send(b"x");
    a.post(1, request);
    settle(0, &mut a, &mut b);
    assert!(!b.endpoint.take_solicited() && b.endpoint.take_landed());
    let work = Work { id: 2, request, signalled: true, solicited: true };
    a.endpoint.post_send(a.qp, &work).unwrap();
    settle(0, &mut a, &mut b);
    assert!(b.endpoint.take_solicited());
}

#[test]
fn strangers_packets_are_counted_by_cause_and_change_nothing() {
    let (mut a, mut b) = pair(&Setup::default());
    let remote = b.remote(0);
    a.post(1, inline_write(&[1; 8], remote));
    let good = a.packets(0).remove(0);
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = good.clone();
        change(&mut packet.1);
        packet.0.seal(&mut packet.1);
        packet
    };
    b.take(0, &changed(&|bytes| bytes[0] = 0x1f));
    b.take(0, &changed(&|bytes| bytes[0] = 0x2a));
    b.take(0, &changed(&|bytes| bytes[2] = 0x12));
    b.take(0, &changed(&|bytes| bytes[7] ^= 1));
    b.take(0, &changed(&|bytes| bytes[10] ^= 0x40));
    let mut damaged = good.clone();
    damaged.1[30] ^= 1;
    b.take(0, &damaged);
    let mut elsewhere = good.clone();
    elsewhere.0 = stentor_wire::Envelope::plain(crate::common::address(9), 0xc190, crate::common::address(2)).unwrap();
    elsewhere.0.seal(&mut elsewhere.1);
    b.take(0, &elsewhere);
    let counters = *b.endpoint.counters();
    let seen = [
        counters.malformed,
        counters.wrong_service,
        counters.wrong_pkey,
        counters.unknown_qp,
        counters.out_of_order,
        counters.bad_icrc,
        counters.wrong_source,
    ];
    assert_eq!((seen, counters.received), ([1; 7], 7));
    assert!(b.bytes(b.shared).iter().all(|byte| *byte == 0));
    b.packets(0);
    b.take(0, &good);
    settle(0, &mut a, &mut b);
    assert_eq!(statuses(&mut a), [(1, Status::Success)]);
}

#[test]
fn invalid_transitions_are_refused_with_both_states() {
    let mut endpoint = Endpoint::new();
    let config = QpConfig { kind: QpKind::Reliable, send_depth: 4, recv_depth: 4, merges: false };
    let qp = endpoint.create(17, ProtectionDomain(1), config).unwrap();
    assert_eq!(endpoint.create(17, ProtectionDomain(1), config), None, "the number is taken");
    let (side, _) = pair(&Setup::default());
    let path = side.path();
    let error = endpoint.ready_to_receive(qp, path).unwrap_err();
    assert_eq!(error, TransitionError::State { qp, from: State::Reset, to: State::ReadyToReceive, needs: State::Init });
    assert!(error.to_string().contains("it can enter ReadyToReceive only from Init"), "{error}");
    let span = stentor_fabric::Span { region: stentor_fabric::RegionId(0), offset: 0, bytes: 0 };
    assert_eq!(endpoint.post_receive(qp, span, 1), Err(PostError::NotReady { qp, state: QpState::Error }));
    endpoint.init(qp).unwrap();
    let wrong = stentor_fabric_roce::endpoint::Path { mtu: 1000, ..path };
    assert_eq!(endpoint.ready_to_receive(qp, wrong), Err(TransitionError::Mtu(1000)));
    endpoint.ready_to_receive(qp, path).unwrap();
    let sending = stentor_fabric_roce::endpoint::Sending::new(Psn::new(1));
    let wrong = stentor_fabric_roce::endpoint::Sending { retries: 8, ..sending };
    let range = TransitionError::Range { field: "retries", value: 8, min: 0, max: 7 };
    assert_eq!(endpoint.ready_to_send(qp, wrong), Err(range));
    endpoint.ready_to_send(qp, sending).unwrap();
    assert_eq!(endpoint.init(QpId(9)), Err(TransitionError::UnknownQp(QpId(9))));
}

#[test]
fn invalid_requests_are_refused_when_posted() {
    let (mut a, b) = pair(&Setup { kind: QpKind::Unreliable, ..Setup::default() });
    let (local, remote) = (a.span(0, 8), b.remote(0));
    let read = Work::signalled(1, Request::Read { local, remote });
    assert_eq!(
        a.endpoint.post_send(a.qp, &read),
        Err(PostError::Unsupported("READ or atomic operation on an unreliable connection"))
    );
    let outside = a.span(2048 * 8 - 4, 8);
    let send = Work::signalled(1, Request::Send { data: Data::Region(outside), imm: None });
    assert_eq!(
        a.endpoint.post_send(a.qp, &send),
        Err(PostError::OutOfLocalRegion {
            region: outside.region,
            offset: outside.offset,
            bytes: outside.bytes.into()
        })
    );
    let (mut a, b) = pair(&Setup::default());
    let odd = Work::signalled(1, Request::FetchAdd { local, remote: b.remote(4), add: 1 });
    assert!(matches!(a.endpoint.post_send(a.qp, &odd), Err(PostError::Misaligned { .. })));
    for n in 0..128 {
        a.post(n, inline_write(&[1; 8], remote));
    }
    let one = Work::signalled(1, inline_write(&[1; 8], remote));
    assert_eq!(a.endpoint.post_send(a.qp, &one), Err(PostError::SendQueueFull { qp: a.qp, depth: 128 }));
}

/// Like real NICs, the endpoint does not check the key of an empty message.
#[test]
fn empty_message_needs_no_region() {
    let (mut a, mut b) = pair(&Setup::default());
    let nowhere = Span { region: RegionId(99), offset: 8, bytes: 0 };
    let remote = b.remote(0);
    b.endpoint.post_receive(b.qp, nowhere, 7).unwrap();
    a.post(1, Request::Write { data: Data::Region(nowhere), remote, imm: None });
    a.post(2, Request::Send { data: Data::Region(nowhere), imm: Some(5) });
    a.post(3, Request::Read { local: nowhere, remote });
    settle(0, &mut a, &mut b);
    assert_eq!(statuses(&mut a), [1, 2, 3].map(|id| (id, Status::Success)));
    assert_eq!((b.completions()[0].imm, a.endpoint.counters().probes), (Some(5), 0));
}

#[test]
fn incomplete_unreliable_message_leaves_its_receive_to_the_next() {
    let (mut a, mut b) = pair(&Setup { kind: QpKind::Unreliable, ..Setup::default() });
    let span = b.span(0, 1024);
    b.endpoint.post_receive(b.qp, span, 7).unwrap();
    a.post(1, inline_send(&[1; 600]));
    a.post(2, inline_send(&[2; 600]));
    let packets = a.packets(0);
    assert_eq!(packets.len(), 6);
    for (n, packet) in packets.iter().enumerate() {
        if n != 1 {
            b.take(0, packet);
        }
    }
    let received = b.completions();
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].id, received[0].opcode, received[0].bytes), (7, Opcode::Recv, 600));
    assert_eq!(b.bytes(b.local)[..600], [2; 600]);
    assert_eq!(statuses(&mut a), [(1, Status::Success), (2, Status::Success)], "the sender is not informed");
    assert!(b.packets(0).is_empty(), "the receiver sends no answer");
}

#[test]
fn access_right_allows_only_its_operations() {
    for (access, write, atomic) in
        [(Access::Read, false, false), (Access::Write, true, false), (Access::Atomic, true, true)]
    {
        for (request_is_atomic, allowed) in [(false, write), (true, atomic)] {
            let (mut a, mut b) = pair(&Setup::default());
            let old = b.key;
            b.endpoint.memory_mut().revoke(old);
            b.key = b.endpoint.memory_mut().grant(b.shared, crate::common::DOMAIN, access, 1).unwrap();
            let (local, remote) = (a.span(0, 8), b.remote(0));
            let add = Request::FetchAdd { local, remote, add: 1 };
            a.post(1, if request_is_atomic { add } else { inline_write(&[1; 8], remote) });
            settle(0, &mut a, &mut b);
            let status = if allowed { Status::Success } else { Status::RemoteAccess };
            assert_eq!(statuses(&mut a), [(1, status)], "{access:?}");
        }
    }
}

/// A responder reports a gap once. If that report is lost, the packets after the gap trigger no other answer.
#[test]
fn lost_gap_report_costs_probes_and_no_timeout() {
    for missing in [0, 2] {
        let (mut a, mut b) = pair(&Setup::default());
        let remote = b.remote(0);
        a.post(9, inline_write(&[9; 8], remote));
        settle(0, &mut a, &mut b);
        assert_eq!(statuses(&mut a), [(9, Status::Success)], "the round trip has been measured");
        for n in 0..4 {
            a.post(n, inline_write(&[n as u8 + 1; 8], remote));
        }
        for (_, packet) in a.packets(0).iter().enumerate().filter(|(n, _)| *n != missing) {
            b.take(0, packet);
        }
        assert!(!b.packets(0).is_empty(), "acknowledgements and a NAK, all of which are lost");
        let mut now = 0;
        while let Some(next) = a.endpoint.next_deadline() {
            now = next;
            a.endpoint.tick(now);
            settle(now, &mut a, &mut b);
        }
        assert_eq!(statuses(&mut a), (0..4).map(|n| (n, Status::Success)).collect::<Vec<_>>());
        assert_eq!(a.endpoint.counters().timeouts, 0);
        assert!(now < 10 * MS, "{now}");
    }
}

#[test]
fn answer_to_a_probe_does_not_delay_the_next_probe() {
    let (mut a, mut b) = pair(&Setup::default());
    let remote = b.remote(0);
    a.post(1, inline_write(&[1; 8], remote));
    a.packets(0).iter().for_each(|packet| b.take(0, packet));
    b.packets(0).iter().for_each(|packet| a.take(MS, packet));
    a.post(2, inline_write(&[2; 8], remote));
    a.packets(MS).iter().for_each(|packet| b.take(MS, packet));
    assert_eq!(b.packets(MS).len(), 1, "an acknowledgement, which is lost");
    let probe = a.endpoint.next_deadline().unwrap();
    assert_eq!(probe, 5 * MS, "four round trips later");
    a.endpoint.tick(probe);
    a.packets(probe).iter().for_each(|packet| b.take(probe, packet));
    let now = probe + MS;
    b.packets(probe).iter().for_each(|packet| a.take(now, packet));
    assert_eq!(statuses(&mut a), [(1, Status::Success), (2, Status::Success)]);
    a.post(3, inline_write(&[3; 8], remote));
    a.packets(now);
    let wait = a.endpoint.next_deadline().unwrap() - now;
    assert!((4 * MS..5 * MS).contains(&wait), "{wait}");
}

/// If retransmissions must be repeated, fewer packets are sent, so that copies of them do not keep a queue full.
#[test]
fn repeated_retransmission_halves_the_number_of_packets() {
    let (mut a, mut b) = pair(&Setup::default());
    let remote = b.remote(0);
    for n in 0..16 {
        a.post(n, inline_write(&[1; 8], remote));
    }
    a.packets(0)[1..].iter().for_each(|packet| b.take(0, packet));
    b.packets(0).iter().for_each(|packet| a.take(1, packet));
    let mut now = 1;
    for packets in [4, 2, 1] {
        assert_eq!(a.packets(now).len(), packets, "all of which are lost");
        now = a.endpoint.next_deadline().unwrap();
        a.endpoint.tick(now);
    }
    assert_eq!(a.endpoint.counters().timeouts, 0);
}
