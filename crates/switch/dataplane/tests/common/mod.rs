//! Shared by the tests: a set of hosts, their packets, and a loop that carries mirror copies.
#![allow(dead_code)]

use std::net::Ipv4Addr;
use std::time::Duration;

use stentor_switch::control::{self, CONTROL_RKEY, CONTROL_VA, Head, Link, MAX_CONTROL_BYTES, Operation};
use stentor_switch::{Arrival, Attachment, Bridge, Cause, Config, Departure, Host, Switch};
use stentor_wire::{
    Aeth, Bth, Envelope, Headers, IpPacket, IpRepr, Message, Packet, Psn, Repr, Response, Reth, Syndrome,
};

pub(crate) const FORWARD: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const BACKWARD: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const GID: u16 = 3;
/// First PSN of senders, just before the numbers wrap.
pub(crate) const FIRST: u32 = 0xff_fffd;
pub(crate) const LEASE: Duration = Duration::from_millis(100);

pub(crate) fn address(rank: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, rank + 1)
}

/// Returns the first PSN that the receiver of a rank expects. All are different.
pub(crate) fn receives_from(rank: u8) -> u32 {
    1000 * u32::from(rank) + 7
}

pub(crate) fn host(rank: u8) -> Host {
    let attachment =
        |qpn: u32, psn| Attachment { ip: address(rank), qpn: qpn + u32::from(rank), first_psn: Psn::new(psn) };
    Host { sends: attachment(0x100, FIRST), receives: attachment(0x200, receives_from(rank)) }
}

pub(crate) fn link(rank: u8) -> Link {
    Link { rank, rkey: 0x7000 + u32::from(rank), base: 0x1_0000_0000 * (u64::from(rank) + 1) }
}

/// A switch with one set, and the packets of its hosts.
#[derive(Clone)]
pub(crate) struct Bed {
    pub(crate) switch: Switch,
    pub(crate) now_ns: u64,
}

/// Contents of a packet that the switch sent.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Left {
    pub(crate) to: Ipv4Addr,
    pub(crate) qpn: u32,
    pub(crate) psn: Psn,
    pub(crate) headers: Headers,
    pub(crate) payload: Vec<u8>,
}

impl Left {
    pub(crate) fn read(bytes: &[u8]) -> Left {
        let packet = IpPacket::new_checked(bytes).expect("a packet");
        assert!(packet.is_intact(), "the ICRC is right");
        let repr = Repr::parse(&packet.packet).expect("a packet");
        let IpRepr::V4(ip) = packet.envelope.ip else { panic!("the packet is not IPv4") };
        let payload = packet.packet.payload().to_vec();
        Left { to: ip.destination, qpn: repr.bth.dest_qp, psn: repr.bth.psn, headers: repr.headers, payload }
    }

    pub(crate) fn aeth(&self) -> Aeth {
        match self.headers {
            Headers::Response(Response::Acknowledge(aeth)) => aeth,
            other => panic!("{other:?} is not an acknowledgement"),
        }
    }

    pub(crate) fn reth(&self) -> Reth {
        match self.headers {
            Headers::Rc(Message::WriteOnly(reth) | Message::WriteFirst(reth) | Message::WriteOnlyImm(reth, _)) => reth,
            other => panic!("{other:?} has no address"),
        }
    }
}

/// Returns a complete packet.
pub(crate) fn packet(from: Ipv4Addr, to: Ipv4Addr, repr: &Repr, payload: &[u8]) -> Vec<u8> {
    let envelope = Envelope::plain(from.into(), 0xc123, to.into()).expect("both addresses have one family");
    let mut bytes = vec![0; envelope.header_bytes() + repr.packet_bytes()];
    envelope.emit_packet(repr, payload, &mut bytes).expect("the buffer has room");
    bytes
}

impl Bed {
    pub(crate) fn new(hosts: u8) -> Bed {
        Bed::with(hosts, Config::new(FORWARD, BACKWARD))
    }

    pub(crate) fn with(hosts: u8, config: Config) -> Bed {
        let mut switch = Switch::new(config, 4);
        let hosts: Vec<Host> = (0..hosts).map(host).collect();
        switch.create(GID, LEASE, &hosts).expect("a set");
        Bed { switch, now_ns: 0 }
    }

    pub(crate) fn data(rank: u8, psn: u32, message: Message, payload: &[u8]) -> Vec<u8> {
        let mut bth = Bth::new(Switch::vrqpn(GID, rank), Psn::new(psn));
        bth.ack_req = true;
        let repr = Repr { bth, headers: Headers::Rc(message), payload_bytes: payload.len() };
        packet(address(rank), FORWARD, &repr, payload)
    }

    pub(crate) fn send(rank: u8, psn: u32) -> Vec<u8> {
        Bed::data(rank, psn, Message::SendOnly, &psn.to_be_bytes())
    }

    pub(crate) fn control(rank: u8, (psn, msn): (u32, u32), operation: Operation, links: &[Link]) -> Vec<u8> {
        let head = Head {
            operation,
            lock_id: 77 + u32::from(rank),
            epoch: 0,
            sqpn: 0x100 + u32::from(rank),
            psn: Psn::new(psn),
            msn,
        };
        let mut payload = [0; MAX_CONTROL_BYTES];
        let len = control::emit(&head, &[], links, &mut payload).expect("the buffer has room");
        Bed::control_of(rank, psn, &payload[..len])
    }

    pub(crate) fn control_of(rank: u8, psn: u32, payload: &[u8]) -> Vec<u8> {
        let reth = Reth { va: CONTROL_VA, rkey: CONTROL_RKEY, bytes: payload.len() as u32 };
        Bed::data(rank, psn, Message::WriteOnly(reth), payload)
    }

    pub(crate) fn feedback(rank: u8, psn: u32, syndrome: Syndrome, msn: u32) -> Vec<u8> {
        let bth = Bth::new(Switch::vsqpn(GID, rank), Psn::new(psn));
        let headers = Headers::Response(Response::Acknowledge(Aeth { syndrome, msn }));
        packet(address(rank), BACKWARD, &Repr { bth, headers, payload_bytes: 0 }, &[])
    }

    pub(crate) fn pass(&mut self, bytes: &[u8], bridge: Option<Bridge>) -> Departure {
        self.switch.step(&Arrival { bytes, bridge, now_ns: self.now_ns })
    }

    /// Runs all passes of a packet. Returns the packets sent and the cause of each pass.
    pub(crate) fn all(&mut self, bytes: &[u8]) -> (Vec<Left>, Vec<Cause>) {
        let (mut left, mut causes, mut bridge) = (Vec::new(), Vec::new(), None);
        loop {
            let departure = self.pass(bytes, bridge);
            left.extend(departure.emission.map(|emission| Left::read(&emission.to_vec(bytes))));
            causes.push(departure.cause);
            bridge = departure.mirror;
            if bridge.is_none() {
                return (left, causes);
            }
            assert!(causes.len() <= 35, "the loop does not end");
        }
    }

    /// Runs all passes of a packet. Returns the packets sent.
    pub(crate) fn left(&mut self, bytes: &[u8]) -> Vec<Left> {
        self.all(bytes).0
    }

    /// Links these ranks, with the first packet of rank 0.
    pub(crate) fn linked(mut self, ranks: &[u8]) -> Bed {
        let links: Vec<Link> = ranks.iter().map(|rank| link(*rank)).collect();
        let left = self.left(&Bed::control(0, (FIRST, 0), Operation::Link, &links));
        assert_eq!(left.len(), 1);
        assert_eq!((left[0].to, left[0].qpn), (address(0), 0x100));
        assert_eq!((left[0].psn.get(), left[0].aeth()), (FIRST, Aeth { syndrome: Syndrome::ACK, msn: 1 }));
        self
    }
}

/// Asserts that the only packet sent acknowledges all packets up to a PSN.
pub(crate) fn acked(left: &[Left], psn: u32, msn: u32) {
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!((left[0].psn, left[0].aeth()), (Psn::new(psn), Aeth { syndrome: Syndrome::ACK, msn }));
}

pub(crate) fn refused(left: &[Left], psn: u32, syndrome: Syndrome) {
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!((left[0].psn, left[0].aeth().syndrome), (Psn::new(psn), syndrome));
}

pub(crate) fn view(bytes: &[u8]) -> Packet<&[u8]> {
    Packet::new_checked(bytes).expect("a packet")
}

/// Corrects the ICRC, if the bytes are still a packet.
pub(crate) fn reseal(bytes: &mut [u8]) {
    let Ok(packet) = IpPacket::new_checked(bytes) else { return };
    let icrc = packet.envelope.icrc(packet.packet.as_bytes());
    let end = 20 + 8 + packet.packet.as_bytes().len();
    bytes[end - 4..end].copy_from_slice(&icrc.to_le_bytes());
}
