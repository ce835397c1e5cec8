//! Properties of all parsers, on random packets and random bytes.

mod common;

use common::Random;
use proptest::prelude::*;
use stentor_testutil::SplitMix64;
use stentor_wire::{Error, Headers, IpPacket, IpRepr, Opcode, Packet, Psn, Repr, Reth, icrc};

/// Computes the ICRC bit by bit, following only the text of the specification.
fn reference(ip_packet: &[u8]) -> u32 {
    let mut bytes = vec![0xff; 8];
    bytes.extend_from_slice(&ip_packet[..ip_packet.len() - 4]);
    let (masked, bth): (&[usize], usize) = if ip_packet[0] >> 4 == 4 {
        (&[1, 8, 10, 11, 26, 27], 28)
    } else {
        bytes[8] |= 0x0f;
        (&[1, 2, 3, 7, 46, 47], 48)
    };
    for at in masked.iter().copied().chain([bth + 4]) {
        bytes[8 + at] = 0xff;
    }
    let mut register = u32::MAX;
    for byte in bytes {
        register ^= u32::from(byte);
        for _ in 0..8 {
            register = register >> 1 ^ if register & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    !register
}

proptest! {
    #[test]
    fn an_emitted_packet_parses_to_the_same_values(seed: u64) {
        let (envelope, repr, bytes) = common::with_headers(&mut Random(SplitMix64(seed)));
        let packet = IpPacket::new_checked(&bytes).unwrap();
        prop_assert_eq!(packet.envelope, envelope);
        prop_assert_eq!(Repr::parse(&packet.packet).unwrap(), repr);
        prop_assert!(packet.is_intact());
        prop_assert_eq!(packet.packet.icrc(), reference(&bytes));
    }

    #[test]
    fn a_whole_packet_equals_its_parts(seed: u64, short: u8) {
        let (envelope, repr, bytes) = common::with_headers(&mut Random(SplitMix64(seed)));
        let payload = IpPacket::new_checked(&bytes).unwrap().packet.payload().to_vec();
        let mut whole = vec![0xee; bytes.len() + usize::from(short)];
        prop_assert_eq!(envelope.emit_packet(&repr, &payload, &mut whole), Ok(bytes.len()));
        prop_assert_eq!(&whole[..bytes.len()], &bytes);
        let need = bytes.len();
        let have = need - 1 - usize::from(short) % need;
        prop_assert_eq!(envelope.emit_packet(&repr, &payload, &mut whole[..have]), Err(Error::NoRoom { have, need }));
        if let Some(have) = payload.len().checked_sub(1) {
            let refused = Err(Error::Truncated { have, need: payload.len() });
            prop_assert_eq!(envelope.emit_packet(&repr, &payload[1..], &mut whole), refused);
        }
    }

    #[test]
    fn every_truncation_is_refused(seed: u64, keep: u16) {
        let (envelope, _, bytes) = common::with_headers(&mut Random(SplitMix64(seed)));
        let keep = usize::from(keep) % bytes.len();
        prop_assert!(IpPacket::new_checked(&bytes[..keep]).is_err());
        // Any bytes may follow the IP packet.
        let mut padded = bytes;
        padded.extend_from_slice(&[7; 9]);
        prop_assert_eq!(IpPacket::new_checked(&padded).unwrap().envelope, envelope);
    }

    #[test]
    fn one_changed_bit_is_noticed_unless_it_is_masked(seed: u64, bit: u32) {
        let (_, _, mut bytes) = common::with_headers(&mut Random(SplitMix64(seed)));
        let bit = bit as usize % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let Ok(packet) = IpPacket::new_checked(&bytes) else { return Ok(()) };
        let v4 = bytes[0] >> 4 == 4;
        let masked: &[usize] = if v4 { &[1, 8, 10, 11, 26, 27, 32] } else { &[1, 2, 3, 7, 46, 47, 52] };
        let is_masked = masked.contains(&(bit / 8)) || !v4 && bit < 4;
        prop_assert_eq!(packet.is_intact(), is_masked, "bit {} of byte {}", bit % 8, bit / 8);
    }

    #[test]
    fn run_ids_match_the_icrcs_of_a_run_and_detect_damage(seed: u64, bit: u32, other: u32) {
        let mut random = Random(SplitMix64(seed));
        let mut envelope = random.envelope();
        let (_, mut transport) = random.packet(&envelope);
        let IpRepr::V4(ip) = &mut envelope.ip else { return Ok(()) };
        ip.id = 0;
        let (first, ids) = (envelope.icrc(&transport), icrc::RunIds::new(transport.len()));
        let mut all = vec![];
        for id in 0..icrc::RunIds::MOST {
            let IpRepr::V4(ip) = &mut envelope.ip else { unreachable!() };
            ip.id = id as u16;
            all.push(envelope.icrc(&transport));
            prop_assert_eq!(ids.change(first, id), all[id]);
            prop_assert_eq!(ids.find(first, all[id]), Some(id as u16));
        }
        // `find` must return `None` for one flipped bit, for the two flipped bits of this case (some pairs of a long
        // packet do match), and for the identification after the last one of a run.
        let bits = (transport.len() - 4) as u32 * 8;
        let flip = |transport: &mut [u8], bit: u32| transport[bit as usize / 8] ^= 1 << (bit % 8);
        let IpRepr::V4(ip) = &mut envelope.ip else { unreachable!() };
        ip.id = icrc::RunIds::MOST as u16;
        prop_assert_eq!(ids.find(first, envelope.icrc(&transport)), None);
        let IpRepr::V4(ip) = &mut envelope.ip else { unreachable!() };
        ip.id = 0;
        for again in [bit, other] {
            flip(&mut transport, again % bits);
            let (damaged, masked) = (envelope.icrc(&transport), again % bits / 8 == 4);
            for right in all.iter().filter(|_| !masked && bit % bits != other % bits && bit % bits / 8 != 4) {
                prop_assert_eq!(ids.find(damaged, *right), None);
            }
        }
    }

    #[test]
    fn any_bytes_parse_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), opcode in 0..Opcode::ALL.len()) {
        parse_and_display(&bytes);
        let mut likely = bytes;
        if let Some(first) = likely.first_mut() {
            *first = Opcode::ALL[opcode].to_byte();
        }
        if let Some(flags) = likely.get_mut(1) {
            *flags &= 0xf0;
        }
        parse_and_display(&likely);
    }

    #[test]
    fn the_icrc_follows_a_change_of_the_headers(seed: u64, qp: u32, psn: u32, va: u64, rkey: u32) {
        let random = &mut Random(SplitMix64(seed));
        let (envelope, repr, bytes) = common::with_headers(random);
        let mut other = random.envelope();
        while other.header_bytes() != envelope.header_bytes() {
            other = random.envelope();
        }
        let mut transport = bytes[envelope.header_bytes()..].to_vec();
        let old_icrc = Packet::new_checked(&transport[..]).unwrap().icrc();
        let covered = transport.len() - 4;
        let before = (icrc::Masked::new(&envelope, &transport), transport.clone());
        let mut packet = Packet::new_checked(&mut transport[..]).unwrap();
        packet.set_dest_qp(qp);
        packet.set_psn(Psn::new(psn));
        packet.set_ack_req(!repr.bth.ack_req);
        packet.set_reth(Reth { va, rkey, bytes: 77 });
        let after = icrc::Masked::new(&other, &transport);
        let mut icrc = icrc::changed(old_icrc, before.0.as_bytes(), after.as_bytes(), icrc::Shift::by(covered - 12));
        let extension = 12..repr.header_bytes();
        let behind = icrc::Shift::by(covered - extension.end);
        let difference: Vec<u8> = extension.clone().map(|at| before.1[at] ^ transport[at]).collect();
        let zeroes = vec![0; random.below(40)];
        let by = icrc::changed_by(icrc, &[zeroes, difference].concat(), behind);
        icrc = icrc::changed(icrc, &before.1[extension.clone()], &transport[extension], behind);
        prop_assert_eq!(icrc, other.icrc(&transport));
        prop_assert_eq!(by, icrc);
    }

    #[test]
    fn solve_ip_id_finds_the_identification_and_refuses_damage(seed: u64, bit: u32) {
        let random = &mut Random(SplitMix64(seed));
        let (envelope, _, bytes) = common::with_headers(random);
        let stentor_wire::IpRepr::V4(ip) = envelope.ip else { return Ok(()) };
        let mut transport = bytes[envelope.header_bytes()..].to_vec();
        let icrc = Packet::new_checked(&transport[..]).unwrap().icrc();
        let mut blind = envelope;
        blind.ip = stentor_wire::IpRepr::V4(stentor_wire::Ipv4Repr { id: 0, ..ip });
        prop_assert_eq!(icrc::solve_ip_id(&blind, &transport, icrc), Some(ip.id));
        let at = 5 * 8 + bit as usize % ((transport.len() - 9) * 8);
        transport[at / 8] ^= 1 << (at % 8);
        prop_assert_eq!(icrc::solve_ip_id(&blind, &transport, icrc), None, "one bit is no other identification");
    }

    #[test]
    fn serial_numbers_are_consistent(a in 0u32..1 << 24, step in 0u32..1 << 23) {
        let (from, to) = (Psn::new(a), Psn::new(a).plus(step));
        prop_assert_eq!(to.distance(from), step as i32);
        prop_assert_eq!(to.minus(step), from);
        prop_assert_eq!(from.is_before(to), step > 0);
        prop_assert_eq!(Psn::from_bytes(to.to_bytes()), to);
    }
}

/// Calls the functions that parse and display a packet.
fn parse_and_display(bytes: &[u8]) {
    if let Ok(packet) = IpPacket::new_checked(bytes) {
        let _ = (packet.is_intact(), packet.to_string());
    }
    let Ok(packet) = Packet::new_checked(bytes) else { return };
    let repr = Repr::parse(&packet).unwrap();
    let mut again = vec![0; repr.packet_bytes()];
    repr.emit(&mut again).unwrap().copy_from_slice(packet.payload());
    let second = Packet::new_checked(&again[..]).unwrap();
    assert_eq!(Repr::parse(&second).unwrap(), repr);
    assert_eq!(second.payload(), packet.payload());
}

#[test]
fn every_opcode_has_its_headers_and_no_others() {
    let random = &mut Random(SplitMix64(1));
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20_000 {
        let headers: Headers = random.headers();
        seen.insert(headers.opcode().to_byte());
    }
    assert_eq!(seen.len(), Opcode::ALL.len());
}

#[test]
fn errors_name_the_problem() {
    let refused = |bytes: &[u8]| Packet::new_checked(bytes).unwrap_err();
    assert_eq!(refused(&[0; 5]), Error::Truncated { have: 5, need: 16 });
    assert_eq!(refused(&[0x15; 40]), Error::UnknownOpcode(0x15));
    assert_eq!(refused(&[0x04, 0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Error::TransportVersion(3));
    assert_eq!(refused(&[0x0a; 12]), Error::TransportVersion(0xa));
    let short = Repr { bth: stentor_wire::Bth::new(1, Psn::new(1)), headers: Headers::Cnp, payload_bytes: 0 };
    assert_eq!(short.emit(&mut [0; 31]), Err(Error::NoRoom { have: 31, need: 32 }));
    let mut ip = vec![0x46; 60];
    assert_eq!(IpPacket::new_checked(&ip).unwrap_err(), Error::IpOptions);
    ip[0] = 0x55;
    assert_eq!(IpPacket::new_checked(&ip).unwrap_err(), Error::IpVersion(5));
}
