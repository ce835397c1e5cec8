//! Settings and errors of a port, and the budget of a receive.

use std::io;
use std::net::IpAddr;

use stentor_wire::UDP_PORT;
use thiserror::Error;

/// The kind of socket that receives packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    /// A plain UDP socket, which needs no privileges and does not report the IPv4 identification. Peers send the
    /// identification 0, as this fabric does, or that of a position in a run
    /// ([`Port::enable_runs`](super::Port::enable_runs)). The ICRC is checked for that identification. The packets of
    /// peers that are known to use other identifications ([`Port::hear_identified`](super::Port::hear_identified)) are
    /// checked as in [`Mode::PlainAnyId`].
    #[default]
    Plain,
    /// A plain UDP socket for peers that may use any identification (Linux rxe, NICs). The unknown identification
    /// halves the strength of the ICRC: 1 of 65 536 damaged packets passes.
    PlainAnyId,
    /// A raw socket, which reports the identification, so the ICRC is checked completely. Needs CAP_NET_RAW. IPv4 only.
    Raw,
}

/// The reason why the sockets could not be opened.
#[derive(Debug, Error)]
pub enum PortError {
    /// The port is in use.
    #[error(
        "{address}:{UDP_PORT} is in use by another process; configure a different address for each process of a host"
    )]
    Taken {
        /// The address.
        address: IpAddr,
    },
    /// The main endpoint of the [`Junction`](super::Junction) is not open, or it has the maximum number of endpoints
    /// beside it.
    #[error(
        "no endpoint of this process can receive for this one; start the main endpoint first, and at most 15 others beside it"
    )]
    Alone,
    /// The address is not an address of this host.
    #[error("{address} is not an address of this host")]
    NotHere {
        /// The address.
        address: IpAddr,
    },
    /// Raw sockets need a privilege.
    #[error("raw mode at {address} needs CAP_NET_RAW (run as root, or setcap cap_net_raw+ep on the program)")]
    NotPermitted {
        /// The address.
        address: IpAddr,
    },
    /// The operating system refused an operation.
    #[error("cannot {what} at {address}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The address.
        address: IpAddr,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The amount of data that is received before the caller does other work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Budget {
    pub(crate) packets: usize,
    pub(crate) bytes: usize,
}

impl Budget {
    pub(crate) fn is_spent(&self) -> bool {
        self.packets == 0 || self.bytes == 0
    }

    pub(super) fn spend(&mut self, bytes: usize) {
        (self.packets, self.bytes) = (self.packets.saturating_sub(1), self.bytes.saturating_sub(bytes));
    }
}
