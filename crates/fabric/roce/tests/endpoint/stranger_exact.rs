//! A stranger sends packets to an endpoint with a connection, packet by packet and without sockets. Each of its packets
//! is counted once under its cause. Unless the stranger knows the connection's secrets, nothing else changes.

use crate::common::{DOMAIN, Flying, Setup, Side, SplitMix64, VA, address, pair};
use stentor_fabric::{Completion, QpConfig, QpKind, Status};
use stentor_fabric_roce::endpoint::{Data, Request, State};
use stentor_wire::{Bth, Envelope, Headers, Message, Opcode, Packet, Psn, Repr, Reth};

/// Number of operations of the connection.
const OPERATIONS: u64 = 120;
const SETUP: Setup = Setup {
    kind: QpKind::Reliable,
    mtu: 256,
    psn_a: 0xff_ffe0,
    psn_b: 77,
    window: 8,
    timeout: 14,
    retries: 7,
    rnr_retries: 7,
    rd_atomic: 4,
    rnr_code: 1,
    words: 256,
    apart: false,
};

/// A kind of packet that a stranger derives from a packet of the connection, and the counter in which the endpoint must
/// count it.
struct Kind {
    name: &'static str,
    counter: &'static str,
    make: fn(&Flying) -> Flying,
}

fn at(host: u8, packet: &Flying) -> Flying {
    let envelope = Envelope::plain(address(host), packet.0.source_port, packet.0.ip.destination()).unwrap();
    (envelope, packet.1.clone())
}

/// Returns the packet with a change and a matching ICRC.
fn changed(packet: &Flying, change: impl FnOnce(&mut Vec<u8>)) -> Flying {
    let (envelope, mut bytes) = packet.clone();
    change(&mut bytes);
    envelope.seal(&mut bytes);
    (envelope, bytes)
}

/// Defects that make a packet harmless, although its other fields are correct.
const HARMLESS: [Kind; 11] = [
    Kind {
        name: "source address",
        counter: "wrong_source",
        make: |packet| {
            let (envelope, mut bytes) = at(9, packet);
            envelope.seal(&mut bytes);
            (envelope, bytes)
        },
    },
    Kind { name: "queue pair", counter: "unknown_qp", make: |packet| changed(packet, |bytes| bytes[7] ^= 0x40) },
    Kind { name: "partition", counter: "wrong_pkey", make: |packet| changed(packet, |bytes| bytes[3] ^= 1) },
    Kind { name: "service", counter: "wrong_service", make: |packet| changed(packet, |bytes| bytes[0] = 0x24) },
    Kind { name: "opcode", counter: "malformed", make: |packet| changed(packet, |bytes| bytes[0] = 0x1f) },
    Kind { name: "version", counter: "malformed", make: |packet| changed(packet, |bytes| bytes[1] |= 1) },
    Kind { name: "length", counter: "malformed", make: |packet| changed(packet, |bytes| bytes.truncate(15)) },
    Kind {
        name: "pad",
        counter: "malformed",
        make: |packet| {
            changed(packet, |bytes| {
                // An acknowledgement has no payload, and so no pad.
                bytes[0] = Opcode::RcAcknowledge.to_byte();
                bytes.truncate(12 + 4 + 4);
                bytes[1] |= 0x30;
            })
        },
    },
    Kind {
        name: "ICRC",
        counter: "bad_icrc",
        make: |packet| {
            let mut packet = packet.clone();
            *packet.1.last_mut().unwrap() ^= 0x80;
            packet
        },
    },
    Kind {
        name: "PSN of an old READ",
        counter: "unrepeatable",
        make: |packet| {
            changed(packet, |bytes| {
                let psn = Psn::new(u32::from_be_bytes([0, bytes[9], bytes[10], bytes[11]])).minus(5000);
                let reth = Reth { va: VA, rkey: 7, bytes: 8 };
                let qp = u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]);
                let repr = Repr { bth: Bth::new(qp, psn), headers: Headers::ReadRequest(reth), payload_bytes: 0 };
                *bytes = vec![0; repr.packet_bytes()];
                repr.emit(bytes).unwrap();
            })
        },
    },
    Kind {
        name: "acknowledgement of a packet that was never sent",
        counter: "ghost_responses",
        make: |packet| {
            changed(packet, |bytes| {
                (bytes[0], bytes[1]) = (Opcode::RcAcknowledge.to_byte(), 0);
                bytes[9..12].copy_from_slice(&Psn::new(SETUP.psn_b).plus(1000).to_bytes());
                bytes.truncate(12);
                bytes.extend([0x1f, 0, 0, 1, 0, 0, 0, 0]);
            })
        },
    },
];

/// The observable results of a conversation.
#[derive(PartialEq, Debug)]
struct Traces {
    completions: Vec<Completion>,
    memory: Vec<u8>,
    /// Counters of both sides.
    a: Vec<(&'static str, u64)>,
    b: Vec<(&'static str, u64)>,
}

/// Runs the operations of the connection. Before each packet of A, B receives the packets that `strange` returns.
fn conversation(mut strange: impl FnMut(&Flying) -> Vec<Flying>) -> Traces {
    let (mut a, mut b) = pair(&SETUP);
    let mut completions = Vec::new();
    for n in 0..OPERATIONS {
        let data = vec![n as u8; (n * 37 % 900) as usize];
        let span = b.span(1024, 1000);
        b.endpoint.post_receive(b.qp, span, n).unwrap();
        let (remote, local, word) = (b.remote(0), a.span(0, 600), a.span(1024, 8));
        a.post(
            n,
            match n % 4 {
                0 => Request::Write { data: Data::Inline(&data), remote, imm: None },
                1 => Request::Send { data: Data::Inline(&data), imm: Some(n as u32) },
                2 => Request::Read { local, remote },
                _ => Request::FetchAdd { local: word, remote: b.remote(1024), add: n },
            },
        );
        loop {
            let from_a = a.packets(n);
            for packet in &from_a {
                strange(packet).iter().for_each(|packet| b.take(n, packet));
                b.take(n, packet);
            }
            let from_b = b.packets(n);
            from_b.iter().for_each(|packet| a.take(n, packet));
            if from_a.is_empty() && from_b.is_empty() {
                break;
            }
        }
        completions.extend(a.completions().into_iter().chain(b.completions()));
    }
    let memory = [b.bytes(b.shared), b.bytes(b.local), a.bytes(a.local)].concat();
    let (own, others) = (a.endpoint.counters().list(), b.endpoint.counters().list());
    Traces { completions, memory, a: own, b: others }
}

/// Returns the counters of B that are higher than without the stranger, each with the difference.
fn more(with: &Traces, alone: &Traces) -> Vec<(&'static str, u64)> {
    let pairs = with.b.iter().zip(&alone.b);
    pairs.filter(|(with, alone)| with != alone).map(|(with, alone)| (with.0, with.1 - alone.1)).collect()
}

/// Checks the state that a stranger must not change.
fn same_but_for_counts(with: &Traces, alone: &Traces, what: &str) {
    assert_eq!(with.completions, alone.completions, "{what}: completions");
    assert_eq!(with.memory, alone.memory, "{what}: memory");
    assert_eq!(with.a, alone.a, "{what}: the peer is affected");
}

#[test]
fn single_cause_is_counted_exactly_and_changes_nothing() {
    let alone = conversation(|_| Vec::new());
    assert_eq!(alone.completions.len() as u64, OPERATIONS + OPERATIONS / 4);
    for kind in &HARMLESS {
        // The stranger sends one packet, or eight packets, per packet of the connection.
        for each in [1, 8] {
            let mut sent = 0;
            let with = conversation(|packet| {
                sent += each;
                (0..each).map(|_| (kind.make)(packet)).collect()
            });
            same_but_for_counts(&with, &alone, kind.name);
            let mut expected = vec![("received", sent), (kind.counter, sent)];
            expected.sort_by_key(|(name, _)| with.b.iter().position(|(known, _)| known == name));
            assert_eq!(more(&with, &alone), expected, "wrong {}, {each} for each packet", kind.name);
        }
    }
}

#[test]
fn mixed_causes_are_counted_exactly_and_change_nothing() {
    let alone = conversation(|_| Vec::new());
    let (mut random, mut counts) = (SplitMix64(7), std::collections::BTreeMap::new());
    let with = conversation(|packet| {
        let mut some = Vec::new();
        for _ in 0..random.below(20) {
            let kind = &HARMLESS[random.index(HARMLESS.len())];
            *counts.entry(kind.counter).or_insert(0) += 1;
            some.push((kind.make)(packet));
        }
        some
    });
    same_but_for_counts(&with, &alone, "mixed");
    let sent: u64 = counts.values().sum();
    assert!(sent > 1000 && counts.values().all(|count| *count > 50), "{counts:?}");
    counts.insert("received", sent);
    assert_eq!(more(&with, &alone).into_iter().collect::<std::collections::BTreeMap<_, _>>(), counts);
}

/// A wrong PSN looks like a loss or a duplicate and is handled like one. The count is exact nevertheless. The
/// connection retransmits the packets that it must, and executes each operation once.
#[test]
fn wrong_psn_is_counted_exactly_and_costs_no_more_than_a_loss() {
    let alone = conversation(|_| Vec::new());
    let shifted = |packet: &Flying, by: i32| {
        changed(packet, |bytes| {
            let psn = Psn::new(u32::from_be_bytes([0, bytes[9], bytes[10], bytes[11]]));
            let psn = if by < 0 { psn.minus(by.unsigned_abs()) } else { psn.plus(by.unsigned_abs()) };
            let reth = Reth { va: VA, rkey: 7, bytes: 8 };
            let qp = u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]);
            let headers = Headers::Rc(Message::WriteOnly(reth));
            let repr = Repr { bth: Bth::new(qp, psn), headers, payload_bytes: 8 };
            *bytes = vec![0; repr.packet_bytes()];
            repr.emit(bytes).unwrap().fill(0x66);
        })
    };
    for (by, counter) in [(1000, "out_of_order"), (-1000, "duplicates")] {
        let mut sent = 0;
        let with = conversation(|packet| {
            sent += 1;
            vec![shifted(packet, by)]
        });
        assert_eq!(with.completions, alone.completions, "{counter}");
        assert_eq!(with.memory, alone.memory, "{counter}");
        let count = |traces: &[(&str, u64)], name: &str| traces.iter().find(|(known, _)| *known == name).unwrap().1;
        let again = count(&with.a, "retransmitted");
        // Packets that the connection retransmits are duplicates, too.
        let own = if by < 0 { again } else { 0 };
        assert_eq!(count(&with.b, counter), sent + own, "{counter}: {:?}", with.b);
        assert_eq!(count(&with.a, "timeouts") + count(&with.a, "probes"), 0);
    }
}

/// Sends a request that is correct except for its key or its announced length. Its sender knows the next PSN, which
/// only a host on the path can know. The specification requires that the responder refuses the request and breaks the
/// connection (9.7.4.1.4, 9.7.4.1.6, 9.9.3). Another connection of the same endpoint is not affected.
#[test]
fn wrong_key_or_length_breaks_one_connection_and_changes_no_memory() {
    let right = Reth { va: VA, rkey: 0, bytes: 64 };
    let make = |b: &Side, reth: Reth, message: fn(Reth) -> Message, payload_bytes: usize| {
        let bth = Bth::new(b.number, Psn::new(SETUP.psn_a));
        let repr = Repr { bth, headers: Headers::Rc(message(reth)), payload_bytes };
        let envelope = Envelope::plain(address(1), 0xc190, address(2)).unwrap();
        let mut bytes = vec![0; repr.packet_bytes()];
        repr.emit(&mut bytes).unwrap().fill(0x66);
        envelope.seal(&mut bytes);
        (envelope, bytes)
    };
    type Spoil = fn(Reth, u32) -> (Reth, fn(Reth) -> Message, usize);
    let kinds: [(&str, &str, u8, Spoil); 5] = [
        ("key", "access_errors", 0x62, |r, key| (Reth { rkey: key ^ 1, ..r }, Message::WriteOnly, 64)),
        ("earlier key of the index", "access_errors", 0x62, |r, key| {
            (Reth { rkey: key ^ 1 << 16, ..r }, Message::WriteOnly, 64)
        }),
        ("address", "access_errors", 0x62, |r, key| {
            (Reth { rkey: key, va: r.va + 256 * 8 - 63, ..r }, Message::WriteOnly, 64)
        }),
        ("announced length", "invalid_requests", 0x61, |r, key| {
            (Reth { rkey: key, bytes: 60, ..r }, Message::WriteOnly, 64)
        }),
        ("length of a first packet", "invalid_requests", 0x61, |r, key| {
            (Reth { rkey: key, bytes: 512, ..r }, Message::WriteFirst, 100)
        }),
    ];
    for (what, counter, syndrome, spoil) in kinds {
        let (_a, mut b) = pair(&SETUP);
        let (mut c, other) = bystander(&mut b);
        let (reth, message, bytes) = spoil(right, b.key);
        let strange = make(&b, reth, message, bytes);
        for n in 0..50_u64 {
            b.take(n, &strange);
            let data = [n as u8 + 1; 300];
            c.post(n, crate::common::inline_write(&data, b.remote(512)));
            let mut refusals = Vec::new();
            loop {
                let (from_c, from_b) = (c.packets(n), b.packets(n));
                from_c.iter().for_each(|packet| b.take(n, packet));
                for packet in &from_b {
                    let view = Packet::new_checked(&packet.1[..]).unwrap();
                    if view.dest_qp() == c.number {
                        c.take(n, packet);
                    } else {
                        refusals.push(view.aeth().unwrap().syndrome.to_byte());
                    }
                }
                if from_c.is_empty() && from_b.is_empty() {
                    break;
                }
            }
            assert_eq!(refusals, if n == 0 { vec![syndrome] } else { vec![] }, "wrong {what}");
            let status: Vec<_> = c.completions().iter().map(|completion| completion.status).collect();
            assert_eq!(status, [Status::Success], "wrong {what}: the other connection is affected");
            assert_eq!(b.bytes(b.shared)[512..812], data);
        }
        let counters: std::collections::BTreeMap<_, _> = b.endpoint.counters().list().into_iter().collect();
        assert_eq!((counters[counter], counters["not_ready"]), (1, 49), "wrong {what}: {counters:?}");
        assert_eq!(counters["received"], 50 + 2 * 50, "wrong {what}");
        assert_eq!((b.endpoint.state(b.qp), b.endpoint.state(other)), (Some(State::Error), Some(State::ReadyToSend)));
        assert!(b.bytes(b.shared).iter().all(|byte| *byte != 0x66), "wrong {what} reached memory");
    }
}

/// Returns a third process that is connected to another queue pair of B's endpoint.
fn bystander(b: &mut Side) -> (Side, stentor_fabric::QpId) {
    let mut c = Side::new(0x33, &SETUP);
    let config = QpConfig { kind: QpKind::Reliable, send_depth: 16, recv_depth: 16, merges: false };
    let qp = b.endpoint.create(0x34, DOMAIN, config).unwrap();
    let to = |from, to| Envelope::plain(address(from), 0xc190, address(to)).unwrap();
    c.ready(to(3, 2), 0x34, (SETUP.psn_a, SETUP.psn_b), &SETUP);
    let path = stentor_fabric_roce::endpoint::Path { envelope: to(2, 3), dest_qp: 0x33, ..b.path() };
    b.endpoint.init(qp).unwrap();
    b.endpoint.ready_to_receive(qp, path).unwrap();
    b.endpoint.ready_to_send(qp, stentor_fabric_roce::endpoint::Sending::new(Psn::new(SETUP.psn_b))).unwrap();
    (c, qp)
}
