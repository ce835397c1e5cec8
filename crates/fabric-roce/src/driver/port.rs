//! The sockets of one address: everything that comes to UDP port 4791, and one source port for everything that goes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use stentor_wire::{Envelope, IpPacket, IpRepr, UDP_PORT};
use thiserror::Error;

use super::runs::{Batch, Runs};
use super::sys::{self, BATCH, Inbox, Name};
use crate::endpoint::{Arrival, Check, Outbox};

/// Source ports say nothing but which path to take; by convention they are the dynamic ports (Linux
/// `rdma_flow_label_to_udp_sport`).
const FIRST_SOURCE_PORT: u16 = 0xc000;
/// What the kernel is asked to keep of what comes, bytes. It gives as much as `net.core.rmem_max` allows.
const RECEIVE_BUFFER: i32 = 8 << 20;

/// How packets are taken in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    /// A plain UDP socket, without privileges. Peers send the IPv4 identification 0, as this fabric does: their ICRC is
    /// checked whole, or for one of the few identifications of a run ([`Port::enable_runs`]).
    #[default]
    Plain,
    /// A plain UDP socket, for peers that count the identification (Linux rxe, NICs): half of the ICRC's strength is left,
    /// one damaged packet in 65 536 passes.
    PlainAnyId,
    /// A raw socket, which shows the identification: the ICRC is checked whole. Needs CAP_NET_RAW. IPv4 only.
    Raw,
}

/// Why the sockets could not be made.
#[derive(Debug, Error)]
pub enum PortError {
    /// Somebody has the port.
    #[error("{address}:{UDP_PORT} is taken by another process; give each process of a host an address of its own")]
    Taken {
        /// The address.
        address: IpAddr,
    },
    /// The address is not one of this host.
    #[error("{address} is not an address of this host")]
    NotHere {
        /// The address.
        address: IpAddr,
    },
    /// Raw sockets need a privilege.
    #[error("raw mode at {address} needs CAP_NET_RAW (run as root, or setcap cap_net_raw+ep on the program)")]
    NotPermitted {
        /// The address.
        address: IpAddr,
    },
    /// The system said no.
    #[error("cannot {what} at {address}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The address.
        address: IpAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// The sockets.
#[derive(Debug)]
pub struct Port {
    address: IpAddr,
    source_port: u16,
    mode: Mode,
    listening: OwnedFd,
    sending: OwnedFd,
    raw: Option<OwnedFd>,
    inbox: Inbox,
    names: Vec<Name>,
    /// What sends runs, and who takes them.
    runs: Option<(OwnedFd, Runs)>,
    takes_runs: bool,
    /// Packets that the kernel did not take.
    unsent: u64,
    /// Packets that it took as one with others.
    in_runs: u64,
}

impl Port {
    /// Opens them. `entropy` chooses the source port.
    ///
    /// # Errors
    /// See [`PortError`].
    pub fn open(address: IpAddr, mode: Mode, entropy: u16) -> Result<Port, PortError> {
        let failed = |what| move |source| PortError::System { what, address, source };
        let listening = udp(address, Sums::None).map_err(failed("make a UDP socket"))?;
        sys::bind(&listening, address, UDP_PORT).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => PortError::Taken { address },
            io::ErrorKind::AddrNotAvailable => PortError::NotHere { address },
            _ => failed("bind UDP port 4791")(error),
        })?;
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
            enlarge(&listening);
        }
        let sending = udp(address, Sums::None).map_err(failed("make a UDP socket"))?;
        let source_port = bind_some(&sending, address, entropy).map_err(failed("find a free source port"))?;
        let (inbox, names) = (Inbox::new(false), Vec::with_capacity(BATCH));
        Ok(Port {
            address,
            source_port,
            mode,
            listening,
            sending,
            raw,
            inbox,
            names,
            runs: None,
            takes_runs: false,
            unsent: 0,
            in_runs: 0,
        })
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The headers around everything that goes to a peer.
    ///
    /// # Errors
    /// If the peer's address is of the other family.
    pub fn envelope(&self, peer: IpAddr) -> Result<Envelope, stentor_wire::Error> {
        Envelope::plain(self.address, self.source_port, peer)
    }

    /// Packets that the kernel did not take: lost, as on any network.
    #[must_use]
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Packets that the kernel took as one with others.
    #[must_use]
    pub fn in_runs(&self) -> u64 {
        self.in_runs
    }

    /// What becomes readable when something comes.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.raw.as_ref().unwrap_or(&self.listening).as_fd()
    }

    /// Lets packets go in runs that the kernel takes as one (UDP_SEGMENT), to peers that [`run_to`](Port::run_to) names, and
    /// with [`Mode::Plain`] come so, too (UDP_GRO). Nothing changes if the system has none of that.
    ///
    /// The kernel numbers the packets of a run from 0, which their ICRC shows, and cuts only what has UDP checksums: runs, and
    /// what goes with them, leave by a socket of their own, from the same source port. What comes as one comes to raw sockets
    /// so, too, which cannot take it apart.
    pub fn enable_runs(&mut self) {
        if let Ok(cutting) = cutting(self.address, self.source_port) {
            self.runs = Some((cutting, Runs::default()));
        }
        let takes = self.mode == Mode::Plain && self.runs.is_some();
        if takes && sys::set(&self.listening, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok() {
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
        if let Some((_, runs)) = &mut self.runs {
            runs.to(peer, takes);
        }
    }

    /// Sends a batch. What is sent again goes by itself, in case that somebody on the way has other ideas of identifications.
    pub fn send(&mut self, out: &Outbox) {
        self.send_each(out.told());
    }

    /// Sends packets. What the kernel does not take is lost.
    pub fn send_all<'a>(&mut self, packets: &(impl Iterator<Item = (&'a Envelope, &'a [u8])> + Clone)) {
        self.send_each(packets.clone().map(|(envelope, bytes)| (envelope, bytes, false)));
    }

    fn send_each<'a>(&mut self, mut packets: impl Iterator<Item = (&'a Envelope, &'a [u8], bool)>) {
        loop {
            let mut batch = Batch::new();
            self.names.clear();
            while !batch.is_full()
                && let Some(packet) = packets.next()
            {
                batch.add(packet, &mut self.names, self.runs.as_mut().map(|(_, runs)| runs));
            }
            if batch.runs().is_empty() {
                return;
            }
            self.send_batch(&batch);
        }
    }

    fn send_batch(&mut self, batch: &Batch<'_>) {
        let (mut names, mut packets, mut runs) = (&self.names[..], batch.packets(), batch.runs());
        while let [first, ..] = *runs {
            let socket = match &self.runs {
                Some((cutting, _)) if batch.has_runs() => cutting,
                _ => &self.sending,
            };
            let done = match sys::send(socket, names, packets, runs) {
                Ok(sent) => {
                    let long = runs[..sent].iter().filter(|count| **count > 1);
                    self.in_runs += long.sum::<usize>() as u64;
                    sent.max(1)
                }
                Err(error) => {
                    if let (Some((_, own)), true) = (&mut self.runs, first > 1 && cannot_be_cut(&error)) {
                        own.refuse();
                    }
                    self.unsent += first as u64;
                    1
                }
            };
            let count = runs[..done].iter().sum();
            (names, packets, runs) = (&names[count..], &packets[count..], &runs[done..]);
        }
    }

    /// Takes a batch in; returns how many datagrams came.
    ///
    /// # Errors
    /// What the system says.
    pub fn receive(&mut self, mut take: impl FnMut(&Arrival<'_>)) -> io::Result<usize> {
        let count = self.inbox.fill(self.raw.as_ref().unwrap_or(&self.listening))?;
        for n in 0..count {
            let (from, mut packets, tos) = self.inbox.datagram(n);
            if self.raw.is_some() {
                let Some(bytes) = packets.next() else { continue };
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
                _ if self.takes_runs => Check::RunId,
                _ => Check::Whole,
            };
            packets.for_each(|transport| take(&Arrival { envelope, transport, check }));
        }
        Ok(count)
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
    Ok(fd)
}

/// Whether it is the run that the kernel does not take, not the moment.
fn cannot_be_cut(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIO | libc::EOPNOTSUPP | libc::ENOPROTOOPT))
}

fn raw(address: IpAddr) -> Result<OwnedFd, PortError> {
    let failed = |what| move |source| PortError::System { what, address, source };
    let fd = sys::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_UDP).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => PortError::NotPermitted { address },
        _ => failed("open a raw socket")(error),
    })?;
    sys::only_port(&fd, UDP_PORT).map_err(failed("filter a raw socket"))?;
    sys::bind(&fd, address, 0).map_err(failed("bind a raw socket"))?;
    enlarge(&fd);
    Ok(fd)
}

/// As large as allowed: with the privilege for it beyond the system's limit.
fn enlarge(fd: &OwnedFd) {
    if sys::set(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER).is_err() {
        // A smaller buffer loses more under load, which retransmissions mend.
        let _ = sys::set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER);
    }
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

/// The address that this host sends from to reach `peer`.
///
/// # Errors
/// If there is no route.
pub fn source_address(peer: SocketAddr) -> io::Result<IpAddr> {
    let any: SocketAddr = if peer.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let probe = std::net::UdpSocket::bind(any)?;
    probe.connect(peer)?;
    Ok(probe.local_addr()?.ip())
}
