//! A partitioned, replicated key-value store that speaks the Redis protocol.
//!
//! Each group of a cluster has a part of the keys ([`partition`]), and keeps it in a [`machine::Machine`] that all its
//! members run. A [`gateway::Gateway`] reads the requests of clients ([`resp`], [`command`]), and sends them to the
//! groups in batches ([`wire`]).
#![forbid(unsafe_code)]

pub mod command;
pub mod demo;
pub mod gateway;
pub mod machine;
pub mod partition;
pub mod resp;
pub mod store;
pub mod wire;
