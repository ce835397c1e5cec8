//! The sockets of a switch: one receives packets with all their headers, and the other sends packets.
//!
//! An [`Inlet`] receives and an [`Outlet`] sends; neither has any state of queue pairs. On plain sockets, the IPv4 and
//! UDP headers of received packets are reconstructed: from the values that the kernel reports, and otherwise as an
//! endpoint of this crate sends them. The kernel writes the headers of sent packets, so sent packets have the outlet's
//! source port and lose their type of service. On raw sockets all headers are received and sent unchanged.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use stentor_wire::{Envelope, ICRC_BYTES, IpRepr, Ipv4Repr, UDP_PORT};

use super::port;
use super::settings::{Mode, PortError};
use super::sys::{self, BATCH, Inbox, Name, Outgoing};

/// Length of a UDP header and of an IPv4 header without options, together, in bytes.
const OUTER: usize = 28;

/// A receiver of packets to an address.
#[derive(Debug)]
pub struct Inlet {
    address: Ipv4Addr,
    socket: OwnedFd,
    /// Bound socket that is never read. It only prevents the kernel from answering "port unreachable".
    _silencer: Option<OwnedFd>,
    inbox: Inbox,
    /// Number of bytes of reconstructed headers before each datagram.
    made: usize,
    count: usize,
}

/// A sender of packets from an address.
#[derive(Debug)]
pub struct Outlet {
    socket: OwnedFd,
    /// Source port of all packets. `None` on a raw socket, where packets keep their ports.
    port: Option<u16>,
    names: Vec<Name>,
    unsent: u64,
    full: u64,
}

/// A packet to send: the IP header and all headers after it, the body, and the ICRC.
#[derive(Clone, Copy, Debug)]
pub struct Leaving<'a> {
    /// Destination.
    pub to: Ipv4Addr,
    /// IP, UDP and transport headers.
    pub head: &'a [u8],
    /// The bytes after the headers, plus four bytes that the ICRC replaces.
    pub body: &'a [u8],
    /// The ICRC.
    pub icrc: [u8; ICRC_BYTES],
}

/// Opens the sockets of an address in [`Mode::Plain`] or [`Mode::Raw`]. In plain mode, `entropy` selects the source
/// port.
///
/// # Errors
/// Returns a [`PortError`].
pub fn gate(address: Ipv4Addr, mode: Mode, entropy: u16) -> Result<(Inlet, Outlet), PortError> {
    let place = IpAddr::V4(address);
    let failed = |what| move |source| PortError::System { what, address: place, source };
    let listening = port::listening(place)?;
    let outlet = |socket, port| Outlet { socket, port, names: Vec::with_capacity(BATCH), unsent: 0, full: 0 };
    if mode != Mode::Raw {
        port::enlarge_receiving(&listening);
        // A failure is not fatal. It only means that overflows are not counted.
        let _ = sys::set(&listening, libc::SOL_SOCKET, sys::SO_RXQ_OVFL, 1);
        let (sending, source) = port::sending(place, entropy)?;
        let inlet =
            Inlet { address, socket: listening, _silencer: None, inbox: Inbox::with_margin(), made: OUTER, count: 0 };
        return Ok((inlet, outlet(sending, Some(source))));
    }
    sys::set(&listening, libc::SOL_SOCKET, libc::SO_RCVBUF, 0).map_err(failed("shrink the buffer of a socket"))?;
    let raw = port::raw(place)?;
    let _ = sys::set(&raw, libc::SOL_SOCKET, sys::SO_RXQ_OVFL, 1);
    sys::set(&raw, libc::IPPROTO_IP, libc::IP_HDRINCL, 1).map_err(failed("enable complete headers on a raw socket"))?;
    port::enlarge_sending(&raw);
    let sending = raw.try_clone().map_err(failed("duplicate a raw socket"))?;
    let inlet =
        Inlet { address, socket: raw, _silencer: Some(listening), inbox: Inbox::with_margin(), made: 0, count: 0 };
    Ok((inlet, outlet(sending, None)))
}

impl Inlet {
    /// Receives up to one batch of packets and returns their number. The previous batch is overwritten.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn fill(&mut self) -> io::Result<usize> {
        self.count = 0;
        let count = self.inbox.fill(&self.socket)?;
        self.count = count;
        if self.made > 0 {
            (0..count).for_each(|n| self.head(n));
        }
        Ok(count)
    }

    /// Reconstructs the headers of a packet.
    fn head(&mut self, n: usize) {
        let datagram = self.inbox.behind(n, OUTER);
        let (source, source_port) = match datagram.from {
            Some((IpAddr::V4(source), port)) => (source, port),
            _ => (Ipv4Addr::UNSPECIFIED, 0),
        };
        let ip = Ipv4Repr { tos: datagram.tos, id: 0, dont_fragment: true, ttl: 64, source, destination: self.address };
        let envelope = Envelope { ip: IpRepr::V4(ip), source_port, udp_checksum: 0 };
        let (head, transport) = datagram.bytes.split_at_mut(OUTER);
        // The head has exactly the length of the headers, so this cannot fail.
        let _ = envelope.emit(head, transport.len());
    }

    /// Returns packet `n` of the last batch, which begins with its IP header. Returns an empty slice if the batch has
    /// no packet `n`.
    #[inline]
    #[must_use]
    pub fn packet(&self, n: usize) -> &[u8] {
        if n < self.count { self.inbox.packet(n, self.made) } else { &[] }
    }

    /// Returns a descriptor that becomes readable when a packet arrives.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the number of packets that the kernel dropped for lack of buffer space and has reported so far.
    #[must_use]
    pub fn overflowed(&self) -> u64 {
        self.inbox.overflowed()
    }
}

impl Outlet {
    /// Number of packets per system call; batches of this size are the most efficient.
    pub const BATCH: usize = BATCH;

    /// Returns the source port of all sent packets, or `None` if packets keep their ports.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns the number of packets that the kernel refused. They are lost, as in any switch with a full queue.
    #[must_use]
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Returns the number of refused packets that did not fit in a buffer.
    #[must_use]
    pub fn full(&self) -> u64 {
        self.full
    }

    /// Sends packets.
    pub fn send<'a>(&mut self, packets: impl Iterator<Item = Leaving<'a>>) {
        let skip = if self.port.is_some() { OUTER } else { 0 };
        self.send_each(packets.map(|Leaving { to, head, body, icrc }| {
            (to, Outgoing { head: head.get(skip..).unwrap_or(&[]), bytes: body, icrc: Some(icrc) })
        }));
    }

    /// Sends datagrams. On a raw socket, their bytes must begin with the IP and UDP headers. On a plain socket, the
    /// kernel writes these headers.
    pub fn send_plain<'a>(&mut self, datagrams: impl Iterator<Item = (Ipv4Addr, &'a [u8])>) {
        self.send_each(datagrams.map(|(to, bytes)| (to, Outgoing { bytes, ..Outgoing::NOTHING })));
    }

    fn send_each<'a>(&mut self, mut packets: impl Iterator<Item = (Ipv4Addr, Outgoing<'a>)>) {
        loop {
            let mut batch = [Outgoing::NOTHING; BATCH];
            self.names.clear();
            for (place, (to, packet)) in batch.iter_mut().zip(packets.by_ref()) {
                *place = packet;
                self.names.push(Name::new(to.into(), UDP_PORT));
            }
            self.send_batch(&batch[..self.names.len()]);
            if self.names.len() < BATCH {
                return;
            }
        }
    }

    fn send_batch(&mut self, batch: &[Outgoing<'_>]) {
        let mut done = 0;
        while done < batch.len() {
            let rest = &batch[done..];
            match sys::send(&self.socket, &self.names[done..], rest, &[1; BATCH][..rest.len()]) {
                Ok(sent) => done += sent.max(1),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.unsent += 1;
                    self.full += u64::from(super::sender::is_for_now(&error));
                    done += 1;
                }
            }
        }
    }
}
