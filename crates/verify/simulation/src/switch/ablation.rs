//! Compares two ways to aggregate acknowledgements: rounds with a bitmap, and the exact minimum. The measures are the
//! fraction of runs in which the last packet remains unacknowledged although nothing was lost, and the mean time until
//! the sender's last acknowledgement.
//!
//! A sender sends [`PACKETS`] packets, one per packet time. Each receiver acknowledges each packet, after one packet
//! time plus a random jitter, in order. A stall ends with the sender's timeout.

use std::net::Ipv4Addr;
use std::time::Duration;

use stentor_switch::control::{self, CONTROL_RKEY, CONTROL_VA, Head, Link, MAX_CONTROL_BYTES, Operation};
use stentor_switch::{Aggregation, Arrival, Attachment, Config, Host, Switch};
use stentor_wire::{Aeth, Bth, Envelope, Headers, Message, Psn, Repr, Response, Reth, Syndrome};

use crate::chance::Chance;

/// Number of packets of a run.
pub const PACKETS: u32 = 16;
/// The sender's timeout, in packet times. It is 1.05 ms for packets of 4096 bytes at 100 Gbit/s.
pub const TIMEOUT: f64 = 3200.0;

const FORWARD: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const BACKWARD: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const FIRST: u32 = 0xff_fff8;

/// The result of many runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Completion {
    /// Fraction of the runs in which the sender timed out.
    pub stalls: f64,
    /// Mean time from the sender's first packet until its last acknowledgement, in packet times.
    pub mean: f64,
}

fn address(rank: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, rank + 1)
}

fn packet(from: Ipv4Addr, to: Ipv4Addr, repr: &Repr, payload: &[u8]) -> Vec<u8> {
    let envelope = Envelope::plain(from.into(), 0xc123, to.into()).expect("both addresses have one family");
    let mut bytes = vec![0; envelope.header_bytes() + repr.packet_bytes()];
    envelope.emit_packet(repr, payload, &mut bytes).expect("the buffer has room");
    bytes
}

/// Processes a packet with all its passes.
fn carry(switch: &mut Switch, bytes: &[u8]) {
    let mut bridge = None;
    loop {
        bridge = switch.step(&Arrival { bytes, bridge, now_ns: 1 }).mirror;
        if bridge.is_none() {
            return;
        }
    }
}

/// Returns a switch with a set of `n` receivers whose sender, rank 0, has sent all its packets.
fn sent(aggregation: Aggregation, n: u8) -> Switch {
    let mut switch = Switch::new(Config { aggregation, ..Config::new(FORWARD, BACKWARD) }, 1);
    let attachment = |rank, qpn, psn| Attachment { ip: address(rank), qpn, first_psn: Psn::new(psn) };
    let host = |rank| Host { sends: attachment(rank, 7, FIRST), receives: attachment(rank, 9, 1000) };
    let hosts: Vec<_> = (0..n).map(host).collect();
    switch.create(0, Duration::from_secs(1), &hosts).expect("a set that there is room for");
    let links: Vec<_> = (0..n).map(|rank| Link { rank, rkey: 1, base: 0 }).collect();
    let mut payload = [0; MAX_CONTROL_BYTES];
    let head = Head { operation: Operation::Link, lock_id: 1, epoch: 0, sqpn: 7, psn: Psn::new(FIRST), msn: 0 };
    let len = control::emit(&head, &[], &links, &mut payload).expect("members of a set");
    let request = |psn, message, payload_bytes| Repr {
        bth: Bth::new(Switch::vrqpn(0, 0), Psn::new(psn)),
        headers: Headers::Rc(message),
        payload_bytes,
    };
    let reth = Reth { va: CONTROL_VA, rkey: CONTROL_RKEY, bytes: len as u32 };
    let link = request(FIRST, Message::WriteOnly(reth), len);
    carry(&mut switch, &packet(address(0), FORWARD, &link, &payload[..len]));
    for n in 1..=PACKETS {
        let send = request(FIRST + n, Message::SendOnly, 4);
        carry(&mut switch, &packet(address(0), FORWARD, &send, &[7; 4]));
    }
    switch
}

/// Returns the time of the sender's last acknowledgement, or `None` if it never arrives.
fn completion(aggregation: Aggregation, n: u8, jitter: f64, chance: &mut Chance) -> Option<f64> {
    let mut switch = sent(aggregation, n);
    let mut part = || chance.between(0, (1 << 24) - 1) as f64 / f64::from(1 << 24);
    let mut answers = Vec::new();
    for rank in 0..n {
        let mut at = 0.0_f64;
        for packet in 0..PACKETS {
            at = at.max(f64::from(packet) + 1.0 + jitter * part());
            answers.push((at, rank, packet));
        }
    }
    answers.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.2.cmp(&b.2)));
    for (at, rank, number) in answers {
        let aeth = Aeth { syndrome: Syndrome::ACK, msn: number + 1 };
        let bth = Bth::new(Switch::vsqpn(0, rank), Psn::new(1000 + number));
        let repr = Repr { bth, headers: Headers::Response(Response::Acknowledge(aeth)), payload_bytes: 0 };
        carry(&mut switch, &packet(address(rank), BACKWARD, &repr, &[]));
        let last = switch.arrays().view(0).map(|view| view.progress.last);
        if last == Some(Psn::new(FIRST + PACKETS)) {
            return Some(at);
        }
    }
    None
}

/// Simulates `runs` runs with this number of receivers. `jitter` is in packet times.
#[must_use]
pub fn many(aggregation: Aggregation, receivers: u8, jitter: f64, runs: u32, seed: u64) -> Completion {
    let mut chance = Chance::new(seed, receivers.into());
    let (mut stalls, mut sum) = (0.0, 0.0);
    for _ in 0..runs {
        match completion(aggregation, receivers, jitter, &mut chance) {
            Some(at) => sum += at,
            None => (stalls, sum) = (stalls + 1.0, sum + f64::from(PACKETS) + TIMEOUT),
        }
    }
    Completion { stalls: stalls / f64::from(runs), mean: sum / f64::from(runs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_stall_and_the_exact_minimum_never_does() {
        for n in [2, 4, 8, 32] {
            let rounds = many(Aggregation::RoundBitmap, n, 2.0, 60, 1);
            let exact = many(Aggregation::ExactMin, n, 2.0, 60, 1);
            assert!(exact.stalls == 0.0 && exact.mean < f64::from(PACKETS) + 2.0, "{n}: {exact:?}");
            assert!(rounds.stalls > 0.0 && rounds.mean > exact.mean, "{n}: {rounds:?}");
            let calm = many(Aggregation::RoundBitmap, n, 0.5, 60, 1);
            assert!(calm.stalls == 0.0, "jitter below a packet's time: {calm:?}");
        }
    }
}
