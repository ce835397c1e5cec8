//! Stentor: group communication at RDMA speed. What a user imports.
//!
//! [`config`] reads and checks `cluster.toml`: who is in the cluster, on which fabric, with which limits.
#![forbid(unsafe_code)]

pub mod config;

pub use config::ClusterConfig;
