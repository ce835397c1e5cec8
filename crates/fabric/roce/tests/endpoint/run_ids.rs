//! A plain socket does not report the IPv4 identification of each packet of a run, so the receiver derives it from the
//! packet's position. These tests enumerate the damage that passes nevertheless. The check sees damage only as a change
//! of the ICRC, so one damaged packet represents all packets with the same change.

use std::collections::HashMap;

use crate::common::{Flying, Setup, Side, SplitMix64, pair};
use stentor_fabric_roce::endpoint::{Arrival, Check};
use stentor_wire::icrc::RunIds;
use stentor_wire::{Bth, Envelope, Headers, IpRepr, Message, Psn, Repr, Reth};

const MTU: u16 = 4096;
/// Number of header bytes before the first bit that is damaged; headers are covered by other checks, too.
const HEADER_BYTES: usize = 12 + 16;

fn setup() -> Setup {
    Setup { mtu: MTU, ..Setup::default() }
}

/// Returns the headers around a packet from the peer with the identification `id`.
fn envelope(to: &Side, id: u16) -> Envelope {
    let ip = to.path().envelope.ip;
    let mut envelope = Envelope::plain(ip.destination(), 0xc190, ip.source()).unwrap();
    let IpRepr::V4(ip) = &mut envelope.ip else { panic!("IPv4") };
    ip.id = id;
    envelope
}

/// Returns the packet that the side expects next, as it is sent with the identification `id`.
fn packet(to: &Side, payload_bytes: usize, id: u16) -> Flying {
    let remote = to.remote(0);
    let reth = Reth { va: remote.va, rkey: remote.rkey, bytes: payload_bytes as u32 };
    let bth = Bth::new(to.number, Psn::new(setup().psn_a));
    let repr = Repr { bth, headers: Headers::Rc(Message::WriteOnly(reth)), payload_bytes };
    let mut bytes = vec![0; repr.packet_bytes()];
    repr.emit(&mut bytes).unwrap().iter_mut().enumerate().for_each(|(n, byte)| *byte = n as u8);
    let envelope = envelope(to, id);
    envelope.seal(&mut bytes);
    (envelope, bytes)
}

/// Returns whether the side accepts a packet that arrived at position `place` of its datagram.
fn takes(to: &mut Side, place: u16, transport: &[u8]) -> bool {
    let before = to.endpoint.counters().bad_icrc;
    let envelope = envelope(to, place);
    to.endpoint.receive(0, &Arrival { envelope, transport, check: Check::RunId });
    to.endpoint.counters().bad_icrc == before
}

/// Delivers packets, each given by its identification and its position. Returns for each packet whether it is accepted.
fn taken(to: &mut Side, came: &[(u16, u16)]) -> Vec<bool> {
    let packets: Vec<_> = (0..RunIds::MOST as u16).map(|id| packet(to, 64, id).1).collect();
    came.iter().map(|(id, place)| takes(to, *place, &packets[usize::from(*id)])).collect()
}

fn b() -> Side {
    pair(&setup()).1
}

/// Returns, for each bit of a packet, the difference between the computed ICRC and the one in the packet if this bit is
/// flipped.
fn syndromes(packet: &Flying) -> Vec<(usize, u32)> {
    let (envelope, bytes) = (packet.0, packet.1.clone());
    let right = envelope.icrc(&bytes);
    let covered = bytes.len() - 4;
    let mut bytes = bytes;
    let mut all = Vec::new();
    for bit in HEADER_BYTES * 8..covered * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        all.push((bit, envelope.icrc(&bytes) ^ right));
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    all.extend((0..32).map(|bit| (covered * 8 + bit, 1 << bit)));
    all
}

/// Returns the change of the ICRC of a packet if its identification changes in the bits of `by`.
fn difference(packet: &Flying, by: usize) -> u32 {
    // The ICRC is linear in the identification: a difference of 9 is one of 8 and one of 1.
    let ids = RunIds::new(packet.1.len());
    [1, 2, 4, 8].into_iter().filter(|bit| by & bit != 0).map(|bit| ids.change(0, bit)).fold(0, |all, one| all ^ one)
}

/// Returns the bits of the ICRC that must be flipped to imitate an identification that differs in the bits of `by`.
fn wrong_icrc(packet: &Flying, by: usize) -> Vec<usize> {
    let (at, difference) = ((packet.1.len() - 4) * 8, difference(packet, by));
    (0..32).filter(|bit| difference & 1 << bit != 0).map(|bit| at + bit).collect()
}

/// Returns all pairs of bits whose flips change the ICRC like a change of the identification in the bits of `by`.
fn pairs(packet: &Flying, by: usize) -> Vec<Vec<usize>> {
    let difference = difference(packet, by);
    let all = syndromes(packet);
    let by_syndrome: HashMap<u32, usize> = all.iter().map(|(bit, syndrome)| (*syndrome, *bit)).collect();
    assert_eq!(by_syndrome.len(), all.len(), "the ICRC detects any two flipped bits");
    assert!(!by_syndrome.contains_key(&difference), "no single flipped bit imitates another identification");
    let others = all.iter().filter_map(|(bit, syndrome)| Some((*bit, *by_syndrome.get(&(syndrome ^ difference))?)));
    others.filter(|(one, other)| one < other).map(|(one, other)| vec![one, other]).collect()
}

fn damaged(packet: &Flying, bits: &[usize]) -> Vec<u8> {
    let mut bytes = packet.1.clone();
    bits.iter().for_each(|bit| bytes[bit / 8] ^= 1 << (bit % 8));
    bytes
}

/// Tests all pairs of flipped bits, and all changes of the ICRC alone, that would pass if any of the fifteen
/// identifications were accepted.
#[test]
fn straight_path_detects_damage_that_imitates_another_identification() {
    let mut count = 0;
    for payload_bytes in [64, 1024, 4096] {
        let intact = packet(&b(), payload_bytes, 0);
        for by in 1..16 {
            let mut all = pairs(&intact, by);
            count += all.len();
            all.push(wrong_icrc(&intact, by));
            for id in 0..RunIds::MOST {
                let other = id ^ by;
                if other >= RunIds::MOST {
                    continue;
                }
                let sent = packet(&b(), payload_bytes, id as u16);
                for bits in &all {
                    let bytes = damaged(&sent, bits);
                    let looks = packet(&b(), payload_bytes, other as u16).0.icrc(&bytes);
                    assert_eq!(looks.to_le_bytes(), bytes[bytes.len() - 4..], "it looks like {other}");
                    assert!(!takes(&mut b(), id as u16, &bytes), "{bits:?} of {payload_bytes}, {id} as {other}");
                }
            }
        }
    }
    println!("{count} pairs of wrong bits would look like another identification");
    assert!(count > 0);
}

/// Shows the remaining weakness: if runs are split and joined on the path, damage passes if it imitates one particular
/// identification.
#[test]
fn irregular_path_accepts_damage_only_as_one_particular_identification() {
    let (mut passed, mut possible) = (0, 0);
    for next in 1..RunIds::MOST as u16 {
        for id in [0, next] {
            for by in 1..16 {
                let mut b = b();
                let sent = packet(&b, 64, id);
                // The previous packet arrived at a wrong position, so the path is not straight, and `next` follows.
                assert_eq!(taken(&mut b, &[(next - 1, 14)]), [false]);
                let looks = id ^ by as u16;
                let passes = takes(&mut b, 0, &damaged(&sent, &wrong_icrc(&sent, by)));
                assert_eq!(passes, looks == 0 || looks == next, "{id} as {looks}, {next} is next");
                passed += u32::from(passes);
                possible += u32::from(usize::from(looks) < RunIds::MOST);
            }
        }
    }
    println!("{passed} of {possible} ways to look like another identification pass");
    // One kind of damage passes for each possible packet.
    assert_eq!((passed, possible), (2 * 14, 2 * 14 * 14));
}

#[test]
fn random_damage_is_detected() {
    let (mut b, mut random) = (b(), SplitMix64(5));
    assert_eq!(taken(&mut b, &[(3, 0), (4, 0)]), [false, true], "the path is not straight, which is the worse case");
    for n in 0..100_000 {
        let mut bytes = packet(&b, 64, 0).1;
        for _ in 0..=random.below(8) {
            let at = HEADER_BYTES + random.below((bytes.len() - HEADER_BYTES) as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        let is_intact = bytes == packet(&b, 64, 0).1;
        assert_eq!(takes(&mut b, 0, &bytes), is_intact, "packet {n}");
    }
}

#[test]
fn unchanged_run_is_accepted() {
    let whole: Vec<_> = (0..15).map(|id| (id, id)).collect();
    assert_eq!(taken(&mut b(), &whole), [true; 15]);
    assert_eq!(taken(&mut b(), &[(0, 0), (0, 0), (0, 0), (1, 1), (2, 2), (0, 0)]), [true; 6]);
}

/// Each packet of the run arrives in a separate datagram, as if neither the network card nor the kernel joined packets.
#[test]
fn split_run_loses_one_packet_once() {
    let mut b = b();
    let run: Vec<_> = (0..15).map(|id| (id, 0)).collect();
    let first = taken(&mut b, &run);
    assert_eq!(first.iter().filter(|taken| !**taken).count(), 1);
    assert!(!first[1]);
    for _ in 0..10 {
        assert_eq!(taken(&mut b, &run), [true; 15]);
        assert_eq!(taken(&mut b, &[(0, 0), (0, 0)]), [true; 2]);
    }
}

/// Delivers two runs and single packets that were joined to one datagram, and a run in two parts.
#[test]
fn joined_runs_lose_one_packet_once() {
    let mut b = b();
    let joined: Vec<_> = [0, 1, 2, 0, 0, 1, 2, 3].into_iter().zip(0..).collect();
    assert_eq!(taken(&mut b, &joined), [true, true, true, false, true, true, true, true]);
    assert_eq!(taken(&mut b, &joined), [true; 8]);
    let parts: Vec<_> = (0..6).map(|id| (id, id)).chain((6..15).map(|id| (id, id - 6))).collect();
    assert_eq!(taken(&mut b, &parts), [true; 15]);
}

/// The first packet after a gap is dropped, but re-establishes the position in the run. It would be out of order in any
/// case.
#[test]
fn loss_on_an_irregular_path_loses_one_more_packet() {
    let mut b = b();
    assert_eq!(taken(&mut b, &[(3, 0), (4, 0)]), [false, true]);
    assert_eq!(taken(&mut b, &[(0, 0), (1, 0), (3, 0), (4, 0), (5, 0)]), [true, true, false, true, true]);
    // A damaged packet in the middle causes no further loss.
    let mut damaged = packet(&b, 64, 2).1;
    damaged[40] ^= 1;
    assert_eq!(taken(&mut b, &[(0, 0), (1, 0)]), [true; 2]);
    assert!(!takes(&mut b, 0, &damaged));
    assert_eq!(taken(&mut b, &[(3, 0), (4, 0)]), [true; 2]);
}

#[test]
fn path_counts_as_straight_after_enough_packets() {
    let mut b = b();
    assert_eq!(taken(&mut b, &[(3, 0), (4, 0)]), [false, true]);
    let single = packet(&b, 64, 0).1;
    for n in 0..4096 {
        assert!(takes(&mut b, 0, &single), "packet {n}");
    }
    assert_eq!(taken(&mut b, &[(1, 0)]), [false], "the path counts as straight again");
}

/// Packets of a stranger do not change the recorded state of the peer's path.
#[test]
fn stranger_does_not_change_the_path_state() {
    let mut b = b();
    let mut elsewhere = packet(&b, 64, 3);
    elsewhere.0 = Envelope::plain(crate::common::address(9), 0xc190, crate::common::address(2)).unwrap();
    let IpRepr::V4(ip) = &mut elsewhere.0.ip else { panic!("IPv4") };
    ip.id = 3;
    elsewhere.0.seal(&mut elsewhere.1);
    let envelope = Envelope::plain(crate::common::address(9), 0xc190, crate::common::address(2)).unwrap();
    b.endpoint.receive(0, &Arrival { envelope, transport: &elsewhere.1, check: Check::RunId });
    assert_eq!((b.endpoint.counters().wrong_source, b.endpoint.counters().bad_icrc), (1, 0));
    assert_eq!(taken(&mut b, &[(4, 0), (4, 0)]), [false, false]);
}
