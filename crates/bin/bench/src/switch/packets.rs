//! Packets of a sender, composed without an endpoint.

use std::net::Ipv4Addr;
use std::time::Duration;

use stentor_support::Failure;
use stentor_switch::control::{self, CONTROL_RKEY, CONTROL_VA, Head, Link, MAX_CONTROL_BYTES, Operation};
use stentor_switch::{Attachment, Host, Switch};
use stentor_wire::{Bth, Envelope, Headers, Message, Psn, Repr, Reth};

use super::failed;

/// Addresses of a switch without sockets, and of its sender.
pub(super) const FORWARD: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(super) const BACKWARD: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(super) const SENDER: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
/// The group id of the set.
pub(super) const GID: u16 = 1;
/// First PSN of the sender.
pub(super) const FIRST: u32 = 100;
/// UDP port of the sender, which the ICRC covers.
pub(super) const PORT: u16 = 0xc001;
/// Number of the sender's queue pair.
const SQPN: u32 = 7;

/// Creates a set of a sender and its receivers. The sender is rank 0.
pub(super) fn create(switch: &mut Switch, sender: Ipv4Addr, receivers: &[Ipv4Addr]) -> Result<(), Failure> {
    let host = |rank: usize, ip: &Ipv4Addr| {
        let own = if rank == 0 { sender } else { *ip };
        Host {
            sends: Attachment { ip: own, qpn: SQPN, first_psn: Psn::new(FIRST) },
            receives: Attachment { ip: *ip, qpn: 0x200 + rank as u32, first_psn: Psn::new(1000 * rank as u32) },
        }
    };
    let hosts: Vec<Host> = receivers.iter().enumerate().map(|(rank, ip)| host(rank, ip)).collect();
    switch.create(GID, Duration::from_secs(3600), &hosts).map_err(failed)
}

/// Returns a packet of rank 0 to the switch, which begins with its IP header, and the offset after its UDP header.
fn packet(from: Ipv4Addr, to: Ipv4Addr, psn: Psn, message: Message, payload: &[u8]) -> (Vec<u8>, usize) {
    let envelope = Envelope::plain(from.into(), PORT, to.into()).expect("both addresses have one family");
    let mut bth = Bth::new(Switch::vrqpn(GID, 0), psn);
    bth.ack_req = true;
    let repr = Repr { bth, headers: Headers::Rc(message), payload_bytes: payload.len() };
    let outer = envelope.header_bytes();
    let mut bytes = vec![0; outer + repr.packet_bytes()];
    envelope.emit_packet(&repr, payload, &mut bytes).expect("the buffer has room");
    (bytes, outer)
}

/// Returns the control packet that links `receivers` receivers, which begins with its IP header, and the offset of its
/// transport header.
pub(super) fn link(from: Ipv4Addr, to: Ipv4Addr, receivers: u8) -> (Vec<u8>, usize) {
    let links: Vec<_> = (0..receivers).map(|rank| Link { rank, rkey: 1, base: 1 << 40 }).collect();
    let payload = link_payload(SQPN, Psn::new(FIRST), &links);
    let reth = Reth { va: CONTROL_VA, rkey: CONTROL_RKEY, bytes: payload.len() as u32 };
    packet(from, to, Psn::new(FIRST), Message::WriteOnly(reth), &payload)
}

/// Returns the payload of a sender's control packet that links at most 32 receivers.
pub(super) fn link_payload(sqpn: u32, psn: Psn, links: &[Link]) -> Vec<u8> {
    let mut payload = vec![0; MAX_CONTROL_BYTES];
    let head = Head { operation: Operation::Link, lock_id: 1, epoch: 0, sqpn, psn, msn: 0 };
    let len = control::emit(&head, &[], links, &mut payload).expect("at most 32");
    payload.truncate(len);
    payload
}

/// Returns the packet of a WRITE, and the offset of its transport header.
pub(super) fn write(from: Ipv4Addr, to: Ipv4Addr, psn: Psn, payload: &[u8]) -> (Vec<u8>, usize) {
    let reth = Reth { va: 64, rkey: 1, bytes: payload.len() as u32 };
    packet(from, to, psn, Message::WriteOnly(reth), payload)
}
