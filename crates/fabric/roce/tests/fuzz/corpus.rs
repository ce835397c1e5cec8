//! Reads, writes and selects the committed inputs.

use std::collections::BTreeSet;
use std::path::PathBuf;

use stentor_wire::{Bth, Headers, Psn, Repr, Reth};

use crate::common::{self, SplitMix64, VA};
use crate::generate::{self, Known};
use crate::script::{Datagram, LARGE_MTU, Script, UNRELIABLE, flags};
use crate::victim::{self, SETUP};

/// Maximum size of all inputs together, in bytes.
pub(crate) const MOST_BYTES: usize = 128 << 10;

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/endpoint.bin")
}

/// Returns the committed inputs. In the file, each input is preceded by its length, in two bytes and little-endian
/// order.
pub(crate) fn load() -> Vec<Vec<u8>> {
    let bytes = std::fs::read(file()).unwrap_or_default();
    let (mut inputs, mut rest) = (Vec::new(), &bytes[..]);
    while let [l0, l1, behind @ ..] = rest {
        let (input, next) = behind.split_at(u16::from_le_bytes([*l0, *l1]).into());
        inputs.push(input.to_vec());
        rest = next;
    }
    inputs
}

/// Replaces the committed inputs.
pub(crate) fn save(inputs: &[Script]) {
    let mut bytes = Vec::new();
    for input in inputs.iter().map(Script::emit) {
        bytes.extend((input.len() as u16).to_le_bytes());
        bytes.extend(input);
    }
    std::fs::create_dir_all(file().parent().expect("the file is in a folder")).expect("the folder can be written to");
    std::fs::write(file(), bytes).expect("the folder can be written to");
}

/// Returns the initial inputs: captured connections of the kernel, which are readdressed to the victim, a repeated
/// READ, a silent peer, and single packets of every kind.
pub(crate) fn seeds(known: &Known) -> Vec<Script> {
    let files = ["send", "write", "writeimm", "read", "nak", "rnr", "atomic", "sendimm", "uc"];
    let mut seeds = Vec::new();
    for file in files {
        let packets = common::golden(&format!("rxe_{file}.pcap"));
        for whole in [false, true] {
            let requests = packets.iter().filter(|packet| packet[15] == 1).map(|packet| packet[28..].to_vec());
            let requests: Vec<_> = requests.take(10).collect();
            let aimed = aim(requests, known);
            let kind = LARGE_MTU | if file == "uc" { UNRELIABLE } else { 0 };
            let one = |bytes| Datagram { flags: flags::SEALED, segment: 0, bytes };
            let run = |all: &[Vec<u8>]| {
                let segment = all.iter().map(Vec::len).max().unwrap_or(0) as u16;
                let bytes =
                    all.iter().flat_map(|packet| [&packet[..], &vec![0; usize::from(segment) - packet.len()]].concat());
                Datagram { flags: flags::SEALED | 1, segment, bytes: bytes.collect() }
            };
            let datagrams = if whole { vec![run(&aimed)] } else { aimed.into_iter().map(one).collect() };
            seeds.push(Script { victim: kind, datagrams });
        }
    }
    let read = |psn: u32| {
        let reth = Reth { va: VA, rkey: known.target().1, bytes: 300 };
        let bth = Bth::new(known.target().0, Psn::new(SETUP.psn_b + psn));
        let repr = Repr { bth, headers: Headers::ReadRequest(reth), payload_bytes: 0 };
        let mut bytes = vec![0; repr.packet_bytes()];
        repr.emit(&mut bytes).expect("the buffer has room");
        bytes
    };
    // The peer repeats one READ before any response is sent.
    let bytes = vec![read(0); 12].concat();
    let datagram = Datagram { flags: flags::SEALED | flags::BURST | 1, segment: read(0).len() as u16, bytes };
    seeds.push(Script { victim: 0, datagrams: vec![datagram] });
    // Time advances from deadline to deadline, and the peer sends nothing valid: in the first input from the beginning,
    // in the second after one acknowledgement.
    let late = Datagram { flags: flags::LATE, segment: 0, bytes: Vec::new() };
    let mut heard = vec![0x11, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0xff, 0xff, 0xfc, 0x1f, 0, 0, 0, 0, 0, 0, 0];
    heard[5..8].copy_from_slice(&known.target().0.to_be_bytes()[1..]);
    let heard = Datagram { flags: flags::SEALED, segment: 0, bytes: heard };
    seeds.push(Script { victim: 0, datagrams: vec![late.clone(); 12] });
    seeds.push(Script { victim: 0, datagrams: [vec![heard], vec![late; 12]].concat() });
    let mut random = SplitMix64(1);
    for _ in 0..3000 {
        let bytes = generate::packet(&mut random, known, 0);
        for victim in [0, UNRELIABLE] {
            let datagram = Datagram { flags: flags::SEALED, segment: 0, bytes: bytes.clone() };
            seeds.push(Script { victim, datagrams: vec![datagram] });
        }
    }
    seeds
}

/// Replaces numbers, key and addresses in the kernel's requests with those of the victim.
fn aim(packets: Vec<Vec<u8>>, known: &Known) -> Vec<Vec<u8>> {
    let (number, key) = known.target();
    let psn = |packet: &[u8]| u32::from_be_bytes([0, packet[9], packet[10], packet[11]]);
    let first = packets.first().map_or(0, |packet| psn(packet));
    let aimed = packets.into_iter().map(|mut packet| {
        let own = SETUP.psn_b.wrapping_add(psn(&packet).wrapping_sub(first));
        packet[5..8].copy_from_slice(&number.to_be_bytes()[1..]);
        packet[9..12].copy_from_slice(&own.to_be_bytes()[1..]);
        // Only the first packets of WRITEs, READs and atomics contain an address.
        if matches!(packet[0] & 0x1f, 6 | 10..=12 | 19 | 20) && packet.len() >= 28 {
            packet[12..20].copy_from_slice(&VA.to_be_bytes());
            packet[20..24].copy_from_slice(&key.to_be_bytes());
        }
        packet
    });
    aimed.collect()
}

/// Adds the features of an input to `seen`. Returns whether any feature is new.
pub(crate) fn adds(script: &Script, seen: &mut BTreeSet<u64>) -> bool {
    let before = seen.len();
    seen.extend(victim::run(script).features);
    seen.len() > before
}

/// Removes datagrams from an input as long as the input keeps all its new features.
pub(crate) fn shorten(mut script: Script, seen: &BTreeSet<u64>) -> Script {
    let new = |script: &Script| victim::run(script).features.difference(seen).copied().collect::<BTreeSet<_>>();
    let wanted = new(&script);
    let mut at = script.datagrams.len();
    while at > 0 {
        at -= 1;
        let mut shorter = script.clone();
        shorter.datagrams.remove(at);
        if wanted.is_subset(&new(&shorter)) {
            script = shorter;
        }
    }
    script
}

/// Selects a nearly minimal set of inputs with all features. Greedily adds the input with the most new features for its
/// length, as long as it fits.
pub(crate) fn choose(inputs: Vec<Script>) -> Vec<Script> {
    let mut rest: Vec<_> = inputs.into_iter().map(|script| (victim::run(&script).features, script)).collect();
    let (mut chosen, mut seen, mut bytes) = (Vec::new(), BTreeSet::new(), 0);
    loop {
        rest.retain(|(features, _)| !features.is_subset(&seen));
        let worth = |(features, script): &(BTreeSet<u64>, Script)| {
            features.difference(&seen).map(|feature| if victim::is_count(*feature) { 1000 } else { 1 }).sum::<usize>()
                * 1_000_000
                / (script.emit().len() + 50)
        };
        let Some(best) = (0..rest.len()).max_by_key(|n| worth(&rest[*n])) else { return chosen };
        let (features, script) = rest.swap_remove(best);
        if script.emit().len() < 1 << 16 && bytes + script.emit().len() <= MOST_BYTES {
            bytes += script.emit().len();
            seen.extend(features);
            chosen.push(script);
        }
    }
}
