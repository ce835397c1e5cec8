//! A stranger (a host without a connection) floods an endpoint while its connection is in use. The endpoint counts the
//! packets of its connection as it would without the flood, and each packet of the stranger as received and once under
//! its cause. No other counter and no memory differs.

use crate::common::{DOMAIN, Flying, Setup, Side, SplitMix64, inline_write, pair};
use stentor_fabric::{QpConfig, QpKind, Status};
use stentor_fabric_roce::endpoint::{Arrival, Check, Counters, Request};
use stentor_wire::{
    Aeth, Bth, DEFAULT_PKEY, Envelope, Headers, Message, Psn, Repr, Response, Reth, Syndrome, UDP_PORT,
};

const ROUNDS: u64 = 400;
/// Number of the stranger's packets that B receives before each packet of the connection, and again after the last one
/// of each exchange.
const FLOOD: u64 = 25;
/// Number of a queue pair that is created but not connected.
const IDLE_QP: u32 = 0x77;

/// A defect that a stranger adds to a correct packet, and the counter for it.
struct Kind {
    what: &'static str,
    packet: Flying,
    counter: fn(&mut Counters) -> &mut u64,
}

/// Returns a packet from a host to the side with a valid ICRC; `change` runs before the ICRC is computed.
fn made(host: u8, bth: Bth, headers: Headers, payload_bytes: usize, change: impl FnOnce(&mut Vec<u8>)) -> Flying {
    let envelope = Envelope::plain(crate::common::address(host), UDP_PORT, crate::common::address(2)).unwrap();
    let repr = Repr { bth, headers, payload_bytes };
    let mut bytes = vec![0; repr.packet_bytes()];
    repr.emit(&mut bytes).unwrap().fill(0x66);
    change(&mut bytes);
    envelope.seal(&mut bytes);
    (envelope, bytes)
}

/// Returns all kinds of defects. Host 1 has the peer's address, which a stranger may forge; host 9 has another one.
fn kinds(b: &Side, setup: &Setup) -> Vec<Kind> {
    let right = b.remote(0);
    let write = Headers::Rc(Message::WriteOnly(Reth { va: right.va, rkey: right.rkey, bytes: 64 }));
    let expected = Bth::new(b.number, Psn::new(setup.psn_a));
    let acknowledges = |psn| {
        let aeth = Aeth { syndrome: Syndrome::ACK, msn: 7 };
        made(1, Bth::new(b.number, psn), Headers::Response(Response::Acknowledge(aeth)), 0, |_| ())
    };
    let from = |host, bth| made(host, bth, write, 64, |_| ());
    let changed = |change: fn(&mut Vec<u8>)| made(1, expected, write, 64, change);
    // This PSN precedes all packets that were sent, so no response to it is kept.
    let old = Bth::new(b.number, Psn::new(setup.psn_a).minus(1000));
    let read = Headers::ReadRequest(Reth { va: right.va, rkey: right.rkey, bytes: 8 });
    let mut damaged = from(1, expected);
    damaged.1[50] ^= 0x10;
    let kind = |what, packet, counter| Kind { what, packet, counter };
    vec![
        kind("another address", from(9, expected), |c| &mut c.wrong_source),
        kind("a wrong PSN from another address", from(9, Bth { psn: Psn::new(1), ..expected }), |c| {
            &mut c.wrong_source
        }),
        kind("no such queue pair", from(9, Bth { dest_qp: 0x0bad, ..expected }), |c| &mut c.unknown_qp),
        kind("no such pair, from peer", from(1, Bth { dest_qp: 0x0bad, ..expected }), |c| &mut c.unknown_qp),
        kind("not connected", from(9, Bth { dest_qp: IDLE_QP, ..expected }), |c| &mut c.not_ready),
        kind("partition", from(1, Bth { pkey: DEFAULT_PKEY ^ 0x100, ..expected }), |c| &mut c.wrong_pkey),
        kind("service", changed(|bytes| bytes[0] |= 0x20), |c| &mut c.wrong_service),
        kind("no opcode", changed(|bytes| bytes[0] = 0x1f), |c| &mut c.malformed),
        kind("cut short", changed(|bytes| bytes.truncate(20)), |c| &mut c.malformed),
        kind("empty", changed(Vec::clear), |c| &mut c.malformed),
        kind("damaged", damaged, |c| &mut c.bad_icrc),
        kind("for a packet never sent", acknowledges(Psn::new(setup.psn_b)), |c| &mut c.ghost_responses),
        kind("for an old packet", acknowledges(Psn::new(setup.psn_b).minus(1)), |c| &mut c.stale_responses),
        kind("request for a response that is no longer kept", made(1, old, read, 0, |_| ()), |c| &mut c.unrepeatable),
    ]
}

/// Runs WRITEs, READs and atomics from A to B; `flood` runs on B between them.
fn work(flood: &mut dyn FnMut(&mut Side)) -> (Side, Side) {
    let (mut a, mut b) = pair(&Setup::default());
    let config = QpConfig { kind: QpKind::Reliable, send_depth: 1, recv_depth: 1, merges: false };
    let idle = b.endpoint.create(IDLE_QP, DOMAIN, config).unwrap();
    b.endpoint.init(idle).unwrap();
    for round in 0..ROUNDS {
        let (local, remote, data) = (a.span(0, 600), b.remote(round % 64 * 8), round.to_ne_bytes().repeat(100));
        a.post(
            round,
            match round % 3 {
                0 => inline_write(&data, remote),
                1 => Request::Read { local, remote },
                _ => Request::FetchAdd { local: a.span(0, 8), remote, add: round },
            },
        );
        loop {
            let (from_a, from_b) = (a.packets(round), b.packets(round));
            for packet in &from_a {
                flood(&mut b);
                b.take(round, packet);
            }
            flood(&mut b);
            from_b.iter().for_each(|packet| a.take(round, packet));
            if from_a.is_empty() && from_b.is_empty() {
                break;
            }
        }
        let done = a.completions();
        assert_eq!(done.iter().map(|done| (done.id, done.status)).collect::<Vec<_>>(), [(round, Status::Success)]);
    }
    (a, b)
}

#[test]
fn flooded_endpoint_counts_each_packet_once_and_works_on() {
    let (alone_a, alone) = work(&mut |_| ());
    let kinds = kinds(&alone, &Setup::default());
    let (mut random, mut expected) = (SplitMix64(11), *alone.endpoint.counters());
    let mut sent = vec![0_u64; kinds.len()];
    let (a, b) = work(&mut |b| {
        for _ in 0..FLOOD {
            let n = random.index(kinds.len());
            let (envelope, transport) = (kinds[n].packet.0, &kinds[n].packet.1[..]);
            // An endpoint that receives runs uses another check than one that does not, so both checks are tested.
            let check = if random.one_in(2) { Check::Whole } else { Check::RunId };
            b.endpoint.receive(0, &Arrival { envelope, transport, check });
            sent[n] += 1;
        }
    });
    for (kind, count) in kinds.iter().zip(&sent) {
        assert!(*count > 100, "{}", kind.what);
        *(kind.counter)(&mut expected) += count;
        expected.received += count;
    }
    assert_eq!(*b.endpoint.counters(), expected);
    assert_eq!(a.endpoint.counters(), alone_a.endpoint.counters(), "the flood does not affect the peer");
    assert_eq!(b.bytes(b.shared), alone.bytes(alone.shared));
    println!(
        "{} packets of the connection, {} of strangers",
        alone.endpoint.counters().received,
        sent.iter().sum::<u64>()
    );
}
