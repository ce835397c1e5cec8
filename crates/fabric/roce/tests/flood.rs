//! Tests overload: one call receives a bounded number of packets, packets for which the socket has no room are counted,
//! and no other packet is lost.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use stentor_fabric_roce::driver::{Envelope, Mode, Port};
use stentor_fabric_roce::peer::{Peer, PeerConfig};
use stentor_wire::{Bth, Headers, Message, Psn, Repr, Reth};

const PATIENCE: Duration = Duration::from_secs(60);
/// Number of packets after which one call of `receive` processes only the rest of a datagram.
const MOST_PACKETS: u64 = 256;
/// Number of bytes after which one call of `receive` processes only the rest of a datagram.
const MOST_BYTES: u64 = 1 << 20;
const DATAGRAM_BYTES: u64 = 64 << 10;
const RUN: u64 = 15;

/// Returns an address that no other test uses.
fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 213, (std::process::id() % 251) as u8, last)
}

fn peer(last: u8, runs: bool) -> Peer {
    let config = PeerConfig { mode: Some(Mode::Plain), runs, ..PeerConfig::new(address(last).into()) };
    Peer::open(config, 4).expect("the peer opens its sockets")
}

/// Returns a valid packet for a queue pair that does not exist.
fn packet(envelope: &Envelope, payload_bytes: usize) -> Vec<u8> {
    let reth = Reth { va: 0, rkey: 0, bytes: payload_bytes as u32 };
    let headers = Headers::Rc(Message::WriteOnly(reth));
    let repr = Repr { bth: Bth::new(1, Psn::new(0)), headers, payload_bytes };
    let mut bytes = vec![0; repr.packet_bytes()];
    repr.emit(&mut bytes).expect("the buffer has room");
    envelope.seal(&mut bytes);
    bytes
}

/// Sends `count` packets from a port, with as many calls as necessary.
fn send(port: &mut Port, to: &Peer, count: usize, payload_bytes: usize) {
    let envelope = port.envelope(to.destination().address).expect("both addresses have one family");
    let bytes = packet(&envelope, payload_bytes);
    let mut done = 0;
    while done < count {
        let rest = std::iter::repeat_n((&envelope, &bytes[..]), count - done);
        done += port.send_all(&rest);
    }
    assert_eq!(port.counters().unsent, 0);
}

/// Receives until no packet is left. Returns the number of packets that each call received.
fn drain(peer: &mut Peer) -> Vec<u64> {
    let mut intakes = Vec::new();
    let since = Instant::now();
    loop {
        let before = peer.endpoint.counters().received;
        let any = peer.pump.receive(&mut peer.endpoint).expect("the packets are received");
        let came = peer.endpoint.counters().received - before;
        assert_eq!(any, came > 0);
        if !any {
            return intakes;
        }
        intakes.push(came);
        let longest = Duration::from_secs(1);
        assert_eq!(peer.pump.idle(&peer.endpoint, longest).is_zero(), peer.pump.port().holds_more());
        assert!(since.elapsed() < PATIENCE);
    }
}

#[test]
fn one_receive_call_is_bounded_in_packets_and_bytes() {
    let mut from = Port::open(address(1).into(), Mode::Plain, 1).expect("the port opens its socket");
    from.enable_runs();
    from.run_to(address(2).into(), true);
    let mut to = peer(2, true);
    assert!(to.pump.port().takes_runs(), "runs are received on Linux 5.0 and later");
    for (payload_bytes, count, most) in
        [(64, 600, MOST_PACKETS + RUN), (4096, 400, (MOST_BYTES + DATAGRAM_BYTES) / 4096)]
    {
        let (before, lost) = (to.endpoint.counters().received, to.pump.port().counters().overflowed);
        send(&mut from, &to, count, payload_bytes);
        let mut intakes = drain(&mut to);
        // The kernel reports dropped packets only with the next packet, so send one.
        send(&mut from, &to, 1, payload_bytes);
        assert_eq!(drain(&mut to), [1]);
        intakes.push(1);
        let lost = to.pump.port().counters().overflowed - lost;
        assert_eq!(to.endpoint.counters().received - before + lost, count as u64 + 1);
        let largest = intakes.iter().max().copied().unwrap_or_default();
        assert!(largest <= most, "{payload_bytes} bytes: {intakes:?}");
        assert!(lost > 0 || intakes.len() > 2, "{payload_bytes} bytes: {intakes:?}");
    }
    assert!(from.counters().in_runs > 900);
}

/// Returns the number of packets that the whole machine dropped before they reached a socket.
fn dropped_on_the_way() -> u64 {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").expect("Linux");
    let dropped = text.lines().filter_map(|line| line.split_whitespace().nth(1));
    dropped.map(|hex| u64::from_str_radix(hex, 16).expect("hexadecimal")).sum()
}

#[test]
fn sent_packets_equal_received_and_dropped_packets() {
    let mut from = Port::open(address(3).into(), Mode::Plain, 3).expect("the port opens its socket");
    let mut to = peer(4, false);
    let elsewhere = dropped_on_the_way();
    let mut sent = 0;
    // Packets are not received during this loop, so the socket's buffer overflows. The buffer is larger if the process
    // has a privilege.
    while sent < 60_000 {
        send(&mut from, &to, 1000, 64);
        sent += 1000;
    }
    drain(&mut to);
    send(&mut from, &to, 1, 64);
    assert_eq!(drain(&mut to), [1]);
    let (received, lost) = (to.endpoint.counters().received, to.pump.port().counters().overflowed);
    let missing = sent + 1 - received - lost;
    let elsewhere = dropped_on_the_way() - elsewhere;
    println!("of {} packets, {received} were received and {lost} had no room", sent + 1);
    assert!(missing <= elsewhere, "{missing} packets are missing, {elsewhere} were dropped on the way");
    assert!(lost > 0 && received > 0);
    assert_eq!(to.endpoint.counters().unknown_qp, received);
}
