//! RDMA NICs and Soft-RoCE through rdma-core's libibverbs.
//!
//! - [`VerbsFabric`] implements the contract of `stentor-fabric` on a device. Peers connect over TCP and authenticate
//!   with the cluster's key. The fabric is built from the parts below.
//! - [`Verbs`] is libibverbs, which is loaded at run time. A program that uses this crate starts even if the library is
//!   missing.
//! - [`device`] lists the devices, ports and GIDs of this machine without libibverbs, and chooses among them.
//! - [`Context`] is an open device. [`Domain`], [`Region`] and [`CompletionQueue`] are created on it. Each of them
//!   keeps the objects that it depends on open, so they may be dropped in any order.
//! - [`qp`] contains queue pairs: their creation, their state transitions with errors that name the wrong attribute,
//!   and posting through the provider's functions.
//!
//! The bindings are generated from rdma-core's headers and committed (`cargo xtask bindings`); compiling them asserts
//! their layouts.

mod channel;
mod completions;
mod context;
pub mod device;
mod domain;
mod errno;
mod events;
mod fabric;
mod load;
mod probe;
pub mod qp;
mod sys;

pub use channel::CompletionChannel;
pub use completions::{CompletionQueue, WorkCompletion, WorkStatus};
pub use context::{Context, Limits, Mtu, OpenError, PortAttributes, PortNumber, QueryError};
pub use domain::{Domain, MakeError, Region};
pub use errno::Errno;
pub use events::{DeviceEvent, EventKind};
pub use fabric::{StartError, Trouble, VerbsConfig, VerbsDevice, VerbsFabric};
pub use load::{LoadError, Verbs};
pub use probe::Granted;
pub use stentor_atomic_copy::PageMemory;
pub use stentor_fabric_net::{NetConfig, StartError as NetError};
pub use stentor_switch_host::SwitchConfig;
