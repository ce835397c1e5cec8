//! RoCEv2 in user space.
//!
//! - [`endpoint`] is the InfiniBand transport as a state machine. Its inputs are packets, posted work and the time. Its
//!   outputs are packets, completions and the next deadline. It does no I/O and reads no clock.
//! - [`driver`] sends and receives the endpoint's packets on UDP sockets (port 4791), which need no privileges, or
//!   receives them on a raw socket. It also writes captures and injects network faults.
//! - [`peer`] connects to NICs and to Linux Soft-RoCE, by the same exchange as rdma-core's example programs.
//! - [`RoceFabric`] implements the contract of `stentor-fabric` with an endpoint and a driver. Peers connect over TCP,
//!   and each proves that it has the cluster's key.
#![deny(unsafe_code)]

pub mod driver;
pub mod endpoint;
mod fabric;
pub mod peer;

pub use fabric::{RoceConfig, RoceDevice, RoceFabric, StartError};
pub use stentor_fabric_net::ask::{AskConfig, AskError, ask};
pub use stentor_fabric_net::{HostName, NetConfig, StartError as NetError};
pub use stentor_switch_host::SwitchConfig;
