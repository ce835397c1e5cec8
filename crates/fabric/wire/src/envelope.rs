//! The IP and UDP headers around a packet.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Error, ICRC_BYTES, Packet, Repr, UDP_PORT, icrc};

const UDP_BYTES: usize = 8;
const UDP_PROTOCOL: u8 = 17;

/// An IPv4 header without options.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4Repr {
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Identification. The ICRC covers it.
    pub id: u16,
    /// `true` if routers must not fragment the packet (the flag DF).
    pub dont_fragment: bool,
    /// Time to live, in hops.
    pub ttl: u8,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
}

/// An IPv6 header without extensions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv6Repr {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

/// The network header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IpRepr {
    /// IPv4.
    V4(Ipv4Repr),
    /// IPv6.
    V6(Ipv6Repr),
}

impl IpRepr {
    /// Returns the header that Linux sends over IPv4 from an unconnected UDP socket with path MTU discovery ("do not
    /// fragment", identification 0, 64 hops), or its counterpart for IPv6, with flow label 0.
    ///
    /// # Errors
    /// [`Error::IpVersion`] with the family of the destination, if the two addresses have different families.
    pub fn plain(source: IpAddr, destination: IpAddr) -> Result<IpRepr, Error> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Ok(IpRepr::V4(Ipv4Repr { tos: 0, id: 0, dont_fragment: true, ttl: 64, source, destination }))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Ok(IpRepr::V6(Ipv6Repr { traffic_class: 0, flow_label: 0, hop_limit: 64, source, destination }))
            }
            (_, destination) => Err(Error::IpVersion(if destination.is_ipv4() { 4 } else { 6 })),
        }
    }

    /// Returns the length of the header in bytes: 20 or 40.
    #[inline]
    #[must_use]
    pub const fn header_bytes(&self) -> usize {
        match self {
            IpRepr::V4(_) => 20,
            IpRepr::V6(_) => 40,
        }
    }

    /// Returns the source address.
    #[must_use]
    pub fn source(&self) -> IpAddr {
        match self {
            IpRepr::V4(ip) => ip.source.into(),
            IpRepr::V6(ip) => ip.source.into(),
        }
    }

    /// Returns the destination address.
    #[must_use]
    pub fn destination(&self) -> IpAddr {
        match self {
            IpRepr::V4(ip) => ip.destination.into(),
            IpRepr::V6(ip) => ip.destination.into(),
        }
    }

    /// Returns the two bits of explicit congestion notification; 3 is "congestion experienced".
    #[must_use]
    pub const fn ecn(&self) -> u8 {
        match self {
            IpRepr::V4(ip) => ip.tos & 3,
            IpRepr::V6(ip) => ip.traffic_class & 3,
        }
    }
}

/// The IP and UDP headers around a packet. The destination port is 4791.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Envelope {
    /// The network header.
    pub ip: IpRepr,
    /// UDP source port: constant for a queue pair, and entropy for the choice of a path.
    pub source_port: u16,
    /// UDP checksum, 0 for none. The ICRC does not cover it.
    pub udp_checksum: u16,
}

impl Envelope {
    /// Returns the headers that a plain UDP socket sends, without a UDP checksum.
    ///
    /// # Errors
    /// Returns the error of [`IpRepr::plain`].
    pub fn plain(source: IpAddr, source_port: u16, destination: IpAddr) -> Result<Envelope, Error> {
        Ok(Envelope { ip: IpRepr::plain(source, destination)?, source_port, udp_checksum: 0 })
    }

    /// Returns the length of both headers, in bytes.
    #[inline]
    #[must_use]
    pub const fn header_bytes(&self) -> usize {
        self.ip.header_bytes() + UDP_BYTES
    }

    /// Returns the ICRC of a packet; see [`icrc::whole`].
    #[inline]
    #[must_use]
    pub fn icrc(&self, transport: &[u8]) -> u32 {
        icrc::whole(self, transport)
    }

    /// Computes the ICRC and writes it into the last four bytes of a packet.
    #[inline]
    pub fn seal(&self, transport: &mut [u8]) {
        let icrc = self.icrc(transport);
        if let Some(place) = transport.last_chunk_mut::<ICRC_BYTES>() {
            *place = icrc.to_le_bytes();
        }
    }

    /// Writes both headers for a packet of `transport_bytes`.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if `to` is too short.
    pub fn emit(&self, to: &mut [u8], transport_bytes: usize) -> Result<(), Error> {
        let (have, need) = (to.len(), self.header_bytes());
        let to = to.get_mut(..need).ok_or(Error::NoRoom { have, need })?;
        self.emit_unsummed(to, transport_bytes);
        if let (IpRepr::V4(_), Some(header)) = (self.ip, to.first_chunk_mut::<20>()) {
            let sum = checksum(header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Ok(())
    }

    /// Writes a whole packet from the IP header to the ICRC. Returns its length in bytes.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the payload is shorter than `repr.payload_bytes`; [`Error::NoRoom`] if `to` is too
    /// short.
    pub fn emit_packet(&self, repr: &Repr, payload: &[u8], to: &mut [u8]) -> Result<usize, Error> {
        let (have, need) = (payload.len(), repr.payload_bytes);
        let payload = payload.get(..need).ok_or(Error::Truncated { have, need })?;
        let (outer, inner) = (self.header_bytes(), repr.packet_bytes());
        let (have, need) = (to.len(), outer + inner);
        let to = to.get_mut(..need).ok_or(Error::NoRoom { have, need })?;
        self.emit(to, inner)?;
        let transport = &mut to[outer..];
        repr.emit(transport)?.copy_from_slice(payload);
        self.seal(transport);
        Ok(need)
    }

    /// Writes both headers like [`emit`](Envelope::emit), but with an IPv4 header checksum of 0. `to` must be long
    /// enough.
    #[inline]
    pub(crate) fn emit_unsummed(&self, to: &mut [u8], transport_bytes: usize) {
        let udp_bytes = (UDP_BYTES + transport_bytes) as u16;
        match &self.ip {
            IpRepr::V4(ip) => {
                to[0] = 0x45;
                to[1] = ip.tos;
                to[2..4].copy_from_slice(&(20 + udp_bytes).to_be_bytes());
                to[4..6].copy_from_slice(&ip.id.to_be_bytes());
                to[6..8].copy_from_slice(&[u8::from(ip.dont_fragment) << 6, 0]);
                to[8..12].copy_from_slice(&[ip.ttl, UDP_PROTOCOL, 0, 0]);
                to[12..16].copy_from_slice(&ip.source.octets());
                to[16..20].copy_from_slice(&ip.destination.octets());
            }
            IpRepr::V6(ip) => {
                let first = 6 << 28 | u32::from(ip.traffic_class) << 20 | ip.flow_label & 0xf_ffff;
                to[0..4].copy_from_slice(&first.to_be_bytes());
                to[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
                to[6..8].copy_from_slice(&[UDP_PROTOCOL, ip.hop_limit]);
                to[8..24].copy_from_slice(&ip.source.octets());
                to[24..40].copy_from_slice(&ip.destination.octets());
            }
        }
        let udp = &mut to[self.ip.header_bytes()..];
        udp[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        udp[2..4].copy_from_slice(&UDP_PORT.to_be_bytes());
        udp[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
        udp[6..8].copy_from_slice(&self.udp_checksum.to_be_bytes());
    }
}

/// Returns the Internet checksum of an IPv4 header, with its checksum field taken as 0.
fn checksum(header: &[u8; 20]) -> u16 {
    let words = header.chunks_exact(2).enumerate().filter(|(n, _)| *n != 5);
    let sum = words.map(|(_, word)| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u32>();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// A packet that begins with its IP header.
#[derive(Clone, Copy, Debug)]
pub struct IpPacket<'a> {
    /// The headers.
    pub envelope: Envelope,
    /// The packet inside.
    pub packet: Packet<&'a [u8]>,
}

impl<'a> IpPacket<'a> {
    /// Checks everything that the accessors rely on. Bytes after the IP packet (Ethernet's padding) are ignored. The
    /// IPv4 header checksum is not checked: the kernel does that, and the ICRC does not cover it.
    ///
    /// # Errors
    /// Any [`Error`] except [`Error::NoRoom`].
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<IpPacket<'a>, Error> {
        let truncated = |need| Error::Truncated { have: bytes.len(), need };
        let (ip, behind, length) = match bytes.first().ok_or(truncated(20))? >> 4 {
            4 => Self::v4(bytes)?,
            6 => Self::v6(bytes)?,
            version => return Err(Error::IpVersion(version)),
        };
        let Some((udp, _)) = behind.split_first_chunk::<UDP_BYTES>() else {
            return Err(truncated(ip.header_bytes() + length.max(UDP_BYTES)));
        };
        let word = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
        if word(2) != UDP_PORT {
            return Err(Error::Port(word(2)));
        }
        if usize::from(word(4)) != length || length < UDP_BYTES {
            return Err(Error::Lengths { ip: length, udp: word(4).into() });
        }
        let transport = behind.get(UDP_BYTES..length).ok_or(truncated(ip.header_bytes() + length))?;
        let envelope = Envelope { ip, source_port: word(0), udp_checksum: word(6) };
        Ok(IpPacket { envelope, packet: Packet::new_checked(transport)? })
    }

    #[inline]
    fn v4(bytes: &[u8]) -> Result<(IpRepr, &[u8], usize), Error> {
        let Some((header, behind)) = bytes.split_first_chunk::<20>() else {
            return Err(Error::Truncated { have: bytes.len(), need: 20 });
        };
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        if header[0] != 0x45 {
            return Err(Error::IpOptions);
        }
        if word(6) & 0xbfff != 0 {
            return Err(Error::Fragment);
        }
        if header[9] != UDP_PROTOCOL {
            return Err(Error::NotUdp(header[9]));
        }
        let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        let ip = Ipv4Repr {
            tos: header[1],
            id: word(4),
            dont_fragment: word(6) != 0,
            ttl: header[8],
            source: address(12),
            destination: address(16),
        };
        Ok((IpRepr::V4(ip), behind, usize::from(word(2)).saturating_sub(20)))
    }

    fn v6(bytes: &[u8]) -> Result<(IpRepr, &[u8], usize), Error> {
        let Some((header, behind)) = bytes.split_first_chunk::<40>() else {
            return Err(Error::Truncated { have: bytes.len(), need: 40 });
        };
        if header[6] != UDP_PROTOCOL {
            return Err(Error::NotUdp(header[6]));
        }
        let first = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&header[at..at + 16]);
            Ipv6Addr::from(octets)
        };
        let ip = Ipv6Repr {
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
            hop_limit: header[7],
            source: address(8),
            destination: address(24),
        };
        Ok((IpRepr::V6(ip), behind, u16::from_be_bytes([header[4], header[5]]).into()))
    }

    /// Returns whether the packet carries the correct ICRC.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.envelope.icrc(self.packet.as_bytes()) == self.packet.icrc()
    }
}
