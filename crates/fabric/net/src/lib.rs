//! How processes find each other, for fabrics that reach other hosts.
//!
//! A [`Bootstrap`] holds a TCP connection with every peer that is there. Both ends show that they have the cluster's key before
//! anything else is said (`hello`); what they say after that is authenticated and numbered. Over it they tell each other
//! which queue pairs are offered, ready and broken, and which regions are granted and revoked.
//!
//! A fabric implements [`Ends`], what its ends of connections do, and calls [`Bootstrap::pump`] now and then. It gets
//! [`Event`](stentor_fabric::Event)s, and the [`Remotes`] that peers have granted.
//!
//! # The life of a queue pair
//! Both ends offer theirs ([`Offer`]), with an epoch that counts its lives. Who has the other's offer can receive
//! ([`Ends::meet`]), and says so; who hears that can send ([`Ends::ready`]). So no packet goes before the other end takes it.
//! An end that breaks is withdrawn, which breaks the other one a little later, because what was sent before may still be on
//! its way; so does a new offer, and the end of the bootstrap connection.
#![forbid(unsafe_code)]

pub mod ask;
mod asked;
mod bootstrap;
pub mod config_file;
mod connections;
mod control;
mod fabric;
mod handshake;
mod hello;
pub mod line;
mod link;
mod message;
mod names;
mod remotes;
mod sets;
pub mod sysfs;

pub use bootstrap::{Bootstrap, Config, StartError};
pub use connections::Ends;
pub use fabric::{Device, Fence, NetFabric, Waiting};
pub use handshake::nonce;
pub use message::{End, MAX_ADDRESS, Offer, Pair};
pub use names::HostName;
pub use remotes::{Granted, Place, Remotes};
pub use sets::{LINE_PURPOSE, RawWrite, SetEnds, SwitchConfig, longest_list};
