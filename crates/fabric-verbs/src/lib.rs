//! RDMA cards and Soft-RoCE through rdma-core's libibverbs.
//!
//! Not a fabric yet: nothing here implements `stentor_fabric::Fabric`. What is here:
//!
//! - [`Verbs`] is libibverbs, found at run time: a program that links this crate starts without it.
//! - [`device`] knows the devices, ports and GIDs of this machine, without libibverbs, and chooses among them.
//! - [`Context`] is an open device.
//!
//! The bindings are generated from rdma-core's headers and committed (`cargo xtask bindings`); their layouts are asserted
//! when they are compiled.

mod context;
pub mod device;
mod errno;
mod load;
mod sys;

pub use context::{Context, Limits, Mtu, OpenError, PortAttributes, PortNumber, QueryError};
pub use errno::Errno;
pub use load::{LoadError, Verbs};
