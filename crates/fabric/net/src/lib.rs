//! How processes find each other, for fabrics that reach other hosts.
//!
//! A [`ConnectionManager`] holds a TCP connection with every peer that is there. Both ends show that they have the cluster's key before
//! anything else is said (`hello`); what they say after that is authenticated and numbered. Over it they tell each other
//! which queue pairs are offered, ready and broken, and which regions are granted and revoked.
//!
//! A fabric implements [`Transport`], what its ends of connections do, and calls [`ConnectionManager::pump`] now and then. It gets
//! [`Event`](stentor_fabric::Event)s, and the [`Remotes`] that peers have granted.
//!
//! # The life of a queue pair
//! Both ends offer theirs ([`Offer`]), with a connection id that counts its lives. Who has the other's offer can receive
//! ([`Transport::meet`]), and says so; who hears that can send ([`Transport::ready`]). So no packet goes before the other end takes it.
//! An end that breaks is withdrawn, which breaks the other one a little later, because what was sent before may still be on
//! its way; so does a new offer, and the end of the control connection.
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
