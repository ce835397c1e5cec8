//! What can be wrong with an address.

use std::net::IpAddr;

use stentor_fabric::ProcessId;
use thiserror::Error;

/// Why nobody can be reached.
#[derive(Debug, Error)]
pub enum AddressError {
    /// A name that means nothing here.
    #[error("`{process}` at {address}: {source}")]
    Unknown {
        /// The process.
        process: String,
        /// Its address.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A name without addresses.
    #[error("`{process}` at {address}: the name has no address")]
    None {
        /// The process.
        process: String,
        /// Its address.
        address: String,
    },
    /// The cluster has no such process, so it has no address.
    #[error("{process} is not one of the {processes} processes of the configuration: take one of those")]
    NoProcess {
        /// The process that was asked for.
        process: ProcessId,
        /// The number of processes in the cluster.
        processes: usize,
    },
    /// IPv4 here and IPv6 there.
    #[error(
        "`{process}` is at {address}, this process at {own}: one is IPv4, the other IPv6, and they cannot reach each other"
    )]
    Family {
        /// The process.
        process: String,
        /// Its address.
        address: IpAddr,
        /// Of this process.
        own: IpAddr,
    },
}
