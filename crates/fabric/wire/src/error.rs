//! Why bytes are not a packet.

use core::fmt;

/// Why bytes are not a RoCEv2 packet, or why a packet does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Error {
    /// Fewer bytes than the headers say, or than any packet has.
    Truncated {
        /// What is there, bytes.
        have: usize,
        /// What is needed, bytes.
        need: usize,
    },
    /// An opcode that none of RC, UC and UD has.
    UnknownOpcode(u8),
    /// A version of the transport header other than 0.
    TransportVersion(u8),
    /// An address family other than IPv4 and IPv6.
    IpVersion(u8),
    /// IPv4 options or IPv6 extension headers, which RoCEv2 does not have.
    IpOptions,
    /// A fragment: RoCEv2 packets are never fragmented.
    Fragment,
    /// Another protocol than UDP.
    NotUdp(u8),
    /// A UDP port other than 4791.
    Port(u16),
    /// The lengths in the IP and UDP headers contradict each other.
    Lengths {
        /// What the IP header says is behind it, bytes.
        ip: usize,
        /// What the UDP header says, bytes.
        udp: usize,
    },
    /// The buffer to emit into is too short.
    NoRoom {
        /// Its length, bytes.
        have: usize,
        /// What is needed, bytes.
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
            Error::IpOptions => write!(f, "IP options or extension headers"),
            Error::Fragment => write!(f, "an IP fragment"),
            Error::NotUdp(protocol) => write!(f, "IP protocol {protocol}, not UDP"),
            Error::Port(port) => write!(f, "UDP port {port}, not {}", crate::UDP_PORT),
            Error::Lengths { ip, udp } => write!(f, "{ip} bytes behind the IP header, {udp} in the UDP header"),
            Error::NoRoom { have, need } => write!(f, "a buffer of {have} bytes for {need}"),
        }
    }
}

impl core::error::Error for Error {}
