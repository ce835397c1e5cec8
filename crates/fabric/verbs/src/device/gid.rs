//! GIDs: the addresses of ports.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Packet format of a GID, in the order of preference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GidKind {
    /// RoCE v2: packets are UDP over IP, which routers forward.
    RoceV2,
    /// InfiniBand.
    Ib,
    /// RoCE v1: packets have an Ethernet type of their own, so they stay within one Ethernet network.
    RoceV1,
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GidKind::RoceV2 => "RoCE v2",
            GidKind::Ib => "InfiniBand",
            GidKind::RoceV1 => "RoCE v1",
        })
    }
}

/// An entry of a port's GID table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gid {
    /// Index in the table.
    pub index: u32,
    /// The 16 bytes of the GID, in the form of an IPv6 address.
    pub bytes: Ipv6Addr,
    /// Packet format.
    pub kind: GidKind,
    /// Network interface from which the GID is derived; `None` on InfiniBand.
    pub interface: Option<String>,
}

impl Gid {
    /// Returns the address that the GID represents: an IPv4 address if the GID is IPv4-mapped, otherwise an IPv6
    /// address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.bytes.to_ipv4_mapped().map_or(IpAddr::V6(self.bytes), IpAddr::V4)
    }

    /// Returns whether the GID is link-local, so that it reaches only the same link.
    #[must_use]
    pub fn is_link_local(&self) -> bool {
        self.bytes.is_unicast_link_local()
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GID {} {} {}", self.index, self.kind, self.address())?;
        self.interface.as_ref().map_or(Ok(()), |interface| write!(f, " on {interface}"))
    }
}
