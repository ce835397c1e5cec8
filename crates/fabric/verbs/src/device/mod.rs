//! The RDMA devices of this machine, as the kernel lists them in sysfs. This module does not need libibverbs.

mod choose;
mod gid;
mod place;
mod read;

use std::path::PathBuf;

pub use choose::{Choice, ChooseError, Wanted, choose};
pub use gid::{Gid, GidKind};
pub use place::infiniband_gid;
pub use read::{devices, index_of};
pub use stentor_fabric_net::sysfs::{ROOT, own_node};

/// An RDMA device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Name of the device, such as `mlx5_0` or `rxe0`.
    pub name: String,
    /// Device file through which processes use the device; `None` if `ib_uverbs` does not serve the device.
    pub file: Option<PathBuf>,
    /// NUMA node to which the device is attached, if the kernel reports it.
    pub numa_node: Option<u32>,
    /// Firmware version as the device reports it.
    pub firmware: String,
    /// Ports of the device.
    pub ports: Vec<Port>,
}

/// A port of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Number of the port, starting at 1.
    pub number: u8,
    /// Type of the network.
    pub link: LinkLayer,
    /// State as the kernel prints it after its number: `ACTIVE` if the port can be used; otherwise for example `DOWN`,
    /// `INIT` or `ARMED`.
    pub state: String,
    /// Data rate as the kernel prints it.
    pub rate: String,
    /// GIDs that are set.
    pub gids: Vec<Gid>,
}

impl Port {
    /// Returns whether the port can carry packets.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }
}

/// Type of the network to which a port is connected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkLayer {
    /// A switched InfiniBand fabric.
    InfiniBand,
    /// Any other network, such as Ethernet with RoCE or iWARP.
    Ethernet,
}

impl std::fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LinkLayer::InfiniBand => "InfiniBand",
            LinkLayer::Ethernet => "Ethernet",
        })
    }
}
