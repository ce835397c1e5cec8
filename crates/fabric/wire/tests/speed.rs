//! Measures the cost of an ICRC, compared with a bare CRC-32 over the same number of bytes in the same run. The test is
//! ignored by default. It needs an idle processor and a release build: `cargo test --release -p stentor-wire --test
//! speed -- --ignored --nocapture` (the step `roce-speed` of `cargo xtask nightly`).

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

use stentor_testutil::median;
use stentor_wire::{Bth, Envelope, Headers, MAX_TRANSPORT_BYTES, Message, Packet, Psn, Repr, Reth};

/// Number of rounds, in which the three measurements alternate. Their medians count.
const ROUNDS: usize = 31;
/// Number of operations of each kind in a round.
const TURNS: u32 = 2000;
/// Maximum number of trials. One within the bound suffices, because other users of the machine disturb some of them.
const TRIALS: usize = 5;
/// Encoding or decoding a packet may take this factor times the time of a bare CRC, plus `MORE_NS` nanoseconds.
const TIMES: f64 = 1.5;
const MORE_NS: f64 = 30.0;
/// Offset of a packet in its page, so that its payload begins at a cache line, as in the endpoint's buffers.
const FRONT: usize = 36;

#[repr(C, align(4096))]
struct Page([u8; FRONT + MAX_TRANSPORT_BYTES]);

fn page(byte: u8) -> Box<Page> {
    Box::new(Page([byte; FRONT + MAX_TRANSPORT_BYTES]))
}

/// Returns the time of one operation, in nanoseconds.
fn time(mut once: impl FnMut(u32)) -> f64 {
    let since = Instant::now();
    (0..TURNS).for_each(&mut once);
    since.elapsed().as_secs_f64() * 1e9 / f64::from(TURNS)
}

/// Returns the times of a bare CRC, and of encoding and decoding a WRITE of `bytes` bytes, in nanoseconds.
fn measured_times(bytes: usize) -> [f64; 3] {
    let (a, b) = (Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2));
    let envelope = Envelope::plain(a.into(), 0xc000, b.into()).expect("both addresses have one family");
    let source = page(0x5a);
    let headers = Headers::Rc(Message::WriteOnly(Reth { va: 0x1000, rkey: 7, bytes: bytes as u32 }));
    let repr = Repr { bth: Bth::new(17, Psn::new(1)), headers, payload_bytes: bytes };
    let end = FRONT + repr.packet_bytes();
    let encode = |page: &mut Page, psn: u32| {
        let mut repr = repr;
        repr.bth.psn = Psn::new(psn);
        let out = &mut page.0[FRONT..end];
        repr.emit(out).expect("the buffer has room").copy_from_slice(black_box(&source.0[..bytes]));
        envelope.seal(out);
    };
    let (mut place, mut made) = (page(0), page(0));
    encode(&mut made, 1);
    // The input of the ICRC: 8 + IP 20 + UDP 8 + BTH 12 + RETH 16 + payload.
    let covered = &source.0[..64 + bytes];
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        times[0].push(time(|_| {
            black_box(crc32fast::hash(black_box(covered)));
        }));
        times[1].push(time(|psn| encode(black_box(&mut place), psn)));
        times[2].push(time(|_| {
            let packet = Packet::new_checked(black_box(&made.0[FRONT..end])).expect("a packet");
            black_box(Repr::parse(&packet).expect("a packet"));
            assert_eq!(envelope.icrc(packet.as_bytes()), packet.icrc());
        }));
    }
    times.map(median)
}

#[test]
#[ignore = "measures: see the top of the file"]
fn encoding_and_decoding_stay_near_a_bare_crc() {
    for bytes in [64, 4096] {
        let mut within = false;
        for _ in 0..TRIALS {
            let [crc, encode, decode] = measured_times(bytes);
            let bar = TIMES * crc + MORE_NS;
            println!("{bytes} B: CRC {crc:.1} ns; encode {encode:.1} ns, decode {decode:.1} ns; bar {bar:.1} ns");
            within = encode <= bar && decode <= bar;
            if within {
                break;
            }
        }
        assert!(within, "{bytes} B: all of {TRIALS} trials exceeded the bound");
    }
}
