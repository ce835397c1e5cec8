//! How a port is opened and why it is not, and how much it takes in at a time.

use std::io;
use std::net::IpAddr;

use stentor_wire::UDP_PORT;
use thiserror::Error;

/// How packets are taken in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    /// A plain UDP socket, without privileges. Peers send the IPv4 identification 0, as this fabric does: their ICRC is
    /// checked whole, or for the identification of a place in a run ([`Port::enable_runs`](super::Port::enable_runs)). Of those who are known to send
    /// others ([`Port::hear_identified`](super::Port::hear_identified)) it is checked as with [`Mode::PlainAnyId`].
    #[default]
    Plain,
    /// A plain UDP socket, for peers of which all may count the identification (Linux rxe, NICs): half of the ICRC's strength is left,
    /// one damaged packet in 65 536 passes.
    PlainAnyId,
    /// A raw socket, which shows the identification: the ICRC is checked whole. Needs CAP_NET_RAW. IPv4 only.
    Raw,
}

/// Why the sockets could not be made.
#[derive(Debug, Error)]
pub enum PortError {
    /// Somebody has the port.
    #[error("{address}:{UDP_PORT} is taken by another process; give each process of a host an address of its own")]
    Taken {
        /// The address.
        address: IpAddr,
    },
    /// No endpoint of this process has the port, or there are as many endpoints beside it as are possible.
    #[error("no endpoint of this process receives for one more; start the main one first, and at most 15 beside it")]
    Alone,
    /// The address is not one of this host.
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
    /// The system said no.
    #[error("cannot {what} at {address}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The address.
        address: IpAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// How much is taken in before the caller does something else.
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
