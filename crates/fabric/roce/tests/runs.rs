//! Tests that packets in runs (UDP_SEGMENT and UDP_GRO) over real sockets arrive correctly and are captured correctly.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use stentor_fabric::memory::Ordering;
use stentor_fabric::{Access, RegionId, Span};
use stentor_fabric_roce::driver::{Envelope, Mode, Port, PortError};
use stentor_fabric_roce::endpoint::{Data, Remote, Request, Work};
use stentor_fabric_roce::peer::{DOMAIN, Peer, PeerConfig, PeerError};
use stentor_wire::{Bth, Headers, IpPacket, IpRepr, Message, Psn, Repr, Reth};

const PATIENCE: Duration = Duration::from_secs(60);
const BYTES: u32 = 64 << 10;

/// Returns an address that no other test uses.
fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 212, (std::process::id() % 251) as u8, last)
}

struct Half {
    peer: Peer,
    region: RegionId,
    key: u32,
}

fn half(last: u8, mtu: u16, runs: bool, pcap: Option<PathBuf>) -> Half {
    let mut config = PeerConfig::new(address(last).into());
    (config.mtu, config.mode, config.runs, config.pcap) = (mtu, Some(Mode::Plain), runs, pcap);
    let mut peer = Peer::open(config, 64).expect("the peer opens its sockets");
    let region = peer.endpoint.memory_mut().register(BYTES as usize / 8, 0);
    let key = peer.endpoint.memory_mut().grant(region, DOMAIN, Access::Write, 1).expect("a key");
    Half { peer, region, key }
}

fn connect(a: &mut Half, b: &mut Half) {
    let (to_a, to_b) = (a.peer.destination(), b.peer.destination());
    a.peer.connect(&to_b).expect("the queue pair connects");
    b.peer.connect(&to_a).expect("the queue pair connects");
}

/// Writes the whole region of `a` to `b`, and compares.
fn write(a: &mut Half, b: &mut Half, salt: u64) {
    for (n, word) in a.peer.endpoint.memory().words(a.region).iter().enumerate() {
        word.store(salt.wrapping_mul(n as u64 + 1), Ordering::Relaxed);
    }
    let data = Data::Region(Span { region: a.region, offset: 0, bytes: BYTES });
    let request = Request::Write { data, remote: Remote { va: 0, rkey: b.key }, imm: None };
    a.peer.endpoint.post_send(a.peer.qp, &Work::signalled(salt, request)).expect("the request is posted");
    let since = Instant::now();
    while a.peer.endpoint.poll().is_none_or(|completion| {
        assert_eq!(completion.status, stentor_fabric::Status::Success);
        false
    }) {
        assert!(since.elapsed() < PATIENCE, "a: {}; b: {}", a.peer.counters(), b.peer.counters());
        b.peer.drive().expect("the peer can be driven");
        a.peer.drive().expect("the peer can be driven");
    }
    for (n, word) in b.peer.endpoint.memory().words(b.region).iter().enumerate() {
        assert_eq!(word.load(Ordering::Relaxed), salt.wrapping_mul(n as u64 + 1), "word {n}");
    }
}

/// Returns the IP packets of a capture.
fn packets(file: &PathBuf) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(file).expect("a capture");
    let (mut packets, mut at) = (Vec::new(), 24);
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().expect("four bytes")) as usize;
        packets.push(bytes[at + 16..at + 16 + length].to_vec());
        at += 16 + length;
    }
    packets
}

#[test]
fn data_in_runs_arrives_and_captures_are_correct() {
    let folder = std::env::temp_dir().join(format!("stentor-runs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for mtu in [1024, 4096] {
        let files = ["a", "b"].map(|name| folder.join(format!("{name}-{mtu}.pcap")));
        let (mut a, mut b) = (half(1, mtu, true, Some(files[0].clone())), half(2, mtu, true, Some(files[1].clone())));
        assert!(a.peer.pump.port().takes_runs(), "runs are received on Linux 5.0 and later");
        connect(&mut a, &mut b);
        (1..=8).for_each(|salt| write(&mut a, &mut b, salt));
        assert_eq!(b.peer.endpoint.counters().bad_icrc, 0);
        assert!(a.peer.pump.port().counters().in_runs > 8 * 10);
        for (half, file) in [&mut a, &mut b].into_iter().zip(&files) {
            half.peer.pump.pcap_mut().expect("the pump has a capture file").finish().expect("a disk");
            let captured = packets(file);
            let mut ids = Vec::new();
            for bytes in &captured {
                let packet = IpPacket::new_checked(&bytes[bytes.len() - ip_bytes(bytes)..]).expect("a packet");
                assert!(packet.is_intact());
                let IpRepr::V4(ip) = packet.envelope.ip else { panic!("IPv4") };
                ids.push(ip.id);
            }
            assert!(captured.len() > 8 * 16);
            // Sent packets are captured before the kernel numbers them, and received packets with their
            // identifications.
            assert_eq!(ids.contains(&1), file == &files[1], "{ids:?}");
        }
    }
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
}

/// Returns the length of the IP packet in a frame of a capture.
fn ip_bytes(frame: &[u8]) -> usize {
    let at = frame.windows(2).position(|pair| pair == [0x45, 0]).expect("an IPv4 header");
    frame.len() - at
}

/// A peer that did not announce runs would drop all packets of a run except the first.
#[test]
fn peer_without_runs_gets_single_packets() {
    let (mut a, mut b) = (half(3, 1024, false, None), half(4, 1024, true, None));
    connect(&mut a, &mut b);
    write(&mut a, &mut b, 5);
    assert_eq!((a.peer.pump.port().counters().in_runs, b.peer.endpoint.counters().bad_icrc), (0, 0));
    // `b` wrongly believes that `a` accepts runs. Retransmissions are single packets and arrive.
    write(&mut b, &mut a, 6);
    assert!(a.peer.endpoint.counters().bad_icrc > 0);
}

/// Damaged packets of a run are dropped individually.
#[test]
fn damage_in_a_run_is_detected() {
    let mut b = half(6, 1024, true, None);
    let mut from = Port::open(address(5).into(), Mode::Plain, 5).expect("the port opens its socket");
    from.enable_runs();
    from.run_to(address(6).into(), true);
    let told = stentor_fabric_roce::peer::Destination { lid: 0, number: 77, psn: 1000, address: address(5).into() };
    b.peer.connect(&told).expect("the queue pair connects");
    let envelope: Envelope = from.envelope(address(6).into()).expect("both addresses have one family");
    let number = b.peer.destination().number;
    let make = |n: u32| {
        let reth = Reth { va: u64::from(n) * 64, rkey: b.key, bytes: 64 };
        let headers = Headers::Rc(Message::WriteOnly(reth));
        let repr = Repr { bth: Bth::new(number, Psn::new(1000 + n)), headers, payload_bytes: 64 };
        let mut packet = vec![0; repr.packet_bytes()];
        repr.emit(&mut packet).expect("the buffer has room").fill(n as u8 + 1);
        envelope.seal(&mut packet);
        packet
    };
    let mut packets: Vec<_> = (0..12).map(make).collect();
    packets[9][40] ^= 4;
    packets[10][8] ^= 0x80;
    from.send_all(&packets.iter().map(|packet| (&envelope, &packet[..])));
    let since = Instant::now();
    while b.peer.endpoint.counters().received < 12 {
        assert!(since.elapsed() < PATIENCE, "{}", b.peer.counters());
        b.peer.drive().expect("the peer can be driven");
    }
    assert_eq!((b.peer.endpoint.counters().bad_icrc, b.peer.endpoint.counters().out_of_order), (2, 1));
    let words = b.peer.endpoint.memory().words(b.region);
    let landed: Vec<_> = (0..12).map(|n| words[n * 8].load(Ordering::Relaxed) as u8).collect();
    assert_eq!(landed, [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0]);
}

/// IPv6 has no identifications, so a packet of a run has the same ICRC as a single packet. The loopback device has only
/// one IPv6 address, so this peer is connected to itself.
#[test]
fn runs_arrive_over_ipv6() {
    let since = Instant::now();
    let mut peer = loop {
        let mut config = PeerConfig::new(std::net::Ipv6Addr::LOCALHOST.into());
        (config.mode, config.runs) = (Some(Mode::Plain), true);
        match Peer::open(config, 64) {
            Ok(peer) => break peer,
            Err(PeerError::Port(PortError::NotHere { .. })) => {
                panic!("this host has no IPv6 address ::1: run sysctl net.ipv6.conf.lo.disable_ipv6=0");
            }
            // Another test run on this machine uses the port, so try again.
            Err(PeerError::Port(PortError::Taken { .. })) if since.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => panic!("{error}"),
        }
    };
    let memory = peer.endpoint.memory_mut();
    let (source, target) = (memory.register(BYTES as usize / 8, 0), memory.register(BYTES as usize / 8, 0));
    let rkey = memory.grant(target, DOMAIN, Access::Write, 1).expect("a key");
    let itself = peer.destination();
    peer.connect(&itself).expect("the queue pair connects");
    for salt in 1..=8_u64 {
        for (n, word) in peer.endpoint.memory().words(source).iter().enumerate() {
            word.store(salt.wrapping_mul(n as u64 + 1), Ordering::Relaxed);
        }
        let data = Data::Region(Span { region: source, offset: 0, bytes: BYTES });
        let request = Request::Write { data, remote: Remote { va: 0, rkey }, imm: None };
        peer.endpoint.post_send(peer.qp, &Work::signalled(salt, request)).expect("the request is posted");
        assert_eq!(peer.completion(PATIENCE).expect("the request completes").id, salt);
        for (n, word) in peer.endpoint.memory().words(target).iter().enumerate() {
            assert_eq!(word.load(Ordering::Relaxed), salt.wrapping_mul(n as u64 + 1), "word {n}");
        }
    }
    assert_eq!((peer.endpoint.counters().bad_icrc, peer.endpoint.counters().malformed), (0, 0));
    assert!(peer.pump.port().counters().in_runs > 8 * 32, "{}", peer.counters());
}
