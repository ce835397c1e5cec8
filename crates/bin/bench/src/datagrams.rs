//! The bounds on a network: datagrams over plain UDP sockets. They are as long as the packets of RoCEv2, and use the
//! same system calls in the same batches. Nothing is acknowledged, checked or retransmitted.

use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use stentor_fabric::memory::{LINE_WORDS, Ordering, WORD};
use stentor_fabric::{Backoff, Idle, WaitMode};
use stentor_fabric_roce::driver::{Envelope, Mode, Port};
use stentor_support::Failure;
use stentor_support::args::LoopbackFabric;

use super::clock::now;
use super::pause::LONGEST;
use super::way::Way;
use super::worker_spec::Task;

/// Overhead of RoCEv2 around the payload of a WRITE, in bytes: BTH, RETH and ICRC.
pub(super) const AROUND: usize = 12 + 16 + 4;
/// Length of a READ request, in bytes: BTH, RETH and ICRC.
pub(super) const REQUEST: usize = 12 + 16 + 4;
/// Length of an acknowledgement, in bytes: BTH, AETH and ICRC.
pub(super) const ACKNOWLEDGEMENT: usize = 12 + 4 + 4;
/// Length of a WRITE of one cache line, in bytes.
pub(super) const LENGTH: usize = AROUND + LINE_WORDS * WORD;
/// Largest payload of a packet over loopback, in bytes: the fabric's path MTU there.
pub(super) const MTU: usize = 4096;
/// Number of datagrams per system call, as in the fabric.
pub(super) const BATCH: usize = 32;
/// Number of datagrams of a stream in flight, which the smallest receive buffers can hold. On links with a smaller MTU,
/// a stream of records has more datagrams in flight, but not more bytes.
pub(super) const OUTSTANDING: u64 = 4 * BATCH as u64;
/// UDP port of RoCEv2.
const UDP_PORT: u16 = 4791;
/// Line of the shared area that holds the credit of a stream.
const CREDIT: usize = 0;
/// Second numbers of loopback addresses for benches on RoCEv2. Benches that run at the same time use one each. These
/// numbers follow those of the demonstrations.
const NETWORKS: std::ops::Range<u8> = 192..200;

/// Returns the second number of the bench's loopback addresses, if it runs on a network.
pub(super) fn network(fabric: LoopbackFabric) -> Option<u8> {
    (fabric == LoopbackFabric::Roce).then(own_network)
}

/// Returns the second number of this bench's loopback addresses. The number is reserved until the calling process ends.
pub(super) fn own_network() -> u8 {
    static TAKEN: OnceLock<(u8, Option<UdpSocket>)> = OnceLock::new();
    TAKEN.get_or_init(|| take(NETWORKS)).0
}

/// Returns the first network that no other bench uses, and the socket that reserves it. If all are in use, returns the
/// first one, and the processes report which address is taken.
fn take(networks: std::ops::Range<u8>) -> (u8, Option<UdpSocket>) {
    // No process of a bench uses this address.
    let lock = |network: u8| UdpSocket::bind((Ipv4Addr::new(127, network, 31, 1), UDP_PORT)).ok();
    let free = networks.clone().find_map(|network| Some((network, Some(lock(network)?))));
    free.unwrap_or((networks.start, None))
}

/// Returns the number of packets that carry `bytes` bytes.
pub(super) fn packets_of(bytes: usize) -> usize {
    bytes.div_ceil(MTU).max(1)
}

/// The parameters of processes that exchange datagrams.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    /// Address of each process.
    pub(super) addresses: Vec<IpAddr>,
    /// Largest payload of a packet, in bytes.
    pub(super) mtu: usize,
    /// Number of steps that one process can send to another.
    pub(super) steps: usize,
    pub(super) mode: WaitMode,
}

impl Ring {
    /// Creates a ring of processes, each with its own loopback address.
    pub(super) fn loopback(network: u8, processes: usize, steps: usize, mode: WaitMode) -> Self {
        let addresses = (0..processes).map(|process| address(network, process)).collect();
        Ring { addresses, mtu: MTU, steps, mode }
    }
}

/// The sockets of a process, and the numbers that it has received.
#[derive(Debug)]
pub(super) struct Sockets {
    port: Port,
    mtu: usize,
    me: usize,
    steps: usize,
    /// Headers of the packets to each process.
    to: Vec<Envelope>,
    /// Newest number received, by writer and step.
    seen: Vec<u64>,
    out: Vec<(usize, Vec<u8>)>,
    /// Number of entries of `out` that wait to be sent.
    used: usize,
    mode: WaitMode,
}

/// Returns the address of a process. It differs from the address that the process has in the cluster, where RoCEv2 owns
/// the port.
fn address(network: u8, process: usize) -> IpAddr {
    Ipv4Addr::new(127, network, 32 + (process / 128) as u8, 1 + (process % 128) as u8).into()
}

impl Sockets {
    pub(super) fn open(ring: Ring, me: usize) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::run(error, "bench", "run `stentor doctor`");
        let Ring { addresses, mtu, steps, mode } = ring;
        let mut port = Port::open(addresses[me], Mode::Plain, me as u16).map_err(|error| failed(&error))?;
        port.enable_runs();
        addresses.iter().for_each(|address| port.run_to(*address, true));
        let to = addresses.iter().map(|address| port.envelope(*address));
        let to = to.collect::<Result<Vec<_>, _>>().map_err(|error| failed(&error))?;
        let seen = vec![0; steps * to.len()];
        Ok(Sockets { port, mtu, me, steps, to, seen, out: Vec::new(), used: 0, mode })
    }

    /// Queues a datagram with a step's number. A step from this process to itself is recorded at once, without a
    /// datagram. The receiver ignores the number 0, which marks the first parts of a longer message.
    pub(super) fn push(&mut self, reader: usize, step: usize, number: u64, length: usize) {
        if reader == self.me {
            self.seen[self.me * self.steps + step] = number;
            return;
        }
        if self.used == self.out.len() {
            self.out.push((0, Vec::with_capacity(AROUND + self.mtu)));
        }
        let (to, bytes) = &mut self.out[self.used];
        *to = reader;
        bytes.resize(length, 0);
        bytes[..8].copy_from_slice(&((self.me * self.steps + step) as u64).to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        self.used += 1;
    }

    /// Queues a message of `bytes` bytes, in as many datagrams as it would have packets. The last one carries the
    /// number.
    pub(super) fn push_all(&mut self, reader: usize, step: usize, number: u64, bytes: usize) {
        let mut left = bytes;
        while left > self.mtu {
            self.push(reader, step, 0, AROUND + self.mtu);
            left -= self.mtu;
        }
        self.push(reader, step, number, AROUND + left);
    }

    /// Returns the largest payload of a packet, in bytes.
    pub(super) fn mtu(&self) -> usize {
        self.mtu
    }

    /// Returns the number of processes, including this one.
    pub(super) fn processes(&self) -> usize {
        self.to.len()
    }

    /// Returns the newest number of a step that `writer` has sent.
    #[inline]
    pub(super) fn newest(&self, writer: usize, step: usize) -> u64 {
        self.seen[writer * self.steps + step]
    }

    /// Sends the queued datagrams.
    pub(super) fn send(&mut self) {
        let Sockets { port, to, out, used, .. } = self;
        if *used > 0 {
            port.send_all(&out[..*used].iter().map(|(reader, bytes)| (&to[*reader], &bytes[..])));
            *used = 0;
        }
    }

    /// Sends complete packets in order. Returns the number of packets sent before the socket had no more room.
    pub(super) fn send_packets<'a>(&mut self, packets: impl Iterator<Item = (usize, &'a [u8])> + Clone) -> usize {
        let Sockets { port, to, .. } = self;
        port.send_all(&packets.map(|(reader, bytes)| (&to[reader], bytes)))
    }

    /// Receives up to a batch of datagrams. Gives their packets to `take` without interpreting them. Returns the number
    /// of datagrams.
    pub(super) fn receive_packets(&mut self, mut take: impl FnMut(&[u8])) -> io::Result<usize> {
        self.port.receive(|arrival| take(arrival.transport))
    }

    /// Receives up to a batch of datagrams, each of which may be a run of packets. Returns the numbers of datagrams and
    /// of packets.
    pub(super) fn receive(&mut self) -> io::Result<[usize; 2]> {
        let Sockets { port, seen, .. } = self;
        let mut packets = 0;
        let datagrams = port.receive(|arrival| {
            packets += 1;
            let word = |at: usize| Some(u64::from_le_bytes(arrival.transport.get(at..at + 8)?.try_into().ok()?));
            // A datagram of a stranger may be too short, or name no step.
            let (Some(place), Some(number)) = (word(0), word(8)) else { return };
            if let Some(seen) = usize::try_from(place).ok().and_then(|place| seen.get_mut(place))
                && number != 0
            {
                *seen = number;
            }
        })?;
        Ok([datagrams, packets])
    }

    pub(super) fn sleep(&self) -> io::Result<()> {
        let longest = Timespec { tv_sec: 0, tv_nsec: LONGEST.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(self.port.descriptor(), PollFlags::IN)], Some(&longest)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Process 0 sends datagrams of a length to process 1, which returns its credit in shared memory. Returns the time
    /// at process 1, in nanoseconds.
    pub(super) fn stream(&mut self, task: &Task<'_>, length: usize) -> io::Result<u64> {
        let (base, total, warmup) = (task.base(), task.total(), task.command.warmup);
        let credit = &task.area.line(CREDIT)[0];
        let mut done = 0;
        if self.me == 0 {
            while done < total {
                let freed = credit.load(Ordering::Acquire).saturating_sub(base);
                let count = (BATCH as u64).min(total - done);
                if done + count <= freed + OUTSTANDING {
                    (0..count).for_each(|n| self.push(1, 0, base + done + n + 1, length));
                    self.send();
                    done += count;
                }
            }
            return Ok(0);
        }
        let (mut start, mut before) = (now(), 0);
        while done < total {
            let count = self.receive()?[1] as u64;
            if done < warmup && done + count >= warmup {
                (start, before) = (now(), done + count);
            }
            done += count;
            if count > 0 {
                credit.store(base + done, Ordering::Release);
            }
        }
        // The time begins after the batch that ends the warm-up, so measured datagrams in that batch do not count.
        Ok((now() - start) * task.command.iterations / (total - before).max(1))
    }
}

/// Datagrams as the [`Way`] of a chain.
pub(super) struct Datagrams<'a> {
    pub(super) sockets: &'a mut Sockets,
    backoff: Backoff,
}

impl<'a> Datagrams<'a> {
    pub(super) fn new(sockets: &'a mut Sockets) -> Self {
        let backoff = Backoff::new(sockets.mode);
        Datagrams { sockets, backoff }
    }
}

impl Way for Datagrams<'_> {
    fn look(&mut self) -> io::Result<()> {
        while self.sockets.receive()?[0] == BATCH {}
        Ok(())
    }

    fn body(&mut self, reader: usize, step: usize, bytes: usize, number: u64) {
        self.sockets.push_all(reader, step, number, bytes.max(LINE_WORDS * WORD));
    }

    fn tell(&mut self, reader: usize, step: usize, number: u64) {
        self.sockets.push(reader, step, number, LENGTH);
    }

    fn sees(&self, writer: usize, step: usize, number: u64) -> bool {
        // The newest number may be larger: this process may lag by several messages if no other process waits for its
        // steps.
        self.sockets.newest(writer, step) >= number
    }

    fn flush(&mut self) {
        self.sockets.send();
    }

    fn pause(&mut self, worked: bool) -> io::Result<()> {
        match self.backoff.after(worked) {
            Idle::Poll | Idle::Arm => Ok(()),
            Idle::Sleep => self.sockets.sleep(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const BODY: usize = 0;

    #[test]
    fn concurrent_benches_use_different_networks() {
        let (first, second) = (take(246..248), take(246..248));
        assert_eq!((first.0, second.0), (246, 247));
        let third = take(246..248);
        assert!(third.0 == 246 && third.1.is_none(), "all networks are in use");
        drop(first);
        assert!(take(246..248).1.is_some());
    }

    #[test]
    fn steps_are_seen_and_a_long_message_only_when_complete() {
        let network = 249;
        let ring = Ring::loopback(network, 2, 4, WaitMode::BLOCK);
        let (mut a, mut b) = (Sockets::open(ring.clone(), 0).unwrap(), Sockets::open(ring, 1).unwrap());
        let (mut one, mut other) = (Datagrams::new(&mut a), Datagrams::new(&mut b));
        one.body(1, BODY, 5000, 7);
        assert_eq!((one.sockets.used, packets_of(5000)), (2, 2), "packets of the path MTU");
        one.tell(1, 3, 8);
        one.tell(0, 2, 9);
        one.flush();
        let since = Instant::now();
        while !(other.sees(0, 3, 8) && other.sees(0, BODY, 7)) {
            assert!(since.elapsed() < Duration::from_secs(10));
            other.sockets.sleep().unwrap();
            other.look().unwrap();
        }
        assert!(!other.sees(0, 2, 9), "the datagram went to another process");
        // Datagrams of a stranger change nothing.
        let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for bytes in [&[][..], &[0xff; 16], &[1; 7]] {
            stranger.send_to(bytes, (address(network, 1), 4791)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
        other.look().unwrap();
        assert!(other.sees(0, 3, 8) && other.sees(0, BODY, 7));
    }
}
