//! The packets that a sender transmits and receives for a message to n receivers, through the switch and by n WRITEs.
//! The endpoints and the data plane run in one thread without sockets. Every packet is counted that leaves the sender
//! or arrives there.

use std::net::Ipv4Addr;
use std::time::Duration;

use stentor_fabric::Status;
use stentor_fabric_roce::endpoint::{Arrival as Came, Check, Outbox};
use stentor_support::Failure;
use stentor_switch::{Arrival, Config, Switch};
use stentor_wire::{IpPacket, Psn};

use super::ends::{Ends, hosts};
use super::failed;
use super::packets::{BACKWARD, FORWARD, PORT, SENDER};

use crate::switch_report::Sender;

const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);

const GID: u16 = 0;
/// Number of messages.
const MESSAGES: u64 = 200;
const NOW: u64 = 1;

/// Numbers of packets and of bytes, including IP headers.
#[derive(Clone, Copy, Default)]
struct Traffic {
    packets: u64,
    bytes: u64,
}

impl Traffic {
    fn count(&mut self, bytes: &[u8]) {
        (self.packets, self.bytes) = (self.packets + 1, self.bytes + bytes.len() as u64);
    }

    fn per_message(self) -> (f64, f64) {
        (self.packets as f64 / MESSAGES as f64, self.bytes as f64 / MESSAGES as f64)
    }
}

/// A sender, a host with all receivers, and the switch between them.
struct Net {
    sender: Ends,
    receiver: Ends,
    switch: Switch,
    sent: Traffic,
    heard: Traffic,
}

impl Net {
    /// Delivers packets until none is in flight.
    fn settle(&mut self, out: &mut Outbox) {
        loop {
            let mut flying = Vec::new();
            for ends in [&mut self.sender, &mut self.receiver] {
                ends.endpoint.transmit(NOW, out);
                for (envelope, transport) in out.packets() {
                    let outer = envelope.header_bytes();
                    let mut bytes = vec![0; outer + transport.len()];
                    bytes[outer..].copy_from_slice(transport);
                    envelope.emit(&mut bytes, transport.len()).expect("room was made");
                    if ends.address == SENDER {
                        self.sent.count(&bytes);
                    }
                    flying.push(bytes);
                }
                out.clear();
            }
            if flying.is_empty() {
                return;
            }
            flying.iter().for_each(|bytes| self.carry(bytes));
        }
    }

    fn carry(&mut self, bytes: &[u8]) {
        let to = |bytes: &[u8]| <[u8; 4]>::try_from(&bytes[16..20]).map(Ipv4Addr::from).unwrap_or(FORWARD);
        if ![FORWARD, BACKWARD].contains(&to(bytes)) {
            return self.arrive(bytes, to(bytes));
        }
        let mut bridge = None;
        loop {
            let departure = self.switch.step(&Arrival { bytes, bridge, now_ns: NOW });
            if let Some(emission) = departure.emission {
                self.arrive(&emission.to_vec(bytes), emission.to());
            }
            bridge = departure.mirror;
            if bridge.is_none() {
                return;
            }
        }
    }

    fn arrive(&mut self, bytes: &[u8], to: Ipv4Addr) {
        let Ok(packet) = IpPacket::new_checked(bytes) else { return };
        let came = Came { envelope: packet.envelope, transport: packet.packet.as_bytes(), check: Check::Whole };
        if to == SENDER {
            self.heard.count(bytes);
            self.sender.endpoint.receive(NOW, &came);
        } else {
            self.receiver.endpoint.receive(NOW, &came);
        }
    }
}

/// Creates the net. The sender's queue pair 0 and the receiver's pairs 0 to n - 1 are connected to the switch, the
/// others to each other.
fn net(n: usize) -> Result<Net, Failure> {
    let (mut sender, mut receiver) = (Ends::new(SENDER, 1 + n)?, Ends::new(RECEIVER, 2 * n)?);
    let mut switch = Switch::new(Config::new(FORWARD, BACKWARD), 1);
    switch.create(GID, Duration::from_secs(60), &hosts(&sender, &receiver, n)).map_err(failed)?;
    sender.connect(0, PORT, FORWARD, (Switch::vrqpn(GID, 0), Psn::new(0)))?;
    for k in 0..n {
        receiver.connect(k, PORT, BACKWARD, (Switch::vsqpn(GID, k as u8), Psn::new(7)))?;
        let (there, here) = (receiver.pairs[n + k], sender.pairs[1 + k]);
        sender.connect(1 + k, PORT, RECEIVER, (there.number, there.psn))?;
        receiver.connect(n + k, PORT, SENDER, (here.number, here.psn))?;
    }
    Ok(Net { sender, receiver, switch, sent: Traffic::default(), heard: Traffic::default() })
}

fn link(net: &mut Net, n: usize, out: &mut Outbox) -> Result<(), Failure> {
    net.sender.link(&net.receiver, n)?;
    net.settle(out);
    (net.sent, net.heard) = (Traffic::default(), Traffic::default());
    completed(net, 1)
}

fn completed(net: &mut Net, count: usize) -> Result<(), Failure> {
    for _ in 0..count {
        let done = net.sender.endpoint.poll();
        if !done.is_some_and(|done| done.status == Status::Success) {
            return Err(failed(format_args!("{done:?} instead of a success")));
        }
    }
    Ok(())
}

/// Sends messages one after the other, each acknowledged by all receivers.
fn measure(n: usize, size: usize, switched: bool) -> Result<Sender, Failure> {
    let (mut net, mut out) = (net(n)?, Outbox::new(64));
    link(&mut net, n, &mut out)?;
    for message in 1..=MESSAGES {
        let payload = [&vec![0; size.saturating_sub(8)][..], &message.to_le_bytes()].concat();
        let data = &payload[payload.len() - size.max(8)..];
        let posted = net.sender.post(&net.receiver, n, switched, message, data)?;
        net.settle(&mut out);
        completed(&mut net, posted)?;
        let words = size.max(8).div_ceil(8);
        if let Some(k) = (0..n).find(|k| net.receiver.last(*k, words) != message) {
            return Err(failed(format_args!("receiver {k} does not have message {message}")));
        }
    }
    let ((packets, bytes), (answers, answer_bytes)) = (net.sent.per_message(), net.heard.per_message());
    let way = if switched { "switch" } else { "unicast" };
    Ok(Sender { receivers: n as u8, way, packets, bytes, answers, answer_bytes })
}

pub(super) fn lines(size: usize) -> Result<Vec<Sender>, Failure> {
    let mut lines = Vec::new();
    for n in [1, 2, 4, 8, 32] {
        for switched in [true, false] {
            lines.push(measure(n, size, switched)?);
        }
    }
    Ok(lines)
}
