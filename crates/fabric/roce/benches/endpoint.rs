//! Measures a WRITE through the endpoint, from one region into another, and compares it with a bare CRC-32 over the
//! bytes that the ICRC covers. The benchmark of `wire` measures only the packets.
#![allow(missing_docs)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;

use common::{Flying, Setup, pair};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use stentor_fabric::QpKind;
use stentor_fabric_roce::endpoint::{Arrival, Check, Data, Request, Work};
use stentor_wire::{Envelope, Packet};

/// Returns four copies of a packet. Their PSNs are 2^22 apart, which is a quarter of all PSNs. On an unreliable
/// connection each copy begins a new message after the previous one, however often they are repeated.
fn apart(flying: &[Flying]) -> (Envelope, [Vec<u8>; 4]) {
    let [(envelope, transport)] = flying else { panic!("one packet") };
    let numbered = |quarter: usize| {
        let mut packet = Packet::new_checked(transport.clone()).expect("a packet");
        packet.set_psn(packet.psn().plus((quarter as u32) << 22));
        let mut bytes = packet.as_bytes().to_vec();
        envelope.seal(&mut bytes);
        bytes
    };
    (*envelope, std::array::from_fn(numbered))
}

fn write(criterion: &mut Criterion) {
    let setup = Setup { kind: QpKind::Unreliable, mtu: 4096, ..Setup::default() };
    let mut group = criterion.benchmark_group("endpoint");
    for bytes in [64_u32, 4096] {
        let (mut a, mut b) = pair(&setup);
        let (source, remote) = (a.span(0, bytes), b.remote(0));
        let request = || Request::Write { data: Data::Region(source), remote, imm: None };
        // The input of the ICRC: 8 + IP 20 + UDP 8 + BTH 12 + RETH 16 + payload.
        let covered = vec![0x5a; 64 + bytes as usize];
        a.fill(a.local, 0, &covered[..bytes as usize]);
        group.bench_with_input(BenchmarkId::new("crc32fast", bytes), &covered, |bencher, covered| {
            bencher.iter(|| crc32fast::hash(black_box(covered)));
        });
        a.post(1, request());
        let flying = a.packets(0);
        let (envelope, packets) = apart(&flying);
        a.endpoint.poll().expect("a completion");
        group.bench_function(BenchmarkId::new("post, make, complete", bytes), |bencher| {
            bencher.iter(|| {
                a.endpoint.post_send(a.qp, &Work::signalled(1, black_box(request()))).expect("the send queue has room");
                a.endpoint.transmit(0, &mut a.out);
                assert_eq!(a.out.packets().len(), 1);
                a.out.clear();
                a.endpoint.poll().expect("a completion")
            });
        });
        let mut next = packets.iter().cycle();
        group.bench_function(BenchmarkId::new("check and store", bytes), |bencher| {
            bencher.iter(|| {
                let transport = black_box(&next.next().expect("the iterator is endless")[..]);
                b.endpoint.receive(0, &Arrival { envelope, transport, check: Check::Whole });
            });
        });
        let counters = b.endpoint.counters();
        assert_eq!((counters.bad_icrc, counters.access_errors, counters.duplicates), (0, 0, 0));
        assert_eq!(b.bytes(b.shared)[..bytes as usize], covered[..bytes as usize]);
    }
    group.finish();
}

criterion_group!(benches, write);
criterion_main!(benches);
