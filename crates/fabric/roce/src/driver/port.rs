//! The sockets of one address. One socket receives all packets for UDP port 4791. Another one sends packets from one
//! source port, and a third one sends runs from the same source port.

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

/// Lowest source port. Source ports only influence the choice of a path in the network. By convention they are dynamic
/// ports (Linux `rdma_flow_label_to_udp_sport`).
const FIRST_SOURCE_PORT: u16 = 0xc000;
/// Requested size of the socket buffers for receiving and sending, in bytes. For processes without CAP_NET_ADMIN, the
/// kernel limits it to `net.core.rmem_max` and `wmem_max`.
const BUFFER: i32 = 8 << 20;

/// The sockets of one address.
#[derive(Debug)]
pub struct Port {
    address: IpAddr,
    source_port: u16,
    mode: Mode,
    /// The UDP socket for port 4791; `None` if another endpoint of the process receives.
    listening: Option<OwnedFd>,
    annex: Option<Annex>,
    /// The registry of annexes, to which this port hands their packets over.
    junction: Option<Junction>,
    sender: Sender,
    raw: Option<OwnedFd>,
    inbox: Inbox,
    takes_runs: bool,
    /// Peers whose packets have individual IPv4 identifications.
    identified: Vec<IpAddr>,
}

/// Counters of the kernel's handling of packets, in addition to those of the endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// Packets that the kernel refused. They are lost, as on any network.
    pub unsent: u64,
    /// Packets that the kernel accepted as part of a run.
    pub in_runs: u64,
    /// Runs that the kernel refused. Their packets were sent one by one.
    pub refused_runs: u64,
    /// Number of periods in which a buffer was full. The packets that did not fit were sent later, or count as unsent.
    pub full: u64,
    /// Received packets that the kernel dropped for lack of buffer space. The kernel reports drops with the next packet
    /// that fits, so drops after the last received packet are not included. It can report fewer than 2^32 drops between
    /// two received packets. Packets for which the queue of an endpoint beside the main one had no room count, too.
    pub overflowed: u64,
}

impl PortCounters {
    /// Returns names and values of all counters.
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
    /// Opens the sockets. `entropy` selects the source port.
    ///
    /// # Errors
    /// Returns a [`PortError`].
    pub fn open(address: IpAddr, mode: Mode, entropy: u16) -> Result<Port, PortError> {
        let failed = |what| move |source| PortError::System { what, address, source };
        let listening = listening(address)?;
        let raw = match (mode, address) {
            (Mode::Raw, IpAddr::V4(_)) => Some(raw(address)?),
            (Mode::Raw, IpAddr::V6(_)) => {
                let source =
                    io::Error::other("IPv6 packets have no identification, so raw mode has no use: use a plain socket");
                return Err(failed("open a raw socket")(source));
            }
            _ => None,
        };
        if raw.is_some() {
            // This socket only prevents the kernel from answering "port unreachable". It is never read.
            sys::set(&listening, libc::SOL_SOCKET, libc::SO_RCVBUF, 0)
                .map_err(failed("shrink the buffer of a socket"))?;
        } else {
            enlarge(&listening, RECEIVING);
        }
        // A failure is not fatal. It only means that overflows are not counted.
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

    /// Opens a socket that sends from the address of another endpoint of this process, which receives for both.
    /// `entropy` selects the source port.
    ///
    /// # Errors
    /// Returns a [`PortError`].
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

    /// Makes this port also receive for other endpoints of this process.
    pub fn share(&mut self, junction: &Junction) {
        let Port { address, mode, takes_runs, .. } = *self;
        junction.open(Main { address, mode, takes_runs, room: self.room() });
        self.junction = Some(junction.clone());
    }

    /// Returns whether another endpoint of this process receives for this one.
    pub(crate) fn is_beside(&self) -> bool {
        self.annex.is_some()
    }

    /// Returns the numbers that queue pairs of this endpoint may have.
    pub(crate) fn numbers(&self) -> Range<u32> {
        // The numbers 0 and 1 are those of the management queue pairs.
        self.annex.as_ref().map_or(2..annex::FIRST, Annex::numbers)
    }

    /// Returns the receiving socket.
    fn socket(&self) -> Option<&OwnedFd> {
        self.raw.as_ref().or(self.listening.as_ref())
    }

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the size of the receive buffer, in bytes as the kernel counts them.
    pub(crate) fn room(&self) -> u32 {
        match (self.socket(), &self.annex) {
            (Some(socket), _) => {
                sockopt::socket_recv_buffer_size(socket).map_or(0, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
            }
            (None, annex) => annex.as_ref().map_or(0, Annex::room),
        }
    }

    /// Returns the headers around packets to a peer.
    ///
    /// # Errors
    /// Returns an error if the peer's address has another family.
    pub fn envelope(&self, peer: IpAddr) -> Result<Envelope, stentor_wire::Error> {
        Envelope::plain(self.address, self.source_port, peer)
    }

    /// Returns the counters of the kernel's handling of packets.
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

    /// Returns the next message for the operator about packets or runs that the kernel refused. Each destination is
    /// reported once per kind, and at most 64 messages wait to be read.
    pub fn next_note(&mut self) -> Option<String> {
        self.sender.next_note()
    }

    /// Returns whether the kernel had no room for the last packets to send.
    pub(crate) fn is_full(&self) -> bool {
        self.sender.is_full()
    }

    /// Returns whether some packets that were received from the kernel are not processed yet. No descriptor reports
    /// these packets.
    #[must_use]
    pub fn holds_more(&self) -> bool {
        self.inbox.holds_more() || self.annex.as_ref().is_some_and(Annex::holds_more)
    }

    /// Returns a descriptor that becomes readable when a packet arrives.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match (self.socket(), &self.annex) {
            (Some(socket), _) => socket.as_fd(),
            (None, Some(annex)) => annex.descriptor(),
            (None, None) => unreachable!("a port has a socket, or is beside one that has"),
        }
    }

    /// Enables runs of packets that the kernel accepts as one buffer (UDP_SEGMENT), to peers named by
    /// [`run_to`](Port::run_to). In [`Mode::Plain`] the port then also receives packets as runs (UDP_GRO). Does nothing
    /// on a system without these options.
    ///
    /// The kernel numbers the packets of a run from 0, and their ICRCs must match these numbers. It splits only runs
    /// with UDP checksums. Runs, and single packets in the same batch, are therefore sent by a separate socket with the
    /// same source port. Packets are not received as runs on raw sockets, because a raw socket does not report how to
    /// split them.
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

    /// Returns whether packets may be received in runs.
    #[must_use]
    pub fn takes_runs(&self) -> bool {
        self.takes_runs
    }

    /// Sets whether a peer accepts packets with the IPv4 identifications of a run.
    pub fn run_to(&mut self, peer: IpAddr, takes: bool) {
        self.sender.run_to(peer, takes);
    }

    /// Sets whether a peer's packets have individual IPv4 identifications, which a plain socket does not report.
    pub fn hear_identified(&mut self, peer: IpAddr, identified: bool) {
        self.identified.retain(|known| *known != peer);
        if identified {
            self.identified.push(peer);
        }
    }

    /// Sends packet `from` of a batch and all packets after it. Returns the number of packets that were sent or lost;
    /// the kernel has no room for the rest now. Retransmissions are sent outside of runs, because a device on the path
    /// may change the identifications of a run.
    pub(crate) fn send(&mut self, out: &Outbox, from: usize) -> usize {
        self.sender.send(out.told().skip(from))
    }

    /// Sends packets in order. Returns the number of packets that were sent or lost. The kernel has no room for the
    /// rest now.
    pub fn send_all<'a>(&mut self, packets: &(impl Iterator<Item = (&'a Envelope, &'a [u8])> + Clone)) -> usize {
        self.sender.send(packets.clone().map(|(envelope, bytes)| (envelope, bytes, false)))
    }

    /// Receives one batch of packets. Returns the number of datagrams.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn receive(&mut self, take: impl FnMut(&Arrival<'_>)) -> io::Result<usize> {
        self.receive_within(&mut Budget { packets: usize::MAX, bytes: usize::MAX }, take)
    }

    /// Receives packets until the batch ends or the budget is spent. The datagram that exceeds the budget is still
    /// received completely. The next call begins with the rest of the batch.
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

    /// Processes the packets that were received from the kernel.
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
                    // The endpoint counts the malformed packet.
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
                    // The kernel may join several runs. A packet beyond the longest run begins another run.
                    ip.id = u16::try_from(place).ok().filter(|_| place < RunIds::MOST).unwrap_or(0);
                }
                budget.spend(transport.len());
                take(&Arrival { envelope, transport, check });
            }
        }
        count
    }

    fn unknown<'a>(&self, bytes: &'a [u8]) -> Arrival<'a> {
        let envelope = Envelope::plain(self.address, 0, self.address).expect("both addresses have one family");
        Arrival { envelope, transport: bytes.get(28..).unwrap_or(&[]), check: Check::Whole }
    }
}

/// The UDP checksums that a socket sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sums {
    None,
    Udp,
}

/// Opens a socket that receives all packets for RoCEv2's port at an address.
pub(super) fn listening(address: IpAddr) -> Result<OwnedFd, PortError> {
    let failed = |what| move |source| PortError::System { what, address, source };
    let listening = udp(address, Sums::None).map_err(failed("create a UDP socket"))?;
    sys::bind(&listening, address, UDP_PORT).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => PortError::Taken { address },
        io::ErrorKind::AddrNotAvailable => PortError::NotHere { address },
        _ => failed("bind UDP port 4791")(error),
    })?;
    Ok(listening)
}

/// Opens a sending socket and returns it with its source port.
pub(super) fn sending(address: IpAddr, entropy: u16) -> Result<(OwnedFd, u16), PortError> {
    let failed = |what| move |source| PortError::System { what, address, source };
    let sending = udp(address, Sums::None).map_err(failed("create a UDP socket"))?;
    enlarge(&sending, SENDING);
    let source_port = bind_some(&sending, address, entropy).map_err(failed("find a free source port"))?;
    Ok((sending, source_port))
}

/// Opens a UDP socket whose packets have predictable headers. It is unconnected and never fragments packets, so the
/// kernel sends the IPv4 identification 0.
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

/// Constants from `linux/udp.h` that `libc` does not define.
const UDP_NO_CHECK6_TX: i32 = 101;
const UDP_NO_CHECK6_RX: i32 = 102;

/// Opens a socket that sends runs from the source port of another socket.
fn cutting(address: IpAddr, source_port: u16) -> io::Result<OwnedFd> {
    let fd = udp(address, Sums::Udp)?;
    sys::set(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    // The value 0 disables segmentation; the call fails if the option is not supported.
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

/// Socket options for the size of the receive buffer. The first option may exceed the system's limit but needs a
/// privilege. The second one is subject to the limit.
const RECEIVING: [i32; 2] = [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF];
/// Socket options for the size of the send buffer, in the order of [`RECEIVING`].
const SENDING: [i32; 2] = [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF];

/// Enlarges a buffer as far as allowed.
fn enlarge(fd: &OwnedFd, [beyond, within]: [i32; 2]) {
    if sys::set(fd, libc::SOL_SOCKET, beyond, BUFFER).is_err() {
        // A failure is ignored. With a smaller buffer, more packets are lost under load and retransmitted, or senders
        // wait.
        let _ = sys::set(fd, libc::SOL_SOCKET, within, BUFFER);
    }
}

pub(super) fn enlarge_receiving(fd: &OwnedFd) {
    enlarge(fd, RECEIVING);
}

pub(super) fn enlarge_sending(fd: &OwnedFd) {
    enlarge(fd, SENDING);
}

/// Binds a socket to a source port that is free, or that only sockets of the same user with SO_REUSEPORT use.
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
