//! Errors of addresses.

use std::net::{IpAddr, SocketAddr};

use stentor_fabric::ProcessId;
use thiserror::Error;

/// The reason why an address cannot be used.
#[derive(Debug, Error)]
pub enum AddressError {
    /// The host name cannot be resolved.
    #[error("`{process}` at {address}: {source}")]
    Unknown {
        /// The process.
        process: String,
        /// Address of the process in the configuration.
        address: String,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The host name has no addresses.
    #[error("`{process}` at {address}: the name has no address")]
    None {
        /// The process.
        process: String,
        /// Address of the process in the configuration.
        address: String,
    },
    /// The host name has only addresses that designate a different host on each interface.
    #[error(
        "`{process}` at {address}: {found} is a link-local address, which means another host on each interface; give the name a \
         global or unique-local (fd00::/8) address"
    )]
    LinkLocal {
        /// The process.
        process: String,
        /// Address of the process in the configuration.
        address: String,
        /// The address that was found, with its scope.
        found: SocketAddr,
    },
    /// The address to bind to is link-local, so it designates a different host on each interface.
    #[error(
        "{found} is a link-local address, which means another host on each interface; bind to a global or unique-local \
         (fd00::/8) address"
    )]
    LinkLocalBind {
        /// The address.
        found: IpAddr,
    },
    /// The cluster or the broadcast has no such process, so it has no address.
    #[error("{process} is not one of the {processes} processes of the configuration: use one of those")]
    NoProcess {
        /// The requested process.
        process: ProcessId,
        /// The number of processes in the cluster or the broadcast.
        processes: usize,
    },
    /// One process has an IPv4 address, the other an IPv6 address.
    #[error(
        "`{process}` is at {address}, this process at {own}: one is IPv4, the other IPv6, and they cannot reach each other"
    )]
    Family {
        /// The process.
        process: String,
        /// Address of that process.
        address: IpAddr,
        /// Address of this process.
        own: IpAddr,
    },
}
