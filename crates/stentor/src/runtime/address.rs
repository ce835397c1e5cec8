//! What can be wrong with an address.

use std::net::{IpAddr, SocketAddr};

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
    /// A name whose addresses mean something else on each interface.
    #[error(
        "`{process}` at {address}: {found} is a link-local address, which means another host on each interface; give the name a \
         global or unique-local (fd00::/8) address"
    )]
    LinkLocal {
        /// The process.
        process: String,
        /// Its address.
        address: String,
        /// What was found, with its scope.
        found: SocketAddr,
    },
    /// The same of the address that a process was told.
    #[error(
        "{found} is a link-local address, which means another host on each interface; bind to a global or unique-local \
         (fd00::/8) address"
    )]
    LinkLocalBind {
        /// The address.
        found: IpAddr,
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
