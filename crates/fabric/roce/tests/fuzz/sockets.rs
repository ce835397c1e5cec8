//! Runs the adversary over real sockets that receive runs. It sends whole datagrams with wrong lengths and truncated
//! ends, some of which the kernel splits. This also tests the lengths that the kernel reports, and how the driver
//! splits datagrams.
#![allow(unsafe_code)]

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use stentor_fabric::Access;
use stentor_fabric::memory::Ordering;
use stentor_fabric_roce::driver::Mode;
use stentor_fabric_roce::peer::{DOMAIN, Destination, Peer, PeerConfig};
use stentor_testutil::number_of_environment;

use crate::common::{SplitMix64, VA};
use crate::generate::{self, Known};
use crate::script::Datagram;
use crate::victim::{PATTERN, SETUP};

/// Maximum number of packets into which the kernel splits a datagram.
const MOST_PACKETS: usize = 64;
/// Number of datagrams to one victim. Most queue pairs break before the last datagram.
const EACH: usize = 60;
const PATIENCE: Duration = Duration::from_secs(60);

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 214, (std::process::id() % 251) as u8, last)
}

/// Sends a datagram that the kernel splits into packets of `segment` bytes (0: not at all). Returns `false` if the
/// kernel refuses it.
fn send(socket: &UdpSocket, datagram: &Datagram) -> bool {
    let bytes = libc::c_int::from(datagram.segment);
    let at = (&raw const bytes).cast::<libc::c_void>();
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `at` points to a c_int, whose size is given, and the descriptor is the socket's.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, at, size) };
    assert_eq!(set, 0, "UDP_SEGMENT exists on Linux 4.18 and later");
    socket.send_to(&datagram.bytes, (address(2), 4791)).is_ok()
}

#[test]
fn strangers_runs_are_counted_by_packet_and_reach_only_granted_memory() {
    let time = Duration::from_secs(number_of_environment("STENTOR_FUZZ_SECONDS", 1));
    let seed = number_of_environment("STENTOR_FUZZ_SEED", 0);
    let mut random = SplitMix64(seed);
    let (since, mut victims, mut packets, mut runs, mut written) = (Instant::now(), 0_u64, 0, 0_u64, 0_u64);
    // The adversary writes to the memory of few victims, because most queue pairs break before any of its writes.
    while since.elapsed() < time || runs < 50 || written == 0 && victims < 10_000 {
        victims += 1;
        let config = PeerConfig { mode: Some(Mode::Plain), runs: true, ..PeerConfig::new(address(2).into()) };
        let mut peer = Peer::open(PeerConfig { mtu: SETUP.mtu, ..config }, 16).expect("sockets are opened");
        assert!(peer.pump.port().takes_runs(), "runs are received on Linux 5.0 and later");
        let memory = peer.endpoint.memory_mut();
        let (shared, guard) = (memory.register(64, VA), memory.register(64, VA));
        let grant = |memory: &mut stentor_fabric_roce::endpoint::Memory, region, access| {
            memory.grant(region, DOMAIN, access, 5).expect("a key")
        };
        let (own, readable) = (grant(memory, shared, Access::Atomic), grant(memory, guard, Access::Read));
        let pattern = u64::from_ne_bytes([PATTERN; 8]);
        memory.words(guard).iter().for_each(|word| word.store(pattern, Ordering::Relaxed));
        let known = Known::of(peer.destination().number, [own, readable, own ^ 1 << 16]);
        let told = Destination { lid: 0, number: 77, psn: SETUP.psn_b, address: address(1).into() };
        peer.connect(&told).expect("the queue pair connects");
        let socket = UdpSocket::bind((address(1), 0)).expect("a socket");
        let mut envelope = stentor_wire::Envelope::plain(
            address(1).into(),
            socket.local_addr().expect("the socket is bound").port(),
            address(2).into(),
        )
        .expect("both addresses have one family");
        for n in 0..EACH {
            let mut datagram = generate::datagram(&mut random, &known, n as u32 / 3);
            if !random.one_in(10) {
                seal(&mut datagram, &mut envelope);
            }
            let count = datagram.packets().len();
            if count > MOST_PACKETS || !send(&socket, &datagram) {
                continue;
            }
            runs += u64::from(count > 1);
            packets += count as u64;
            let expected = peer.endpoint.counters().received + count as u64;
            let sent = Instant::now();
            while peer.endpoint.counters().received < expected {
                peer.drive().expect("the peer can be driven");
                while peer.endpoint.poll().is_some() {}
                let what = || format!("not all of {count} packets arrived, seed {seed}: {}", peer.counters());
                assert!(sent.elapsed() < PATIENCE, "{}", what());
            }
            assert_eq!(peer.endpoint.counters().received, expected, "number of received packets, seed {seed}");
        }
        peer.drive().expect("the peer can be driven");
        assert!(!peer.drive().expect("the peer can be driven"), "more packets arrived than were sent, seed {seed}");
        let words = |region| peer.endpoint.memory().words(region).iter().map(|word| word.load(Ordering::Relaxed));
        assert!(words(guard).all(|word| word == pattern), "victim {victims} of seed {seed}");
        written += u64::from(words(shared).any(|word| word != 0));
    }
    println!("{packets} packets to {victims} victims, in {runs} runs and alone; {written} were written to");
    assert!(runs > 20 && written > 0, "only {runs} runs, and only {written} victims were written to");
}

/// Sets the ICRC of each packet of a datagram to the one for its position.
fn seal(datagram: &mut Datagram, envelope: &mut stentor_wire::Envelope) {
    let mut packets = datagram.packets();
    for (n, packet) in packets.iter_mut().enumerate().filter(|(_, packet)| packet.len() >= 4) {
        let stentor_wire::IpRepr::V4(ip) = &mut envelope.ip else { unreachable!("IPv4") };
        ip.id = n as u16;
        envelope.seal(packet);
    }
    datagram.bytes = packets.concat();
}
