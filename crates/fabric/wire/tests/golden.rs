//! Packets from the Linux kernel's rxe, and two packets of NICs with known ICRCs.

mod common;

use std::collections::BTreeSet;

use stentor_wire::{Envelope, Error, Headers, IpPacket, IpRepr, Opcode, Packet, Repr, icrc};

/// Emits a packet again from its parsed form.
fn emit_again(packet: &IpPacket<'_>) -> Vec<u8> {
    let repr = Repr::parse(&packet.packet).unwrap();
    let head = packet.envelope.header_bytes();
    let mut bytes = vec![0xaa; head + repr.packet_bytes()];
    packet.envelope.emit(&mut bytes, repr.packet_bytes()).unwrap();
    repr.emit(&mut bytes[head..]).unwrap().copy_from_slice(packet.packet.payload());
    packet.envelope.seal(&mut bytes[head..]);
    bytes
}

#[test]
fn every_golden_packet_parses_has_the_right_icrc_and_is_emitted_identically() {
    let (mut packets, mut opcodes) = (0, BTreeSet::new());
    for file in common::captures() {
        let name = file.display();
        for (n, bytes) in common::packets_of(&file).iter().enumerate() {
            let packet = IpPacket::new_checked(bytes).unwrap_or_else(|error| panic!("{name} packet {n}: {error}"));
            assert!(packet.is_intact(), "{name} packet {n}: {packet}");
            assert_eq!(emit_again(&packet), *bytes, "{name} packet {n}: {packet}");
            let IpRepr::V4(ip) = packet.envelope.ip else { panic!("{name} packet {n}: not IPv4") };
            let transport = packet.packet.as_bytes();
            let mut blind = packet.envelope;
            blind.ip = IpRepr::plain(ip.source.into(), ip.destination.into()).unwrap();
            let solved = icrc::solve_ip_id(&blind, transport, packet.packet.icrc());
            assert_eq!(solved, Some(ip.id), "{name} packet {n}: identification from the ICRC");
            packets += 1;
            opcodes.insert(packet.packet.opcode().to_byte());
        }
    }
    assert!(packets >= 300, "only {packets} packets");
    let seen: Vec<u8> = opcodes.into_iter().collect();
    // All opcodes of RC except SEND with invalidate, and all of UC.
    let expected: Vec<u8> = (0..=0x14).chain(0x20..=0x2b).collect();
    assert_eq!(seen, expected, "opcodes in the captures");
}

#[test]
fn a_packet_displays_as_one_line_like_tcpdump() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/");
    let line = |file: &str, n: usize| {
        let bytes = &common::packets_of(format!("{folder}{file}").as_ref())[n];
        IpPacket::new_checked(bytes).unwrap().to_string()
    };
    assert_eq!(
        line("rxe_write.pcap", 0),
        "IP 10.9.0.1.49552 > 10.9.0.2.4791: RoCEv2 RC RDMA Write Only, va 0x552aacd000 rkey 0x00000575 dma 0, \
         qp 0x000014 psn 0x000100 ackreq, length 0, icrc ok"
    );
    assert_eq!(
        line("rxe_write.pcap", 1),
        "IP 10.9.0.2.49552 > 10.9.0.1.4791: RoCEv2 RC Acknowledge, ack msn 1, qp 0x000014 psn 0x000100, length 0, icrc ok"
    );
    let nak = line("rxe_nak.pcap", 1);
    assert!(nak.contains("nak remote access"), "{nak}");
    let rnr = line("rxe_rnr.pcap", 1);
    assert!(rnr.contains("rnr nak wait"), "{rnr}");
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn the_congestion_notification_of_a_nic_parses() {
    let bytes = hex("45c2003c718c4000401191610a0011010a001201 000012b700280000 8100ffff40000118 00000000 \
         00000000000000000000000000000000 82fd002a");
    let packet = IpPacket::new_checked(&bytes).unwrap();
    assert_eq!(packet.packet.opcode(), Opcode::Cnp);
    assert!(packet.packet.bth().becn);
    assert!(packet.is_intact(), "{packet}");
    assert_eq!(emit_again(&packet), bytes);
}

#[test]
fn a_truncated_packet_reports_the_bytes_needed() {
    for file in common::captures() {
        for bytes in common::packets_of(&file) {
            // The IPv4 header has 20 bytes, and the UDP header 8.
            for have in [20, 27, 28, bytes.len() - 1] {
                let expected = Error::Truncated { have, need: bytes.len() };
                assert_eq!(IpPacket::new_checked(&bytes[..have]).unwrap_err(), expected);
            }
        }
    }
}

#[test]
fn the_largest_message_is_that_of_the_specification() {
    assert_eq!(stentor_wire::MAX_MESSAGE_BYTES, 0x8000_0000);
}

/// A packet that a NIC sent, rebuilt from its field values.
#[test]
fn an_unreliable_send_of_a_nic_is_rebuilt() {
    let ip = stentor_wire::Ipv4Repr {
        tos: 1,
        id: 1144,
        dont_fragment: true,
        ttl: 64,
        source: [192, 168, 0, 7].into(),
        destination: [192, 168, 0, 7].into(),
    };
    let envelope = Envelope { ip: IpRepr::V4(ip), source_port: 49152, udp_checksum: 0xaca2 };
    let mut bth = stentor_wire::Bth::new(211, stentor_wire::Psn::new(13_571_856));
    bth.migreq = true;
    let payload = hex("4630818be28935d90e9a9550540 1be885e50");
    let repr = Repr { bth, headers: Headers::Uc(stentor_wire::Message::SendOnly), payload_bytes: payload.len() };
    let mut bytes = vec![0; repr.packet_bytes()];
    repr.emit(&mut bytes).unwrap().copy_from_slice(&payload);
    envelope.seal(&mut bytes);
    assert_eq!(repr.pad(), 2);
    assert_eq!(bytes[bytes.len() - 4..], [0x78, 0xf3, 0x53, 0xf3]);
    assert_eq!(Packet::new_checked(&bytes[..]).unwrap().payload(), payload);
}
