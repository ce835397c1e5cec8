//! Mutates real packets and checks that no parser panics, for `STENTOR_FUZZ_SECONDS` seconds (default: 1). A failure
//! prints the packet.
//!
//! `tests/corpus` keeps inputs that end in different ways. They are replayed, and mutated together with the captures.
//! To extend the corpus: `STENTOR_FUZZ_SECONDS=600 cargo test -p stentor-wire --test fuzz -- --ignored grow`.

mod common;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::Random;
use stentor_testutil::SplitMix64;
use stentor_wire::{IpPacket, Opcode, Packet, Repr};

/// Maximum length of all kept inputs together, in bytes.
const MOST_BYTES: usize = 64 << 10;

/// The code under test, which must never panic. Returns the ways in which it ended: the error of each parser without
/// its numbers, or the kind of packet.
fn target(bytes: &[u8]) -> BTreeSet<String> {
    let mut ends = BTreeSet::new();
    let kind = |error: &dyn std::fmt::Debug| format!("{error:?}").replace(|c: char| c.is_ascii_digit(), "");
    match IpPacket::new_checked(bytes) {
        Ok(packet) => {
            let (intact, text) = (packet.is_intact(), packet.to_string());
            let opcode = packet.packet.opcode().to_byte();
            ends.insert(format!("ip {} {opcode:02x} {intact} {}", packet.envelope.ip.ecn(), text.contains('[')));
        }
        Err(error) => drop(ends.insert(format!("ip {}", kind(&error)))),
    }
    for at in [0, 28, 48] {
        let Some(transport) = bytes.get(at..) else { continue };
        let packet = match Packet::new_checked(transport) {
            Ok(packet) => packet,
            Err(error) => {
                ends.insert(format!("{at} {}", kind(&error)));
                continue;
            }
        };
        let repr = Repr::parse(&packet).expect("a checked packet");
        let _ = (packet.to_string(), packet.reth(), packet.atomic(), packet.atomic_ack());
        let _ = (packet.deth(), packet.imm(), packet.invalidate(), packet.icrc());
        let syndrome = packet.aeth().map(|aeth| kind(&aeth.syndrome));
        ends.insert(format!("{at} {:02x} {syndrome:?}", packet.opcode().to_byte()));
        let mut again = vec![0; repr.packet_bytes()];
        repr.emit(&mut again).expect("the buffer has room").copy_from_slice(packet.payload());
        let second = Packet::new_checked(&again[..]).expect("the emitted packet is complete");
        assert_eq!(Repr::parse(&second), Ok(repr));
    }
    ends
}

fn run(bytes: &[u8], place: &dyn Fn() -> String) -> BTreeSet<String> {
    catch_unwind(AssertUnwindSafe(|| target(bytes)))
        .unwrap_or_else(|_| panic!("{}: the packet is {bytes:02x?}", place()))
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
                let from = random.below(other.len().max(1));
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from.min(other.len())..]);
            }
        }
    }
    bytes
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/packets.bin")
}

/// Returns the kept inputs. In the file, each follows its length (two little-endian bytes).
fn kept_inputs() -> Vec<Vec<u8>> {
    let bytes = std::fs::read(file()).unwrap_or_default();
    let (mut inputs, mut rest) = (Vec::new(), &bytes[..]);
    while let [l0, l1, behind @ ..] = rest {
        let (input, next) = behind.split_at(u16::from_le_bytes([*l0, *l1]).into());
        inputs.push(input.to_vec());
        rest = next;
    }
    inputs
}

fn captured() -> Vec<Vec<u8>> {
    common::captures().iter().flat_map(|file| common::packets_of(file)).collect()
}

/// Mutates inputs until the time is over. `found` is called with each input and the ways in which it ended, and returns
/// whether to mutate that input further.
fn fuzz(population: &mut Vec<Vec<u8>>, mut found: impl FnMut(&[u8], BTreeSet<String>) -> bool) -> u64 {
    let seconds = std::env::var("STENTOR_FUZZ_SECONDS").ok();
    let seconds: u64 = seconds.map_or(1, |text| text.parse().expect("STENTOR_FUZZ_SECONDS: a number of seconds"));
    let seed = std::env::var("STENTOR_FUZZ_SEED").map_or(1, |text| text.parse().expect("STENTOR_FUZZ_SEED: a number"));
    let (since, mut count, mut random) = (Instant::now(), 0_u64, Random(SplitMix64(seed)));
    while since.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..1000 {
            let bytes = mutate(&mut random, population);
            let ends = run(&bytes, &|| format!("mutation {count} of seed {seed}"));
            if found(&bytes, ends) {
                population.push(bytes);
            }
            count += 1;
        }
    }
    count
}

#[test]
fn mutated_packets_never_panic() {
    let mut population = captured();
    population.extend(kept_inputs());
    let mut seen: BTreeSet<_> = population.iter().flat_map(|bytes| target(bytes)).collect();
    let before = seen.len();
    let count = fuzz(&mut population, |_, ends| {
        let known = seen.len();
        seen.extend(ends);
        seen.len() > known
    });
    println!("{count} mutated packets; {before} ends in the corpus, {} more", seen.len() - before);
}

#[test]
fn the_corpus_has_every_operation_and_every_error() {
    let all = kept_inputs();
    let bytes: usize = all.iter().map(Vec::len).sum();
    assert!((1..=MOST_BYTES).contains(&bytes), "{bytes} bytes in {} inputs", all.len());
    let ends: BTreeSet<_> =
        all.iter().enumerate().flat_map(|(n, bytes)| run(bytes, &|| format!("kept input {n}"))).collect();
    for opcode in Opcode::ALL {
        let whole = format!("{:02x} true", opcode.to_byte());
        let read = format!("0 {:02x} ", opcode.to_byte());
        assert!(ends.iter().any(|end| end.starts_with("ip ") && end.contains(&whole)), "no intact {opcode:?}");
        assert!(ends.iter().any(|end| end.contains(&read)), "no {opcode:?}");
    }
    for error in ERRORS {
        assert!(ends.iter().any(|end| end.contains(error)), "no {error}: {ends:#?}");
    }
}

/// The errors of all parsers.
const ERRORS: [&str; 9] = [
    "Truncated",
    "UnknownOpcode",
    "TransportVersion",
    "IpVersion",
    "IpOptions",
    "Fragment",
    "NotUdp",
    "Port",
    "Lengths",
];

#[test]
#[ignore = "changes the corpus: see the top of the file"]
fn grow() {
    let mut random = Random(SplitMix64(1));
    let mut all = kept_inputs();
    // Packets of every operation, with and without IP headers.
    for _ in 0..20_000 {
        let (envelope, _, bytes) = common::with_headers(&mut random);
        all.push(bytes[envelope.header_bytes()..].to_vec());
        all.push(bytes);
    }
    // Every value of every byte of a short packet over IPv4 and of one over IPv6.
    let short = |v6: bool| all.iter().filter(|bytes| bytes[0] >> 4 == if v6 { 6 } else { 4 }).min_by_key(|b| b.len());
    for whole in [short(false), short(true)].into_iter().flatten().cloned().collect::<Vec<_>>() {
        for (at, value) in (0..whole.len()).flat_map(|at| (0..=255).map(move |value| (at, value))) {
            let mut bytes = whole.clone();
            bytes[at] = value;
            all.push(bytes);
        }
    }
    let mut population = captured();
    population.extend(all.clone());
    let mut seen: BTreeSet<_> = all.iter().flat_map(|bytes| target(bytes)).collect();
    fuzz(&mut population, |bytes, ends| {
        let is_new = !ends.is_subset(&seen);
        if is_new {
            seen.extend(ends);
            all.push(bytes.to_vec());
        }
        is_new
    });
    // Keep the shortest inputs, each only if it ends in a way that no shorter one does.
    all.sort_by_key(|bytes| (bytes.len(), bytes.clone()));
    let (mut have, mut used) = (BTreeSet::new(), 0);
    let mut written = Vec::new();
    for bytes in all {
        let ends = target(&bytes);
        if !ends.is_subset(&have) && used + bytes.len() <= MOST_BYTES {
            written.extend((bytes.len() as u16).to_le_bytes());
            written.extend(&bytes);
            used += bytes.len();
            have.extend(ends);
        }
    }
    std::fs::create_dir_all(file().parent().expect("in a folder")).expect("a folder that may be written to");
    std::fs::write(file(), written).expect("a folder that may be written to");
    println!("{} ways to end, {used} bytes", have.len());
}
