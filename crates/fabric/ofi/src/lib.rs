//! libfabric: one interface to AWS's EFA, to verbs, to shared memory, to TCP and UDP, by its providers.
//!
//! [`OfiFabric`] is the contract of `stentor_fabric` on one provider. What it stands on:
//!
//! - [`Libfabric`] is the library, found at run time: a program that links this crate starts without it.
//! - [`Info`] describes what providers offer; [`choose`] takes one, and never another than was named, and of its devices the
//!   [`nearest`].
//! - [`Domain`] is an open provider; [`Endpoint`], [`CompletionQueue`] and [`Registration`] are what is made with it. Each
//!   keeps what it was made with, so they may be dropped in any order.
//!
//! [`Bare`] is one end of tagged messages on those alone, to compare with.
//!
//! The bindings are generated from libfabric's headers and committed (`cargo xtask bindings`); their layouts are asserted
//! when they are compiled. What the headers define as inline functions goes through the same tables of functions here.

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
