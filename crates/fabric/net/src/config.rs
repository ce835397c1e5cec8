//! What a process must know to start, and why it cannot.

use std::net::SocketAddr;

use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::names::HostName;

/// Configuration of one process, for every fabric that reaches other hosts.
///
/// [`new`](NetConfig::new) has the defaults; the other methods replace one value each.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// The cluster's name, 1 to 64 bytes. Equal at every process.
    pub cluster: String,
    /// The cluster's key: a process that does not have it gets nothing. Equal at every process.
    pub key: Vec<u8>,
    /// A hash of the cluster's configuration. Equal at every process.
    pub fingerprint: u64,
    /// The version of the protocols above the fabric. Equal at every process.
    pub version: u16,
    /// This process.
    pub me: ProcessId,
    /// Where each process listens for control connections; data uses the same IP address where the fabric has IP addresses.
    /// `None` for processes that only dial: of two processes the one with the larger id dials. This process's own address must
    /// be there.
    pub addresses: Vec<Option<SocketAddr>>,
    /// How the configuration names where processes are. A name is resolved again at every attempt to connect, so `addresses`
    /// may lack its address. Empty: `addresses` does not change.
    pub names: Vec<Option<HostName>>,
    /// Whether peers that knew an earlier life of a process refuse its next one, for protocols in which no process may forget.
    pub one_life: bool,
    /// Limit of the memory of all regions of this process, bytes.
    pub max_bytes: u64,
}

impl NetConfig {
    /// Configures a process without a key and names, with version 1 and at most 4 GiB of regions.
    #[must_use]
    pub fn new(cluster: &str, me: ProcessId, addresses: Vec<Option<SocketAddr>>) -> NetConfig {
        NetConfig {
            cluster: cluster.to_owned(),
            key: Vec::new(),
            fingerprint: 0,
            version: 1,
            me,
            addresses,
            names: Vec::new(),
            one_life: false,
            max_bytes: 4 << 30,
        }
    }

    /// Sets the cluster's key.
    #[must_use]
    pub fn key(self, key: impl Into<Vec<u8>>) -> NetConfig {
        NetConfig { key: key.into(), ..self }
    }

    /// Sets the hash of the cluster's configuration.
    #[must_use]
    pub fn fingerprint(self, fingerprint: u64) -> NetConfig {
        NetConfig { fingerprint, ..self }
    }

    /// Sets the version of the protocols above the fabric.
    #[must_use]
    pub fn version(self, version: u16) -> NetConfig {
        NetConfig { version, ..self }
    }

    /// Sets how the configuration names where processes are.
    #[must_use]
    pub fn names(self, names: Vec<Option<HostName>>) -> NetConfig {
        NetConfig { names, ..self }
    }

    /// Refuses the next life of every process that was known before.
    #[must_use]
    pub fn one_life(self) -> NetConfig {
        NetConfig { one_life: true, ..self }
    }

    /// Sets the limit of the memory of all regions, bytes.
    #[must_use]
    pub fn max_bytes(self, max_bytes: u64) -> NetConfig {
        NetConfig { max_bytes, ..self }
    }

    /// Returns this process's address.
    ///
    /// # Errors
    /// [`StartError::NoAddress`].
    pub fn own_address(&self) -> Result<SocketAddr, StartError> {
        let own = self.addresses.get(self.me.index()).copied().flatten();
        own.ok_or(StartError::NoAddress(self.me, self.addresses.len()))
    }
}

/// Why a process cannot meet its peers.
#[derive(Debug, Error)]
pub enum StartError {
    /// No address for this process.
    #[error("{0} has no address in the table of {1} processes")]
    NoAddress(ProcessId, usize),
    /// A name that is too long.
    #[error("{what} name {name:?}: it has 1 to 64 bytes")]
    Name {
        /// `cluster` or `fabric`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The socket for control connections.
    #[error("cannot listen for bootstrap connections at {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system refused something else.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}
