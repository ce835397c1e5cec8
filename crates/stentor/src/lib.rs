//! Stentor: group communication at RDMA speed. What a user imports.
//!
//! [`config`] reads and checks `cluster.toml`: who is in the cluster, on which fabric, with which limits.
//! [`runtime`] puts a configuration's processes on their fabric, runs their polling loops and records histories.
//!
//! The protocols themselves are crates of their own: `stentor-multicast` on the contract `stentor-fabric`.
#![forbid(unsafe_code)]

pub mod config;
pub mod runtime;

pub use config::ClusterConfig;
