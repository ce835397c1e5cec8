//! The RDMA devices of this machine, as the kernel shows them: found without libibverbs.

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
    /// Its name, such as `mlx5_0` or `rxe0`.
    pub name: String,
    /// The file by which processes reach it; none if `ib_uverbs` does not serve it.
    pub file: Option<PathBuf>,
    /// The NUMA node it is next to, where the machine has several.
    pub numa_node: Option<u32>,
    /// The version of its firmware, as it says.
    pub firmware: String,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// A port of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Counted from 1.
    pub number: u8,
    /// What it is connected to.
    pub link: LinkLayer,
    /// `ACTIVE` when it can be used; otherwise `DOWN`, `INIT`, `ARMED`.
    pub state: String,
    /// Its speed, as the kernel says it.
    pub rate: String,
    /// Its addresses, those that are set.
    pub gids: Vec<Gid>,
}

impl Port {
    /// Whether packets can go through it.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }
}

/// What a port is connected to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkLayer {
    /// A switched fabric of its own.
    InfiniBand,
    /// RoCE or iWARP.
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
