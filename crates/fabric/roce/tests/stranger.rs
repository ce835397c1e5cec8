//! Tests a stranger that sends packets to the port, over real sockets. Each invalid packet is counted under its cause
//! and changes nothing. The connection continues to work, even while the stranger floods the port.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stentor_fabric::{Access, RegionId, Status};
use stentor_fabric_roce::driver::Mode;
use stentor_fabric_roce::endpoint::{Counters, Data, Remote, Request, Work};
use stentor_fabric_roce::peer::{DOMAIN, Destination, Peer, PeerConfig};
use stentor_wire::{Bth, Envelope, Headers, Message, Psn, Repr, Reth};

/// Number of packets of each kind.
const EACH: u64 = 150;

fn address(net: u8, last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 64 + (std::process::id() % 128) as u8, net, last)
}

struct Side {
    peer: Peer,
    shared: RegionId,
    key: u32,
    destination: Destination,
}

/// Returns the two connected sides A and B. The stranger sends to B.
fn sides(net: u8, runs: bool) -> (Side, Side) {
    let make = |last| {
        let config = PeerConfig { mode: Some(Mode::Plain), runs, ..PeerConfig::new(address(net, last).into()) };
        let mut peer = Peer::open(config, 256).expect("the peer opens its sockets");
        let shared = peer.endpoint.memory_mut().register(512, 0);
        let key = peer.endpoint.memory_mut().grant(shared, DOMAIN, Access::Write, 1).expect("a key");
        let destination = peer.destination();
        Side { peer, shared, key, destination }
    };
    let (mut a, mut b) = (make(1), make(2));
    a.peer.connect(&b.destination).expect("the queue pair connects");
    b.peer.connect(&a.destination).expect("the queue pair connects");
    (a, b)
}

/// Runs one successful WRITE.
fn write(a: &mut Side, b: &mut Side, value: u64) {
    let data = value.to_ne_bytes();
    let request = Request::Write { data: Data::Inline(&data), remote: Remote { va: 0, rkey: b.key }, imm: None };
    a.peer.endpoint.post_send(a.peer.qp, &Work::signalled(value, request)).expect("the request is posted");
    let since = Instant::now();
    loop {
        a.peer.drive().expect("the peer can be driven");
        b.peer.drive().expect("the peer can be driven");
        if let Some(completion) = a.peer.endpoint.poll() {
            assert_eq!((completion.id, completion.status), (value, Status::Success));
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(20), "the WRITE has not completed: {}", b.peer.counters());
    }
    assert_eq!(b.peer.endpoint.memory().words(b.shared)[0].load(Ordering::Relaxed), value);
}

/// A stranger's socket: at its own address, or at A's address with another source port.
struct Stranger {
    socket: UdpSocket,
    envelope: Envelope,
}

impl Stranger {
    fn new(from: Ipv4Addr, to: Ipv4Addr) -> Stranger {
        let socket = UdpSocket::bind((from, 0)).expect("a socket");
        let port = socket.local_addr().expect("the socket is bound").port();
        Stranger {
            socket,
            envelope: Envelope::plain(from.into(), port, to.into()).expect("both addresses have one family"),
        }
    }

    fn packet(&self, bth: Bth, reth: Reth, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let repr = Repr { bth, headers: Headers::Rc(Message::WriteOnly(reth)), payload_bytes: reth.bytes as usize };
        let mut bytes = vec![0; repr.packet_bytes()];
        repr.emit(&mut bytes).expect("the buffer has room").fill(0x66);
        change(&mut bytes);
        self.envelope.seal(&mut bytes);
        bytes
    }

    fn send(&self, bytes: &[u8]) -> bool {
        self.socket.send_to(bytes, (self.envelope.ip.destination(), 4791)).is_ok()
    }
}

#[test]
fn invalid_packets_are_counted_under_their_cause() {
    let (mut a, mut b) = sides(221, false);
    write(&mut a, &mut b, 1);
    let at_b = address(221, 2);
    let (far, near) = (Stranger::new(address(221, 3), at_b), Stranger::new(address(221, 1), at_b));
    let next = Psn::new(a.destination.psn).plus(1);
    let bth = Bth::new(b.destination.number, next);
    let reth = Reth { va: 0, rkey: b.key, bytes: 64 };
    let nothing = |_: &mut Vec<u8>| ();
    type Count = fn(&Counters) -> u64;
    let kinds: [(&str, &Stranger, Vec<u8>, Count); 9] = [
        ("source address", &far, far.packet(bth, reth, nothing), |c| c.wrong_source),
        ("queue pair", &near, near.packet(Bth { dest_qp: bth.dest_qp ^ 1, ..bth }, reth, nothing), |c| c.unknown_qp),
        ("partition", &near, near.packet(Bth { pkey: 0x1234, ..bth }, reth, nothing), |c| c.wrong_pkey),
        ("service", &near, near.packet(bth, reth, |bytes| bytes[0] |= 0x20), |c| c.wrong_service),
        ("opcode", &near, near.packet(bth, reth, |bytes| bytes[0] = 0x1f), |c| c.malformed),
        ("PSN and key", &near, near.packet(Bth { psn: next.plus(9), ..bth }, Reth { rkey: 7, ..reth }, nothing), |c| {
            c.out_of_order
        }),
        ("old PSN", &near, near.packet(Bth { psn: next.minus(1), ..bth }, reth, nothing), |c| c.duplicates),
        (
            "ICRC",
            &near,
            {
                let mut bytes = near.packet(bth, reth, nothing);
                bytes[40] ^= 1;
                bytes
            },
            |c| c.bad_icrc,
        ),
        ("length", &near, near.packet(bth, reth, nothing)[..20].to_vec(), |c| c.malformed),
    ];
    for (what, stranger, bytes, count) in kinds {
        let before = (count(b.peer.endpoint.counters()), b.peer.endpoint.counters().received);
        for _ in 0..EACH {
            assert!(stranger.send(&bytes));
            b.peer.drive().expect("the peer can be driven");
        }
        b.peer.linger(Duration::from_millis(5)).expect("the peer can be driven");
        let counters = b.peer.endpoint.counters();
        let counted = (count(counters) - before.0, counters.received - before.1);
        assert_eq!(counted, (EACH, EACH), "wrong {what}: {}", b.peer.counters());
        let words = b.peer.endpoint.memory().words(b.shared);
        assert!(words[1..].iter().all(|word| word.load(Ordering::Relaxed) == 0), "wrong {what} reached memory");
    }
    for value in 2..50 {
        write(&mut a, &mut b, value);
    }
}

/// Returns the number of packets that the whole machine dropped before they reached a socket.
fn dropped_on_the_way() -> u64 {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").expect("Linux");
    let dropped = text.lines().filter_map(|line| line.split_whitespace().nth(1));
    dropped.map(|hex| u64::from_str_radix(hex, 16).expect("hexadecimal")).sum()
}

#[test]
fn connection_works_under_a_flood() {
    flood(222, false);
}

#[test]
fn connection_with_runs_works_under_a_flood() {
    flood(223, true);
}

fn flood(net: u8, runs: bool) {
    let elsewhere = dropped_on_the_way();
    let (mut a, mut b) = sides(net, runs);
    write(&mut a, &mut b, 1);
    let stranger = Stranger::new(address(net, 3), address(net, 2));
    let bth = Bth::new(b.destination.number, Psn::new(a.destination.psn));
    let bytes = stranger.packet(bth, Reth { va: 0, rkey: b.key, bytes: 8 }, |_| ());
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                sent.fetch_add(u64::from(stranger.send(&bytes)), Ordering::Relaxed);
            }
        });
        let since = Instant::now();
        let mut value = 2;
        while since.elapsed() < Duration::from_secs(1) {
            write(&mut a, &mut b, value);
            value += 1;
        }
        stop.store(true, Ordering::Relaxed);
        println!("{value} WRITEs under a flood of {} packets", sent.load(Ordering::Relaxed));
        assert!(value > 100, "{value} WRITEs in a second");
    });
    b.peer.linger(Duration::from_millis(50)).expect("the peer can be driven");
    // The kernel reports dropped packets only with the next packet, so send one.
    write(&mut a, &mut b, u64::MAX);
    b.peer.linger(Duration::from_millis(5)).expect("the peer can be driven");
    let counters = b.peer.endpoint.counters();
    let strange = sent.load(Ordering::Relaxed);
    let ours = a.peer.endpoint.counters().sent - a.peer.pump.port().counters().unsent;
    let overflowed = b.peer.pump.port().counters().overflowed;
    // Check that every packet was received, dropped by the socket, or dropped before it reached the socket.
    let missing =
        (strange + ours).checked_sub(counters.received + overflowed).expect("no more packets arrived than were sent");
    let elsewhere = dropped_on_the_way() - elsewhere;
    assert!(missing <= elsewhere, "{missing} of {strange} and {ours} are missing: {}", b.peer.counters());
    assert!(counters.wrong_source > 0 && counters.wrong_source <= strange);
    let carried_out = counters.received - counters.wrong_source;
    assert!(carried_out <= ours, "{carried_out} of ours {ours}: {}", b.peer.counters());
    let dropped =
        [counters.malformed, counters.bad_icrc, counters.unknown_qp, counters.wrong_pkey, counters.wrong_service];
    assert_eq!(dropped, [0; 5], "{}", b.peer.counters());
}
