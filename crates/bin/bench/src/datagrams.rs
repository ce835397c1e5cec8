//! The bounds on a network: datagrams over plain UDP sockets, as long as the packets of RoCEv2, by the same system calls
//! in the same batches. Nothing is acknowledged, checked or sent again.

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

/// What RoCEv2 adds to what a WRITE carries: BTH, RETH and ICRC, bytes.
pub(super) const AROUND: usize = 12 + 16 + 4;
/// A READ's request, bytes: BTH, RETH and ICRC.
pub(super) const REQUEST: usize = 12 + 16 + 4;
/// An acknowledgement, bytes: BTH, AETH and ICRC.
pub(super) const ACKNOWLEDGEMENT: usize = 12 + 4 + 4;
/// A WRITE of one line, bytes.
pub(super) const LENGTH: usize = AROUND + LINE_WORDS * WORD;
/// The most that a packet carries over loopback: the path MTU of the fabric there.
pub(super) const MTU: usize = 4096;
/// Datagrams of one system call; as the fabric's.
pub(super) const BATCH: usize = 32;
/// Datagrams of a stream that are on their way: the smallest receive buffers hold them. Of shorter ones there are more, as
/// many bytes.
pub(super) const OUTSTANDING: u64 = 4 * BATCH as u64;
/// RoCEv2's.
const UDP_PORT: u16 = 4791;
/// The line of the shared area with a stream's credit.
const CREDIT: usize = 0;
/// Benches on RoCEv2 at the same time have addresses of their own, as many as these: behind the demonstrations' and before
/// the tests'.
const NETWORKS: std::ops::Range<u8> = 192..200;

/// The second number of all loopback addresses of a bench, if it is on a network.
pub(super) fn network(fabric: LoopbackFabric) -> Option<u8> {
    (fabric == LoopbackFabric::Roce).then(own_network)
}

/// The second number of all loopback addresses of this bench, as long as its conductor lives.
pub(super) fn own_network() -> u8 {
    static TAKEN: OnceLock<(u8, Option<UdpSocket>)> = OnceLock::new();
    TAKEN.get_or_init(|| take(NETWORKS)).0
}

/// The first network that no other bench has, and what keeps others away. If there is none, the first: then processes say
/// which address is taken.
fn take(networks: std::ops::Range<u8>) -> (u8, Option<UdpSocket>) {
    // No process of a bench has this address.
    let lock = |network: u8| UdpSocket::bind((Ipv4Addr::new(127, network, 31, 1), UDP_PORT)).ok();
    let free = networks.clone().find_map(|network| Some((network, Some(lock(network)?))));
    free.unwrap_or((networks.start, None))
}

/// Packets that carry so many bytes.
pub(super) fn packets_of(bytes: usize) -> usize {
    bytes.div_ceil(MTU).max(1)
}

/// Who sends datagrams to whom, and how.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    /// Of each process.
    pub(super) addresses: Vec<IpAddr>,
    /// The most that a packet carries, bytes.
    pub(super) mtu: usize,
    /// What one may tell another.
    pub(super) steps: usize,
    pub(super) mode: WaitMode,
}

impl Ring {
    /// Makes a ring of so many processes, each with a loopback address of its own.
    pub(super) fn loopback(network: u8, processes: usize, steps: usize, mode: WaitMode) -> Self {
        let addresses = (0..processes).map(|process| address(network, process)).collect();
        Ring { addresses, mtu: MTU, steps, mode }
    }
}

/// A process's sockets, and what came.
#[derive(Debug)]
pub(super) struct Sockets {
    port: Port,
    mtu: usize,
    me: usize,
    steps: usize,
    /// Headers to each process.
    to: Vec<Envelope>,
    /// The newest number, by writer and step.
    seen: Vec<u64>,
    out: Vec<(usize, Vec<u8>)>,
    /// Of `out`.
    used: usize,
    mode: WaitMode,
}

/// Beside the addresses that the cluster uses, which RoCEv2 has for itself.
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

    /// Leaves a datagram to be sent; to oneself nothing is. The number 0 is none: the datagram is a part of a longer message.
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

    /// Leaves a message of so many bytes, in as many datagrams as it has packets; the last one has the number.
    pub(super) fn push_all(&mut self, reader: usize, step: usize, number: u64, bytes: usize) {
        let mut left = bytes;
        while left > self.mtu {
            self.push(reader, step, 0, AROUND + self.mtu);
            left -= self.mtu;
        }
        self.push(reader, step, number, AROUND + left);
    }

    /// The most that a packet carries, bytes.
    pub(super) fn mtu(&self) -> usize {
        self.mtu
    }

    /// Processes, this one among them.
    pub(super) fn processes(&self) -> usize {
        self.to.len()
    }

    /// The newest number that `writer` told of a step.
    #[inline]
    pub(super) fn newest(&self, writer: usize, step: usize) -> u64 {
        self.seen[writer * self.steps + step]
    }

    /// Sends what was left to be sent.
    pub(super) fn send(&mut self) {
        let Sockets { port, to, out, used, .. } = self;
        if *used > 0 {
            port.send_all(&out[..*used].iter().map(|(reader, bytes)| (&to[*reader], &bytes[..])));
            *used = 0;
        }
    }

    /// Sends packets that are made. Returns how many are done, from the first on; there is no room for the rest now.
    pub(super) fn send_packets<'a>(&mut self, packets: impl Iterator<Item = (usize, &'a [u8])> + Clone) -> usize {
        let Sockets { port, to, .. } = self;
        port.send_all(&packets.map(|(reader, bytes)| (&to[reader], bytes)))
    }

    /// Takes in the packets that are there, up to a batch, whatever they are; returns how many came.
    pub(super) fn receive_packets(&mut self, mut take: impl FnMut(&[u8])) -> io::Result<usize> {
        self.port.receive(|arrival| take(arrival.transport))
    }

    /// Takes in what is there, up to a batch of datagrams, each of which may be a run of packets. Returns how many datagrams and
    /// packets came.
    pub(super) fn receive(&mut self) -> io::Result<[usize; 2]> {
        let Sockets { port, seen, .. } = self;
        let mut packets = 0;
        let datagrams = port.receive(|arrival| {
            packets += 1;
            let word = |at: usize| Some(u64::from_le_bytes(arrival.transport.get(at..at + 8)?.try_into().ok()?));
            // A stranger's datagram is none of ours.
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

    /// Process 0 sends datagrams of a length to process 1, which says in shared memory how many it has; returns the time,
    /// ns, there.
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
        // The batch in which the measured ones begin counts for nothing.
        Ok((now() - start) * task.command.iterations / (total - before).max(1))
    }
}

/// The sockets as the way of a chain.
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
        // A process that is not waited for may be messages behind.
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
    fn benches_at_the_same_time_take_networks_of_their_own() {
        let (first, second) = (take(246..248), take(246..248));
        assert_eq!((first.0, second.0), (246, 247));
        let third = take(246..248);
        assert!(third.0 == 246 && third.1.is_none(), "there are no more");
        drop(first);
        assert!(take(246..248).1.is_some());
    }

    #[test]
    fn what_is_told_is_seen_and_a_long_message_only_when_it_is_whole() {
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
        assert!(!other.sees(0, 2, 9), "that went to another process");
        // Somebody else's datagrams change nothing.
        let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for bytes in [&[][..], &[0xff; 16], &[1; 7]] {
            stranger.send_to(bytes, (address(network, 1), 4791)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
        other.look().unwrap();
        assert!(other.sees(0, 3, 8) && other.sees(0, BODY, 7));
    }
}
