//! Mutations of real packets, for as long as `STENTOR_FUZZ_SECONDS` says (1 second unless told). A failure prints the
//! packet.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use common::Random;
use stentor_wire::{IpPacket, Opcode, Packet, Repr};

/// What is fuzzed: must never panic, whatever the bytes.
fn target(bytes: &[u8]) {
    if let Ok(packet) = IpPacket::new_checked(bytes) {
        let _ = (packet.is_intact(), packet.to_string());
    }
    for at in [0, 28, 48] {
        let Some(transport) = bytes.get(at..) else { continue };
        let Ok(packet) = Packet::new_checked(transport) else { continue };
        let repr = Repr::parse(&packet).expect("a checked packet");
        let _ = (packet.to_string(), packet.reth(), packet.aeth(), packet.atomic(), packet.atomic_ack());
        let _ = (packet.deth(), packet.imm(), packet.invalidate(), packet.icrc());
        let mut again = vec![0; repr.packet_bytes()];
        repr.emit(&mut again).expect("room").copy_from_slice(packet.payload());
        let second = Packet::new_checked(&again[..]).expect("emitted");
        assert_eq!(Repr::parse(&second), Ok(repr));
    }
}

fn mutate(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..1 + random.below(6) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        match random.below(7) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.next() as u8),
            4 => bytes[at] = [0, 0xff, 0x7f, 0x80][random.below(4)],
            5 if bytes.len() > 29 => bytes[28] = Opcode::ALL[random.below(Opcode::ALL.len())].to_byte(),
            _ => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }
    bytes
}

#[test]
fn mutated_packets_never_panic() {
    let seconds = std::env::var("STENTOR_FUZZ_SECONDS").ok();
    let seconds: u64 = seconds.map_or(1, |text| text.parse().expect("STENTOR_FUZZ_SECONDS: a number of seconds"));
    let corpus: Vec<_> = common::captures().iter().flat_map(|file| common::packets_of(file)).collect();
    let seed = std::env::var("STENTOR_FUZZ_SEED").map_or(1, |text| text.parse().expect("STENTOR_FUZZ_SEED: a number"));
    let (mut random, since, mut count) = (Random(seed), Instant::now(), 0_u64);
    while since.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..1000 {
            let bytes = mutate(&mut random, &corpus);
            if catch_unwind(AssertUnwindSafe(|| target(&bytes))).is_err() {
                panic!("packet {count} of seed {seed}: {bytes:02x?}");
            }
            count += 1;
        }
    }
    println!("{count} mutated packets in {seconds} s");
}
