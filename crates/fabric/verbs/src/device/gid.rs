//! Addresses of ports.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// How packets with a GID look. The order is that of preference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GidKind {
    /// UDP and IP: goes through routers.
    RoceV2,
    /// InfiniBand.
    Ib,
    /// An Ethernet type of its own: stays in one Ethernet.
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

/// One entry of a port's table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gid {
    /// Its place in the table.
    pub index: u32,
    /// The 16 bytes, which are written as an IPv6 address.
    pub bytes: Ipv6Addr,
    /// How packets look.
    pub kind: GidKind,
    /// The network interface it comes from; none on InfiniBand.
    pub interface: Option<String>,
}

impl Gid {
    /// The address that it stands for: IPv4 where it is one in disguise.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.bytes.to_ipv4_mapped().map_or(IpAddr::V6(self.bytes), IpAddr::V4)
    }

    /// Whether it is made from the interface's own number, so that only neighbours can be reached.
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
