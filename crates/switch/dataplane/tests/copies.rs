//! A copy is, to the last bit, the packet that the sender itself would have made for this receiver.

mod common;

use common::{Bed, FIRST, FORWARD, address, link, receives_from};
use proptest::prelude::*;
use stentor_switch::{Cause, Config, Switch};
use stentor_wire::{Bth, Envelope, Headers, IpRepr, Ipv4Repr, Message, Psn, Repr, Reth};

fn packet(ip: Ipv4Repr, source_port: u16, bth: Bth, message: Message, payload: &[u8]) -> Vec<u8> {
    let envelope = Envelope { ip: IpRepr::V4(ip), source_port, udp_checksum: 0 };
    let repr = Repr { bth, headers: Headers::Rc(message), payload_bytes: payload.len() };
    let mut bytes = vec![0; envelope.header_bytes() + repr.packet_bytes()];
    envelope.emit_packet(&repr, payload, &mut bytes).unwrap();
    bytes
}

fn message(which: u8, imm: u32, reth: Reth) -> Message {
    match which {
        0 => Message::SendFirst,
        1 => Message::SendMiddle,
        2 => Message::SendLast,
        3 => Message::SendLastImm(imm),
        4 => Message::SendOnly,
        5 => Message::SendOnlyImm(imm),
        6 => Message::WriteFirst(reth),
        7 => Message::WriteMiddle,
        8 => Message::WriteLast,
        9 => Message::WriteLastImm(imm),
        10 => Message::WriteOnly(reth),
        _ => Message::WriteOnlyImm(reth, imm),
    }
}

proptest! {
    #[test]
    fn copies_equal_packets_that_the_sender_would_make(
        (which, imm, va, bytes) in (0_u8..12, any::<u32>(), any::<u64>(), any::<u32>()),
        (tos, id, dont_fragment, ttl) in (any::<u8>(), any::<u16>(), any::<bool>(), 2_u8..),
        (port, udp_checksum, flags, pkey) in (any::<u16>(), any::<u16>(), any::<[bool; 5]>(), any::<u16>()),
        payload in proptest::collection::vec(any::<u8>(), 0..300),
        padding in 0_usize..20,
        own in proptest::option::of(any::<u16>()),
    ) {
        let [solicited, migreq, fecn, becn, ack_req] = flags;
        let bth = |dest_qp, psn| Bth { dest_qp, psn: Psn::new(psn), solicited, migreq, pkey, fecn, becn, ack_req };
        let came = Ipv4Repr { tos, id, dont_fragment, ttl, source: address(0), destination: FORWARD };
        let message = |base: u64, rkey| message(which, imm, Reth { va: va.wrapping_add(base), rkey, bytes });
        let mut bytes = packet(came, port, bth(Switch::vrqpn(common::GID, 0), FIRST + 1), message(0, 9), &payload);
        bytes[26..28].copy_from_slice(&udp_checksum.to_be_bytes());
        bytes.resize(bytes.len() + padding, 0x55);
        let config = Config { source_ports: own.map(|own| [1, own]), ..Config::new(FORWARD, common::BACKWARD) };
        let mut bed = Bed::with(4, config).linked(&[1, 3]);
        let mut bridge = None;
        for rank in [1, 3] {
            let departure = bed.pass(&bytes, bridge);
            prop_assert_eq!(departure.cause, Cause::Copied);
            bridge = departure.mirror;
            let copy = departure.emission.expect("a copy").to_vec(&bytes);
            let left = Ipv4Repr { ttl: ttl - 1, source: common::BACKWARD, destination: address(rank), ..came };
            let message = message(link(rank).base, link(rank).rkey);
            let expected = packet(left, own.unwrap_or(port), bth(0x200 + u32::from(rank), receives_from(rank)), message, &payload);
            prop_assert_eq!(copy, expected);
        }
        prop_assert_eq!(bridge, None);
    }
}
