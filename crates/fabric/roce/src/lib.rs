//! RoCEv2 in user space.
//!
//! - [`endpoint`] is the InfiniBand transport as a state machine: packets, posted work and the time go in; packets,
//!   completions and the next deadline come out. It does no I/O and reads no clock.
//! - [`driver`] transmits its packets over UDP sockets (port 4791), without privileges, or receives them from a raw
//!   socket. It also writes captures and injects network faults.
//! - [`peer`] connects to NICs and to Linux Soft-RoCE as rdma-core's examples do.
//! - [`RoceFabric`] implements the contract of `stentor-fabric` on both. Peers connect over TCP, and each proves that
//!   it has the cluster's key.
#![deny(unsafe_code)]

pub mod driver;
pub mod endpoint;
mod fabric;
pub mod peer;

pub use fabric::{RoceConfig, RoceDevice, RoceFabric, StartError};
pub use stentor_fabric_net::ask::{AskConfig, AskError, ask};
pub use stentor_fabric_net::{HostName, NetConfig, StartError as NetError};
pub use stentor_switch_host::SwitchConfig;
