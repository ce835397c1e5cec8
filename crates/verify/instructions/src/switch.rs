//! The path of a 64-byte packet through the switch with all its passes, for one receiver or for three.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Duration;

use stentor_switch::control::{self, CONTROL_RKEY, CONTROL_VA, Head, Link, MAX_CONTROL_BYTES, Operation};
use stentor_switch::{Arrival, Attachment, Cause, Config, Host, Switch};
use stentor_wire::{Bth, Envelope, Headers, Message, Psn, Repr, Reth};

use crate::{WARM_UP, counted_section};

const FORWARD: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const BACKWARD: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const GID: u16 = 3;
const FIRST: u32 = 1;
const LEASE: Duration = Duration::from_millis(100);
/// The bytes of the packet sequence number in an IPv4 packet.
const PSN_AT: std::ops::Range<usize> = 37..40;

fn address(rank: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, rank + 1)
}

fn host(rank: u8) -> Host {
    let attachment =
        |qpn: u32| Attachment { ip: address(rank), qpn: qpn + u32::from(rank), first_psn: Psn::new(FIRST) };
    Host { sends: attachment(0x100), receives: attachment(0x200) }
}

/// Returns a packet from rank 0 to the switch.
fn packet(message: Message, payload: &[u8]) -> Vec<u8> {
    let mut bth = Bth::new(Switch::vrqpn(GID, 0), Psn::new(FIRST));
    bth.ack_req = true;
    let repr = Repr { bth, headers: Headers::Rc(message), payload_bytes: payload.len() };
    let envelope = Envelope::plain(address(0).into(), 0xc123, FORWARD.into()).expect("both addresses have one family");
    let mut bytes = vec![0; envelope.header_bytes() + repr.packet_bytes()];
    envelope.emit_packet(&repr, payload, &mut bytes).expect("the buffer has room");
    bytes
}

/// A switch with one set of hosts, and the packet that the first host sends repeatedly.
pub struct Bed {
    switch: Switch,
    bytes: Vec<u8>,
    psn: Psn,
    receivers: u64,
}

impl Bed {
    /// Links the receivers to the first host and sends the warm-up packets.
    ///
    /// # Panics
    /// Panics if the switch refuses the set.
    #[must_use]
    pub fn ready(receivers: u8) -> Self {
        let mut switch = Switch::new(Config::new(FORWARD, BACKWARD), 4);
        switch.create(GID, LEASE, &(0..=receivers).map(host).collect::<Vec<_>>()).expect("a set");
        let link = |rank: u8| Link { rank, rkey: 0x7000 + u32::from(rank), base: 0x1_0000_0000 * u64::from(rank) };
        let links: Vec<Link> = (1..=receivers).map(link).collect();
        let psn = Psn::new(FIRST);
        let head = Head { operation: Operation::Link, lock_id: 77, epoch: 0, sqpn: 0x100, psn, msn: 0 };
        let mut payload = [0; MAX_CONTROL_BYTES];
        let len = control::emit(&head, &[], &links, &mut payload).expect("the buffer has room");
        let reth = Reth { va: CONTROL_VA, rkey: CONTROL_RKEY, bytes: len as u32 };
        let control = packet(Message::WriteOnly(reth), &payload[..len]);
        assert_eq!(passes(&mut switch, &control), 1, "the links are acknowledged");
        let bytes = packet(Message::SendOnly, &[7; 64]);
        let mut bed = Bed { switch, bytes, psn, receivers: u64::from(receivers) };
        bed.pass(WARM_UP, |bed| bed.copy());
        bed
    }

    /// Sends `messages` through the switch, and counts the instructions of every pass.
    ///
    /// # Panics
    /// Panics if a packet is not copied to every receiver.
    pub fn run(&mut self, messages: u64) {
        self.pass(messages, |bed| counted_section(|| bed.copy()));
    }

    fn pass(&mut self, messages: u64, one: impl Fn(&mut Bed)) {
        let before = self.switch.counters().of(Cause::Copied);
        for _ in 0..messages {
            self.psn = self.psn.next();
            self.bytes[PSN_AT].copy_from_slice(&self.psn.to_bytes());
            one(self);
        }
        let copies = self.switch.counters().of(Cause::Copied) - before;
        assert_eq!(copies, messages * self.receivers, "each packet was copied");
    }

    fn copy(&mut self) {
        passes(&mut self.switch, &self.bytes);
    }
}

/// Processes a packet and its mirror copies in the switch. Returns the number of packets
/// that the switch emitted.
#[inline]
fn passes(switch: &mut Switch, bytes: &[u8]) -> u64 {
    let (mut bridge, mut left) = (None, 0);
    loop {
        let departure = switch.step(&Arrival { bytes: black_box(bytes), bridge, now_ns: 1 });
        left += u64::from(black_box(&departure.emission).is_some());
        bridge = departure.mirror;
        if bridge.is_none() {
            return left;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_is_copied_to_every_receiver() {
        for receivers in [1, 3] {
            Bed::ready(receivers).run(10);
        }
    }
}
