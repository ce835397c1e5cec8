//! What a receiver of runs does not see, the identification of each packet, it knows by the packet's place. Which damage
//! passes for all that is enumerated here. The check knows nothing of damage but how it changes the ICRC, so one damage
//! stands for all that change it alike.

use std::collections::HashMap;

use crate::common::{Flying, Setup, Side, SplitMix64, pair};
use stentor_fabric_roce::endpoint::{Arrival, Check};
use stentor_wire::icrc::RunIds;
use stentor_wire::{Bth, Envelope, Headers, IpRepr, Message, Psn, Repr, Reth};

const MTU: u16 = 4096;
/// Behind the headers, which other checks than the ICRC's look at as well.
const HEADER_BYTES: usize = 12 + 16;

fn setup() -> Setup {
    Setup { mtu: MTU, ..Setup::default() }
}

/// The envelope of what the peer sends, with an identification.
fn envelope(to: &Side, id: u16) -> Envelope {
    let ip = to.path().envelope.ip;
    let mut envelope = Envelope::plain(ip.destination(), 0xc190, ip.source()).unwrap();
    let IpRepr::V4(ip) = &mut envelope.ip else { panic!("IPv4") };
    ip.id = id;
    envelope
}

/// The packet that the side expects, as one that left with an identification.
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

/// Whether the side takes a packet that came at a place of its datagram.
fn takes(to: &mut Side, place: u16, transport: &[u8]) -> bool {
    let before = to.endpoint.counters().bad_icrc;
    let envelope = envelope(to, place);
    to.endpoint.receive(0, &Arrival { envelope, transport, check: Check::RunId });
    to.endpoint.counters().bad_icrc == before
}

/// Packets of these identifications that come at these places; which are taken.
fn taken(to: &mut Side, came: &[(u16, u16)]) -> Vec<bool> {
    let packets: Vec<_> = (0..RunIds::MOST as u16).map(|id| packet(to, 64, id).1).collect();
    came.iter().map(|(id, place)| takes(to, *place, &packets[usize::from(*id)])).collect()
}

fn b() -> Side {
    pair(&setup()).1
}

/// By how much each wrong bit of a packet changes what is computed, against what the packet carries.
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

/// By how much the ICRC of a packet changes with an identification that differs by `by` in its bits.
fn difference(packet: &Flying, by: usize) -> u32 {
    // Identifications enter linearly: what differs by 9 differs by 8 and by 1.
    let ids = RunIds::new(packet.1.len());
    [1, 2, 4, 8].into_iter().filter(|bit| by & bit != 0).map(|bit| ids.change(0, bit)).fold(0, |all, one| all ^ one)
}

/// Wrong bits that make a packet look like one whose identification differs by `by` in its bits: those of the ICRC itself.
fn wrong_icrc(packet: &Flying, by: usize) -> Vec<usize> {
    let (at, difference) = ((packet.1.len() - 4) * 8, difference(packet, by));
    (0..32).filter(|bit| difference & 1 << bit != 0).map(|bit| at + bit).collect()
}

/// All pairs of wrong bits that do the same.
fn pairs(packet: &Flying, by: usize) -> Vec<Vec<usize>> {
    let difference = difference(packet, by);
    let all = syndromes(packet);
    let by_syndrome: HashMap<u32, usize> = all.iter().map(|(bit, syndrome)| (*syndrome, *bit)).collect();
    assert_eq!(by_syndrome.len(), all.len(), "the whole ICRC finds any two wrong bits");
    assert!(!by_syndrome.contains_key(&difference), "and this one any single one");
    let others = all.iter().filter_map(|(bit, syndrome)| Some((*bit, *by_syndrome.get(&(syndrome ^ difference))?)));
    others.filter(|(one, other)| one < other).map(|(one, other)| vec![one, other]).collect()
}

fn damaged(packet: &Flying, bits: &[usize]) -> Vec<u8> {
    let mut bytes = packet.1.clone();
    bits.iter().for_each(|bit| bytes[bit / 8] ^= 1 << (bit % 8));
    bytes
}

/// Every pair, and everything else, that passed while any of the fifteen identifications was accepted.
#[test]
fn on_a_straight_way_nothing_passes_that_looks_like_another_identification() {
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

/// What is left: where runs are cut and joined, damage that looks exactly like one other identification.
#[test]
fn on_a_winding_way_damage_must_look_like_one_certain_identification() {
    let (mut passed, mut possible) = (0, 0);
    for next in 1..RunIds::MOST as u16 {
        for id in [0, next] {
            for by in 1..16 {
                let mut b = b();
                let sent = packet(&b, 64, id);
                // The packet before: it came where it does not belong, so the way is not straight, and `next` follows.
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
    // Of each packet that may come one.
    assert_eq!((passed, possible), (2 * 14, 2 * 14 * 14));
}

#[test]
fn damage_at_random_is_found() {
    let (mut b, mut random) = (b(), SplitMix64(5));
    assert_eq!(taken(&mut b, &[(3, 0), (4, 0)]), [false, true], "the worse case");
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
fn a_run_comes_as_it_went() {
    let whole: Vec<_> = (0..15).map(|id| (id, id)).collect();
    assert_eq!(taken(&mut b(), &whole), [true; 15]);
    assert_eq!(taken(&mut b(), &[(0, 0), (0, 0), (0, 0), (1, 1), (2, 2), (0, 0)]), [true; 6]);
}

/// Each packet of its own: what a card and a kernel that join nothing give.
#[test]
fn a_run_that_was_cut_costs_one_packet_once() {
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

/// Two runs and single packets joined to one datagram, and a run in two parts.
#[test]
fn runs_that_were_joined_cost_one_packet_once() {
    let mut b = b();
    let joined: Vec<_> = [0, 1, 2, 0, 0, 1, 2, 3].into_iter().zip(0..).collect();
    assert_eq!(taken(&mut b, &joined), [true, true, true, false, true, true, true, true]);
    assert_eq!(taken(&mut b, &joined), [true; 8]);
    let parts: Vec<_> = (0..6).map(|id| (id, id)).chain((6..15).map(|id| (id, id - 6))).collect();
    assert_eq!(taken(&mut b, &parts), [true; 15]);
}

/// The first packet behind a gap says where the run is. It would be out of order, anyhow.
#[test]
fn a_loss_on_a_winding_way_costs_one_packet_more() {
    let mut b = b();
    assert_eq!(taken(&mut b, &[(3, 0), (4, 0)]), [false, true]);
    assert_eq!(taken(&mut b, &[(0, 0), (1, 0), (3, 0), (4, 0), (5, 0)]), [true, true, false, true, true]);
    // And a damaged one in the middle none.
    let mut damaged = packet(&b, 64, 2).1;
    damaged[40] ^= 1;
    assert_eq!(taken(&mut b, &[(0, 0), (1, 0)]), [true; 2]);
    assert!(!takes(&mut b, 0, &damaged));
    assert_eq!(taken(&mut b, &[(3, 0), (4, 0)]), [true; 2]);
}

#[test]
fn a_way_that_is_straight_again_is_taken_for_it() {
    let mut b = b();
    assert_eq!(taken(&mut b, &[(3, 0), (4, 0)]), [false, true]);
    let single = packet(&b, 64, 0).1;
    for n in 0..4096 {
        assert!(takes(&mut b, 0, &single), "packet {n}");
    }
    assert_eq!(taken(&mut b, &[(1, 0)]), [false], "not any more");
}

/// A stranger's packets say nothing of the peer's way.
#[test]
fn a_stranger_does_not_bend_the_way() {
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
