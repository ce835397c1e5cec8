//! RDMA cards and Soft-RoCE through rdma-core's libibverbs.
//!
//! - [`VerbsFabric`] is the contract of `stentor-fabric` on a device; peers meet over TCP, each showing that it has the
//!   cluster's key. It stands on the rest:
//! - [`Verbs`] is libibverbs, found at run time: a program that links this crate starts without it.
//! - [`device`] knows the devices, ports and GIDs of this machine, without libibverbs, and chooses among them.
//! - [`Context`] is an open device; [`Domain`], [`Region`] and [`CompletionQueue`] are what is made with it. Each keeps what it
//!   was made with, so they may be dropped in any order.
//! - [`qp`] has queue pairs: made, brought up with errors that say what was wrong, used by the provider's own functions.
//!
//! The bindings are generated from rdma-core's headers and committed (`cargo xtask bindings`); their layouts are asserted
//! when they are compiled.

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
