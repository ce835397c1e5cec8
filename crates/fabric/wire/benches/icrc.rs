//! Encoding and decoding a WRITE with its ICRC, compared with a bare CRC-32 over the same bytes.
#![allow(missing_docs)]

use std::hint::black_box;
use std::net::Ipv4Addr;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, criterion_group, criterion_main};
use stentor_wire::{Bth, Envelope, Headers, MAX_TRANSPORT_BYTES, Message, Packet, Psn, Repr, Reth, icrc};

/// A buffer at the beginning of a page, so that its alignment does not make one benchmark slower than another. A
/// payload behind headers of 28 bytes begins at a multiple of 64, as in the endpoint's buffers.
#[repr(C, align(4096))]
struct Page([u8; FRONT + MAX_TRANSPORT_BYTES]);

const FRONT: usize = 36;

impl Page {
    fn new(byte: u8) -> Box<Page> {
        Box::new(Page([byte; FRONT + MAX_TRANSPORT_BYTES]))
    }
}

/// Measures a change of the PSN and the update of the ICRC.
fn change(group: &mut BenchmarkGroup<'_, WallTime>, envelope: &Envelope, packet: &[u8]) {
    let bytes = packet.len() - 32;
    let (old, behind) = (icrc::Masked::new(envelope, packet), icrc::Shift::by(packet.len() - 4 - 12));
    group.bench_with_input(BenchmarkId::new("change headers", bytes), packet, |bencher, packet| {
        let mut copy = packet.to_vec();
        let mut psn = 0;
        bencher.iter(|| {
            psn += 1;
            let mut view = Packet::new_checked(&mut copy[..]).expect("a packet");
            view.set_psn(Psn::new(psn));
            let new = icrc::Masked::new(envelope, &copy);
            icrc::changed(1, old.as_bytes(), black_box(&new).as_bytes(), behind)
        });
    });
}

fn write(criterion: &mut Criterion) {
    let (a, b) = (Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2));
    let envelope = Envelope::plain(a.into(), 0xc000, b.into()).expect("both addresses have one family");
    let mut group = criterion.benchmark_group("write");
    for bytes in [64_usize, 4096] {
        let source = Page::new(0x5a);
        let payload = &source.0[..bytes];
        let reth = Reth { va: 0x1000, rkey: 7, bytes: bytes as u32 };
        let repr = Repr {
            bth: Bth::new(17, Psn::new(1)),
            headers: Headers::Rc(Message::WriteOnly(reth)),
            payload_bytes: bytes,
        };
        let (mut place, mut other) = (Page::new(0), Page::new(0));
        let end = FRONT + repr.packet_bytes();
        let encode = |buffer: &mut [u8], psn: u32| {
            let mut repr = repr;
            repr.bth.psn = Psn::new(psn);
            repr.emit(&mut buffer[FRONT..]).expect("the buffer has room").copy_from_slice(black_box(payload));
            envelope.seal(&mut buffer[FRONT..]);
        };
        encode(&mut place.0[..end], 1);
        let packet = &place.0[FRONT..end];
        // The input of the ICRC: 8 + IP 20 + UDP 8 + BTH 12 + RETH 16 + payload.
        let covered = &source.0[..64 + bytes];
        group.bench_with_input(BenchmarkId::new("crc32fast", bytes), covered, |bencher, covered| {
            bencher.iter(|| crc32fast::hash(black_box(covered)));
        });
        let out = &mut other.0[..end];
        group.bench_function(BenchmarkId::new("encode+icrc", bytes), |bencher| {
            let mut psn = 0;
            bencher.iter(|| {
                psn += 1;
                encode(black_box(out), psn);
            });
        });
        // The endpoint does this: the payload goes straight from the region to its location in the packet.
        let out = &mut other.0[..end];
        group.bench_function(BenchmarkId::new("encode+icrc, payload in place", bytes), |bencher| {
            let mut psn = 0;
            bencher.iter(|| {
                psn += 1;
                let mut repr = repr;
                repr.bth.psn = Psn::new(psn);
                let _ = black_box(repr.emit(&mut black_box(&mut *out)[FRONT..]).expect("the buffer has room"));
                envelope.seal(&mut out[FRONT..]);
            });
        });
        group.bench_with_input(BenchmarkId::new("decode+icrc", bytes), packet, |bencher, packet| {
            bencher.iter(|| {
                let packet = Packet::new_checked(black_box(packet)).expect("a packet");
                let repr = Repr::parse(&packet).expect("a packet");
                assert_eq!(envelope.icrc(packet.as_bytes()), packet.icrc());
                repr
            });
        });
        change(&mut group, &envelope, packet);
    }
    group.finish();
}

criterion_group!(benches, write);
criterion_main!(benches);
