//! Compares the throughput of bulk data with the capacity of the link, on links in virtual time that lose packets, are
//! slow, or are shared. TCP is simulated by a model, and receivers need no time.

use std::collections::VecDeque;

use crate::common::{Flying, MS, Setup, Side, SplitMix64, inline_write, pair};
use stentor_fabric_roce::endpoint::Counters;

/// Payload of a packet of either flow, in bytes.
const MTU: u16 = 1024;
/// Size of the headers of a TCP packet on the link, in bytes; a packet of this fabric has slightly less on average.
const AROUND: u64 = 66;
/// Number of send requests that are outstanding at once.
const POSTED: u64 = 100;
/// Time before the measurement in which flows find their rates, in nanoseconds.
const SETTLING: u64 = 1000 * MS;
/// Duration of the measurement, in nanoseconds.
const COUNTED: u64 = 1500 * MS;

/// A link with a queue in front of it. Packets are dropped when the queue is full.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Rate, in Mbit/s.
    rate: u64,
    /// Travel time from one end to the other, in nanoseconds.
    delay: u64,
    /// Size of the queue, in bytes.
    queue: u64,
    /// Number of packets that are lost out of 1000, in both directions.
    loss: u64,
}

impl Link {
    /// Returns the time for which `bytes` bytes occupy the link, in nanoseconds.
    fn takes(&self, bytes: u64) -> u64 {
        bytes * 8000 / self.rate
    }

    /// Returns the payload that the link can carry, in Mbit/s.
    fn payload(&self) -> f64 {
        self.rate as f64 * f64::from(MTU) / (f64::from(MTU) + AROUND as f64)
    }
}

/// One direction of a link.
struct Way<P> {
    link: Link,
    random: SplitMix64,
    /// Time at which the link is free again, in nanoseconds.
    free: u64,
    flying: VecDeque<(u64, P)>,
}

impl<P> Way<P> {
    fn new(link: Link, seed: u64) -> Way<P> {
        Way { link, random: SplitMix64(seed), free: 0, flying: VecDeque::new() }
    }

    fn send(&mut self, now: u64, bytes: u64, packet: P) {
        let waiting = self.free.saturating_sub(now);
        let lost = self.random.below(1000) < self.link.loss;
        if lost || waiting > self.link.takes(self.link.queue) {
            return;
        }
        self.free = self.free.max(now) + self.link.takes(bytes);
        self.flying.push_back((self.free + self.link.delay, packet));
    }

    fn next(&self) -> Option<u64> {
        self.flying.front().map(|(at, _)| *at)
    }

    fn arrived(&mut self, now: u64) -> Option<P> {
        if self.next()? > now {
            return None;
        }
        Some(self.flying.pop_front()?.1)
    }
}

/// A TCP connection according to RFC 5681 and RFC 6675. It halves its window once for each window with a loss, and
/// retransmits only lost packets. Its timeout is 200 ms.
struct Reno {
    window: f64,
    next: u64,
    in_flight: VecDeque<u64>,
    /// Number of the next packet when the window was last halved. The loss of an earlier packet does not halve the
    /// window again.
    recovered: u64,
    delivered: u64,
    /// Time of the last acknowledgement or timeout, in nanoseconds.
    heard: u64,
}

impl Reno {
    fn new() -> Reno {
        Reno { window: 10.0, next: 0, in_flight: VecDeque::new(), recovered: 0, delivered: 0, heard: 0 }
    }

    /// Returns the time at which all packets in flight count as lost.
    fn deadline(&self) -> u64 {
        self.heard + 200 * MS
    }

    fn send(&mut self, now: u64, mut packet: impl FnMut(u64)) {
        if now >= self.deadline() {
            self.in_flight.clear();
            (self.window, self.heard) = (2.0, now);
        }
        while (self.in_flight.len() as f64) < self.window {
            self.in_flight.push_back(self.next);
            packet(self.next);
            self.next += 1;
        }
    }

    /// Processes an acknowledgement of packet `number`. Packets arrive in order, so all earlier packets in flight are
    /// lost.
    fn acknowledged(&mut self, now: u64, number: u64) {
        self.heard = now;
        while let Some(oldest) = self.in_flight.front().copied().filter(|oldest| *oldest <= number) {
            self.in_flight.pop_front();
            if oldest == number {
                self.window += 1.0 / self.window;
                self.delivered += 1;
                return;
            }
            if oldest >= self.recovered {
                self.window = (self.window / 2.0).max(2.0);
                self.recovered = self.next;
            }
        }
    }
}

/// A packet of a shared link.
enum Packet {
    Ours(Flying),
    Tcp(u64),
}

/// The results of a run.
struct Rates {
    /// Payload of this fabric, in Mbit/s.
    ours: f64,
    tcp: f64,
    counters: Counters,
}

struct Run {
    a: Side,
    b: Side,
    tcp: Option<Reno>,
    to_b: Way<Packet>,
    to_a: Way<Packet>,
    posted: u64,
    written: u64,
}

impl Run {
    fn new(link: Link, shared: bool, seed: u64) -> Run {
        let setup = Setup { mtu: MTU, window: 256, timeout: 15, ..Setup::default() };
        let (a, b) = pair(&setup);
        let (to_b, to_a) = (Way::new(link, seed), Way::new(link, seed ^ 0xfeed));
        Run { a, b, tcp: shared.then(Reno::new), to_b, to_a, posted: 0, written: 0 }
    }

    /// Processes all events of one instant.
    fn step(&mut self, now: u64) {
        while let Some(packet) = self.to_b.arrived(now) {
            match packet {
                Packet::Ours(packet) => self.b.take(now, &packet),
                Packet::Tcp(number) => self.to_a.send(now, 66, Packet::Tcp(number)),
            }
        }
        while let Some(packet) = self.to_a.arrived(now) {
            match (packet, &mut self.tcp) {
                (Packet::Ours(packet), _) => self.a.take(now, &packet),
                (Packet::Tcp(number), Some(tcp)) => tcp.acknowledged(now, number),
                (Packet::Tcp(_), None) => unreachable!("there is no TCP flow"),
            }
        }
        self.a.endpoint.tick(now);
        self.written += self.a.completions().len() as u64;
        while self.posted - self.written < POSTED {
            let data = [self.posted as u8; 4 * MTU as usize];
            let remote = self.b.remote(0);
            self.a.post(self.posted, inline_write(&data, remote));
            self.posted += 1;
        }
        for (side, way) in [(&mut self.b, &mut self.to_a), (&mut self.a, &mut self.to_b)] {
            for packet in side.packets(now) {
                way.send(now, packet.1.len() as u64 + 42, Packet::Ours(packet));
            }
        }
        if let Some(tcp) = &mut self.tcp {
            tcp.send(now, |number| self.to_b.send(now, u64::from(MTU) + AROUND, Packet::Tcp(number)));
        }
    }

    fn until(&mut self, mut now: u64, end: u64) -> u64 {
        while now < end {
            self.step(now);
            let deadlines = [self.a.endpoint.next_deadline(), self.tcp.as_ref().map(Reno::deadline)];
            let next = [self.to_b.next(), self.to_a.next(), deadlines[0], deadlines[1]].into_iter().flatten().min();
            now = next.expect("a packet is in flight or a timer runs").max(now);
        }
        now
    }
}

fn run(link: Link, shared: bool, seed: u64) -> Rates {
    let mut run = Run::new(link, shared, seed);
    let counts = |run: &Run| [4 * run.written, run.tcp.as_ref().map_or(0, |tcp| tcp.delivered)];
    let since = run.until(0, SETTLING);
    let before = counts(&run);
    let now = run.until(since, SETTLING + COUNTED);
    let after = counts(&run);
    let rate = |n: usize| (after[n] - before[n]) as f64 * 8000.0 * f64::from(MTU) / (now - since) as f64;
    Rates { ours: rate(0), tcp: rate(1), counters: *run.a.endpoint.counters() }
}

/// Three links of 100 Mbit/s and different lengths with queues of 20 ms, and two links of 1 Gbit/s with queues of 2 ms.
const SHORT: Link = Link { rate: 100, delay: 20_000, queue: 250_000, loss: 0 };
const MIDDLE: Link = Link { delay: 500_000, ..SHORT };
const LONG: Link = Link { delay: 4 * MS, ..SHORT };
const FAST: Link = Link { rate: 1000, ..SHORT };
const FAST_MIDDLE: Link = Link { rate: 1000, ..MIDDLE };

/// Returns the throughput as a fraction of the capacity.
fn part(link: Link, rates: &Rates) -> f64 {
    let part = rates.ours / link.payload();
    println!("{link:?}: {:.0} %, {:?}", 100.0 * part, rates.counters);
    part
}

#[test]
fn link_losing_a_packet_in_a_thousand_is_half_used() {
    for link in [SHORT, MIDDLE, LONG, FAST, FAST_MIDDLE] {
        let link = Link { loss: 1, ..link };
        let rates = run(link, false, 7);
        assert!(part(link, &rates) > 0.5);
        assert_eq!(rates.counters.timeouts, 0, "losses are detected without the timeout");
    }
}

#[test]
fn link_losing_a_packet_in_a_hundred_is_half_used() {
    for link in [SHORT, MIDDLE, FAST] {
        let link = Link { loss: 10, ..link };
        let rates = run(link, false, 7);
        assert!(part(link, &rates) > 0.5);
        assert_eq!(rates.counters.timeouts, 0, "losses are detected without the timeout");
    }
}

/// The queue is shorter than the flow's window, so the flow itself causes losses.
#[test]
fn slow_link_does_not_collapse() {
    for queue in [20_000, 250_000] {
        for link in [Link { rate: 10, ..SHORT }, Link { rate: 10, ..MIDDLE }, SHORT, MIDDLE, FAST] {
            let link = Link { queue, ..link };
            assert!(part(link, &run(link, false, 7)) > 0.6);
        }
    }
}

#[test]
fn tcp_and_a_flow_share_a_link() {
    for link in [SHORT, MIDDLE, LONG, FAST, Link { queue: 62_500, ..SHORT }] {
        let rates = run(link, true, 7);
        let apart = rates.ours / rates.tcp;
        println!("{link:?}: {:.0} and TCP {:.0} Mbit/s, {apart:.2}", rates.ours, rates.tcp);
        assert!((1.0 / 3.0..3.0).contains(&apart));
        assert!(rates.ours + rates.tcp > 0.8 * link.payload());
    }
}

/// A flow that loses no packet uses its whole window from the beginning.
#[test]
fn lossless_link_is_full() {
    for link in [Link { queue: 300_000, ..FAST }, Link { queue: 300_000, ..FAST_MIDDLE }] {
        let rates = run(link, false, 7);
        assert!(part(link, &rates) > 0.95);
        assert_eq!(rates.counters.retransmitted, 0);
    }
}
