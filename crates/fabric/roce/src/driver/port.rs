//! The sockets of one address: everything that comes to UDP port 4791, and one source port for everything that goes.

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt;
use stentor_wire::icrc::RunIds;
use stentor_wire::{Envelope, IpPacket, IpRepr, UDP_PORT};

use super::annex::{self, Annex, Junction, Main};
use super::sender::Sender;
use super::settings::{Budget, Mode, PortError};
use super::sys::{self, Inbox};
use crate::endpoint::{Arrival, Check, Outbox};

/// Source ports say nothing but which path to take; by convention they are the dynamic ports (Linux
/// `rdma_flow_label_to_udp_sport`).
const FIRST_SOURCE_PORT: u16 = 0xc000;
/// What the kernel is asked to keep of what comes, and of what goes, bytes. It gives as much as `net.core.rmem_max` and
/// `wmem_max` allow.
const BUFFER: i32 = 8 << 20;

/// The sockets.
#[derive(Debug)]
pub struct Port {
    address: IpAddr,
    source_port: u16,
    mode: Mode,
    /// `None`: another endpoint of the process receives.
    listening: Option<OwnedFd>,
    annex: Option<Annex>,
    /// Where annexes get what comes here for them.
    junction: Option<Junction>,
    sender: Sender,
    raw: Option<OwnedFd>,
    inbox: Inbox,
    takes_runs: bool,
    /// Who sends identifications of its own.
    identified: Vec<IpAddr>,
}

/// What the kernel did with packets, beside what an endpoint counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// Packets that it did not take: lost, as on any network.
    pub unsent: u64,
    /// Packets that it took as one with others.
    pub in_runs: u64,
    /// Runs that it did not take. Their packets went one by one.
    pub refused_runs: u64,
    /// Times that it had no room: what was to go then went later, or is unsent.
    pub full: u64,
    /// Packets that came and that it had no room for. It tells with the next packet that it has room for, so that what was
    /// dropped behind the last one is not in here; and counts up to 2^32 between two of those.
    pub overflowed: u64,
}

impl PortCounters {
    /// Names and values.
    #[must_use]
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        let PortCounters { unsent, in_runs, refused_runs, full, overflowed } = *self;
        vec![
            ("unsent", unsent),
            ("in_runs", in_runs),
            ("refused_runs", refused_runs),
            ("full", full),
            ("overflowed", overflowed),
        ]
    }
}

impl Port {
    /// Opens them. `entropy` chooses the source port.
    ///
    /// # Errors
    /// See [`PortError`].
    pub fn open(address: IpAddr, mode: Mode, entropy: u16) -> Result<Port, PortError> {
        let failed = |what| move |source| PortError::System { what, address, source };
        let listening = listening(address)?;
        let raw = match (mode, address) {
            (Mode::Raw, IpAddr::V4(_)) => Some(raw(address)?),
            (Mode::Raw, IpAddr::V6(_)) => {
                let source = io::Error::other("IPv6 has no identification to see: use a plain socket");
                return Err(failed("open a raw socket")(source));
            }
            _ => None,
        };
        if raw.is_some() {
            // This socket only keeps the kernel from answering "port unreachable"; nobody reads it.
            sys::set(&listening, libc::SOL_SOCKET, libc::SO_RCVBUF, 0).map_err(failed("shrink a buffer"))?;
        } else {
            enlarge(&listening, RECEIVING);
        }
        // Not a reason to stop: then nobody counts what there was no room for.
        let _ = sys::set(raw.as_ref().unwrap_or(&listening), libc::SOL_SOCKET, sys::SO_RXQ_OVFL, 1);
        let (sending, source_port) = sending(address, entropy)?;
        let (inbox, sender) = (Inbox::new(false), Sender::new(sending));
        Ok(Port {
            address,
            source_port,
            mode,
            listening: Some(listening),
            annex: None,
            junction: None,
            sender,
            raw,
            inbox,
            takes_runs: false,
            identified: Vec::new(),
        })
    }

    /// Opens what sends from the address of another endpoint of this process, which receives for both. `entropy` chooses the source port.
    ///
    /// # Errors
    /// See [`PortError`].
    pub fn beside(junction: &Junction, entropy: u16) -> Result<Port, PortError> {
        let (annex, main) = junction.annex()?;
        let Main { address, mode, takes_runs, .. } = main;
        let (sending, source_port) = sending(address, entropy)?;
        Ok(Port {
            address,
            source_port,
            mode,
            listening: None,
            annex: Some(annex),
            junction: None,
            sender: Sender::new(sending),
            raw: None,
            inbox: Inbox::new(false),
            takes_runs,
            identified: Vec::new(),
        })
    }

    /// Receives for other endpoints of this process from now on, too.
    pub fn share(&mut self, junction: &Junction) {
        let Port { address, mode, takes_runs, .. } = *self;
        junction.open(Main { address, mode, takes_runs, room: self.room() });
        self.junction = Some(junction.clone());
    }

    /// Whether another endpoint of this process receives for this one.
    pub(crate) fn is_beside(&self) -> bool {
        self.annex.is_some()
    }

    /// The numbers that queue pairs of this endpoint may have.
    pub(crate) fn numbers(&self) -> Range<u32> {
        // 0 and 1 are the management queue pairs.
        self.annex.as_ref().map_or(2..annex::FIRST, Annex::numbers)
    }

    /// The socket that receives.
    fn socket(&self) -> Option<&OwnedFd> {
        self.raw.as_ref().or(self.listening.as_ref())
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The bytes of packets that wait here to be taken in, at most, as the kernel counts them.
    pub(crate) fn room(&self) -> u32 {
        match (self.socket(), &self.annex) {
            (Some(socket), _) => {
                sockopt::socket_recv_buffer_size(socket).map_or(0, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
            }
            (None, annex) => annex.as_ref().map_or(0, Annex::room),
        }
    }

    /// The headers around everything that goes to a peer.
    ///
    /// # Errors
    /// If the peer's address is of the other family.
    pub fn envelope(&self, peer: IpAddr) -> Result<Envelope, stentor_wire::Error> {
        Envelope::plain(self.address, self.source_port, peer)
    }

    /// What the kernel did so far.
    #[must_use]
    pub fn counters(&self) -> PortCounters {
        let sent = self.sender.sent();
        PortCounters {
            unsent: sent.lost,
            in_runs: sent.in_runs,
            refused_runs: sent.refused_runs,
            full: sent.full,
            overflowed: self.inbox.overflowed() + self.annex.as_ref().map_or(0, Annex::lost),
        }
    }

    /// The next thing about sending that a person should know, said once of each place. At most 64 wait.
    pub fn next_note(&mut self) -> Option<String> {
        self.sender.next_note()
    }

    /// Whether the kernel had no room for what was last to be sent.
    pub(crate) fn is_full(&self) -> bool {
        self.sender.is_full()
    }

    /// Whether something was taken from the kernel that nobody has looked at yet: no descriptor tells of that.
    #[must_use]
    pub fn holds_more(&self) -> bool {
        self.inbox.holds_more() || self.annex.as_ref().is_some_and(Annex::holds_more)
    }

    /// What becomes readable when something comes.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match (self.socket(), &self.annex) {
            (Some(socket), _) => socket.as_fd(),
            (None, Some(annex)) => annex.descriptor(),
            (None, None) => unreachable!("a port has a socket, or is beside one that has"),
        }
    }

    /// Lets packets go in runs that the kernel takes as one (UDP_SEGMENT), to peers that [`run_to`](Port::run_to) names, and
    /// with [`Mode::Plain`] come so, too (UDP_GRO). Nothing changes if the system has none of that.
    ///
    /// The kernel numbers the packets of a run from 0, which their ICRC shows, and cuts only what has UDP checksums: runs, and
    /// what goes with them, leave by a socket of their own, from the same source port. What comes as one comes to raw sockets
    /// so, too, which cannot take it apart.
    pub fn enable_runs(&mut self) {
        if let Ok(cutting) = cutting(self.address, self.source_port) {
            self.sender.cut_by(cutting);
        }
        let takes = self.mode == Mode::Plain && self.sender.cuts();
        if let Some(listening) = self.listening.as_ref().filter(|_| takes)
            && sys::set(listening, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok()
        {
            (self.inbox, self.takes_runs) = (Inbox::new(true), true);
        }
    }

    /// Whether packets may come in runs.
    #[must_use]
    pub fn takes_runs(&self) -> bool {
        self.takes_runs
    }

    /// Whether a peer takes packets with the identifications of a run.
    pub fn run_to(&mut self, peer: IpAddr, takes: bool) {
        self.sender.run_to(peer, takes);
    }

    /// Whether a peer's packets have IPv4 identifications of their own, which a plain socket does not show.
    pub fn hear_identified(&mut self, peer: IpAddr, identified: bool) {
        self.identified.retain(|known| *known != peer);
        if identified {
            self.identified.push(peer);
        }
    }

    /// Sends what is in a batch from a place on. Returns how many packets are done; the kernel has no room for the rest now.
    /// What is sent again goes by itself, in case that somebody on the way has other ideas of identifications.
    pub(crate) fn send(&mut self, out: &Outbox, from: usize) -> usize {
        self.sender.send(out.told().skip(from))
    }

    /// Sends packets. Returns how many are done, from the first on; the kernel has no room for the rest now.
    pub fn send_all<'a>(&mut self, packets: &(impl Iterator<Item = (&'a Envelope, &'a [u8])> + Clone)) -> usize {
        self.sender.send(packets.clone().map(|(envelope, bytes)| (envelope, bytes, false)))
    }

    /// Takes a batch in; returns how many datagrams came.
    ///
    /// # Errors
    /// What the system says.
    pub fn receive(&mut self, take: impl FnMut(&Arrival<'_>)) -> io::Result<usize> {
        self.receive_within(&mut Budget { packets: usize::MAX, bytes: usize::MAX }, take)
    }

    /// The same, until a budget is spent; the datagram that spends it is taken whole. What is left of the batch comes first
    /// the next time.
    pub(crate) fn receive_within(
        &mut self,
        budget: &mut Budget,
        mut take: impl FnMut(&Arrival<'_>),
    ) -> io::Result<usize> {
        if let Some(annex) = &mut self.annex {
            return Ok(annex.receive_within(budget, take));
        }
        if !self.inbox.holds_more()
            && let Some(socket) = self.raw.as_ref().or(self.listening.as_ref())
        {
            self.inbox.fill(socket)?;
        }
        let junction = self.junction.take();
        let take = |arrival: &Arrival<'_>| {
            if !junction.as_ref().is_some_and(|junction| junction.takes(arrival)) {
                take(arrival);
            }
        };
        let count = self.receive_batch(budget, take);
        self.junction = junction;
        Ok(count)
    }

    /// Takes in what was taken from the kernel.
    #[inline]
    fn receive_batch(&mut self, budget: &mut Budget, mut take: impl FnMut(&Arrival<'_>)) -> usize {
        let mut count = 0;
        while !budget.is_spent()
            && let Some(n) = self.inbox.next()
        {
            count += 1;
            let (from, mut packets, tos) = self.inbox.datagram(n);
            if self.raw.is_some() {
                let Some(bytes) = packets.next() else { continue };
                budget.spend(bytes.len());
                match IpPacket::new_checked(bytes) {
                    Ok(packet) if packet.envelope.ip.destination() == self.address => take(&Arrival {
                        envelope: packet.envelope,
                        transport: packet.packet.as_bytes(),
                        check: Check::Whole,
                    }),
                    Ok(_) => {}
                    // So that it is counted.
                    Err(_) => take(&self.unknown(bytes)),
                }
                continue;
            }
            let Some((address, port)) = from else { continue };
            let Ok(mut envelope) = Envelope::plain(address, port, self.address) else { continue };
            match &mut envelope.ip {
                IpRepr::V4(ip) => ip.tos = tos,
                IpRepr::V6(ip) => ip.traffic_class = tos,
            }
            let check = match self.mode {
                Mode::PlainAnyId => Check::UnknownId,
                _ if self.identified.contains(&address) => Check::UnknownId,
                _ if self.takes_runs => Check::RunId,
                _ => Check::Whole,
            };
            for (place, transport) in packets.enumerate() {
                if let (Check::RunId, IpRepr::V4(ip)) = (check, &mut envelope.ip) {
                    // What is behind the longest run was joined to it, and begins another.
                    ip.id = u16::try_from(place).ok().filter(|_| place < RunIds::MOST).unwrap_or(0);
                }
                budget.spend(transport.len());
                take(&Arrival { envelope, transport, check });
            }
        }
        count
    }

    fn unknown<'a>(&self, bytes: &'a [u8]) -> Arrival<'a> {
        let envelope = Envelope::plain(self.address, 0, self.address).expect("one family");
        Arrival { envelope, transport: bytes.get(28..).unwrap_or(&[]), check: Check::Whole }
    }
}

/// Whether a socket's packets have UDP checksums.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sums {
    None,
    Udp,
}

/// A socket to which everything comes that is for RoCEv2's port of an address.
pub(super) fn listening(address: IpAddr) -> Result<OwnedFd, PortError> {
    let failed = |what| move |source| PortError::System { what, address, source };
    let listening = udp(address, Sums::None).map_err(failed("make a UDP socket"))?;
    sys::bind(&listening, address, UDP_PORT).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => PortError::Taken { address },
        io::ErrorKind::AddrNotAvailable => PortError::NotHere { address },
        _ => failed("bind UDP port 4791")(error),
    })?;
    Ok(listening)
}

/// A socket from which packets go, and its port.
pub(super) fn sending(address: IpAddr, entropy: u16) -> Result<(OwnedFd, u16), PortError> {
    let failed = |what| move |source| PortError::System { what, address, source };
    let sending = udp(address, Sums::None).map_err(failed("make a UDP socket"))?;
    enlarge(&sending, SENDING);
    let source_port = bind_some(&sending, address, entropy).map_err(failed("find a free source port"))?;
    Ok((sending, source_port))
}

/// A UDP socket whose packets have headers that are known beforehand: unconnected, never fragmented, so that the
/// identification is 0.
fn udp(address: IpAddr, sums: Sums) -> io::Result<OwnedFd> {
    let v4 = address.is_ipv4();
    let none = i32::from(sums == Sums::None);
    let fd = sys::socket(if v4 { libc::AF_INET } else { libc::AF_INET6 }, libc::SOCK_DGRAM, 0)?;
    if v4 {
        sys::set(&fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
        sys::set(&fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        sys::set(&fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, none)?;
    } else {
        sys::set(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        sys::set(&fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
        sys::set(&fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        sys::set(&fd, libc::IPPROTO_UDP, UDP_NO_CHECK6_TX, none)?;
        sys::set(&fd, libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)?;
    }
    Ok(fd)
}

/// `linux/udp.h`; not in `libc`.
const UDP_NO_CHECK6_TX: i32 = 101;
const UDP_NO_CHECK6_RX: i32 = 102;

/// A socket that sends runs from a port that another one has.
fn cutting(address: IpAddr, source_port: u16) -> io::Result<OwnedFd> {
    let fd = udp(address, Sums::Udp)?;
    sys::set(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    // 0 is "none": asks whether there is such an option.
    sys::set(&fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0)?;
    sys::bind(&fd, address, source_port)?;
    enlarge(&fd, SENDING);
    Ok(fd)
}

pub(super) fn raw(address: IpAddr) -> Result<OwnedFd, PortError> {
    let failed = |what| move |source| PortError::System { what, address, source };
    let fd = sys::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_UDP).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => PortError::NotPermitted { address },
        _ => failed("open a raw socket")(error),
    })?;
    sys::only_port(&fd, UDP_PORT).map_err(failed("filter a raw socket"))?;
    sys::bind(&fd, address, 0).map_err(failed("bind a raw socket"))?;
    enlarge(&fd, RECEIVING);
    Ok(fd)
}

/// The options for a buffer's size: beyond the system's limit, which takes a privilege, and within.
const RECEIVING: [i32; 2] = [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF];
const SENDING: [i32; 2] = [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF];

/// As large as allowed.
fn enlarge(fd: &OwnedFd, [beyond, within]: [i32; 2]) {
    if sys::set(fd, libc::SOL_SOCKET, beyond, BUFFER).is_err() {
        // A smaller buffer loses more under load, which retransmissions mend, or makes senders wait.
        let _ = sys::set(fd, libc::SOL_SOCKET, within, BUFFER);
    }
}

pub(super) fn enlarge_receiving(fd: &OwnedFd) {
    enlarge(fd, RECEIVING);
}

pub(super) fn enlarge_sending(fd: &OwnedFd) {
    enlarge(fd, SENDING);
}

/// A port that nobody else sends from, but this process with another socket.
fn bind_some(fd: &OwnedFd, address: IpAddr, entropy: u16) -> io::Result<u16> {
    sys::set(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    for attempt in 0..0x4000 {
        let port = FIRST_SOURCE_PORT | entropy.wrapping_add(attempt) & 0x3fff;
        match sys::bind(fd, address, port) {
            Ok(()) => return Ok(port),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}
