//! The connection manager and everything that fabrics between hosts share.
//!
//! A [`ConnectionManager`] keeps a TCP connection to every peer that is up. Both ends prove that they have the
//! cluster's key before they exchange messages (`hello`); all later messages are authenticated and numbered. Over these
//! control connections processes announce which queue pairs are offered, ready and broken, and which regions are
//! granted and revoked.
//!
//! A fabric implements [`Transport`], the operations on its ends of connections, and calls [`ConnectionManager::pump`]
//! at intervals. It gets [`Event`](stentor_fabric::Event)s, and the [`Remotes`] that peers have granted.
//!
//! # The life of a queue pair
//! Both processes offer their ends ([`Offer`]), each with a connection id that counts the lives of the end. An end that
//! has the other's offer can receive ([`Transport::meet`]) and announces that. An end that gets this announcement can
//! send ([`Transport::ready`]). So no packet is sent before the other end accepts it. An end that breaks is withdrawn.
//! The withdrawal breaks the other end a little later, because earlier packets may still be in flight. A new offer
//! breaks the other end in the same way. The end of the control connection breaks both ends at once.
#![forbid(unsafe_code)]

pub mod ask;
mod asked;
mod cm;
mod config;
pub mod config_file;
mod control;
pub mod control_session;
mod fabric;
mod frame_stream;
mod handshake;
mod hello;
mod inline_ring;
pub mod library;
mod message;
mod names;
pub mod observe;
mod remotes;
pub mod sysfs;

pub use cm::{ConnectionManager, NO_SETS, NoSets, Sets, Transport};
pub use config::{NetConfig, StartError};
pub use fabric::{Device, Fence, NetFabric, Waiting};
pub use hello::nonce;
pub use inline_ring::{InlineRing, MOST_MERGED};
pub use message::{End, MAX_ADDRESS, Offer, Pair};
pub use names::{HostName, source_address};
pub use remotes::{Granted, RemoteKey, Remotes};
