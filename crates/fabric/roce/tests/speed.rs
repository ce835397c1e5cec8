//! Compares throughput and latency with plain UDP sockets in the same run. Ignored by default, because it needs two
//! cores without other load and a release build:
//! `cargo test --release -p stentor-fabric-roce --test speed -- --ignored --nocapture --test-threads 1`.
//!
//! All traffic uses the loopback device, all sides poll, and results are medians of interleaved rounds.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stentor_fabric::{Access, RegionId, Span};
use stentor_fabric_roce::driver::{Mode, Port};
use stentor_fabric_roce::endpoint::{Data, Remote, Request, Work};
use stentor_fabric_roce::peer::{DOMAIN, Peer, PeerConfig};
use stentor_testutil::median;
use stentor_wire::{Bth, Envelope, Headers, Message, Psn, Repr, Reth};

const ROUNDS: usize = 7;
/// Number of trials. One successful trial is enough, because a shared machine is sometimes slow.
const TRIALS: usize = 3;
const TURNS: u64 = 20_000;

/// Returns a fixed address. No other test uses it meanwhile, because measurements on two cores run alone.
fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 211, 7, last)
}

struct Half {
    peer: Peer,
    shared: RegionId,
    key: u32,
}

/// Returns two connected peers with memory for each other.
fn halves(mtu: u16, window: u32, bytes: usize, runs: bool) -> (Half, Half) {
    let make = |last| {
        let mut config = PeerConfig::new(address(last).into());
        (config.mtu, config.window, config.mode) = (mtu, window, Some(Mode::Plain));
        config.runs = runs;
        let mut peer = Peer::open(config, 256).expect("the peer opens its sockets");
        let shared = peer.endpoint.memory_mut().register(bytes / 8, 0);
        let key = peer.endpoint.memory_mut().grant(shared, DOMAIN, Access::Write, 1).expect("a key");
        Half { peer, shared, key }
    };
    let (mut a, mut b) = (make(1), make(2));
    let (to_a, to_b) = (a.peer.destination(), b.peer.destination());
    a.peer.connect(&to_b).expect("the queue pair connects");
    b.peer.connect(&to_a).expect("the queue pair connects");
    (a, b)
}

/// Repeats a trial, at most [`TRIALS`] times, until it returns `true`: it has reached its bound.
fn within(what: &str, mut trial: impl FnMut() -> bool) {
    assert!((0..TRIALS).any(|_| trial()), "{what}: below the bar in each of {TRIALS} trials");
}

/// Exchanges WRITEs of 8 bytes with the other side, `turns` times. Returns the round-trip time in µs.
fn play(half: &mut Half, key: u32, begins: bool, turns: u64) -> f64 {
    let since = Instant::now();
    for turn in 1..=turns {
        if begins {
            write(half, key, turn);
        }
        loop {
            half.peer.drive().expect("the peer can be driven");
            if half.peer.endpoint.memory().words(half.shared)[0].load(Ordering::Acquire) == turn {
                break;
            }
        }
        if !begins {
            write(half, key, turn);
        }
    }
    since.elapsed().as_secs_f64() * 1e6 / turns as f64
}

fn write(half: &mut Half, key: u32, turn: u64) {
    let data = turn.to_ne_bytes();
    let request = Request::Write { data: Data::Inline(&data), remote: Remote { va: 0, rkey: key }, imm: None };
    let signalled = turn.is_multiple_of(32);
    half.peer
        .endpoint
        .post_send(half.peer.qp, &Work { id: turn, request, signalled, solicited: false })
        .expect("the request is posted");
    half.peer.pump.send(&mut half.peer.endpoint);
    while half.peer.endpoint.poll().is_some() {}
}

fn round_trip(runs: bool) -> f64 {
    let (mut a, mut b) = halves(1024, 32, 64, runs);
    let (key_a, key_b) = (a.key, b.key);
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            play(&mut b, key_a, false, TURNS);
            b.peer.linger(Duration::from_millis(20)).expect("the peer can be driven");
        });
        let time = play(&mut a, key_b, true, TURNS);
        other.join().expect("the other side");
        time
    })
}

/// Measures the round trip over plain sockets, with packets as long as those of an 8-byte WRITE.
fn plain_round_trip() -> f64 {
    const BYTES: usize = 12 + 16 + 8 + 4;
    let socket = |last| {
        let socket = UdpSocket::bind((address(last), 4791)).expect("a socket");
        socket.set_nonblocking(true).expect("the socket becomes non-blocking");
        socket
    };
    let (a, b) = (socket(1), socket(2));
    let take = |socket: &UdpSocket| {
        let mut buffer = [0; 2048];
        while socket.recv_from(&mut buffer).is_err() {}
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..TURNS {
                take(&b);
                b.send_to(&[0; BYTES], (address(1), 4791)).expect("the packet is sent");
            }
        });
        let since = Instant::now();
        for _ in 0..TURNS {
            a.send_to(&[0; BYTES], (address(2), 4791)).expect("the packet is sent");
            take(&a);
        }
        since.elapsed().as_secs_f64() * 1e6 / TURNS as f64
    })
}

#[test]
#[ignore = "measures: see the top of the file"]
fn round_trip_of_writes_is_close_to_plain_udp() {
    within("round trip", round_trips);
}

fn round_trips() -> bool {
    let mut figures = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        figures[0].push(plain_round_trip());
        figures[1].push(round_trip(false));
        figures[2].push(round_trip(true));
    }
    let [plain, ours, with_runs] = figures.map(median);
    for (how, ours) in [("", ours), (" (sockets that take runs)", with_runs)] {
        let ratio = ours / plain;
        println!(
            "8 B WRITE answered by a WRITE{how}: {ours:.2} us; plain UDP: {plain:.2} us; ratio {ratio:.2} (bar 1.5)"
        );
    }
    ours.max(with_runs) <= 1.5 * plain
}

const STREAM: Duration = Duration::from_millis(800);
const MESSAGE: usize = 64 << 10;

/// Measures WRITEs of 64 KiB in packets of 4096 bytes, sent singly or in runs, in bytes per second.
fn bandwidth(runs: bool) -> f64 {
    bandwidth_beside(None, runs).0
}

/// A host without a connection that sends unsolicited packets at the rate of the connection.
struct Stranger {
    port: Port,
    envelope: Envelope,
    packets: Vec<Vec<u8>>,
}

impl Stranger {
    /// Returns a stranger with packets for a queue pair that does not exist at `to`.
    fn new(to: Ipv4Addr) -> Stranger {
        let port = Port::open(address(3).into(), Mode::Plain, 3).expect("the port opens its socket");
        let envelope = port.envelope(to.into()).expect("both addresses have one family");
        let headers = Headers::Rc(Message::WriteOnly(Reth { va: 0, rkey: 0, bytes: 64 }));
        let repr = Repr { bth: Bth::new(0x00ba_dbad, Psn::new(0)), headers, payload_bytes: 64 };
        let mut packet = vec![0_u8; repr.packet_bytes()];
        repr.emit(&mut packet).expect("the buffer has room");
        envelope.seal(&mut packet);
        Stranger { port, envelope, packets: vec![packet; MESSAGE / 4096] }
    }

    fn send(&mut self) {
        self.port.send_all(&self.packets.iter().map(|packet| (&self.envelope, &packet[..])));
    }
}

/// Measures the bandwidth while the sender's thread also sends a stranger's packet for each of its own. Also returns
/// the number of stranger's packets that arrived.
fn bandwidth_beside(mut stranger: Option<&mut Stranger>, runs: bool) -> (f64, u64) {
    let (mut a, mut b) = halves(4096, 48, 1 << 20, runs);
    let source = a.peer.endpoint.memory_mut().register(MESSAGE / 8, 0);
    let (stop, key) = (AtomicBool::new(false), b.key);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                b.peer.drive().expect("the peer can be driven");
            }
            b.peer.endpoint.counters().unknown_qp
        });
        let (since, mut posted, mut done) = (Instant::now(), 0_u64, 0_u64);
        while since.elapsed() < STREAM {
            while posted - done < 8 {
                let remote = Remote { va: posted % 16 * MESSAGE as u64, rkey: key };
                let data = Data::Region(Span { region: source, offset: 0, bytes: MESSAGE as u32 });
                let work = Work::signalled(posted, Request::Write { data, remote, imm: None });
                a.peer.endpoint.post_send(a.peer.qp, &work).expect("the request is posted");
                posted += 1;
                if let Some(stranger) = &mut stranger {
                    stranger.send();
                }
            }
            a.peer.drive().expect("the peer can be driven");
            while let Some(completion) = a.peer.endpoint.poll() {
                assert_eq!(completion.status, stentor_fabric::Status::Success);
                done += 1;
            }
        }
        let rate = done as f64 * MESSAGE as f64 / since.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        println!("  sender: {}", a.peer.counters());
        (rate, receiver.join().expect("the receiver"))
    })
}

/// Measures the payload that arrives over plain sockets, in bytes per second. Packets are as long as in [`bandwidth`],
/// and are sent in batches of the same size. Both sides only compute a CRC over the payload.
fn plain_bandwidth(runs: bool) -> f64 {
    let mut from = Port::open(address(1).into(), Mode::Plain, 1).expect("the port opens its socket");
    let mut to = Port::open(address(2).into(), Mode::Plain, 2).expect("the port opens its socket");
    if runs {
        from.enable_runs();
        to.enable_runs();
        from.run_to(address(2).into(), to.takes_runs());
    }
    let envelope: Envelope = from.envelope(address(2).into()).expect("both addresses have one family");
    let reth = Reth { va: 0, rkey: 0, bytes: 4096 };
    let headers = Headers::Rc(Message::WriteOnly(reth));
    let repr = Repr { bth: Bth::new(2, Psn::new(0)), headers, payload_bytes: 4096 };
    let mut packets = vec![vec![0_u8; repr.packet_bytes()]; 32];
    let (stop, arrived) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let taken = to.receive(|arrival| {
                    let payload = &arrival.transport[28..28 + 4096];
                    assert_ne!(crc32fast::hash(payload), 1);
                    arrived.fetch_add(4096, Ordering::Relaxed);
                });
                taken.expect("the packets are received");
            }
        });
        let since = Instant::now();
        while since.elapsed() < STREAM {
            for packet in &mut packets {
                let crc = crc32fast::hash(&packet[28..28 + 4096]);
                packet[4124..4128].copy_from_slice(&crc.to_le_bytes());
            }
            from.send_all(&packets.iter().map(|packet| (&envelope, &packet[..])));
        }
        let rate = arrived.load(Ordering::Relaxed) as f64 / since.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        rate
    })
}

#[test]
#[ignore = "measures: see the top of the file"]
fn bandwidth_is_close_to_plain_udp() {
    within("bandwidth", bandwidths);
}

fn bandwidths() -> bool {
    let mut figures = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        for (n, runs) in [false, true].into_iter().enumerate() {
            figures[2 * n].push(plain_bandwidth(runs) / 1e6);
            figures[2 * n + 1].push(bandwidth(runs) / 1e6);
        }
    }
    let [plain, ours, plain_runs, our_runs] = figures.map(median);
    for (how, plain, ours) in [("one by one", plain, ours), ("in runs", plain_runs, our_runs)] {
        let part = 100.0 * ours / plain;
        println!("4096 B packets {how}: {ours:.0} MB/s; plain UDP with a CRC: {plain:.0} MB/s; {part:.0} % (bar 60 %)");
    }
    ours >= 0.6 * plain && our_runs >= 0.6 * plain_runs
}

/// Measures the connection's rate twice, each time with a stranger that sends as many packets as the connection. The
/// stranger sends first to the connection's port, and then to another port, which loads only the kernel. The cost of
/// sending these packets is therefore in both rates, and the cost of receiving them only in the first.
#[test]
#[ignore = "measures: see the top of the file"]
fn connection_keeps_its_rate_under_an_equal_flood() {
    for runs in [false, true] {
        within("beside a flood", || beside_a_flood(runs));
    }
}

fn beside_a_flood(runs: bool) -> bool {
    let elsewhere = UdpSocket::bind((address(4), 4791)).expect("a socket");
    let (mut at_us, mut at_nobody) = (Stranger::new(address(2)), Vec::new());
    let mut beside = Vec::new();
    for _ in 0..ROUNDS {
        let (rate, came) = bandwidth_beside(Some(&mut at_us), runs);
        beside.push(rate / 1e6);
        // The socket buffer may overflow, but most of the stranger's packets arrive.
        assert!(came as f64 * 4096.0 > 0.5 * rate * STREAM.as_secs_f64(), "{came} of the stranger's packets came");
        drop(at_us);
        let mut aside = Stranger::new(address(4));
        let (rate, came) = bandwidth_beside(Some(&mut aside), runs);
        at_nobody.push(rate / 1e6);
        assert_eq!(came, 0);
        drop(aside);
        at_us = Stranger::new(address(2));
    }
    drop(elsewhere);
    let (ours, alone) = (median(beside), median(at_nobody));
    println!("packets {}", if runs { "in runs" } else { "one by one" });
    println!("under a flood: {ours:.0} MB/s; beside it: {alone:.0} MB/s; {:.0} % (bar 80 %)", 100.0 * ours / alone);
    ours >= 0.8 * alone
}
