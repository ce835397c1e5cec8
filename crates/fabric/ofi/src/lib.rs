//! libfabric: one interface to AWS's EFA, verbs, shared memory, TCP and UDP through its providers.
//!
//! [`OfiFabric`] implements the contract of `stentor_fabric` on one provider. It is built from these parts:
//!
//! - [`Libfabric`] is the library, which is loaded at run time. A program that uses this crate starts even if the
//!   library is missing.
//! - [`Info`] describes what a provider offers. [`choose`] selects a provider and its [`nearest`] device, and never
//!   replaces a provider or device that is named.
//! - [`Domain`] is an open provider. [`Endpoint`], [`CompletionQueue`] and [`Registration`] are created on it. Each of
//!   them keeps the objects that it depends on open, so they may be dropped in any order.
//!
//! [`Bare`] is one end of a connection for tagged messages that uses only these parts. Benchmarks compare it with the
//! fabric.
//!
//! The bindings are generated from libfabric's headers and committed (`cargo xtask bindings`); compiling them on x86-64
//! asserts their layouts. For functions that the headers define inline, this crate calls the same entries of
//! libfabric's function tables.

mod bare;
mod choose;
mod counter;
mod cq;
mod domain;
mod endpoint;
mod errno;
mod fabric;
mod info;
mod load;
mod memory;
mod provider_device;
mod quirks;
mod segments;
mod sys;

pub use bare::Bare;
pub use choose::{ChooseError, ORDER, Wish, choose, devices, providers};
pub use cq::{CompletionQueue, Failure, Polled, Success};
pub use domain::{Domain, MakeError};
pub use endpoint::{Completes, Endpoint, Local, MAX_ADDRESS, PeerAddress, Remote, Scratch, is_address};
pub use errno::Errno;
pub use fabric::{OfiConfig, OfiDevice, OfiFabric, StartError};
pub use info::{Info, InfoError, MemoryModes, Needs, Orders, has_segments};
pub use load::{Libfabric, LoadError, Version};
pub use memory::Registration;
pub use provider_device::{Here, ProviderDevice, nearest};
pub use quirks::Quirks;
pub use segments::{DIRECTORY, SEGMENT_BYTES, Shortage, Space};
pub use stentor_atomic_copy::PageMemory;
pub use stentor_fabric_net::NetConfig;
