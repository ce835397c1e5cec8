//! The configuration of a process, and the errors that its start can return.

use std::net::SocketAddr;

use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::names::HostName;

/// Configuration of one process, for every fabric that reaches other hosts.
///
/// [`new`](NetConfig::new) sets the defaults. Each of the other methods that return a `NetConfig` replaces one value.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// Name of the cluster, 1 to 64 bytes. Equal at every process.
    pub cluster: String,
    /// Key of the cluster. A process without it is refused. Equal at every process.
    pub key: Vec<u8>,
    /// Hash of the cluster's configuration. Equal at every process.
    pub fingerprint: u64,
    /// Version of the protocols above the fabric. Equal at every process.
    pub version: u16,
    /// Id of this process.
    pub me: ProcessId,
    /// Addresses at which processes listen for control connections, by process. Data uses the same IP address, on
    /// fabrics that have IP addresses. `None` for processes that only dial: of two processes the one with the larger id
    /// dials. This process's address must be present.
    pub addresses: Vec<Option<SocketAddr>>,
    /// Names of the processes' hosts in the configuration, by process. A name is resolved again at every attempt to
    /// connect, so its entry in `addresses` may be missing. If `names` is empty, `addresses` does not change.
    pub names: Vec<Option<HostName>>,
    /// `true` if this process refuses each peer that was connected before and has restarted since. Protocols in which
    /// no process may lose its memory need this.
    pub one_life: bool,
    /// Maximum size of all regions of this process together, in bytes.
    pub max_bytes: u64,
}

impl NetConfig {
    /// Creates a configuration without a key and names, with version 1 and at most 4 GiB of regions.
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

    /// Sets the names of the processes' hosts.
    #[must_use]
    pub fn names(self, names: Vec<Option<HostName>>) -> NetConfig {
        NetConfig { names, ..self }
    }

    /// Makes this process refuse each peer that was connected before and has restarted since.
    #[must_use]
    pub fn one_life(self) -> NetConfig {
        NetConfig { one_life: true, ..self }
    }

    /// Sets the maximum size of all regions together, in bytes.
    #[must_use]
    pub fn max_bytes(self, max_bytes: u64) -> NetConfig {
        NetConfig { max_bytes, ..self }
    }

    /// Returns this process's address.
    ///
    /// # Errors
    /// [`StartError::NoAddress`] if there is none.
    pub fn own_address(&self) -> Result<SocketAddr, StartError> {
        let own = self.addresses.get(self.me.index()).copied().flatten();
        own.ok_or(StartError::NoAddress(self.me, self.addresses.len()))
    }
}

/// The reason why a process cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// This process has no address.
    #[error("{0} has no address in the table of {1} processes")]
    NoAddress(ProcessId, usize),
    /// A name is empty or too long.
    #[error("invalid {what} name {name:?}: it must have 1 to 64 bytes")]
    Name {
        /// `cluster` or `fabric`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The socket for control connections could not be opened.
    #[error("cannot listen for control connections at {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The operating system refused another operation.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
}
