//! Errors of parsing and emitting.

use core::fmt;

/// The reason why bytes are not a RoCEv2 packet, or why a packet does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Error {
    /// There are fewer bytes than the headers announce, or than the shortest packet has.
    Truncated {
        /// Number of bytes present.
        have: usize,
        /// Number of bytes needed.
        need: usize,
    },
    /// The opcode is none of RC, UC and UD, and not that of a congestion notification.
    UnknownOpcode(u8),
    /// The version of the transport header is not 0.
    TransportVersion(u8),
    /// The IP version is neither 4 nor 6, or source and destination addresses have different families.
    IpVersion(u8),
    /// The IPv4 header does not have 20 bytes: RoCEv2 allows no options.
    IpOptions,
    /// The packet is a fragment; RoCEv2 packets are never fragmented.
    Fragment,
    /// The IP protocol is not UDP. IPv6 extension headers count as other protocols.
    NotUdp(u8),
    /// The UDP destination port is not 4791.
    Port(u16),
    /// The lengths in the IP and UDP headers contradict each other.
    Lengths {
        /// Length of the data after the IP header, according to that header, in bytes.
        ip: usize,
        /// Length according to the UDP header, in bytes.
        udp: usize,
    },
    /// The output buffer is too short.
    NoRoom {
        /// Length of the buffer, in bytes.
        have: usize,
        /// Length needed, in bytes.
        need: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Error::Truncated { have, need } => write!(f, "{have} bytes where at least {need} are needed"),
            Error::UnknownOpcode(opcode) => write!(f, "opcode {opcode:#04x} is none of RC, UC or UD"),
            Error::TransportVersion(version) => write!(f, "transport header version {version}, only 0 is known"),
            Error::IpVersion(version) => write!(f, "IP version {version}, neither 4 nor 6"),
            Error::IpOptions => write!(f, "the packet has IP options or extension headers"),
            Error::Fragment => write!(f, "the packet is an IP fragment"),
            Error::NotUdp(protocol) => write!(f, "IP protocol {protocol}, not UDP"),
            Error::Port(port) => write!(f, "UDP port {port}, not {}", crate::UDP_PORT),
            Error::Lengths { ip, udp } => write!(f, "{ip} bytes after the IP header, {udp} in the UDP header"),
            Error::NoRoom { have, need } => write!(f, "a buffer of {have} bytes where {need} are needed"),
        }
    }
}

impl core::error::Error for Error {}
